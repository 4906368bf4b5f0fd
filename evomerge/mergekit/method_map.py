"""Map of mergekit's method names and parameters to techniques of evomerge and their parameters.

For each method the map has its inputs (parts, or task vectors on a base) and the names of its
parameters. Names and defaults are mergekit's. Methods of evomerge's own are beside them: `dfs`,
`dataflow`, `frankenmerge` (passthrough of slices) and the pipelines.

A setting is a number (or a truth value), a list of numbers, or a list of {filter, value}. A list of
numbers is piecewise linear over the relative depth t of a layer inside its slice: t = index /
(layers − 1), 1 if the slice has one layer, 0 outside of blocks. Of a list of {filter, value} the
first that matches counts. A filter matches if it is part of the tensor's name; "*" or a missing
filter matches every name. `embedding`, `head` and `norm` in place of a filter match those groups
(the final norm is a norm), which gives each group a value of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from agent_forge.evomerge.mergekit.parser import Map, MergePart, MergeSpec, ModelPath
from agent_forge.evomerge.merging import folded_factors, method_registry, pipelines
from agent_forge.evomerge.merging.methods import regmean
from agent_forge.evomerge.recipes.recipe import Genes
from agent_forge.runs.errors import ConfigError

#: Groups that may stand in place of a filter, and the parts of tensor names that they match.
GROUPS = {
    "embedding": ("embed_tokens", "wte", "wpe", "embed_in"),
    "head": ("lm_head", "embed_out"),
    "norm": ("norm", "ln_"),
}


def evaluate(setting: object, tensor: str, t: float) -> float | bool | None:
    """Return a setting's value for a tensor at depth t; None if no filter matches.

    Raise ValueError if the setting is not valid.
    """
    if isinstance(setting, bool):
        return setting
    if isinstance(setting, int | float):
        if not math.isfinite(setting):
            raise ValueError(f"{setting} is not a finite number")
        return float(setting)
    if isinstance(setting, list) and setting:
        if all(isinstance(x, int | float) and not isinstance(x, bool) for x in setting):
            return gradient(setting, t)
        if all(isinstance(x, dict) for x in setting):
            return _filtered(setting, tensor, t)
    raise ValueError("it is a number, a list of numbers, or a list of {filter, value}")


def gradient(points: Sequence[float], t: float) -> float:
    """Return the value at `t`, clipped to 0 to 1, on straight lines between equally spaced points."""
    place = min(max(t, 0.0), 1.0) * (len(points) - 1)
    below = min(int(place), len(points) - 2) if len(points) > 1 else 0
    if len(points) == 1:
        return float(points[0])
    share = place - below
    return (1.0 - share) * points[below] + share * points[below + 1]


def matches(filter_: str | None, tensor: str) -> bool:
    """Return True for a filter None or "*", part of the tensor's name, or a group with such a part."""
    if filter_ is None or filter_ == "*":
        return True
    return any(part in tensor for part in GROUPS.get(filter_, (filter_,)))


def _filtered(setting: list[dict[str, Any]], tensor: str, t: float) -> float | bool | None:
    for item in setting:
        strange = set(item) - {"filter", "value"}
        if strange or "value" not in item or not isinstance(item.get("filter"), str | None):
            raise ValueError("an item of a list of filters has the keys filter, a text, and value")
        if matches(item.get("filter"), tensor):
            return evaluate(item["value"], tensor, t)
    return None


