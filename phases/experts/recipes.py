"""Recipes, events, tasks and state of an experts run. Pure.

The models' recipes are functions of the run's settings and of what was pinned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from agent_forge.events import Event
from agent_forge.phases.experts.settings import ExpertsConfig
from agent_forge.runs.errors import SourceError
from agent_forge.runs.event_types import (
    Count,
    EventPart,
    HalfPrecision,
    Large,
    ModelReference,
    SourceRecord,
)
from agent_forge.runs.record.device_setting import on_cpu
from agent_forge.studies import given_dtype, training_plan
from agent_forge.studies.events import (
    GivenCompleted,
    GivenStarted,
    GivenSubmitted,
    earlier_fields,
    earlier_settings,
    history,
    not_rounded,
)
from agent_forge.studies.making.making import Making
from agent_forge.studies.settings import MIX
from agent_forge.studies.study_view import Plain
from agent_forge.studies.training_plan import READINGS, as_float32
from agent_forge.weights.recipes import Algorithm, Train, Transform

if TYPE_CHECKING:
    from agent_forge.weights.folders.checkpoint import Checkpoint

#: The given model in float32, its decomposition, and the vectors that experts begin with.
GIVEN, SVD, ONES = "given", "svd", "ones"
#: Beginning of the names of experts, of the given model with one expert, and of a domain's mixture.
EXPERT, ONLY, FITTED = "expert-", "only-", "fitted-"
#: Beginning of the names of models with adapters that are trained as an expert is.
LORA = "lora-"
#: The mean of the further models.
MEAN = "mean-of-models"
#: Points of a round for each that is followed; least standard deviation of a number.
SHARE, LEAST = 4, 0.001
#: Measure of all models, and the slice that mixtures are searched on.
MEASURE, SEARCH = "bits-per-byte@1", "search"
#: Key of all random draws.
PURPOSE = "experts"


def decomposition(submitted: Submitted, started: Started) -> Transform:
    """Return the recipe of the given model's singular value decomposition."""
    parts = list(submitted.config.parts)
    inputs = {"of": as_float32(started).id}
    return Transform(operation="svf-decompose@1", inputs=inputs, params={"parts": parts})


def ones(submitted: Submitted, started: Started) -> Transform:
    """Return the recipe of the vectors of ones, which change nothing."""
    svd = decomposition(submitted, started)
    return Transform(operation="svf-ones@1", inputs={"svd": svd.id})


def first(submitted: Submitted, started: Started) -> dict[str, Making]:
    """Return name → recipe of the inputs of experts: the given model as measured is first.

    In 16 bits it is rounded from the model in float32.
    """
    return {
        **given_dtype.with_rounded(started, {GIVEN: as_float32(started)}),
        SVD: decomposition(submitted, started),
        ONES: ones(submitted, started),
    }


def trainable(submitted: Submitted, started: Started) -> tuple[str, ...]:
    """Return the domains that can have an expert: those with training text but the neutral one.

    Families of tasks have none.
    """
    config = submitted.config
    return tuple(d for d in config.domains if d != config.neutral and d in started.streams)


def expert(submitted: Submitted, started: Started, domain: str) -> Train:
    """Return the recipe of the training of a domain's or family's expert, which is vectors."""
    config = submitted.config
    first, purpose = ones(submitted, started).id, f"{PURPOSE}/{domain}"
    shares = {domain: 1.0}
    training = training_plan.reading(submitted, started, shares, purpose, first, "svf@1", config.rate)
    inputs = {"of": as_float32(started).id, "svd": decomposition(submitted, started).id}
    changes = {"params": {"pull": config.pull}, "inputs": inputs, "divergence": config.divergence}
    training = training.model_copy(update=changes)
    if domain in config.families:
        training = _of_family(submitted, started, domain, training)
        changes = {"objective": training.objective, "params": training.params, "pull": config.pull}
        training = training.model_copy(update={"objective": "svf@2", "params": changes})
    return _searched(config, training) if config.train == "cem" else training


