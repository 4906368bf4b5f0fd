"""Layout of a merge: which tensors of which models make each output tensor, and how.

Everything in a config that can be wrong is found here: names, layers, shapes, parameters of every
tensor. Only headers have been read so far.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from agent_forge.evomerge.mergekit import method_map, vocabulary
from agent_forge.evomerge.mergekit.inputs import ModelRows, OpenedSources
from agent_forge.evomerge.mergekit.method_map import GROUPS, LookupMaps
from agent_forge.evomerge.mergekit.parser import Map, MergePart, MergeSpec, ModelPath, Slice
from agent_forge.evomerge.merging import folded_factors
from agent_forge.evomerge.merging.kernels.chunks import TensorRows
from agent_forge.evomerge.merging.methods import frankenmerge
from agent_forge.evomerge.merging.tensor_ops import Read, TensorOp, TensorSpec, copied, merged
from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights import block_names
from agent_forge.weights.folders import model_config
from agent_forge.weights.folders.sources import compare_settings
from agent_forge.weights.tensors import HEADS

_BLOCK = re.compile(r"^(.*?(?:layers|h|blocks)\.)(\d+)(\..+)$")
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}


@dataclass(frozen=True)
class Layout:
    """Operations of all tensors of the result, in order of name, and its config.json."""

    outputs: tuple[TensorOp, ...]
    sources: OpenedSources
    config: dict[str, object]
    donor: ModelRows
    vocabulary: vocabulary.VocabularyPlan | None
    tied: bool
    warnings: tuple[str, ...]


def lay_out(document: MergeSpec, models: Mapping[ModelPath, ModelRows]) -> Layout:
    """Return a merge's `Layout`. Raise ConfigError or SourceError naming what does not fit."""
    return _Layout(document, models).made()


def _by_layer(names: Sequence[str]) -> dict[int, dict[tuple[str, str], str]]:
    """Return {layer: {(text before its number, text after it): the tensor's name}}."""
    layers: dict[int, dict[tuple[str, str], str]] = {}
    for name in names:
        if match := _BLOCK.match(name):
            layers.setdefault(int(match[2]), {})[match[1], match[3]] = name
    return layers