@dataclass(frozen=True)
class LookupMaps:
    """Maps that a parameter is looked up in, the strongest first, for one tensor."""

    file: str
    maps: tuple[Map, ...]
    tensor: str
    t: float
    #: The model whose own parameters come first; errors name it.
    model: str = ""

    def get(self, key: str, default: float | bool | None = None) -> float | bool | None:
        """Return a parameter's value; `default` (None) if it is not set. Raise ConfigError."""
        for mapping in self.maps:
            if mapping.get(key) is None:
                continue
            try:
                value = evaluate(mapping[key], self.tensor, self.t)
            except (ValueError, OverflowError, RecursionError) as error:
                line = mapping.lines.get(key, mapping.line)
                raise ConfigError(f"{self.file}, line {line}: parameter {key}: {error}.") from error
            if value is not None:
                return value
        return default

    def raw(self, key: str) -> Any:
        """Return a parameter as it stands in the file, such as a list; None if it is missing."""
        return next((mapping[key] for mapping in self.maps if mapping.get(key) is not None), None)

    def number(self, key: str, default: float | None = None) -> float:
        """Return a parameter as a float. Raise ConfigError if it is missing without a default."""
        value = self.get(key, default)
        if value is None:
            of = f" of {self.model}" if self.model else ""
            raise ConfigError(f"{self.file}: parameter {key} is missing for tensor {self.tensor}{of}.")
        return float(value)


@dataclass(frozen=True)
class TensorMethod:
    """Technique of one tensor, its parameters, and its inputs and base as indices of the parts."""

    technique: str
    params: BaseModel
    inputs: tuple[int, ...]
    base: int | None


#: (settings of the inputs, settings of the whole) → parameters of the technique.
_Params = Callable[[Sequence[LookupMaps], LookupMaps], dict[str, object]]


@dataclass(frozen=True)
class Method:
    """A merge_method of a config."""

    name: str
    technique: str
    params: _Params
    #: "task": the others are task vectors on the base. "first": the base is the first input.
    #: "optional": as "task", but without a base the models are merged as they are. "member": a base
    #: that is not listed is one more of the models. "none": the base is not read.
    base: Literal["task", "first", "optional", "member", "none"]
    least: int = 1
    most: int | None = None
    #: Parameters that the method reads.
    known: tuple[str, ...] = ()

    @property
    def apart(self) -> bool:
        """True if a base has a role of its own and is not just one of the models."""
        return self.base in ("task", "first", "optional")

    def check_inputs(
        self, parts: Sequence[MergePart], base: ModelPath | None, file: str, line: int
    ) -> None:
        """Raise ConfigError if models are too few or too many, or the base is missing or not listed."""
        where = f"{file}, line {line}: {self.name}"
        listed = [p.reference for p in parts]
        if self.base in ("task", "first") and base is None:
            raise ConfigError(f"{where} needs a base_model.")
        if self.apart and base is not None and base not in listed:
            raise ConfigError(f"{where}: the base_model {base} is not among the sources of the slice.")
        apart = " beside the base" if self.apart and base is not None else ""
        count = len([r for r in listed if r != base]) if apart else len(listed)
        if count < self.least or (self.most is not None and count > self.most):
            limits = f"{self.least}" if self.most == self.least else f"{self.least} or more"
            raise ConfigError(f"{where} takes {limits} models{apart}, not {count}.")

    def choose(
        self,
        parts: Sequence[MergePart],
        base: ModelPath | None,
        settings: Sequence[LookupMaps],
        whole: LookupMaps,
        scale: float,
        name: str,
    ) -> TensorMethod:
        """Return a tensor's `TensorMethod`: technique, parameters, inputs, base. Raise ConfigError."""
        at = next((i for i, p in enumerate(parts) if p.reference == base), None)
        rest = [i for i in range(len(parts)) if i != at]
        if self.base in ("task", "optional") and at is not None:
            inputs, origin = rest, at
        elif self.base == "first" and at is not None:
            inputs, origin = [at, *rest], None
        else:
            inputs, origin = list(range(len(parts))), None
        arguments = self.params([settings[i] for i in inputs], whole)
        if self.technique == "stages":
            return self._staged(inputs, origin, arguments, whole, name)
        if self.name == "dataflow":
            arguments = {"scale": 1.0 / scale if folded_factors.writes(name) else 1.0}
        try:
            params = method_registry.parameters(self.technique, arguments)
            method_registry.check(self.technique, params, len(inputs))
        except ConfigError as error:
            raise ConfigError(f"{whole.file}: tensor {name}: {error}") from error
        return TensorMethod(self.technique, params, tuple(inputs), origin)

    def _staged(
        self,
        inputs: Sequence[int],
        origin: int | None,
        arguments: dict[str, object],
        whole: LookupMaps,
        name: str,
    ) -> TensorMethod:
        """Return a pipeline's `TensorMethod`; of a block taken whole, it reads that input alone."""
        params = method_registry.parameters(self.technique, {"name": self.name, "genes": arguments})
        genes = Genes.model_validate(arguments)
        taken = pipelines.taken(pipelines.NAMES[self.name][2], genes, name)
        if taken > len(inputs):
            raise ConfigError(f"{whole.file}: layers name input {taken} of {len(inputs)}.")
        if not taken:
            return TensorMethod(self.technique, params, tuple(inputs), origin)
        own_arguments = {"weights": (1.0,), "scale": genes.scale}
        technique = "task_arithmetic"
        return TensorMethod(
            technique,
            method_registry.parameters(technique, own_arguments),
            (inputs[taken - 1],),
            origin,
        )


