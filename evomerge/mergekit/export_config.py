"""Export of a run's candidate as a config for `forge merge`, if a config can express it.

The candidate's ancestors become documents of their own, named by the beginning of their ids. A
config cannot express noise, slerp on task vectors, or paths that begin or end in a source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from agent_forge.events.envelope import Data
from agent_forge.evomerge.recipes.recipe import (
    Flow,
    Grouped,
    Merge,
    Mutate,
    Pipeline,
    Recipe,
    Source,
    Step,
    closure,
    genome,
)


def as_config(
    recipe_id: str, recipes: Mapping[str, Recipe], models: Mapping[str, str], dtype: str
) -> str | None:
    """Return YAML that gives the same bits; None if no config can. `models`: source id → its place."""
    needed: list[tuple[str, dict[str, Any]]] = []
    for id_, recipe in closure(recipe_id, recipes).items():
        if isinstance(recipe, Source) or not _needed(id_, recipe_id, recipes):
            continue
        document = _documents(id_, recipe, recipes)
        if document is None:
            return None
        needed += document
    for id_, document in needed:
        if "base_model" in document:
            document["base_model"] = _name(document["base_model"], models)
        for entry in _entries(document):
            entry["model"] = _name(entry["model"], models)
        document["dtype"] = dtype
        if len(needed) > 1:
            document["name"] = id_[:12]
    return "---\n".join(
        yaml.safe_dump(merge_document, sort_keys=False, default_flow_style=None)
        for _, merge_document in needed
    )


def _name(id_: str, models: Mapping[str, str]) -> str:
    return models.get(id_, id_[:12])


def _needed(id_: str, top: str, recipes: Mapping[str, Recipe]) -> bool:
    """Return True if building `top` reads the recipe's weights; it may not read a mutant's parent."""
    ancestors, todo = set(), [top]
    while todo:
        recipe = recipes[todo.pop()]
        if isinstance(recipe, Mutate):
            recipe = genome(recipe, recipes).pipeline
        inputs = () if isinstance(recipe, Source) else recipe.inputs_used()
        todo += [i for i in inputs if i not in ancestors]
        ancestors.update(inputs)
    return id_ == top or id_ in ancestors


def _entries(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries (dicts) of a document that name models."""
    if "models" in document:
        return document["models"]
    return [entry for slice_ in document["slices"] for entry in slice_["sources"]]


def _documents(
    id_: str, recipe: Recipe, recipes: Mapping[str, Recipe]
) -> list[tuple[str, dict[str, object]]] | None:
    """Return (id, document) pairs: the merge that the path goes through, the recipe; or None.

    Return None if a config cannot express the recipe.
    """
    resolved = genome(recipe, recipes) if isinstance(recipe, Flow | Mutate) else None
    if resolved is None or not isinstance(resolved.pipeline, Flow):
        document = _document(recipe, recipes)
        return None if document is None else [(id_, document)]
    flow = resolved.pipeline
    merged = _document(flow.merged, recipes)
    ends = {flow.steps[0].model, flow.steps[-1].model}
    if merged is None or resolved.noises or ends != {0}:  # a config takes the edges from the ends
        return None
    return [(flow.merged.id, merged), (id_, _flow(flow))]


def _flow(recipe: Flow) -> dict[str, object]:
    """Return the document (dict) of a path: one slice for neighbouring blocks of one model."""
    slices: list[dict[str, Any]] = []
    before: Step | None = None
    for step in recipe.steps:
        follows = before is not None and (step.model, step.block) == (before.model, before.block + 1)
        if follows and step.scale == 1.0:
            slices[-1]["sources"][0]["layer_range"][1] += 1
        else:
            model = recipe.inputs[step.model - 1] if step.model else recipe.merged.id
            entry: dict[str, object] = {"model": model, "layer_range": [step.block, step.block + 1]}
            if step.scale != 1.0:
                entry["parameters"] = {"input_scale": step.scale}
            slices.append({"sources": [entry]})
        before = step
    return {"slices": slices, "merge_method": "dataflow"}


def _document(recipe: Recipe, recipes: Mapping[str, Recipe]) -> dict[str, object] | None:
    if isinstance(recipe, Mutate):
        resolved = genome(recipe, recipes)
        return None if resolved.noises else _document(resolved.pipeline, recipes)
    if isinstance(recipe, Pipeline):
        return _pipeline(recipe)
    if isinstance(recipe, Grouped):
        return _grouped(recipe)
    return _merge(recipe) if isinstance(recipe, Merge) and recipe.base else None


def _pipeline(recipe: Pipeline) -> dict[str, object]:
    genes = recipe.genes
    parameters: dict[str, object] = {"lambda": genes.scale}
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


def _grouped(recipe: Grouped) -> dict[str, object] | None:
    """Return the document (dict) of a grouped recipe; None if a config cannot express it.

    Configs cannot express layer groups × parts.
    """
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
    document = _merge(merge)
    if document and recipe.method == "ties":
        document["parameters"]["normalize"] = first["normalise"]
    return document


def _merge(recipe: Merge) -> dict[str, Any] | None:
    params = dict(recipe.params)
    count = len(recipe.inputs)
    weights = params.get("weights") or (1.0,) * count
    scale = {"lambda": params.get("scale", 1.0)}
    base = recipe.base or ""
    if recipe.method == "linear":
        return _said("task_arithmetic", recipe.inputs, base, weights, {"normalize": True}, 0)
    if recipe.method == "task_arithmetic":
        normalize = {"normalize": params.get("normalise", False)}
        return _said("task_arithmetic", recipe.inputs, base, weights, {**scale, **normalize}, 0)
    if recipe.method in ("tsv_m", "iso_c"):
        return _said(recipe.method, recipe.inputs, base, weights, scale, 0)
    if recipe.method == "ties":
        density = {"density": params.get("density", 0.2)}
        return _said("ties", recipe.inputs, base, weights, {**scale, **density}, 0)
    if recipe.method == "dfs":
        return _said("dfs", recipe.inputs, base, None, {"epsilon": params.get("epsilon", 0.1)}, 0)
    return None


def _said(
    method: str, inputs: tuple[str, ...], base: str, weights: Any, parameters: Data, seed: int
) -> dict[str, object]:
    entries: list[dict[str, object]] = [{"model": i} for i in inputs]
    if weights is not None:
        for entry, weight in zip(entries, weights, strict=True):
            entry["parameters"] = {"weight": weight}
    document = {"models": entries, "merge_method": method, "base_model": base, "parameters": parameters}
    return {**document, "seed": seed} if seed else document
