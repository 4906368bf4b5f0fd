"""Trainings of milliseconds: a Qwen2 model of two blocks, 16 wide, on two streams of random tokens."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from agent_forge.runs import keys
from agent_forge.weights import operations
from agent_forge.weights.recipes import Algorithm, Train, Transform
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import complete
from agent_forge.weights.training.windows import Ids, Trajectory, pack, pack_items, stream_digest

VOCABULARY = 64
INIT = operations.complete(
    Transform(
        operation="qwen2-init@1",
        params={
            "vocabulary": VOCABULARY,
            "hidden": 16,
            "layers": 2,
            "heads": 2,
            "kv_heads": 1,
            "intermediate": 32,
            "context": 32,
        },
        seed=3,
    )
)


@cache
def model() -> Tensors:
    """Return the model that trainings start from; its weights are not to be written to."""
    return operations.apply(INIT, {})


@cache
def streams() -> dict[str, Ids]:
    """Return two streams of token ids, in which each token's successor is often the same."""
    found = {}
    for name, length in (("even", 400), ("odd", 300)):
        rng = keys.generator("toy-training", name)
        noise = rng.integers(0, VOCABULARY, length)
        steady = np.arange(length) * (2 if name == "even" else 3) % VOCABULARY
        found[name] = np.where(rng.random(length) < 0.3, noise, steady).astype(np.int32)
    return found


def answers() -> dict[str, Ids]:
    """Return the same streams as items of four tokens, each with its last one as the answer."""
    last = {name: np.arange(len(ids)) % 4 == 3 for name, ids in streams().items()}
    return {name: np.where(last[name], -1 - ids, ids) for name, ids in streams().items()}


def packed() -> dict[str, Ids]:
    """Return the items of `answers` as whole items behind their lengths."""
    items = {name: np.split(ids, range(4, len(ids), 4)) for name, ids in answers().items()}
    return {name: pack_items(parts) for name, parts in items.items()}


def replies() -> Ids:
    """Return four replies of one to four tokens, two to each of two requests, as one stream."""
    ids = streams()["even"]
    beginnings = [ids[:3], ids[:3], ids[10:14], ids[10:14]]
    return pack(
        Trajectory(place // 2, begin, begin, ids[20 + place : 21 + 2 * place])
        for place, begin in enumerate(beginnings)
    )


def ended() -> dict[str, Ids]:
    """Return them as items of two tokens, an answer of one, and an end token after it."""
    place = {name: np.arange(len(ids)) % 4 for name, ids in streams().items()}
    whole = {name: np.where(place[name] == 3, 0, ids) for name, ids in streams().items()}
    return {name: np.where(place[name] > 1, -1 - ids, ids) for name, ids in whole.items()}


def recipe(optimiser: str = "adamw@1", **changes: Any) -> Train:
    """Return a complete recipe of 8 steps of 4 × 12 tokens."""
    fields: dict[str, Any] = {
        "objective": "lm@1",
        "start": INIT.id,
        "data": {"even": 0.75, "odd": 0.25},
        "data_digests": {name: stream_digest(ids) for name, ids in streams().items()},
        "batch": 4,
        "context": 12,
        "optimiser": Algorithm(name=optimiser),
        "schedule": Algorithm(name="cosine@1", params={"peak": 1e-2}),
        "clip": 1.0,
        "purpose": "toy",
        "steps": 8,
    }
    fields |= {"upto": changes.get("steps", 8)} | changes
    return complete(Train(**fields))