def _each(settings: Sequence[LookupMaps], key: str, default: float | None = None) -> tuple[float, ...]:
    return tuple(s.number(key, default) for s in settings)


def _flag(whole: LookupMaps, key: str, default: bool) -> bool:
    return bool(whole.get(key, default))


def _linear(settings: Sequence[LookupMaps], whole: LookupMaps) -> dict[str, object]:
    return {"weights": _each(settings, "weight"), "normalise": _flag(whole, "normalize", True)}


def _task(normalise: bool) -> _Params:
    def params(settings: Sequence[LookupMaps], whole: LookupMaps) -> dict[str, object]:
        return {
            "weights": _each(settings, "weight"),
            "scale": whole.number("lambda", 1.0),
            "normalise": _flag(whole, "normalize", normalise),
        }

    return params


def _ties(settings: Sequence[LookupMaps], whole: LookupMaps) -> dict[str, object]:
    return {**_task(True)(settings, whole), "density": _each(settings, "density", 1.0)}


def _dare(vote: bool) -> _Params:
    def params(settings: Sequence[LookupMaps], whole: LookupMaps) -> dict[str, object]:
        densities = _each(settings, "density", 1.0)
        rescale = "inverse_density" if _flag(whole, "rescale", True) else "none"
        drop = tuple(1.0 - density for density in densities)
        return {**_task(False)(settings, whole), "drop": drop, "vote": vote, "rescale": rescale}

    return params


def _della(vote: bool) -> _Params:
    def params(settings: Sequence[LookupMaps], whole: LookupMaps) -> dict[str, object]:
        return {
            **_task(vote)(settings, whole),  # a vote takes a mean, a sum does not
            "density": _each(settings, "density", 1.0),
            "epsilon": _each(settings, "epsilon", 0.15),
            "rescale": _flag(whole, "rescale", True),
            "vote": vote,
        }

    return params


def _breadcrumbs(vote: bool) -> _Params:
    def params(settings: Sequence[LookupMaps], whole: LookupMaps) -> dict[str, object]:
        return {
            **_task(False)(settings, whole),
            "density": _each(settings, "density", 1.0),
            "gamma": _each(settings, "gamma", 0.01),
            "vote": vote,
        }

    return params


def _decomposed(settings: Sequence[LookupMaps], whole: LookupMaps) -> dict[str, object]:
    return {"weights": _each(settings, "weight", 1.0), "scale": whole.number("lambda", 1.0)}


def _averaged(settings: Sequence[LookupMaps], whole: LookupMaps) -> dict[str, object]:
    """Return {"weights"}: parameters of tensors that regmean averages (others: `regression.py`)."""
    return {"weights": _each(settings, "weight", 1.0)}


