"""Dtype of the models that a run gives: the one of the model that it was given. Pure.

Trainings read the given model in float32 and keep weights in float32. If most numbers of the given
model have 16 bits, `started.dtype` names their dtype: every model that the run may give is rounded to
it once, and the rounded weights are measured, chosen and written. None: results are float32, as those
of a float32 model and of all earlier runs are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_forge.runs.event_types import SourceRecord
from agent_forge.studies.making.making import Making
from agent_forge.weights.recipes import Train, Transform

#: End of the name of a model in float32, beside the model that is rounded from it.
FLOAT32 = "-float32"
#: Operation that rounds a model.
ROUNDED = "rounded@1"


def rounded(
    started: Any, recipe: Making, source: SourceRecord | None = None, dtype: str | None = None
) -> Making:
    """Return the recipe of a model in the given one's dtype; if results are float32, `recipe` itself.

    Each tensor gets the dtype that it has in the given model, by default `started.model`. `dtype` is
    the dtype of tensors that the given model lacks; None: `started.dtype`.
    """
    if started.dtype is None:
        return recipe
    inputs = {"like": (source or started.model).recipe_id, "of": recipe.id}
    params = {"others": dtype or started.dtype}
    return Transform(operation=ROUNDED, inputs=inputs, params=params)


def with_rounded(
    started: Any,
    recipes: Mapping[str, Making],
    source: SourceRecord | None = None,
    dtype: str | None = None,
) -> dict[str, Making]:
    """Return NAME-float32 → recipe, then NAME → its rounding; if results are float32, just `recipes`.

    `source` and `dtype`: see `rounded`.
    """
    if started.dtype is None:
        return dict(recipes)
    float32_recipes: dict[str, Making] = {
        f"{name}{FLOAT32}": recipe for name, recipe in recipes.items()
    }
    return float32_recipes | {
        name: rounded(started, recipe, source, dtype) for name, recipe in recipes.items()
    }


def trainings(recipes: Mapping[str, Making]) -> dict[str, Train]:
    """Return name → recipe of every training; NAME-float32 has the name of the rounded model.

    A stop of another training is left out.
    """
    every = {n.removesuffix(FLOAT32): r for n, r in recipes.items() if isinstance(r, Train)}
    parts = {name: recipe.stem for name, recipe in every.items() if recipe.upto < recipe.steps}
    ends = dict.fromkeys(parts.values(), 0)
    for recipe in every.values() if parts else ():
        ends[recipe.stem] = max(recipe.upto, ends.get(recipe.stem, 0))
    return {n: r for n, r in every.items() if n not in parts or r.upto == ends[parts[n]]}


def halves(recipes: Mapping[str, Making]) -> int:
    """Return the number of models that are rounded, or made of rounded ones only."""
    ids = set[str]()
    for recipe in recipes.values():  # each after its inputs
        if isinstance(recipe, Transform):
            of = {role: id_ for role, id_ in recipe.inputs.items() if role != "like"}
            if recipe.operation == ROUNDED or (of and ids.issuperset(of.values())):
                ids.add(recipe.id)
    return len(ids)


def stored(started: object, models: int, rounded: int, numbers: int) -> tuple[int, str]:
    """Return (bytes of a run's models of `numbers` numbers each, the models in words).

    `models` are in float32; if results are not, `rounded` models of 16 bits come on top.
    """
    words = f"{models} models of {numbers:,} numbers in float32"
    dtype = getattr(started, "dtype", None)
    if dtype is None:
        return 4 * models * numbers, words
    return (4 * models + 2 * rounded) * numbers, f"{words} and {rounded} in {dtype}"
