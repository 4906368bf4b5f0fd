"""Recipes of a compression: matrices encoded, and models decoded. Pure.

encode     a matrix at a setting of the menu
point      a whole model, with a setting for every matrix, in one file
probe      the model with one matrix alone at a setting: what its errors cost
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from events import canonical_json
from phases.compression.config import CompressionConfig
from phases.compression.events import CompressionState, MatrixRecord, Started
from phases.compression.menu import MENU, PLAIN
from runs.kinds.tasks import Decision
from weights.making.making import Make
from weights.recipes import Source, Transform

#: Encodings that are asked for at a time: more than there are devices.
TOGETHER = 256

#: A setting for every matrix, in their order.
Assignment = tuple[str, ...]


def settings(config: CompressionConfig) -> tuple[str, ...]:
    """Return the settings that are tried; matrices that a codec does not take need 16 bits."""
    return tuple(dict.fromkeys((*config.settings, PLAIN)))


@lru_cache(maxsize=8)
def _encodings(
    source: str, grams: str | None, matrices: tuple[MatrixRecord, ...], names: Assignment, seed: int
) -> dict[tuple[str, str], tuple[str, Transform]]:
    """Return (matrix, setting) → (id, recipe). The ids are hashes: they are made once."""
    found = {}
    for matrix in matrices:
        for name in names:
            recipe = _encoding(source, grams, matrix, name, seed)
            found[matrix.name, name] = recipe.id, recipe
    return found


def _encoding(
    source: str, grams: str | None, matrix: MatrixRecord, name: str, seed: int
) -> Transform:
    setting = MENU[name]
    lone = {} if matrix.layer and grams else setting.lone
    params = _complete(setting.codec, canonical_json({**setting.params, **lone}))
    inputs = {"model": source} | ({"grams": grams} if matrix.layer and grams else {})
    return Transform(
        operation="encode@1",
        inputs=inputs,
        params={"tensor": matrix.name, "codec": setting.codec, "params": json.loads(params)},
        seed=seed,
    )


@lru_cache(maxsize=256)
def _complete(codec: str, params: str) -> str:
    """Return a codec's parameters with every default written out, as JSON."""
    from weights import algorithms, codecs

    return canonical_json(
        algorithms.complete(codecs.of(codec).Params, json.loads(params), f"codec {codec}")
    )


def source(started: Started) -> str:
    """Return the id of the given model's recipe."""
    return started.source.recipe_id


def grams(started: Started) -> str | None:
    """Return the id of the grams as a source; None without calibration."""
    return None if started.grams is None else Source(digest=started.grams).id


def encodings(state: CompressionState) -> dict[tuple[str, str], tuple[str, Transform]]:
    """Return (matrix, setting) → (id, recipe) of everything that is encoded."""
    config, started = state.submitted.config, state.started
    return _encodings(
        source(started), grams(started), started.matrices, settings(config), config.seed
    )


def unencoded(state: CompressionState) -> Decision:
    """Return the next matrices to encode; nothing if all are."""
    open_ = (
        recipe
        for id_, recipe in encodings(state).values()
        if id_ not in state.made and id_ not in state.refused
    )
    return Decision(tasks=[Make(recipe) for recipe, _ in zip(open_, range(TOGETHER), strict=False)])


def taken(state: CompressionState, assignment: Sequence[str]) -> Assignment:
    """Return an assignment with 16 bits for the matrices that a codec does not take."""
    known, matrices = encodings(state), state.started.matrices
    pairs = zip(matrices, assignment, strict=True)
    return tuple(PLAIN if known[m.name, s][0] in state.refused else s for m, s in pairs)


def point(state: CompressionState, assignment: Sequence[str]) -> Transform:
    """Return the recipe of the model with a setting for every matrix."""
    names = [matrix.name for matrix in state.started.matrices]
    wanted = dict(zip(names, taken(state, assignment), strict=True))
    return _decoding(state, wanted, "float16")


def probe(state: CompressionState, matrix: str, setting: str) -> Transform:
    """Return the recipe of the model with one matrix at a setting, and all else as it is."""
    return _decoding(state, {matrix: setting}, "own")


def _decoding(state: CompressionState, wanted: Mapping[str, str], rest: str) -> Transform:
    known = encodings(state)
    inputs = {
        f"{n:04}": known[name, setting][0] for n, (name, setting) in enumerate(wanted.items())
    }
    return Transform(
        operation="decode@1",
        inputs={"model": source(state.started), **inputs},
        params={"tensors": list(wanted), "rest": rest},
    )


def known(state: CompressionState) -> dict[str, Any]:
    """Return id → recipe of everything that is encoded."""
    return dict(encodings(state).values())