def _karcher(settings: Sequence[LookupMaps], whole: LookupMaps) -> dict[str, object]:
    arguments: dict[str, object] = {"weights": _each(settings, "weight", 1.0)}
    if (most := whole.get("max_iter")) is not None:
        arguments["max_iter"] = int(most)
    if (tol := whole.get("tol")) is not None:
        arguments["tol"] = tol
    return arguments


def _nuslerp(settings: Sequence[LookupMaps], whole: LookupMaps) -> dict[str, object]:
    """Return {weights, by}; `nuslerp_row_wise` has vectors along the first dimension: columns."""
    by = "column" if _flag(whole, "nuslerp_row_wise", False) else "row"
    flat = _flag(whole, "nuslerp_flatten", True)
    return {"weights": _each(settings, "weight"), "by": "tensor" if flat else by}


def _multislerp(settings: Sequence[LookupMaps], whole: LookupMaps) -> dict[str, object]:
    normalise = _flag(whole, "normalize_weights", True)
    return {"weights": _each(settings, "weight"), "normalise": normalise, **_pick_numbers(whole, "eps")}


def _pick_numbers(whole: LookupMaps, *keys: str) -> dict[str, object]:
    """Return {parameter: number} of those that the config sets, under the technique's own names."""
    return {key: whole.number(key) for key in keys if whole.get(key) is not None}


def _genes(settings: Sequence[LookupMaps], whole: LookupMaps) -> dict[str, object]:
    """Return {gene: value} of a pipeline's genes that the config sets."""
    genes: dict[str, object] = {}
    if any(s.get("weight") is not None for s in settings):
        genes["weights"] = _each(settings, "weight")
    for key in ("drop", "density", "epsilon", "lambda"):
        if (value := whole.get(key)) is not None:
            genes["scale" if key == "lambda" else key] = value
    for key in ("layers", "ts"):
        if (setting := whole.raw(key)) is not None:
            genes[key] = setting
    return genes


#: Parameters of a slice or of the whole merge, never of one model alone.
_OF_ALL = {
    "lambda",
    "normalize",
    "rescale",
    "t",
    "select_topk",
    "filter_wise",
    "max_iter",
    "tol",
    "int8_mask",
    "nuslerp_row_wise",
    "nuslerp_flatten",
    "normalize_weights",
    "eps",
    "r",
    "alpha",
    "tokens",
    "context",
}
#: Techniques that read of a model's own parameters at most its weight.
_WHOLE = ("stages", "dfs", "ram", "ramplus_tl")
_GENES = ("weight", "drop", "density", "epsilon", "lambda", "layers", "ts")
_TASK = ("weight", "lambda", "normalize")
_SPARSE = (*_TASK, "density", "rescale")

