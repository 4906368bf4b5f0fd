"""A run's candidate as a config for `forge merge`, where a config can say it.

Its ancestors become documents of their own, named by the beginning of their ids. Noise, and slerp on
task vectors, have no words there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from evomerge.recipe import Grouped, Merge, Mutate, Pipeline, Recipe, Source, closure, genome


def as_config(
    recipe_id: str, known: Mapping[str, Recipe], models: Mapping[str, str], dtype: str
) -> str | None:
    """YAML that gives the same bits, or None. `models`: source id → where it is."""
    documents = []
    for id_, recipe in closure(recipe_id, known).items():
        if isinstance(recipe, Source):
            continue
        said = _document(recipe, known)
        if said is None:
            if id_ == recipe_id or _needed(id_, recipe_id, known):
                return None
            continue
        documents.append((id_, said))
    needed = [(id_, said) for id_, said in documents if _needed(id_, recipe_id, known)]
    for id_, said in needed:
        said["base_model"] = _name(said["base_model"], models)
        for entry in said["models"]:
            entry["model"] = _name(entry["model"], models)
        said["dtype"] = dtype
        if len(needed) > 1:
            said["name"] = id_[:12]
    return "---\n".join(
        yaml.safe_dump(said, sort_keys=False, default_flow_style=None) for _, said in needed
    )


def _name(id_: str, models: Mapping[str, str]) -> str:
    return models.get(id_, id_[:12])


def _needed(id_: str, top: str, known: Mapping[str, Recipe]) -> bool:
    """Whether a recipe's weights are read on the way to another's: a mutant's parent may not be."""
    found, todo = set(), [top]
    while todo:
        recipe = known[todo.pop()]
        if isinstance(recipe, Mutate):
            recipe = genome(recipe, known).pipeline
        inputs = () if isinstance(recipe, Source) else recipe.inputs_used()
        todo += [i for i in inputs if i not in found]
        found.update(inputs)
    return id_ == top or id_ in found


def _document(recipe: Recipe, known: Mapping[str, Recipe]) -> dict[str, Any] | None:
    if isinstance(recipe, Mutate):
        resolved = genome(recipe, known)
        return None if resolved.noises else _document(resolved.pipeline, known)
    if isinstance(recipe, Pipeline):
        return _pipeline(recipe)
    if isinstance(recipe, Grouped):
        return _grouped(recipe)
    return _merge(recipe) if isinstance(recipe, Merge) and recipe.base else None


def _pipeline(recipe: Pipeline) -> dict[str, Any]:
    genes = recipe.genes
    parameters: dict[str, Any] = {"lambda": genes.scale}
    if genes.ts is not None:
        parameters["ts"] = list(genes.ts)
    parameters["drop" if recipe.arithmetic == "dare" else "density"] = (
        genes.drop if recipe.arithmetic == "dare" else genes.density
    )
    if recipe.selection == "dfs":
        parameters["epsilon"] = genes.epsilon
    elif genes.layers is not None:
        parameters["layers"] = list(genes.layers)
    return _said(recipe.name, recipe.inputs, recipe.base, genes.weights, parameters, recipe.seed)


def _grouped(recipe: Grouped) -> dict[str, Any] | None:
    """Where all groups are merged alike: layer groups × parts have no word in that language."""
    first = recipe.params[0]
    if any(params != first for params in recipe.params) or recipe.method in ("slerp", "stages"):
        return None
    if recipe.method == "dare":
        if recipe.base in recipe.inputs:  # a config leaves the base out of the models: other masks
            return None
        parameters = {"density": 1 - first["drop"], "normalize": first["normalise"]}
        if first.get("vote"):
            return _said(
                "dare_ties", recipe.inputs, recipe.base, first["weights"], parameters, recipe.seed
            )
        return _said(
            "dare_linear", recipe.inputs, recipe.base, first["weights"], parameters, recipe.seed
        )
    merge = Merge(method=recipe.method, inputs=recipe.inputs, base=recipe.base, params=first)
    said = _merge(merge)
    if said and recipe.method == "ties":
        said["parameters"]["normalize"] = first["normalise"]
    return said


def _merge(recipe: Merge) -> dict[str, Any] | None:
    given = dict(recipe.params)
    count = len(recipe.inputs)
    weights = given.get("weights") or (1.0,) * count
    scale = {"lambda": given.get("scale", 1.0)}
    base = recipe.base or ""
    if recipe.method == "linear":
        return _said("task_arithmetic", recipe.inputs, base, weights, {"normalize": True}, 0)
    if recipe.method == "task_arithmetic":
        normalize = {"normalize": given.get("normalise", False)}
        return _said("task_arithmetic", recipe.inputs, base, weights, {**scale, **normalize}, 0)
    if recipe.method == "ties":
        kept = {"density": given.get("density", 0.2)}
        return _said("ties", recipe.inputs, base, weights, {**scale, **kept}, 0)
    if recipe.method == "dfs":
        return _said("dfs", recipe.inputs, base, None, {"epsilon": given.get("epsilon", 0.1)}, 0)
    return None


def _said(
    method: str,
    inputs: tuple[str, ...],
    base: str,
    weights: Any,
    parameters: dict[str, Any],
    seed: int,
) -> dict[str, Any]:
    entries: list[dict[str, Any]] = [{"model": i} for i in inputs]
    if weights is not None:
        for entry, weight in zip(entries, weights, strict=True):
            entry["parameters"] = {"weight": weight}
    said = {"models": entries, "merge_method": method, "base_model": base, "parameters": parameters}
    return {**said, "seed": seed} if seed else said
