"""Events, tasks and state of an experts run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from events import Event
from phases.experts.settings import ExpertsConfig
from runs.event_types import HalfPrecision, ModelReference, Part, SourceRecord
from runs.record.device_setting import on_cpu
from runs.system.integers import Count, Large
from studies.events import GivenCompleted, GivenStarted, GivenSubmitted, history, not_rounded

#: Arms of the search: mixtures of all by NSGA-II, the same at random, models alone by NSGA-II.
Arm = Literal["mixtures", "random", "models"]
#: Factors of the further models, and then of the experts.
Factors = tuple[float, ...]


class Adapters(Part):
    """Low-rank adapters of about as many numbers as an expert."""

    rank: Count
    #: Last parts of the names of the layers that are adapted.
    modules: tuple[str, ...]
    numbers: Large


class Submitted(GivenSubmitted):
    """An experts run was asked for."""

    schema_version = 6

    config: ExpertsConfig
    #: Further models of the given one's architecture that mixtures may contain.
    merges: tuple[ModelReference, ...] = ()


class Started(GivenStarted):
    """Models, text and profile were pinned."""

    schema_version = 3

    merges: tuple[SourceRecord, ...]
    #: Numbers of an expert: singular values of all matrices that are scaled.
    numbers: Large
    #: What is trained beside each expert; None: nothing.
    adapters: Adapters | None
    #: Family → tokens that a training task and a reply to it may have.
    longest: dict[str, Count]
    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None


class GenerationBred(Event):
    """The mixtures of a generation follow from those before it."""

    type = "generation_bred"

    arm: Arm
    #: Number of the generation, from 0.
    number: Count
    #: Slot → factors.
    mixtures: tuple[Factors, ...]


class Scored(Event):
    """Some mixtures of a generation were measured on the windows of the search."""

    type = "scored"

    arm: Arm
    number: Count
    #: Slot of the first of them.
    first: Count
    #: For each mixture: domain → Σ −log p of its windows in nats. Fewer windows than asked: it was far
    #: behind. No domain: a number was not finite.
    items: tuple[dict[str, tuple[float, ...]], ...]
    seconds: float = Field(ge=0)


class GenerationEnded(Event):
    """A generation is measured: who survives, and the volume that the best so far dominate."""

    type = "generation_ended"

    arm: Arm
    number: Count
    #: "NUMBER/SLOT" of the mixtures that the next generation is bred from, in order of selection.
    survivors: tuple[str, ...]
    #: Survivors that no other one beats in every objective.
    front: Count
    hypervolume: float
    #: Mixtures of the generation that were given up, or gave no finite numbers.
    stopped: Count
    #: Mixtures of the arm that were measured so far.
    evaluations: Count


class Fitted(Event):
    """A mixture of experts was found for a domain, from a few of its windows."""

    type = "fitted"

    domain: str
    #: Round → nats a token of each of its points.
    losses: tuple[tuple[float, ...], ...]
    #: Factors of the experts: the mean after the last round.
    factors: Factors
    seconds: float = Field(ge=0)


class Routed(Event):
    """A classifier chose an expert for each window from its beginning, and the rest was predicted."""

    type = "routed"

    #: Domain → for each window the number of the expert that was chosen; 0: none.
    choices: dict[str, tuple[Count, ...]]
    #: Domain → Σ −log p of the tokens after the beginning: by the chosen expert, by the given model.
    items: dict[str, tuple[float, ...]]
    given: dict[str, tuple[float, ...]]
    #: Domain → number of those tokens.
    sizes: dict[str, tuple[Count, ...]]
    seconds: float = Field(ge=0)


class Completed(GivenCompleted):
    """The mixtures are searched, and the result is compared with the given model."""

    #: The recipe's name that is the result.
    chosen: str


@dataclass(frozen=True)
class Score:
    """Task: measure some mixtures of a generation."""

    arm: str
    number: int
    #: Slots from `first` to before `last`.
    first: int
    last: int

    @property
    def key(self) -> str:
        """`score/ARM/NUMBER/FIRST`."""
        return f"score/{self.arm}/{self.number}/{self.first}"


@dataclass(frozen=True)
class Fit:
    """Task: find a domain's mixture of experts by the cross-entropy method."""

    domain: str

    @property
    def key(self) -> str:
        """`fit/DOMAIN`."""
        return f"fit/{self.domain}"


@dataclass(frozen=True)
class Route:
    """Task: let a classifier choose an expert for each window of the test slice."""

    key: str = "route"


def _without_adapters(data: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked for with the setting `lora`: earlier runs trained no adapters."""
    return {**data, "config": {**data["config"], "lora": False}}


def _without_elite(data: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked for with the setting `elite`: earlier searches kept none."""
    return {**data, "config": {**data["config"], "elite": 0}}


def _no_adapters(data: dict[str, Any]) -> dict[str, Any]:
    """Return `started` with `adapters` and `longest`: earlier runs had neither these nor families."""
    return {**data, "adapters": None, "longest": {}}


def _with_three(data: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked for with `finalists` and `apart`: earlier runs took the three best."""
    return {**data, "config": {**data["config"], "finalists": 3, "apart": 0.0}}


def _with_adapters(data: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked for with the setting `lora`: earlier runs trained adapters by default."""
    return {**data, "config": {"lora": True, **data["config"]}}


#: Answers, and notes of the search (`bred/ARM/NUMBER`, `ended/ARM/NUMBER`), are found in `answers`.
#: What is remembered of experts does not follow from the search.
ExpertsState = history(
    "experts",
    *(Submitted, Started, Completed),
    *(GenerationBred, Scored, GenerationEnded, Fitted, Routed),
    requests=(_without_adapters, _without_elite, _with_three, on_cpu, _with_adapters),
    starts=(_no_adapters, not_rounded),
    kept_by=(GenerationBred, Scored, GenerationEnded),
)