METHODS: Mapping[str, Method] = {
    m.name: m
    for m in (
        Method("linear", "linear", _linear, "member", known=("weight", "normalize")),
        Method("slerp", "slerp", lambda _, w: {"ts": (w.number("t"),)}, "first", 1, 1, ("t",)),
        Method("task_arithmetic", "task_arithmetic", _task(False), "task", known=_TASK),
        Method("ties", "ties", _ties, "task", known=(*_TASK, "density")),
        Method("dare_linear", "dare", _dare(False), "task", known=_SPARSE),
        Method("dare_ties", "dare", _dare(True), "task", known=_SPARSE),
        Method("della_linear", "della", _della(False), "task", known=(*_SPARSE, "epsilon")),
        Method("della", "della", _della(True), "task", known=(*_SPARSE, "epsilon")),
        Method(
            "breadcrumbs",
            "breadcrumbs",
            _breadcrumbs(False),
            "task",
            known=(*_TASK, "density", "gamma"),
        ),
        Method(
            "breadcrumbs_ties",
            "breadcrumbs",
            _breadcrumbs(True),
            "task",
            known=(*_TASK, "density", "gamma"),
        ),
        Method(
            "sce",
            "sce",
            lambda _, w: {"density": w.number("select_topk", 1.0)},
            "task",
            known=("select_topk",),
        ),
        Method(
            "model_stock",
            "model_stock",
            lambda _, w: {"by_row": _flag(w, "filter_wise", False)},
            "task",
            2,
            known=("filter_wise",),
        ),
        Method("karcher", "karcher", _karcher, "member", known=("weight", "max_iter", "tol")),
        Method("nearswap", "nearswap", lambda _, w: {"t": w.number("t")}, "task", 1, 1, ("t",)),
        Method(
            "nuslerp",
            "nuslerp",
            _nuslerp,
            "optional",
            2,
            2,
            ("weight", "nuslerp_row_wise", "nuslerp_flatten"),
        ),
        Method(
            "multislerp",
            "multislerp",
            _multislerp,
            "optional",
            known=("weight", "normalize_weights", "eps"),
        ),
        Method("arcee_fusion", "arcee_fusion", lambda *_: {}, "task", 1, 1),
        Method("ram", "ram", lambda _, w: _pick_numbers(w, "epsilon"), "task", known=("epsilon",)),
        Method(
            "ramplus_tl",
            "ramplus_tl",
            lambda _, w: _pick_numbers(w, "r", "alpha", "epsilon"),
            "task",
            known=("r", "alpha", "epsilon"),
        ),
        Method(
            "passthrough",
            "passthrough",
            lambda o, _: {"scale": o[0].number("scale", 1.0)},
            "none",
            1,
            1,
            ("scale",),
        ),
        Method(
            "frankenmerge",
            "passthrough",
            lambda o, _: {"scale": o[0].number("scale", 1.0)},
            "none",
            1,
            1,
            ("scale",),
        ),
        Method("dataflow", "passthrough", lambda *_: {}, "none", 1, 1, ("input_scale",)),
        Method(
            "dfs",
            "dfs",
            lambda _, w: {"epsilon": w.number("epsilon", 0.1)},
            "task",
            3,
            known=("epsilon",),
        ),
        *(
            Method(name, name, _decomposed, "task", known=("weight", "lambda"))
            for name in ("tsv_m", "iso_c")
        ),
        *(
            Method(
                name,
                "linear",
                _averaged,
                "none",
                2,
                known=("weight", "data", "alpha", "tokens", "context"),
            )
            for name in regmean.PREFIXES
        ),
        *(Method(name, "stages", _genes, "task", 2, known=_GENES) for name in pipelines.NAMES),
    )
}


def method(document: MergeSpec) -> Method:
    """Return the `Method` that a config names as merge_method. Raise ConfigError for an unknown one."""
    entry = METHODS.get(document.method.lower())
    if entry is None:
        line = document.lines.get("merge_method", 1)
        raise ConfigError(
            f"{document.file}, line {line}: there is no merge_method {document.method!r} here: "
            f"{', '.join(METHODS)}."
        )
    return entry


def unread(document: MergeSpec) -> list[str]:
    """Return a warning for each parameter that the method does not read, or not at its place."""
    chosen = method(document)
    keys = {*chosen.known, "int8_mask"}
    part_keys = keys & {"weight"} if chosen.technique in _WHOLE else keys - _OF_ALL
    maps = [(document.parameters, keys)]
    for slice_ in document.slices:
        maps += [(slice_.parameters, keys), *((part.parameters, part_keys) for part in slice_.parts)]
    notes = {}
    for mapping, read in maps:
        for key in mapping:
            if key not in read:
                note = "not read in a model's own parameters" if key in keys else "not read"
                notes.setdefault((key, mapping.lines.get(key, mapping.line)), note)
    return [
        f"{document.file}, line {line}: parameter {key} is {unread_note} by {document.method}."
        for (key, line), unread_note in notes.items()
    ]
