"""Statistics of a search beside its champion: techniques, genes, the Pareto front.

Pure; from the log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from agent_forge.events.envelope import Plain
from agent_forge.evomerge.fitness.composite import Components
from agent_forge.evomerge.recipes import tensor_groups
from agent_forge.evomerge.recipes.recipe import Flow, Grouped, Merge, Source, genome
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.search.genes.genome import Detail, Space
from agent_forge.evomerge.search.strategies.nsga2 import objectives
from agent_forge.evomerge.search.strategy import SourceFamily
from agent_forge.search import pareto

#: Correlations need at least `FEWEST` candidates.
FEWEST = 12


def technique(state: RunState, recipe_id: str) -> str:
    """Return the name of a candidate's technique: "ties", "slerp-dare-dfs", or "source"."""
    recipe = state.recipes[recipe_id]
    if isinstance(recipe, Merge):
        return recipe.method
    return "source" if isinstance(recipe, Source) else genome(recipe, state.recipes).pipeline.name


def techniques(state: RunState) -> list[dict[str, object]]:
    """Return one row (dict) for each technique.

    The row has the technique's ranked candidates, how many of them were in the better half of their
    generation, their best selection score, and how often one of them became champion.
    """
    rows: dict[str, Plain] = {}
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


def genes(state: RunState) -> list[Plain]:
    """Return dicts: the score's correlation with each gene of the champion's species, strongest first.

    It is Spearman's rank correlation inside of generations, pooled over generations, by part of the
    model. Empty for fewer than `FEWEST` candidates. The search itself chose where to look, so the
    correlation proves no cause.
    """
    space, kin = _kin(state)
    pairs: list[list[tuple[list[float], float]]] = []
    for _, done in sorted(state.generations.items()):
        scored_points = [
            (kin[id_], score)
            for id_, score in zip(done.ranking, done.scores, strict=True)
            if id_ in kin and score is not None
        ]
        if len(scored_points) > 2:
            pairs.append(scored_points)
    count = sum(map(len, pairs))
    if space is None or count < FEWEST:
        return []
    rows = []
    for place, gene in enumerate(_gene_names(state, space)):
        value = _pooled([([x[place] for x, _ in p], [s for _, s in p]) for p in pairs])
        if value is not None:
            rows.append({"gene": gene, "correlation": value, "candidates": count})
    return sorted(rows, key=lambda row: (-abs(row["correlation"]), row["gene"]))


def parts(state: RunState) -> dict[str, dict[str, float]]:
    """Return {recipe id: {gene by part: value}} of the candidates of the champion's species.

    The genes' names are those of `genes`, their values those of the merge.
    """
    space, kin = _kin(state)
    if space is None:
        return {}
    names, cell_genes = _gene_names(state, space), space.genes
    return {
        id_: {
            name: cell_genes[place % len(cell_genes)].value(x)
            for place, (name, x) in enumerate(zip(names, point, strict=True))
        }
        for id_, point in kin.items()
    }


def _kin(state: RunState) -> tuple[Space | None, dict[str, list[float]]]:
    """Return (the space of the champion's species, {recipe id: point in it}); (None, {}) if unknown."""
    if state.started is None or state.champion is None:
        return None, {}
    name = technique(state, state.champion)
    family = SourceFamily(
        tuple(s.recipe_id for s in state.started.sources),
        state.started.base.recipe_id,
        state.started.blocks,
    )
    detail: Detail = "parts"
    space: Space | None = None
    points: dict[str, list[float]] = {}
    for _, candidate in sorted(state.candidates.items()):
        recipe = candidate.recipe
        if isinstance(recipe, Source | Merge):
            continue
        merge = genome(recipe, state.recipes).pipeline
        merge = merge.merged if isinstance(merge, Flow) else merge
        if isinstance(merge, Grouped) and technique(state, candidate.recipe_id) == name:
            space = space or Space(family, merge.name, detail, merge.depths)
            points[candidate.recipe_id] = space.point(merge, state.recipes)
    return space, points


def _gene_names(state: RunState, space: Space) -> list[str]:
    """Return the names of a point's genes, sources by their names: "attention weights code"."""
    assert state.started
    names = [source.name for source in state.started.sources]
    labels = [g.key if g.source is None else f"{g.key} {names[g.source]}" for g in space.genes]
    cells = (*tensor_groups.PARTS, "embedding", "head")
    return [f"{cell} {gene}" for cell in cells for gene in labels]


