"""Bakes of milliseconds: trajectories of random tokens for the toy model of `toy_training`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from agent_forge.runs import keys
from agent_forge.weights.recipes import Train
from agent_forge.weights.training.models.modules import TEACHER
from agent_forge.weights.training.windows import BAKED, OTHERS, Ids, Trajectory, pack, stream_digest
from testing.models import toy_training
from testing.models.toy_training import VOCABULARY

#: Number of trajectories of each stream.
COUNT = 6


def _ids(count: int, *key: str | int) -> Ids:
    return keys.generator("toy-baking", *key).integers(0, VOCABULARY, count).astype(np.int32)


@cache
def trajectories(name: str) -> tuple[Trajectory, ...]:
    """Return trajectories of unequal lengths; those of `OTHERS` are read after the prompt, too."""
    found = []
    for number in range(COUNT):
        prompt, context = _ids(5, name, "prompt"), _ids(3 + number % 3, name, "context", number)
        prompted = np.concatenate([prompt, context])
        plain = prompted if name == OTHERS else context
        found.append(Trajectory(0, prompted, plain, _ids(1 + number, name, "reply", number)))
    return tuple(found)


@cache
def streams() -> dict[str, Ids]:
    """Return the toy's text and both streams of trajectories."""
    return toy_training.streams() | {name: pack(trajectories(name)) for name in (BAKED, OTHERS)}


def recipe(params: dict[str, Any] | None = None, **changes: Any) -> Train:
    """Return a complete recipe of 8 steps of 4 trajectories, with the data that `params` ask for."""
    given = params or {}
    wanted = [BAKED] + ([OTHERS] if given.get("others", 1.0) else [])
    wanted += ["even", "odd"] if given.get("neutral", 1.0) else []
    fields: dict[str, Any] = {
        "objective": "bake@1",
        "params": given,
        "inputs": {TEACHER: toy_training.INIT.id},
        "data": dict.fromkeys(wanted, 1.0),
        "data_digests": {name: stream_digest(streams()[name]) for name in wanted},
    }
    return toy_training.recipe(**{**fields, **changes})
