"""The search of mergekit-evolve 0.1.5 (deprecated in June 2026), reimplemented as a baseline.

CMA-ES without bounds searches the weight and the density of every model in every group of layers.
It starts at 1/n and 1 with a standard deviation of 1/6. Every sample is scored on the same first k
items; the result is the best sample of all. Negative weights count by their absolute value,
densities are clipped. Two things differ from the package. DARE is the paper's, which divides by the
density (mergekit keeps a tensor's L1 norm), and CMA-ES is of the package `cmaes` instead of `cma`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from cmaes import CMA

from agent_forge.evaluation.data.outcomes import Draw, Draws
from agent_forge.evomerge.fitness import composite
from agent_forge.evomerge.fitness.composite import Weighting
from agent_forge.evomerge.recipes import tensor_groups
from agent_forge.evomerge.recipes.recipe import Grouped
from agent_forge.evomerge.run import state as run_budget
from agent_forge.evomerge.run.state import RunState
from benchmarks.evomerge.laboratory import Curve, Laboratory

SIGMA = 1 / 6
#: Two merge methods of mergekit-evolve, with their genes: its README's, and the plainest.
METHODS = {"dare_ties": ("weight", "density"), "task_arithmetic": ("weight",)}


def configuration(
    genotype: np.ndarray, models: list[str], base: str, blocks: int, method: str = "dare_ties"
) -> dict[str, Any]:
    """Return mergekit's config of a genotype.

    Its shape is [layer groups, models, 1, genes]; genes are (weight, density) or (weight,).
    """
    depths = len(genotype)
    step, slices = blocks // depths, []
    for depth, rows in enumerate(genotype):
        span = [depth * step, (depth + 1) * step]
        sources: list[dict[str, Any]] = [
            {"model": model, "layer_range": span, "parameters": _parameters(row[0])}
            for model, row in zip(models, rows, strict=True)
        ]
        sources.append({"model": base, "layer_range": span})
        slices.append({"sources": sources})
    return {
        "merge_method": method,
        "slices": slices,
        "base_model": base,
        "dtype": "bfloat16",
        "parameters": {"normalize": method in ("ties", "dare_ties", "linear"), "int8_mask": True},
    }


def _parameters(genes: np.ndarray) -> dict[str, float]:
    found = {"weight": float(abs(genes[0]))}
    return found if len(genes) == 1 else {**found, "density": float(min(1.0, abs(genes[1])))}


def recipe(config: dict[str, Any], inputs: tuple[str, ...], base: str, seed: int) -> Grouped:
    """Return the same merge as a recipe.

    Tensors before the layers get the first group's parameters, tensors after them the last group's.
    """
    rows = [s["sources"][:-1] for s in config["slices"]]
    params = []
    plain = config["merge_method"] == "task_arithmetic"
    for row in rows:
        given: dict[str, Any] = {"weights": [entry["parameters"]["weight"] for entry in row]}
        if not plain:
            drop = [1 - entry["parameters"]["density"] for entry in row]
            given |= {"drop": drop, "normalise": config["parameters"]["normalize"], "vote": True}
        params.append(given)
    spread = [p for p in params for _ in tensor_groups.PARTS]
    return Grouped(
        method="task_arithmetic" if plain else "dare",
        inputs=inputs,
        base=base,
        depths=len(rows),
        params=(*spread, params[0], params[-1]),
        seed=seed,
    )


def search(
    lab: Laboratory, seed: int, budget: int, method: str = "dare_ties", depths: int = 3
) -> Curve:
    """Run one search; return each new best sample and the items that were spent until then."""
    kinds = len(METHODS[method])
    family, curve = lab.world.family, Curve()
    count = len(family.sources)
    start = np.tile([1 / count, 1.0][:kinds], depths * count)
    cma = CMA(start, SIGMA, seed=seed)
    draws, state = fixed(lab), RunState()
    state.take(lab.world.started)
    best, spent = -math.inf, 0
    while True:
        told = []
        for _ in range(cma.population_size):
            x = cma.ask()
            config = configuration(
                x.reshape(depths, count, 1, kinds),
                list(family.sources),
                family.base,
                family.blocks,
                method,
            )
            made = recipe(config, family.sources, family.base, seed)
            lab.known[made.id] = made
            score, cost = scored(lab, made, draws, state)
            spent += cost
            if spent > budget:
                return curve
            told.append((x, -score))
            if score > best:
                best = score
                curve.append((spent, made.id))
        cma.tell(told)


def fixed(lab: Laboratory) -> Draws:
    """Draw the first k items of every domain of the search slice, as many as a generation draws."""
    wanted = {k: int(str(lab.world.settings[f"search_{k}"])) for k in ("windows", "questions")}
    return {
        domain: Draw(
            windows=tuple(range(min(wanted["windows"], pool.windows))),
            questions=tuple(range(min(wanted["questions"], pool.questions))),
        )
        for domain, pool in sorted(lab.world.pools["search"].items())
    }


def scored(lab: Laboratory, made: Any, draws: Draws, state: RunState) -> tuple[float, int]:
    """Return a recipe's score on fixed items of the search slice, and the number of these items.

    Components are weighted as in a run, relative to the best source on the same items. The items
    for measuring sources are not counted.
    """
    known = {**state.recipes, **lab.known}
    seen = lab.world.outcomes(made, known, draws, "search")
    weighting = Weighting.model_validate(lab.world.settings["fitness_weights"])
    cost = lab.world.started.cost
    measured = composite.components(seen, cost.flops_per_token, cost.bytes)
    sources = []
    for id_ in lab.world.family.sources:
        whole = lab.seen(known[id_], known, state.draws("search", None), "search", True)
        own = {d: o.pick(draws[d]) for d, o in whole.items()}
        sources.append(composite.components(own, cost.flops_per_token, cost.bytes))
    best = composite.reference([c for c in sources if c])
    items = run_budget.items(seen)
    if measured is None:
        return -math.inf, items
    return composite.fitness(measured, best, weighting).scalar, items
