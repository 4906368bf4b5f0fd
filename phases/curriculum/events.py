"""Events of a curriculum run; mixes, observations and dreams are in `answers`, by their keys."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from events import Event
from phases.curriculum.settings import Addition, Arm, CurriculumConfig
from runs.event_types import HalfPrecision, Part
from runs.record.device_setting import on_cpu
from runs.system.digests import Digest
from runs.system.integers import Count
from studies.events import (
    GivenStarted,
    GivenSubmitted,
    ModelsCompleted,
    history,
    not_divided,
    not_rounded,
    without_watch,
)

Change = Literal["placed", "promoted", "demoted", "opened", "held"]
#: Stages of the arm `stages` in which it is trained.
Stage = Literal["base_adaptation", "edge_of_chaos", "tool_use", "chaos", "dreams", "self_model"]


class Frontier(Part):
    """The highest level that a family is to learn now, and why it is that one."""

    level: Count
    change: Change
    #: The level whose success decided: its number, the success, and the items of this.
    by: Count
    success: float
    items: Count
    #: Segments since the frontier moved.
    still: Count


class Dreamt(Part):
    """Dreams of one cell."""

    #: BLAKE3 of the token ids of its items, as recipes name data.
    digest: Digest
    items: Count
    #: Those of them whose answer is the right one.
    right: Count


class Compared(Part):
    """An arm that was measured on the test slice."""

    recipe_id: Digest
    #: Mean over the cells of the share of items that are solved.
    accuracy: float


class Submitted(GivenSubmitted):
    """A curriculum run was asked for."""

    schema_version = 5

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


def _by_frontier(data: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked for with the settings `rule` and `divergence`: there was one rule."""
    config = {**without_watch(data)["config"], "rule": "frontier"}
    return {**data, "config": config}


STATE = history(
    "curriculum",
    *(Submitted, Started, Completed, MixChosen, Dreamed),
    requests=(_by_frontier, dict, dict, on_cpu),
    starts=(not_divided, dict, not_rounded),
    upcasters={(MixChosen.type, 1): dict, (MixChosen.type, 2): dict},
)
