"""Settings of a run of EvoMerge.

    EvoMergeConfig            what every run has, in groups (`GROUPS`)
    EvoMergeConfig.search     what the strategy has: one model a strategy (`evomerge.search_settings`)

Names are those of the source documents. If the documents had several names for one thing, one name
is the setting and the others are renamed on input. Settings of the search may also be given flat,
beside the others, as in the documents. `docs/settings.md` is generated from this module.

A setting of the documents that cannot mean anything here is in `REFUSED`, with the reason. In a request
for a run it is left out with a warning, so that the documents' files and requests work. With `strict`,
in pipelines, in forks and by `EvoMergeConfig` itself it is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from agent_forge.evaluation.data.domains import DOMAINS
from agent_forge.evomerge.fitness.composite import Skills, Weighting
from agent_forge.evomerge.search_settings import (
    MODELS,
    NAMES,
    AnySearch,
    AutoSearch,
    SearchSettings,
    having,
    model_of,
)
from agent_forge.runs.errors import ConfigError, StrategyError, did_you_mean
from agent_forge.runs.record.device_setting import AUTO
from agent_forge.runs.system.plain_text import shown

#: Strategies of this program; the first is for users who choose none.
STRATEGIES = tuple(MODELS)

Search = TypeVar("Search", bound=SearchSettings)

#: Generations of a run that only its budget and a plateau end.
OPEN_END = 10_000

#: Unit of a time → hours, in the order in which a time has them.
HOURS = {"d": 24.0, "h": 1.0, "m": 1 / 60, "s": 1 / 3600}

#: Other names, most of them of the source documents → the setting.
RENAMED = {
    "budget": "budget_hours",
    "max_generations": "generations",
    "elite_count": "elite_size",
    "mutation_strength": "mutation_sigma",
    "plateau_patience": "convergence_patience",
    "plateau_threshold": "convergence_threshold",
    "diversity_reseed_threshold": "reseed_diversity",
    "fitness_subset_size": "search_windows",
    "evaluation_weights": "fitness_weights",
    "dare_threshold": "dare_drop",
    "ties_threshold": "ties_density",
}

#: Settings of the source documents that have no meaning here, and why. This module refuses them; in a
#: request for a run they are left out with a warning (`evomerge/config.py`).
REFUSED = {
    "selection_pressure": "elite-loser selects by rank: use elite_size and mutants_per_elite",
    "dare_amplification": "DARE divides by 1 - p, which fixes the amplification: use dare_drop",
    "frankenmerge_layers": "layers are chosen by measuring; a fixed choice belongs in a recipe",
    "dfs_merge_ratio": "deep feature selection has no ratio: it weights rows by importance",
    "linear_weight": "weights per model are genes of the recipe and are searched",
    "slerp_t": "t is a gene of the recipe and is searched",
    "merge_operators": "give dare_drop and ties_density themselves, not nested",
    "fitness_device": "one device does both: use device",
    "mixed_precision": "merging never rounds twice; for evaluation in bfloat16 set evaluation_dtype",
    "enable_parallel": "start a second process with `forge evo --resume RUN` instead",
    "num_workers": "start a second process with `forge evo --resume RUN` instead",
    "enable_caching": "scores are never measured twice: the log has them",
    "checkpoint_every": "every event is a checkpoint: resume with `forge evo --resume RUN`",
    "checkpoint_dir": "the log is the checkpoint: use the home folder (FORGE_HOME)",
    "use_holdout_validation": "always on: the test slice is read once, by the final report",
    "wandb_project": "a run does not depend on who looks: use WANDB_PROJECT and `forge evo --wandb`",
    "early_stopping": "set convergence_patience to 0 to switch early stopping off",
}

_DOMAINS_ONLY = {"perplexity": 0.0, "accuracy": 0.0, "speed": 0.0, "memory": 0.0}


class EvoMergeConfig(BaseModel):
    """Everything that decides how a run goes, the models and the data apart."""

    # The string under a setting is its description in the schema.
    # Forms, `forge settings` and docs/settings.md show the description.
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    generations: int = Field(default=50, ge=0, le=10_000)
    """Breeding steps after generation 0."""
    convergence_threshold: float = Field(default=0.001, ge=0)
    """The search ends when the champion has improved by less than this share over the last
    convergence_patience generations, all in all; 0 never stops early."""
    convergence_patience: int = Field(default=5, ge=0)
    """Generations over which the champion must improve by convergence_threshold, with auto three
    times as many, once for each stage of its search; 0 never stops early."""
    seed: int = Field(default=0, ge=0)
    """All random numbers come from it."""
    device: str = AUTO
    """Device that computes: auto, cpu or cuda:N; auto: a GPU if there is one where the run starts,
    else the CPU."""
    strict: bool = False
    """Refuse sources whose settings differ, instead of warning."""

    budget_hours: float | None = Field(default=None, gt=0)
    """Time limit for the whole run, from its start: hours, or a time such as 30m, 1h or 2h30m; pauses
    do not count. The search ends before a generation that would leave too little
    time for the final report, judging by the previous one. Generation 0 always completes. Unless
    generations is set too, nothing but this and a plateau ends the search."""
    max_hours: float | None = Field(default=None, gt=0)
    """Hours by the clock for the search since the start, pauses not counted. The search stops
    before a generation that would exceed it, judging by the previous one. Generation 0 always
    completes; the final report comes on top."""
    max_device_hours: float | None = Field(default=None, gt=0)
    """Limit on the hours of the search's tasks, added up over devices; see max_hours."""
    max_evaluations: int | None = Field(default=None, ge=1)
    """Limit on the search's evaluations, the sources' included; see max_hours."""
    max_items: int | None = Field(default=None, ge=1)
    """Limit on the windows, questions and problems that the search scores; see max_hours."""

    search_windows: int = Field(default=48, ge=1)
    """Windows drawn per domain and generation."""
    search_questions: int = Field(default=24, ge=0)
    """Questions drawn per domain and generation, of every grade its share."""
    search_problems: int = Field(default=8, ge=0)
    """Problems drawn per domain and generation, of every grade its share; their replies are
    generated and verified."""
    context: int = Field(default=512, ge=8)
    """Tokens of a window; the model's own limit if that is smaller."""
    allow_benchmarks: bool = False
    """Take lm-eval: tasks of well-known benchmarks as objectives too."""

    fitness_weights: Weighting = Weighting()
    """Weight of each part of fitness; also domains: a weight for each; or the name of a scheme,
    composite (this) or domains (code, math, multilingual, data a quarter each)."""
    normalise: Literal["best_source", "none"] = "best_source"
    """Unit of a part of fitness; best_source: 1 is the best source on the same items; none: the parts
    as they are, 1/perplexity, accuracy, 1/time and 1/memory."""
    skills: Skills = "pooled"
    """How the parts perplexity and accuracy put the domains together. pooled: over all domains at
    once, relative to the best source. mean, geometric or worst ask for all skills: each domain
    relative to its own best source, then the mean, the geometric mean or the worst domain counts; a
    domain with questions or problems has the accuracy of these alone."""
    gate_perplexity: float = Field(default=2.0, ge=0)
    """A candidate whose perplexity on the first windows exceeds the worst source's by this factor
    is dropped; 0: never."""
    stop_error: float = Field(default=0.0, ge=0, lt=0.5)
    """Error rate at which a candidate that is clearly worse than the best source is dropped early;
    0: never."""

    batch_tokens: Annotated[int, Field(ge=1, le=1 << 24)] | Literal["probe"] | None = None
    """Tokens of a forward pass, 1 to 16,777,216; unset: 4096, fewer for a large vocabulary; probe:
    measured when the run starts, see docs/fitness.md."""
    evaluation_dtype: Literal["auto", "model", "bfloat16", "probe"] = "auto"
    """Dtype that evaluation computes in; auto: bfloat16 if the processor has instructions for it and no
    source's perplexity changes by more than 0.5 %; model: the weights' own; bfloat16; or probe: as
    auto, but only if it is also timed to be faster, on any processor."""
    evaluation_compile: Literal["off", "probe"] = "off"
    """Compiled passes: off, or probe: full batches of windows are compiled if that is measured to
    pay and to change no perplexity by more than 0.5 %."""

    diversity_weight: float = Field(default=0.0, ge=0)
    """Weight of a candidate's own distance from the others in the score that it is selected by."""
    min_diversity: float = Field(default=0.3, ge=0)
    """A diversity below this is a warning."""
    reseed_diversity: float = Field(default=0.2, ge=0)
    """A diversity below this is recorded as critical; elite-loser then gives the losers' places to
    new random pipelines."""

    search: AnySearch = AutoSearch()
    """The strategy and its own settings."""

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, data: object) -> object:
        """Return the settings renamed, flat settings of the search moved into `search`."""
        if not isinstance(data, dict):
            return data
        settings = _renamed(data)
        if settings.get("budget_hours") is not None:
            settings = {"generations": OPEN_END, **settings}
        search = settings.get("search", {})
        if isinstance(search, SearchSettings):
            search = {"strategy": search.strategy, **search.model_dump(exclude_unset=True)}
        if not isinstance(search, dict):
            raise ValueError("setting search: give an object like {strategy: auto, population_size: 8}")
        search = _renamed(search)
        strategy = settings.get("strategy", search.get("strategy"))
        names = NAMES | model_of(strategy).model_fields.keys() if strategy else NAMES
        flat = {name: value for name, value in settings.items() if name in names}
        if flat.keys() & search.keys():
            raise ValueError("a setting is given under two of its names")
        if flat or "search" in settings:
            settings = {name: value for name, value in settings.items() if name not in flat}
            settings["search"] = {**search, **flat}
        if "evaluation_weights" in data:
            settings["fitness_weights"] = {**_DOMAINS_ONLY, "domains": data["evaluation_weights"]}
        return settings

    @field_validator("budget_hours", mode="before")
    @classmethod
    def _hours(cls, value: object) -> object:
        return hours(value) if isinstance(value, str) else value

    @field_validator("batch_tokens", mode="before")
    @classmethod
    def _tokens(cls, value: Any) -> object:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is None or value == "probe" or (whole and 1 <= value <= 1 << 24):
            return value
        raise ValueError(f'give 1 to {1 << 24} tokens, or "probe"; it is {value!r}')

    @field_validator("fitness_weights", mode="before")
    @classmethod
    def _scheme(cls, value: object) -> object:
        if value == "composite":
            return Weighting()
        if value == "domains":
            return {**_DOMAINS_ONLY, "domains": dict.fromkeys(DOMAINS, 1 / len(DOMAINS))}
        return value

    @field_validator("fitness_weights", mode="after")
    @classmethod
    def _weights_count(cls, value: Weighting) -> Weighting:
        numbers = value.parts.values()
        if min(numbers) < 0 or sum(numbers) <= 0:
            raise ValueError("fitness_weights must not be negative and must not all be zero")
        return value

    @model_validator(mode="after")
    def _skills_are_relative(self) -> EvoMergeConfig:
        if self.skills != "pooled" and self.normalise == "none":
            raise ValueError(
                f"skills = {self.skills} needs normalise = best_source: it is relative to the best "
                "source of each domain"
            )
        return self

    @model_serializer(mode="wrap")
    def _recorded(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Return the settings as a dict without `skills` at its default: older digests stay.

        Another default needs another schema of the events, whose upcaster names this one.
        """
        settings = dump(self)
        if settings.get("skills") == type(self).model_fields["skills"].default:
            del settings["skills"]
        return settings

    @property
    def generations_wanted(self) -> int | None:
        """The number of generations after generation 0; None if the run has a budget instead."""
        open_end = self.budget_hours is not None and self.generations == OPEN_END
        return None if open_end else self.generations

    @property
    def strategy(self) -> str:
        """The name of the strategy."""
        return self.search.strategy

    def search_as(self, model: type[Search]) -> Search:
        """Return the settings of the search as an instance of `model`, a strategy's own.

        Raises StrategyError if they are another strategy's, for instance those of a package in
        another version.
        """
        if not isinstance(self.search, model):
            raise StrategyError(
                f"the settings recorded for strategy {self.strategy} are not those that it has here: "
                f"{', '.join(self.search.model_dump())}."
            )
        return self.search

    def flat(self) -> dict[str, object]:
        """Return {name: JSON value} of all settings, those of the search beside the others."""
        whole = {"skills": self.skills, **self.model_dump(mode="json")}
        search = whole.pop("search")
        return {**whole, **search}


def hours(text: str) -> float:
    """Return the hours of a time such as 30m, 1h, 2h30m or 2d. Raises ValueError."""
    units = "".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in HOURS)
    match = re.fullmatch(units, text.strip())
    counts = zip(HOURS.values(), match.groups() if match else (), strict=False)
    total = math.fsum(float(count) * size for size, count in counts if count)
    if not total:
        raise ValueError("give a time such as 30m, 1h, 2h30m or 2d")
    return total


def _renamed(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the dict with settings under their own names. Raises ValueError: one refused or twice."""
    for name in settings:
        if name in REFUSED:
            raise ValueError(f"setting {name} is refused: {REFUSED[name]}")
    renamed = {RENAMED.get(name, name): value for name, value in settings.items()}
    if len(renamed) < len(settings):
        raise ValueError("a setting is given under two of its names")
    return renamed


def changed(config: EvoMergeConfig, changes: Mapping[str, object]) -> EvoMergeConfig:
    """Return a config with changes: flat (`niching`), nested, or by their place (`search.niching`).

    If the strategy changes, settings that the new strategy lacks are left out, and those that it
    alone has are the changes' or the defaults. Raises ConfigError.
    """
    inner = changes.get("search", {})
    if not isinstance(inner, dict):
        raise ConfigError("setting search: give an object of settings.")
    outer = {n.removeprefix("search."): value for n, value in changes.items() if n != "search"}
    try:
        settings = {**_renamed(outer), **_renamed(inner)}
    except ValueError as error:
        raise ConfigError(f"{error}.") from error
    if len(settings) < len(changes) - ("search" in changes) + len(inner):
        raise ConfigError("a setting is given under two of its names.")
    strategy = settings.get("strategy", config.strategy)
    return parse({**fitting(config.flat(), strategy), **settings})


def fitting(settings: Mapping[str, object], strategy: object) -> dict[str, object]:
    """Return the dict of flat settings without those that `strategy` lacks, and with its name."""
    if strategy == settings.get("strategy"):
        return dict(settings)
    names = {*EvoMergeConfig.model_fields, *model_of(strategy).model_fields}
    rest = {name: value for name, value in settings.items() if name in names}
    return {**rest, "strategy": strategy}


def changes(before: EvoMergeConfig, after: EvoMergeConfig) -> dict[str, object]:
    """Return {setting: value}, flat: the changes by which `changed` turns `before` into `after`."""
    old = before.flat()
    usual = type(after.search).model_construct(strategy=after.strategy).model_dump(mode="json")
    settings = {**usual, **old}
    new = after.flat().items()
    return {name: value for name, value in new if name not in settings or settings[name] != value}


def parse(data: dict[str, object]) -> EvoMergeConfig:
    """Return the `EvoMergeConfig` of a dict. Raises ConfigError naming the setting and the fault."""
    try:
        return EvoMergeConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{explain(e)[1]}." for e in error.errors())) from error


def explain(error: Any) -> tuple[str, str]:
    """Return (flat name of the setting that pydantic's error is about, what is wrong)."""
    loc = error["loc"]
    strategy = str(loc[1]) if loc[:1] == ("search",) and len(loc) > 1 else None
    where = ".".join(str(part) for part in (loc[2:] if strategy else loc))
    what = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        owners = having(where) if strategy else []
        if owners:
            return where, (
                f"setting {where} belongs to {', '.join(owners)}, not to strategy {strategy}: leave it "
                "out, or set strategy"
            )
        names = sorted(NAMES | EvoMergeConfig.model_fields.keys() - {"search"})
        hint = did_you_mean(where.rpartition(".")[2], names)
        return where, f"setting {where} is not known{hint}. The settings are: {', '.join(names)}"
    got = "" if error["type"] == "value_error" else f" (it is {shown(error.get('input'))})"
    return where, f"{'setting ' + where + ': ' if where else ''}{what}{got}"


#: Settings of the documents whose value always holds here → that value.
_ALWAYS = {"enable_caching": True, "use_holdout_validation": True, "early_stopping": True}
#: Settings of the documents for checkpoints: every event is one.
_EXCEEDED = frozenset({"checkpoint_every", "checkpoint_dir"})
#: What the documents' `merge_operators` may hold.
_OPERATORS = frozenset(
    ("linear_weight", "slerp_t", "ties_threshold", "ties_density", "dare_threshold", "dare_drop")
) | {"dare_amplification", "frankenmerge_layers", "dfs_merge_ratio"}


def translated(settings: Mapping[str, object]) -> tuple[dict[str, object], dict[str, str]]:
    """Return ({setting: value} that can be taken, {setting: why} of those that are left out).

    Raises ConfigError for a setting that is given under two names, or a wrong `merge_operators`.
    """
    taken_settings: dict[str, object] = {}
    left: dict[str, str] = {}
    for name, value in _flat(settings):
        if name == "search" and isinstance(value, Mapping):
            value, more = translated(value)
            left |= more
        if name == "mixed_precision":
            name, value = "evaluation_dtype", "bfloat16" if value else "model"
        if name in _EXCEEDED or (name in _ALWAYS and value == _ALWAYS[name]):
            continue
        if name in REFUSED and not (name == "early_stopping" and value is False):
            left[name] = REFUSED[name]
        elif RENAMED.get(name, name) in {RENAMED.get(key, key) for key in taken_settings}:
            raise ConfigError(f"setting {RENAMED.get(name, name)} is given under two of its names.")
        else:
            taken_settings[name] = value
    if (
        taken_settings.pop("early_stopping", True) is False
    ):  # the documents' way to say so, with any patience
        taken_settings = {
            n: v for n, v in taken_settings.items() if RENAMED.get(n, n) != "convergence_patience"
        }
        taken_settings["convergence_patience"] = 0
    return taken_settings, left


def _flat(settings: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return a list of (name, value), those inside `merge_operators` too. Raises ConfigError."""
    inner = settings.get("merge_operators", {})
    if not isinstance(inner, Mapping):
        raise ConfigError("setting merge_operators: give an object of settings.")
    if unknown := sorted(set(inner) - _OPERATORS):
        raise ConfigError(f"merge_operators has no setting {unknown[0]}.")
    return [*((n, v) for n, v in settings.items() if n != "merge_operators"), *inner.items()]


def warnings(left: Mapping[str, str]) -> tuple[str, ...]:
    """Return a tuple of sentences, one for each setting in `left`, {setting: why}: it is left out."""
    return tuple(f"setting {name} is left out: {why}." for name, why in left.items())


def refuse(left: Mapping[str, str]) -> None:
    """Raise ConfigError if `left`, {setting: why}, is not empty."""
    if left:
        lines = (f"setting {name} is refused: {why}." for name, why in left.items())
        raise ConfigError("\n".join(lines))
