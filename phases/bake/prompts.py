"""Prompts of a bake: its own, those that it is to follow as before, and the streams of each. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from evaluation.data.slices import Slice
from phases.bake.config import BakeConfig
from weights.training.trajectories import BAKED, OTHERS

#: General prompts. The last is never trained: it shows if a bake is deaf to what it has not rehearsed.
GENERIC = (
    "You are a helpful assistant.\n",
    "Answer in one short sentence.\n",
    "Continue the following text.\n",
    "Summarise the following.\n",
)
#: Streams to measure on: the slice that chooses, the test slice, and that under other prompts.
CHOOSING, TEST, TEST_OTHERS = "bake/selection", "bake/test", "bake/test/others"
#: Stream → the slice that its contexts are from.
SLICES: dict[str, Slice] = {
    BAKED: "train",
    OTHERS: "train",
    CHOOSING: "selection",
    TEST: "test",
    TEST_OTHERS: "test",
}


def rehearsed(config: BakeConfig) -> tuple[str, ...]:
    """Return the other prompts that the training rehearses."""
    if not config.others_weight:
        return ()
    return (*config.others, *(GENERIC[:-1] if config.generic else ()))


def measured(config: BakeConfig) -> tuple[str, ...]:
    """Return the other prompts that are measured, the rehearsed ones first."""
    return (*config.others, *(GENERIC if config.generic else ()))


def streams(config: BakeConfig) -> tuple[str, ...]:
    """Return the names of the streams of trajectories."""
    wanted = {OTHERS: rehearsed(config), TEST_OTHERS: measured(config)}
    return tuple(name for name in SLICES if wanted.get(name, True))


def others(config: BakeConfig, stream: str) -> tuple[str, ...]:
    """Return the other prompts of a stream, which its contexts have in turn; none: the run's own."""
    return {OTHERS: rehearsed(config), TEST_OTHERS: measured(config)}.get(stream, ())


def count(config: BakeConfig, stream: str) -> int:
    """Return the number of trajectories that a stream is to have."""
    return config.trajectories if SLICES[stream] == "train" else config.held_out


def built_in(config: BakeConfig, own: Sequence[str]) -> tuple[str, ...]:
    """Return the domains of built-in text beside the user's `own`, whose names come first."""
    return tuple(domain for domain in config.built_in if domain not in own)
