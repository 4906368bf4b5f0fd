"""What the search has shown beside its champion: techniques, genes, the front. Pure; from the log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from evomerge.recipe import Flow, Grouped, Merge, Source, genome
from evomerge.search import pareto
from evomerge.search.genome import Detail, Space
from evomerge.search.nsga2 import objectives
from evomerge.search.proposals import Family
from evomerge.state import RunState

#: Candidates that a correlation is told of.
FEWEST = 12


def technique(state: RunState, recipe_id: str) -> str:
    """What a candidate was merged by: "ties", "slerp-dare-dfs", or a source."""
    recipe = state.recipes[recipe_id]
    if isinstance(recipe, Merge):
        return recipe.method
    return "source" if isinstance(recipe, Source) else genome(recipe, state.recipes).pipeline.name


def techniques(state: RunState) -> list[dict[str, Any]]:
    """A row a technique: its candidates, how many were in the better half of their generation, the best
    selection score that one of them reached, and how often one became champion.
    """
    rows: dict[str, dict[str, Any]] = {}
    for (generation, _), candidate in sorted(state.candidates.items()):
        id_, done = candidate.recipe_id, state.generations.get(generation)
        ranking = done.ranking if done else ()
        row = rows.setdefault(
            technique(state, id_), {"candidates": 0, "better_half": 0, "best": None, "champions": 0}
        )
        if id_ in ranking:
            row["candidates"] += 1
            row["better_half"] += ranking.index(id_) < len(ranking) / 2
        judged = state.fitness((id_, "selection", None))
        if judged is not None:
            row["best"] = judged.scalar if row["best"] is None else max(row["best"], judged.scalar)
    for change in state.champions:
        rows[technique(state, change.recipe_id)]["champions"] += 1
    return [{"technique": name, **row} for name, row in sorted(rows.items())]


def genes(state: RunState) -> list[dict[str, Any]]:
    """How the score went with each gene of the champion's species: Spearman's rank correlation inside
    of generations, pooled over them. By part of the model; strongest first.

    It says what went with what in this search, which chose where to look; it is no effect of a cause.
    """
    assert state.started
    name = technique(state, state.champion) if state.champion else ""
    pairs: list[list[tuple[list[float], float]]] = []
    kin = Family(
        tuple(s.recipe_id for s in state.started.sources),
        state.started.base.recipe_id,
        state.started.blocks,
    )
    detail: Detail = "parts"
    space: Space | None = None
    for _, done in sorted(state.generations.items()):
        found = []
        for id_, score in zip(done.ranking, done.scores, strict=True):
            recipe = state.recipes[id_]
            if isinstance(recipe, Source | Merge):
                continue
            merge, own = genome(recipe, state.recipes).pipeline, technique(state, id_)
            merge = merge.merged if isinstance(merge, Flow) else merge
            if isinstance(merge, Grouped) and own == name and score is not None:
                space = space or Space(kin, merge.name, detail, merge.depths)
                found.append((space.point(merge, state.recipes), score))
        if len(found) > 2:
            pairs.append(found)
    count = sum(map(len, pairs))
    if space is None or count < FEWEST:
        return []
    rows = []
    for place, gene in enumerate(space.names):
        value = _pooled([([x[place] for x, _ in p], [s for _, s in p]) for p in pairs])
        if value is not None:
            rows.append({"gene": gene, "correlation": value, "candidates": count})
    return sorted(rows, key=lambda row: (-abs(row["correlation"]), row["gene"]))


def _pooled(groups: Sequence[tuple[list[float], list[float]]]) -> float | None:
    """The correlation of ranks inside of groups; None where a gene never moved."""
    above = left = right = 0.0
    for xs, ys in groups:
        a, b = _centred(_ranks(xs)), _centred(_ranks(ys))
        above += math.fsum(x * y for x, y in zip(a, b, strict=True))
        left += math.fsum(x * x for x in a)
        right += math.fsum(y * y for y in b)
    return above / math.sqrt(left * right) if left > 0 and right > 0 else None


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0; level ones share the middle of theirs."""
    order = sorted(values)
    return [order.index(v) + (order.count(v) - 1) / 2 for v in values]


def _centred(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [v - mean for v in values]


def front(state: RunState) -> dict[str, Any] | None:
    """The candidates that no other dominates in the run's objectives on the selection slice, and the
    volume above the sources' worst that they fill. None where fewer than two were judged.
    """
    assert state.submitted
    assert state.started
    wanted = state.submitted.config.objectives
    points: dict[str, tuple[float, ...]] = {}
    for candidate in state.candidates.values():
        measured = state.components((candidate.recipe_id, "selection", None))
        if measured is not None and (candidate.recipe_id, "selection", None) in state.evaluations:
            point = objectives(measured, wanted)
            if point is not None:
                points[candidate.recipe_id] = point
    corners = []
    for source in state.started.sources:
        measured = state.components((source.recipe_id, "selection", None))
        point = objectives(measured, wanted) if measured is not None else None
        if point is not None:
            corners.append(point)
    if len(points) < 2 or not corners:
        return None
    ids = sorted(points)
    best = pareto.fronts([points[id_] for id_ in ids])[0]
    worst = tuple(min(column) for column in zip(*corners, strict=True))
    rows = sorted(
        ({"candidate": ids[i], "objectives": list(points[ids[i]])} for i in best),
        key=lambda row: row["objectives"], reverse=True,
    )  # fmt: skip
    return {
        "objectives": list(wanted), "candidates": rows, "reference": list(worst),
        "hypervolume": pareto.hypervolume([points[ids[i]] for i in best], worst),
    }  # fmt: skip


def lines(data: dict[str, Any]) -> list[str]:
    """The report's sections on all of this, as Markdown."""
    out = ["", "## What each technique earned", ""]
    out += ["| technique | candidates | in the better half | best on selection | champions |"]
    out += ["|---|---|---|---|---|"]
    for row in data["techniques"]:
        best = "–" if row["best"] is None else f"{row['best']:.4f}"
        out.append(
            f"| {row['technique']} | {row['candidates']} | {row['better_half']} | {best} | "
            f"{row['champions']} |"
        )
    if data["genes"]:
        count = data["genes"][0]["candidates"]
        out += ["", "## Genes that went with the score", ""]
        out += [
            f"Rank correlation inside of generations, {count} candidates; no proof of a cause.",
            "",
        ]
        out += [f"- {row['gene']}: {row['correlation']:+.2f}" for row in data["genes"][:8]]
    if data["front"]:
        found = data["front"]
        out += [
            "",
            f"## Pareto front in {', '.join(found['objectives'])}, on the selection slice",
            "",
        ]
        out += ["| candidate | " + " | ".join(_heading(o) for o in found["objectives"]) + " |"]
        out += ["|---|" + "---|" * len(found["objectives"])]
        for row in found["candidates"]:
            cells = " | ".join(f"{value:.4f}" for value in row["objectives"])
            out.append(f"| `{row['candidate'][:12]}` | {cells} |")
        out += ["", f"Hypervolume above the sources' worst: {found['hypervolume']:.6g}."]
    return out


def _heading(objective: str) -> str:
    kind = objective.partition("/")[0]
    signs = {"perplexity": "−log perplexity", "speed": "−operations", "memory": "−bytes"}
    return signs.get(kind, objective)