class _Layout:
    def __init__(self, document: MergeSpec, models: Mapping[ModelPath, ModelRows]) -> None:
        self._document, self._models = document, models
        self._method = method_map.method(document)
        donor = document.base if document.base is not None else next(iter(models))
        self._donor = models[donor]
        self._tied = all(m.tied for m in models.values())
        self._names = {r: m.names(self._tied) for r, m in models.items()}
        #: Names of the tensors in blocks of the decoder.
        self._inside = {r: block_names.of_decoder(names) for r, names in self._names.items()}
        self._by_layer = {r: _by_layer(names) for r, names in self._inside.items()}
        self._counts = {r: block_names.count(names) for r, names in self._inside.items()}
        self._vocabulary = vocabulary.plan(document.vocabulary, document.base, models)
        self._slices = [self._complete(s) for s in document.slices]
        self._warnings: list[str] = []
        self._sources = OpenedSources(models)

    def made(self) -> Layout:
        self._check_kinds()
        self._check_stages()
        if self._document.dtype not in (None, *DTYPES):
            line = self._document.lines.get("out_dtype", self._document.lines.get("dtype", 1))
            names = ", ".join(DTYPES)
            raise self._error(line, f"the dtype {self._document.dtype} is not one of {names}.")
        ops = [*self._edges(), *self._blocks()]
        ops.sort(key=lambda op: op.name)
        return Layout(
            tuple(ops),
            self._sources,
            self._config(),
            self._donor,
            self._vocabulary,
            self._tied,
            tuple(self._warnings),
        )

    def _error(self, line: int, what: str) -> ConfigError:
        return ConfigError(f"{self._document.file}, line {line}: {what}")

    def _check_stages(self) -> None:
        """Raise ConfigError if a pipeline's layers do not fit the model."""
        layers = self._settings(self._slices[0], None, "", 0.0).raw("layers")
        if self._method.technique == "stages" and layers is not None:
            count, inputs = self._count(next(iter(self._models))), len(self._slices[0].parts) - 1
            whole = isinstance(layers, list) and all(type(n) is int for n in layers)
            if not whole:
                raise self._error(1, "layers is a list of numbers, one a block.")
            frankenmerge.check(layers, count, inputs, whole=False)

    def _check_kinds(self) -> None:
        first, *rest = self._models.values()
        for other in rest:
            for name in sorted(self._edge_names(first) ^ self._edge_names(other)):
                raise SourceError(f"tensor {name} is not in both {first.name} and {other.name}.")
            kinds = [m.config.get("model_type") for m in (first, other)]
            if kinds[0] != kinds[1]:
                raise SourceError(
                    f"{first.name} is a {kinds[0]} model and {other.name} a {kinds[1]} model: only "
                    "models of one architecture can be merged."
                )
            mapped = () if self._vocabulary is None else ("vocab_size",)
            self._warnings += compare_settings(first.checkpoint, other.checkpoint, mapped)
        self._warn_of_cut_rows()
        if not self._tied and any(m.tied for m in self._models.values()):
            self._warnings.append("some models tie their head to the embedding: all are untied.")

    def _warn_of_cut_rows(self) -> None:
        """Append a warning if the result's embedding has fewer rows than its tokenizer's model."""
        words = self._vocabulary
        if words is None:
            return
        donor = next(m for m in self._models.values() if m.checkpoint.folder == words.donor.folder)
        for name in sorted(set(HEADS) & self._edge_names(donor)):
            rows, left = donor.rows(name).shape[0], len(words.tokens)
            if left < rows:
                self._warnings.append(
                    f"the result has {left:,} rows of tokens, {donor.name} has {rows:,}: its rows of "
                    "padding are cut, and adapters that were trained on it no longer fit. To keep "
                    f"them, write tokenizer: {{source: …, pad_to_multiple_of: {_padding(left, rows)}}}."
                )

    def _edge_names(self, model: ModelRows) -> set[str]:
        names = model.names(self._tied)
        return set(names) - set(block_names.of_decoder(names))

    def _complete(self, slice_: Slice) -> Slice:
        """Return a slice with its layers checked, and the base added if the method wants it.

        Whole models get all their layers. Raise ConfigError if layers or inputs do not fit.
        """
        base = slice_.base or self._document.base
        parts = list(slice_.parts)
        listed = [p.reference for p in parts]
        needs_base = self._method.apart or (self._method.base == "member" and self._document.whole)
        if base is not None and base not in listed and needs_base:
            layers = parts[0].layers
            parts.append(MergePart(base, Map.empty(slice_.line), layers, slice_.line))
        if self._document.whole:
            counts = {p.reference: self._count(p.reference) for p in parts}
            if len(set(counts.values())) > 1:
                listing = ", ".join(f"{r} {n}" for r, n in counts.items())
                raise self._error(slice_.line, f"models have different numbers of layers ({listing}).")
            layers = (0, next(iter(counts.values())))
            parts = [MergePart(p.reference, p.parameters, layers, p.line) for p in parts]
        for part in parts:
            have = self._count(part.reference)
            if part.layers is None or part.layers[1] > have:
                raise self._error(
                    part.line,
                    f"layer_range {list(part.layers or ())}: {part.reference} has {have} layers.",
                )
        self._method.check_inputs(parts, base, self._document.file, slice_.line)
        return Slice(tuple(parts), slice_.parameters, base, slice_.line)

    def _count(self, reference: ModelPath) -> int:
        return self._counts[reference]

    def _edges(self) -> list[TensorOp]:
        """Return operations of tensors outside of blocks: before them by the first slice, else last."""
        ops = []
        donor = next(r for r, m in self._models.items() if m is self._donor)
        for name in sorted(set(self._names[donor]) - set(self._inside[donor])):
            first = block_names.of_tower(name) or any(p in name for p in GROUPS["embedding"])
            slice_ = self._slices[0 if first else -1]
            ops.append(self._output(name, [name] * len(slice_.parts), slice_, 0.0))
        return ops

    def _blocks(self) -> list[TensorOp]:
        ops: list[TensorOp] = []
        at, scale = 0, 1.0
        for slice_ in self._slices:
            first, end = slice_.parts[0].layers or (0, 0)
            for offset in range(end - first):
                t = offset / (end - first - 1) if end - first > 1 else 1.0
                if self._method.name == "dataflow" and offset == 0:
                    scale *= self._input_scale(slice_)
                ops += self._block(slice_, offset, at, t, scale)
                at += 1
        return ops

    def _input_scale(self, slice_: Slice) -> float:
        """Return the factor of a slice's first input (Akiba et al. 2024, section 3.2).

        The input of the slice's first layer is multiplied by the factor. A pre-norm block does not
        see the length of its input, so all that blocks add to the stream from there on is divided
        by the factor instead. Raise ConfigError if the factor cannot be folded.
        """
        value = self._settings(slice_, slice_.parts[0], "", 0.0).number("input_scale", 1.0)
        if value <= 0:
            raise self._error(slice_.line, f"input_scale is above zero, not {value:g}.")
        if value != 1.0:
            donor = self._donor
            if why := folded_factors.obstacle(donor.checkpoint.given, _filled(donor)):
                raise self._error(slice_.line, f"input_scale: {why}")
        return value

    def _block(self, slice_: Slice, offset: int, at: int, t: float, scale: float) -> list[TensorOp]:
        """Return the operations that make the tensors of one layer of the result."""
        suffixes = []
        for part in slice_.parts:
            number = (part.layers or (0, 0))[0] + offset
            suffixes.append(self._by_layer[part.reference].get(number, {}))
        for part, names in zip(slice_.parts, suffixes, strict=True):
            for prefix, suffix in sorted(set(suffixes[0]) ^ set(names)):
                raise SourceError(
                    f"tensor {prefix}*{suffix} is not in layer {offset} of every one of "
                    f"{slice_.parts[0].reference} and {part.reference}: they are not of one kind."
                )
        return [
            self._output(
                f"{key[0]}{at}{key[1]}", [part_names[key] for part_names in suffixes], slice_, t, scale
            )
            for key in suffixes[0]
        ]

    def _settings(self, slice_: Slice, part: MergePart | None, tensor: str, t: float) -> LookupMaps:
        part_maps = () if part is None else (part.parameters,)
        maps = (*part_maps, slice_.parameters, self._document.parameters)
        return LookupMaps(self._document.file, maps, tensor, t, self._part_name(slice_, part))

    def _part_name(self, slice_: Slice, part: MergePart | None) -> str:
        """Return the name of a part for error messages; '' without a part."""
        if part is None:
            return ""
        if self._method.base == "member" and part.reference == slice_.base and not part.parameters:
            return (
                f"{part.reference}: {self._method.name} merges the base_model in, too. Give it a "
                "weight among the models, or leave base_model out"
            )
        return str(part.reference)

    def _output(
        self, name: str, reads: Sequence[str], slice_: Slice, t: float, scale: float = 1.0
    ) -> TensorOp:
        read = [
            self._read(p.reference, read, slice_.base)
            for p, read in zip(slice_.parts, reads, strict=True)
        ]
        rows = [self._sources.rows(r) for r in read]
        self._check_shapes(name, slice_, rows)
        settings = [self._settings(slice_, part, name, t) for part in slice_.parts]
        whole = self._settings(slice_, None, name, t)
        chosen = self._method.choose(slice_.parts, slice_.base, settings, whole, scale, name)
        tensor = self._models[slice_.parts[0].reference].tensor(reads[0])
        shape = (int(rows[0].shape[0]), *map(int, tensor.shape[1:])) if tensor.dim() else ()
        base = None if chosen.base is None else read[chosen.base]
        if not tensor.is_floating_point():
            return copied(name, TensorSpec(tensor.dtype, shape), base or read[chosen.inputs[0]])
        dtype = DTYPES[self._document.dtype] if self._document.dtype else self._stored(slice_, reads)
        inputs = [read[i] for i in chosen.inputs]
        return merged(name, TensorSpec(dtype, shape), chosen.technique, chosen.params, 0, inputs, base)

    def _stored(self, slice_: Slice, reads: Sequence[str]) -> torch.dtype:
        """Return the result's dtype if the config has none: the base's, or the first part's."""
        for part, read in zip(slice_.parts, reads, strict=True):
            if part.reference == slice_.base:
                return self._models[part.reference].tensor(read).dtype
        return self._models[slice_.parts[0].reference].tensor(reads[0]).dtype

    def _read(self, reference: ModelPath, name: str, base: ModelPath | None) -> Read:
        """Add a tensor's rows to the sources; return their place, a `Read`. Raise SourceError."""
        model = self._models[reference]
        if name not in self._names[reference]:
            raise SourceError(f"tensor {name} is not in {reference}: they are not of one architecture.")
        if self._vocabulary is not None and name in {*HEADS, *HEADS.values()}:
            rows = self._vocabulary.rows(name, reference, self._models, base)
        else:
            rows = model.rows(name)
        return self._sources.add(reference, name, rows)

    def _check_shapes(self, name: str, slice_: Slice, rows: Sequence[TensorRows]) -> None:
        for part, part_rows in zip(slice_.parts[1:], rows[1:], strict=True):
            if tuple(part_rows.shape) == tuple(rows[0].shape):
                continue
            hint = ""
            if name in {*HEADS, *HEADS.values()}:
                hint = " Their vocabularies differ: say tokenizer_source: union, base or a model."
            raise SourceError(
                f"tensor {name} is {list(rows[0].shape)} in {slice_.parts[0].reference} and "
                f"{list(part_rows.shape)} in {part.reference}.{hint}"
            )

    def _config(self) -> dict[str, object]:
        """Return the result's config.json (dict): the donor's, for the blocks that the slices take."""
        config = dict(self._donor.config)
        if not self._document.whole:
            blocks = [
                (self._models[s.parts[0].reference], number)
                for s in self._slices
                for number in range(*(s.parts[0].layers or (0, 0)))
            ]
            filled = {model: _filled(model) for model in dict.fromkeys(m for m, _ in blocks)}
            config = block_names.with_blocks(config, [(filled[model], n) for model, n in blocks])
        config["tie_word_embeddings"] = self._tied
        config.pop("torch_dtype", None)
        if self._vocabulary is not None:
            config["vocab_size"] = len(self._vocabulary.tokens)
        return config


def _padding(rows: int, padded: int) -> int:
    """Return n, if possible a power of two: `rows` rounded up to a multiple of n is `padded`."""
    powers = [1 << exponent for exponent in range(17)]
    return next(n for n in (*powers, *range(1, padded + 1)) if rows + -rows % n == padded)


def _filled(model: ModelRows) -> dict[str, object]:
    """Return a model's config.json as a dict, with the defaults that the file leaves out."""
    place = model.checkpoint.given
    return model_config.configuration(place, model.config).to_dict()
