"""Recipes, events and dreams of a curriculum run. No torch.

Each segment is a training of its own, whose recipe has its mix; it carries on the optimiser of the
previous segment, within one schedule for all. Mixes, observations and dreams are in `answers`, by
their keys.

Dreams are generative replay with prompts from a program: pseudo-rehearsal (Robins 1995, "Catastrophic
forgetting, rehearsal and pseudorehearsal"). The model answers prompts of its training slice that it has
passed, sampled at temperature 1 by key, and is trained on its answers as they are, right or wrong.
Streams are kept under their digest, and sampled again if the cache lacks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from agent_forge.events import Event
from agent_forge.phases.curriculum.settings import Addition, Arm, CurriculumConfig
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import Count, Digest, EventPart, HalfPrecision
from agent_forge.runs.record.device_setting import on_cpu
from agent_forge.studies.events import (
    GivenStarted,
    GivenSubmitted,
    ModelsCompleted,
    earlier_settings,
    history,
    not_divided,
    not_rounded,
)
from agent_forge.studies.training_plan import as_float32, reading
from agent_forge.weights.recipes import Algorithm, Train

#: The given model in float32, which all arms begin with.
START = "start"
#: Key of the random draws of all trainings.
PURPOSE = "curriculum"
OBJECTIVE = "answers@1"
#: The objective with noise or a self-model beside the answers.
BESIDE = "answers@2"


def bounds(config: CurriculumConfig, context: int) -> list[int]:
    """Return the step at which each segment begins, and last the number of all steps."""
    count = config.steps_of(context)
    return [count * number // config.segments for number in range(config.segments + 1)]


def tokens(config: CurriculumConfig, context: int) -> list[int]:
    """Return the number of tokens read when each segment begins, and last in the whole training."""
    return [step * config.batch * context for step in bounds(config, context)]


def check_length(config: CurriculumConfig, context: int) -> None:
    """Raise ConfigError if a segment would have no step."""
    at = bounds(config, context)
    if len(set(at)) < len(at):
        raise ConfigError(
            f"{config.tokens:,} tokens are {at[-1]} steps of {config.batch} windows of {context}: too "
            f"few for {config.segments} segments. Give more tokens, or fewer segments."
        )


def name(config: CurriculumConfig, arm: str, segment: int) -> str:
    """Return the name of the model after a segment, from 0: "ARM-1", "ARM-2", ...; the last "ARM"."""
    return arm if segment + 1 == config.segments else f"{arm}-{segment + 1}"


def segment(
    submitted: Submitted,
    started: Started,
    chosen: MixChosen,
    before: str | None,
    dreamt: Mapping[str, str] = {},
) -> Train:
    """Return the recipe of an arm's segment; `before` is the id of the training that it carries on.

    `dreamt` are the digests of streams of dreams by name.
    """
    config, number = submitted.config, chosen.segment
    at = bounds(config, started.context)
    first = before or as_float32(started).id
    cells = {name: share for name, share in chosen.mix.items() if name not in dreamt}
    whole = reading(submitted, started, cells, PURPOSE, first, OBJECTIVE, config.rate)
    digests = {name: dreamt[name] for name in chosen.mix if name in dreamt}
    fields = {
        "data": chosen.mix,
        "data_digests": whole.data_digests | digests,
        "carries": before is not None,
        "first": at[number],
        "upto": at[number + 1],
        "divergence": config.divergence,
    }
    return whole.model_copy(update=fields | _beside(config, started, chosen, whole.schedule))


def _beside(
    config: CurriculumConfig, started: Started, chosen: MixChosen, schedule: Algorithm
) -> dict[str, object]:
    """Return the fields of a training that chaos and a self-model change, by name.

    During a burst a leap of the loss is wanted: only numbers that are not finite end such a training.
    """
    first, last = bounds(config, started.context)[chosen.segment :][:2]
    until = first + max(1, round(config.burst_share * (last - first)))
    noise = self_model = None
    fields: dict[str, object] = {}
    if "chaos" in chosen.added:
        span = {"first": first, "upto": until}
        if config.burst_noise:
            noise = {"scale": config.burst_noise, **span}
        params = {**schedule.params, "factor": config.burst_rate, **span}
        fields |= {"schedule": Algorithm(name="cosine-burst@1", params=params), "divergence": None}
    if "self_model" in chosen.added:
        self_model = {"weight": config.self_weight, "layer": config.self_layer}
    if noise or self_model:
        fields |= {"objective": BESIDE, "params": {"noise": noise, "self_model": self_model}}
    return fields


Change = Literal["placed", "promoted", "demoted", "opened", "held"]
#: Stages of the arm `stages` in which it is trained.
Stage = Literal["base_adaptation", "edge_of_chaos", "tool_use", "chaos", "dreams", "self_model"]


class Frontier(EventPart):
    """The highest level that a family is to learn now, and why it is that one."""

    level: Count
    change: Change
    #: The level whose success decided: its number, the success, and the items of this.
    by: Count
    success: float
    items: Count
    #: Segments since the frontier moved.
    still: Count


class Dreamt(EventPart):
    """Dreams of one cell."""

    #: BLAKE3 of the token ids of its items, as recipes name data.
    digest: Digest
    items: Count
    #: Those of them whose answer is the right one.
    right: Count


class Compared(EventPart):
    """An arm that was measured on the test slice."""

    recipe_id: Digest
    #: Mean over the cells of the share of items that are solved.
    accuracy: float


class Submitted(GivenSubmitted):
    """A curriculum run was asked for."""

    schema_version = 6

    config: CurriculumConfig


class Started(GivenStarted):
    """Model, items and profile were pinned: streams and tokens are those of cells."""

    schema_version = 4

    #: Cell → number of training items.
    pool: dict[str, Count]
    #: Digest of the tool tasks to measure on; None without families that use tools.
    tool_items: Digest | None = None
    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None


class MixChosen(Event):
    """The mix of an arm's next segment follows from what was measured."""

    schema_version = 3

    type = "mix_chosen"

    arm: Arm
    #: Number of the segment, from 0.
    segment: Count
    #: Cell → share of the items; of dreams, the name of their stream → share.
    mix: dict[str, float]
    #: Family → its frontier; of arms that follow success.
    frontiers: dict[str, Frontier] = {}
    #: The segment's stage, of the arm `stages`.
    stage: Stage | None = None
    #: What the segment has beside its mix.
    added: tuple[Addition, ...] = ()
    #: True if it begins with the model before the last segment, whose burst lost too much.
    returned: bool = False