def _pooled(groups: Sequence[tuple[list[float], list[float]]]) -> float | None:
    """Return the correlation of ranks inside of groups; None if gene or score is constant."""
    above = left = right = 0.0
    for xs, ys in groups:
        a, b = _centred(_ranks(xs)), _centred(_ranks(ys))
        above += math.fsum(x * y for x, y in zip(a, b, strict=True))
        left += math.fsum(x * x for x in a)
        right += math.fsum(y * y for y in b)
    return above / math.sqrt(left * right) if left > 0 and right > 0 else None


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks of values, from 0; equal values share their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    smaller = np.cumsum(counts) - counts
    return (smaller + (counts - 1) / 2)[places].tolist()


def _centred(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [v - mean for v in values]


def front(state: RunState) -> Plain | None:
    """Return the Pareto front (dict) in the run's objectives on selection; None if too few were judged.

    The result has the candidates that no other candidate dominates, those that are dominated, and
    the volume above the sources' worst that the front fills. None if fewer than two candidates, or
    no source, were judged.

    `objectives` of a candidate are as they are searched, larger being better; `values` are as
    `axes` say.
    """
    assert state.submitted
    assert state.started
    names = state.submitted.config.search.front_objectives
    points: dict[str, tuple[float, ...]] = {}
    measures: dict[str, Components] = {}
    for candidate in state.candidates.values():
        measured = state.components((candidate.recipe_id, "selection", None))
        if measured is not None and (candidate.recipe_id, "selection", None) in state.evaluations:
            point = objectives(measured, names)
            if point is not None:
                points[candidate.recipe_id] = point
                measures[candidate.recipe_id] = measured
    corners = []
    for source in state.started.sources:
        measured = state.components((source.recipe_id, "selection", None))
        point = objectives(measured, names) if measured is not None else None
        if point is not None:
            corners.append(point)
    if len(points) < 2 or not corners:
        return None
    ids = sorted(points)
    best = {ids[i] for i in pareto.fronts([points[id_] for id_ in ids])[0]}
    worst = tuple(min(column) for column in zip(*corners, strict=True))
    axes = [_axis(name, next(iter(measures.values()))) for name in names]
    rows = sorted(
        (
            {"candidate": id_, "objectives": list(points[id_]), "values": _plain(axes, points[id_])}
            for id_ in ids
        ),
        key=lambda row: row["objectives"],
        reverse=True,
    )
    return {
        "objectives": list(names),
        "axes": [{k: a[k] for k in ("name", "better")} for a in axes],
        "candidates": [row for row in rows if row["candidate"] in best],
        "dominated": [row for row in rows if row["candidate"] not in best],
        "reference": list(worst),
        "hypervolume": pareto.hypervolume([points[id_] for id_ in sorted(best)], worst),
    }


def _axis(objective: str, measured: Components) -> dict[str, object]:
    """Return {name, kind, better} of an objective: its name for people, and the better direction."""
    kind, _, domain = objective.partition("/")
    if kind == "domain":
        kind = "perplexity" if domain in measured.domains else "accuracy"
    words = {"speed": "operations a token", "memory": "bytes"}
    name = f"{words.get(kind, kind)}{f' on {domain}' if domain else ''}"
    return {"name": name, "kind": kind, "better": "up" if kind == "accuracy" else "down"}


def _plain(axes: Sequence[Plain], point: Sequence[float]) -> list[float]:
    """Return a point's values as people know them: a perplexity instead of −log of it."""
    read = {"perplexity": lambda x: math.exp(-x), "accuracy": lambda x: x}
    return [read.get(a["kind"], lambda x: -x)(x) for a, x in zip(axes, point, strict=True)]


def lines(data: Plain) -> list[str]:
    """Return the report's sections on techniques, genes and front, as lines of Markdown."""
    out = ["", "## Results by merge method", ""]
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
        out += ["", "## Parameters correlated with the score", ""]
        out += [f"Rank correlation inside of generations, {count} candidates; no proof of a cause.", ""]
        out += [f"- {row['gene']}: {row['correlation']:+.2f}" for row in data["genes"][:8]]
    if data["front"]:
        pareto_front = data["front"]
        out += [
            "",
            f"## Pareto front in {' and '.join(a['name'] for a in pareto_front['axes'])}, on "
            "the selection "
            "slice",
            "",
        ]
        out += ["| candidate | " + " | ".join(map(_heading, pareto_front["axes"])) + " |"]
        out += ["|---|" + "---|" * len(pareto_front["axes"])]
        for row in pareto_front["candidates"]:
            cells = " | ".join(map(_value, row["values"]))
            out.append(f"| `{row['candidate'][:12]}` | {cells} |")
        out += ["", f"Hypervolume above the sources' worst: {pareto_front['hypervolume']:.4g}."]
    return out


def _heading(axis: dict[str, object]) -> str:
    return f"{axis['name']} ({'higher' if axis['better'] == 'up' else 'lower'} is better)"


def _value(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4f}"