def lora(submitted: Submitted, started: Started, domain: str) -> Train:
    """Return the recipe of a training of adapters on the given model, like that of an expert.

    By gradients in any case. The run must have adapters.
    """
    config, adapters = submitted.config, started.adapters
    assert adapters is not None
    first, purpose = as_float32(started).id, f"{PURPOSE}/{domain}"
    shares = {domain: 1.0}
    training = training_plan.reading(
        submitted, started, shares, purpose, first, "lm@1", config.lora_rate
    )
    training = training.model_copy(update={"divergence": config.divergence})
    if domain in config.families:
        training = _of_family(submitted, started, domain, training, config.lora_rate)
    params = {
        "objective": training.objective,
        "params": training.params,
        "rank": adapters.rank,
        "alpha": float(adapters.rank),
        "modules": list(adapters.modules),
    }
    return training.model_copy(update={"objective": "lora@1", "params": params})


def _of_family(
    submitted: Submitted, started: Started, family: str, training: Train, rate: float | None = None
) -> Train:
    """Return the recipe `training`, changed to learn a family's answers, or from rewards of replies.

    Replies are trained on in as many tokens, and with a rate of their own if none is given.
    """
    config = submitted.config
    if config.train != "reinforce":
        return training.model_copy(update={"objective": "answers@1", "params": {}})
    width = started.longest[family]
    steps = max(1, config.reads(started.context) // (config.replies * width))
    peak = {**training.schedule.params, "peak": rate or config.reinforce_rate}
    reference = {"reference": as_float32(started).id} if config.kl else {}
    return training.model_copy(
        update={
            "objective": "reinforce@1",
            "params": {"kl": config.kl, "baseline": True},
            "inputs": {**training.inputs, **reference},
            "batch": config.replies,
            "context": width,
            "accumulation": 1,
            "schedule": training.schedule.model_copy(update={"params": peak}),
            # Rewards are bounded, so a jump of the loss is no divergence.
            "divergence": None,
            "steps": steps,
            "upto": steps,
        }
    )


def _searched(config: ExpertsConfig, training: Train) -> Train:
    """Return `training` as a search without gradients (cem) that reads as many tokens."""
    steps = max(1, training.steps // config.points)
    params = {
        "objective": training.objective,
        "params": training.params,
        "points": config.points,
        "elite": max(1, config.points // SHARE),
        "spread": config.spread,
        "least": LEAST,
    }
    optimiser = Algorithm(name="none@1", params={})
    changed = {"objective": "cem@1", "params": params, "optimiser": optimiser}
    return training.model_copy(update={**changed, "steps": steps, "upto": steps})


def mixture(
    submitted: Submitted, started: Started, experts: Mapping[str, Train], factors: Factors
) -> Transform:
    """Return the recipe of a mixture of the further models and of `experts`, with `factors`.

    Parts with the factor 0 are left out. A mixture is in the dtype of the given model.
    """
    halved = started.dtype is not None
    inputs = {"of": started.model.recipe_id if halved else as_float32(started).id}
    models: list[float] = []
    vectors: list[float] = []
    for source, factor in zip(started.merges, factors, strict=False):
        if factor:
            inputs[f"model-{len(models):04}"] = source.recipe_id
            models.append(factor)
    for recipe, factor in zip(experts.values(), factors[len(started.merges) :], strict=True):
        if factor:
            inputs[f"expert-{len(vectors):04}"] = recipe.id
            vectors.append(factor)
    if vectors:
        inputs["svd"] = decomposition(submitted, started).id
    params = {"models": models, "experts": vectors}
    operation = "mixture@2" if halved else "mixture@1"
    return Transform(operation=operation, inputs=inputs, params=params)


def of_experts(
    submitted: Submitted, started: Started, experts: Mapping[str, Train], factors: Factors
) -> Transform:
    """Return the recipe of a mixture of experts without further models."""
    none = (0.0,) * len(started.merges)
    return mixture(submitted, started, experts, (*none, *factors))


def mean_of_models(submitted: Submitted, started: Started) -> dict[str, Transform]:
    """Return name → recipe of the further models' mean; empty without further models."""
    count = len(started.merges)
    if not count:
        return {}
    return {MEAN: mixture(submitted, started, {}, (round(1 / count, 6),) * count)}


def trained(
    submitted: Submitted, started: Started, bits: Mapping[str, float], solved: Mapping[str, float]
) -> tuple[dict[str, Train], dict[str, Train], dict[str, Making]]:
    """Return (domain → expert, name → adapters like it, name → given model with it alone).

    Experts are of the domains with the most `bits` per byte, and of the families whose tasks are
    `solved` least, each up to the setting `experts`.
    """
    config, pins = submitted.config, (submitted, started)
    # Runs of an earlier version may have a domain without text to choose by: no expert is of it.
    domains = [domain for domain in trainable(*pins) if domain in bits]
    worst = sorted(domains, key=lambda domain: (-bits[domain], domain))[: config.experts]
    weak = [family for family in solved if solved[family] < config.weak]
    least = sorted(weak, key=lambda family: (solved[family], family))[: config.experts]
    experts = {domain: expert(*pins, domain) for domain in (*worst, *least)}
    return (
        experts,
        {f"{LORA}{domain}": lora(*pins, domain) for domain in experts if started.adapters},
        {
            f"{ONLY}{d}": of_experts(*pins, {d: expert_recipe}, (1.0,))
            for d, expert_recipe in experts.items()
        },
    )


#: Arms of the search: mixtures of all by NSGA-II, the same at random, models alone by NSGA-II.
Arm = Literal["mixtures", "random", "models"]
#: Factors of the further models, and then of the experts.
Factors = tuple[float, ...]


class Adapters(EventPart):
    """Low-rank adapters of about as many numbers as an expert."""

    rank: Count
    #: Last parts of the names of the layers that are adapted.
    modules: tuple[str, ...]
    numbers: Large


class Submitted(GivenSubmitted):
    """An experts run was asked for."""

    schema_version = 7

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
class Scoring:
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


def _with_adapters(data: Plain) -> Plain:
    """Return the data of `submitted` with the setting `lora`, True by default for earlier runs."""
    return {**data, "config": {"lora": True, **data["config"]}}


#: Answers, and notes of the search (`bred/ARM/NUMBER`, `ended/ARM/NUMBER`), are found in `answers`.
#: What the state remembers of experts does not depend on the search.
ExpertsState = history(
    "experts",
    *(Submitted, Started, Completed),
    *(GenerationBred, Scored, GenerationEnded, Fitted, Routed),
    requests=(
        *(earlier_settings(lora=False), earlier_settings(elite=0)),
        *(earlier_settings(finalists=3, apart=0.0), on_cpu, _with_adapters, dict),
    ),
    starts=(earlier_fields(adapters=None, longest={}), not_rounded),
    kept_by=(GenerationBred, Scored, GenerationEnded),
)


def added(config: ExpertsConfig, user_domains: Sequence[str]) -> tuple[str, ...]:
    """Return the domains of built-in text to add to the user's: the neutral one, or none."""
    return () if config.neutral in user_domains or config.neutral not in MIX else (config.neutral,)


def check_alike(name: str, opened: Checkpoint, base: Checkpoint) -> None:
    """Raise SourceError unless a further model has the tensors and shapes of the given one."""
    other = {tensor: shape for tensor, (_, shape) in opened.shapes.items()}
    base_shapes = {tensor: shape for tensor, (_, shape) in base.shapes.items()}
    every = sorted({**base_shapes, **other})
    if lacking := [tensor for tensor in every if base_shapes.get(tensor) != other.get(tensor)]:
        raise SourceError(
            f"model {name} is not of the given model's architecture: tensor {lacking[0]} differs."
        )


def alike(records: Sequence[SourceRecord]) -> list[str]:
    """Return a warning for each model with the weights of an earlier one: it adds nothing."""
    names: dict[str, str] = {}
    notes = []
    for record in records:
        if record.digest in names:
            notes.append(f"models {names[record.digest]} and {record.name} have the same weights.")
        names.setdefault(record.digest, record.name)
    return notes


def readings(submitted: Submitted, started: Started) -> list[str]:
    """Return a warning for each text that its expert reads more than `READINGS` times over."""
    tokens, notes = submitted.config.reads(started.context), []
    for domain in trainable(submitted, started):
        times = tokens / started.tokens[domain]
        if times > READINGS:
            notes.append(
                f"an expert of {domain} reads its text {times:.0f} times over: give it more text, "
                "or fewer tokens to train on."
            )
    return notes