class Dreamed(Event):
    """A model answered tasks that it has passed, to be trained on its answers."""

    type = "dreamed"

    recipe_id: Digest
    #: Cell → what was dreamt; a cell of which no answer came to an end is left out.
    cells: dict[str, Dreamt]
    #: BLAKE3 over all streams as tensors: the name under which they are kept.
    digest: Digest
    seconds: float = Field(ge=0)


class Completed(ModelsCompleted):
    """All arms are trained and compared."""

    #: Name → what was compared.
    arms: dict[str, Compared]
    #: The arm that is the result.
    chosen: str


STATE = history(
    "curriculum",
    *(Submitted, Started, Completed, MixChosen, Dreamed),
    requests=(earlier_settings(divergence=None, rule="frontier"), dict, dict, on_cpu, dict),
    starts=(not_divided, dict, not_rounded),
    upcasters={(MixChosen.type, 1): dict, (MixChosen.type, 2): dict},
)


@dataclass(frozen=True)
class Dream:
    """Task: let a model answer tasks of cells that it has passed."""

    recipe_id: str
    #: Cells, sorted.
    cells: tuple[str, ...]

    @property
    def key(self) -> str:
        """`dream/ID`, where ID is the recipe's: the cells follow from what was measured of it."""
        return f"dream/{self.recipe_id}"


def stream(cell: str, recipe_id: str) -> str:
    """Return the name of a stream of dreams, "FAMILY/LEVEL/dreams-ID"; ID is the model's."""
    return f"{cell}/dreams-{recipe_id[:12]}"


def streams(event: Dreamed) -> dict[str, str]:
    """Return name of a stream of dreams → its digest."""
    return {stream(cell, event.recipe_id): dream.digest for cell, dream in event.cells.items()}


def validate_answer(task: Dream, event: Dreamed, most: int) -> str | None:
    """Return why an event does not answer the task, None if it does; `most` bounds a cell's items."""
    if event.recipe_id != task.recipe_id:
        return "another model dreamt than the one that was asked"
    if not set(event.cells) <= set(task.cells):
        return "it dreamt of other tasks than those that were asked for"
    if any(not dream.right <= dream.items <= most or not dream.items for dream in event.cells.values()):
        return "it counts other dreams than there can be"
    return None
