"""Additions to a segment beside its mix: its stage, chaos, dreams and a self-model. Pure.

The arms `chaos`, `dreams` and `self_model` are `adaptive` with one addition. The arm `stages` goes
through seven stages: assessment, which is the measurement before the first segment, and six that are
even parts of the segments.
"""

from __future__ import annotations

from evaluation.task_families import uses_tools
from phases.curriculum.events import Stage
from phases.curriculum.mixing.cells import Measured, cells, passed
from phases.curriculum.settings import ADDITIONS, STAGED, Addition, Arm, CurriculumConfig

#: Stages of training, in their order.
STAGES: tuple[Stage, ...] = (
    "base_adaptation",
    "edge_of_chaos",
    "tool_use",
    "chaos",
    "dreams",
    "self_model",
)
assert len(STAGES) == STAGED
#: Arms whose mix follows from success.
FOLLOWING: frozenset[Arm] = frozenset({"adaptive", "chaos", "dreams", "self_model", "stages"})


def stage(config: CurriculumConfig, arm: Arm, segment: int) -> Stage | None:
    """Return the stage of a segment; None for arms without stages."""
    return STAGES[segment * STAGED // config.segments] if arm == "stages" else None


def added(config: CurriculumConfig, arm: Arm, segment: int) -> tuple[Addition, ...]:
    """Return what a segment of an arm has beside its mix, in the order of `ADDITIONS`."""
    if arm == "stages":
        return tuple(addition for addition in ADDITIONS if addition == stage(config, arm, segment))
    if arm not in FOLLOWING:
        return ()
    burst = (segment + 1) % config.burst_every == 0 and segment + 1 < config.segments
    return tuple(
        addition
        for addition in ADDITIONS
        if (addition in config.adds or addition == arm) and (addition != "chaos" or burst)
    )


def dreamt(config: CurriculumConfig, arm: Arm, segment: int, measured: Measured) -> tuple[str, ...]:
    """Return the passed cells, without tools, that the model dreams of ahead of a segment."""
    if "dreams" not in added(config, arm, segment):
        return ()
    families = (name.partition("/") for name in cells(config))
    return tuple(
        f"{family}/{level}"
        for family, _, level in families
        if not uses_tools(family) and passed(config, family, measured, int(level))
    )
