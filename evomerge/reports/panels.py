"""Panels of a merging run, from the rows that its page and its report are made of. Pure.

A panel is there once there is something to show in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_forge.events.envelope import Plain
from agent_forge.evomerge.recipes.recipe import label
from agent_forge.evomerge.reports import generation_rows, report, search_statistics, skills
from agent_forge.evomerge.reports import rows as headline
from agent_forge.evomerge.reports.pictures import family_svg
from agent_forge.evomerge.reports.skills import OURS, distinct
from agent_forge.evomerge.reports.verdict import within_rounding
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.panels.head import Fact, Result
from agent_forge.runs.panels.panels import (
    Arm,
    Arms,
    Axis,
    Column,
    Edge,
    Front,
    Graph,
    Lead,
    Limit,
    Lines,
    Matrix,
    Metric,
    Node,
    Panel,
    Point,
    Series,
    Units,
    columns,
)

FITNESS = Metric(name="fitness", better="up")
GENERATION = Axis(name="generation", whole=True)

#: Part of the accuracy → what it is, in words.
PARTS = {
    "next_token_accuracy": "next tokens right",
    "choice_accuracy": "questions right, above chance",
    "solved": "problems solved",
}

#: Columns of the table of generations.
COLUMNS = (
    Column(name="generation", type="integer"),
    Column(name="best", type="number", better="up"),
    Column(name="mean", type="number", better="up"),
    Column(name="median", type="number", better="up"),
    Column(name="spread", type="number"),
    Column(name="champion", type="number", better="up"),
    Column(name="champion_id", type="model"),
    *columns(changed="flag", diversity="number", level="text"),
    *columns(evaluations="integer", items="integer"),
    Column(name="device_seconds", type="number", unit="s"),
    Column(name="wall_seconds", type="number", unit="s"),
)


def result(state: RunState) -> Result | None:
    """Return the champion's score as a `Result`, on test or before it selection; None without one."""
    figure = headline.headline(state)
    if figure is None or figure["score"] is None or state.submitted is None:
        return None
    rivals = report.rivals(state) if figure["over"] else []
    best = [r for r in rivals if r["kind"] != "baseline" and r["name"] == figure["over"]]
    return Result(
        name=OURS,
        model=state.champion,
        metric=headline.fitness(state.submitted.config),
        value=figure["score"],
        over=figure["over"],
        lead=next((lead(r) for r in best if r["lead"] == figure["lead"]), None),
        on=f"{figure['slice']} slice",
        n=figure["items"],
    )


def facts(state: RunState) -> list[Fact]:
    """Return a list of `Fact`, those known: diversity, parameters, evaluations, device time."""
    known_facts: list[Fact] = []
    if state.diversities:
        newest = state.diversities[max(state.diversities)]
        known_facts.append(Fact(name="diversity", value=newest.diversity))
        known_facts.append(Fact(name="level of diversity", value=newest.level))
    if state.started:
        known_facts.append(Fact(name="parameters", value=state.started.base.parameters))
        known_facts.append(Fact(name="evaluations", value=state.spent.evaluations))
        known_facts.append(Fact(name="device time", value=state.spent.device, unit="s"))
    return known_facts


def panels(state: RunState) -> list[Panel]:
    """Return the panels of a run, the most telling first; none if it has not started."""
    if state.started is None:
        return []
    rows = generation_rows.rows(state, [column.name for column in COLUMNS])
    panel_list: list[Panel | None] = [
        arms(state) if state.completed else None,
        domains(state),
        measures(state) if state.completed else None,
        *(lines(state, rows) if rows else ()),
        components(state) if rows else None,
        front(state),
        generations(rows),
        lineage(state) if state.champion else None,
    ]
    return [panel for panel in panel_list if panel is not None]


def lead(rival: Plain) -> Lead | None:
    """Return the champion's `Lead` over a rival, from a row of the report; None if there is none."""
    if rival["lead"] is None:
        return None
    return Lead(
        value=rival["lead"], low=rival["low"], high=rival["high"], verdict=rival["verdict"] or "level"
    )


def arms(state: RunState) -> Arms:
    """Return the panel of the champion beside base, sources and baselines on the test slice."""
    rivals, ending = report.rivals(state), report.ending(state)
    count = (headline.items(state) or {}).get("test")
    names = distinct([OURS, *(r["name"] for r in rivals)], ["", *(r["kind"] for r in rivals)])
    best = ending["verdict"]["best_baseline"]
    at = next((i for i, r in enumerate(rivals) if (r["kind"], r["name"]) == ("baseline", best)), None)
    rival_arms = [
        Arm(name=name, group=r["kind"], value=r["score"], n=count, lead=lead(r))
        for name, r in zip(names[1:], rivals, strict=True)
    ]
    return Arms(
        name="rivals",
        title="Champion against its rivals",
        says=" ".join(filter(None, (ending["verdict"]["sentence"], within_rounding(state)))),
        metric=FITNESS,
        ours=OURS,
        baseline=None if at is None else names[at + 1],
        arms=(Arm(name=OURS, value=ending["test"]["score"], n=count), *rival_arms),
    )


def measures(state: RunState) -> Matrix | None:
    """Return the panel of the models' perplexity and accuracy on the test slice; None if unknown."""
    rivals, own_components = report.rivals(state), report.ending(state)["test"]["components"]
    if not own_components:
        return None
    rows = [{"name": OURS, "kind": "", **own_components}, *rivals]
    names = distinct([row["name"] for row in rows], [row["kind"] for row in rows])
    metrics = (Metric(name="perplexity", better="down"), Metric(name="accuracy", better="up"))
    parts = [words for part, words in PARTS.items() if own_components[part] is not None]
    accuracy = f"{'the mean share' if parts[1:] else 'the share'} of {'; '.join(parts)}"
    return Matrix(
        name="measures",
        title="Perplexity and accuracy",
        says=f"On the test slice, over all domains; without intervals. Accuracy is {accuracy}.",
        rows=tuple(metric.name for metric in metrics),
        columns=tuple(names),
        metrics=metrics,
        values=tuple(tuple(row[metric.name] for row in rows) for metric in metrics),
        ours=OURS,
    )


def lines(state: RunState, rows: Sequence[Plain]) -> list[Lines]:
    """Return three panels by generation: the champion's score, the candidates', the diversity."""
    assert state.submitted
    config = state.submitted.config
    x, common = tuple(row["generation"] for row in rows), _scores(state)
    sizes = headline.items(state) or {}
    changes = [row["champion"] if row["changed"] else None for row in rows]
    means = Series(
        name="mean",
        x=x,
        y=tuple(row["mean"] for row in rows),
        low=tuple(_around(row, -1) for row in rows),
        high=tuple(_around(row, 1) for row in rows),
    )
    return [
        Lines(
            name="champion-score",
            title="Score of the champion",
            says="The champion's score on the selection slice, by which it was chosen; "
            f"{sizes['selection']} items.",
            series=(
                _by_generation(rows, "champion"),
                Series(name="new champion", role="reference", x=x, y=tuple(changes), joined=False),
            ),
            **common,
        ),
        Lines(
            name="scores",
            title="Scores of the candidates",
            says="Best, median and mean score of each generation, the mean with its spread. Each "
            f"generation has its own draw of {sizes['search']} items of the search slice.",
            series=(*(_by_generation(rows, name) for name in ("best", "median")), means),
            **common,
        ),
        Lines(
            name="diversity",
            title="Diversity",
            says=f"The candidates' diversity is {rows[-1]['level']}; that of the sources is 1.",
            x=GENERATION,
            y=Axis(name="diversity"),
            series=(_by_generation(rows, "diversity"),),
            limits=(
                Limit(at=config.min_diversity, says="low"),
                Limit(at=config.reseed_diversity, says="candidates are replaced below"),
            ),
        ),
    ]


def _by_generation(rows: Sequence[Plain], name: str) -> Series:
    """Return a column of the generations' rows as a `Series`, with the generations as x."""
    x = tuple(row["generation"] for row in rows)
    return Series(name=name, x=x, y=tuple(row[name] for row in rows))


def _around(row: Plain, sign: int) -> float | None:
    """Return the mean plus or minus the spread; None if either is missing."""
    if row["mean"] is None or row["spread"] is None:
        return None
    return row["mean"] + sign * row["spread"]


def _scores(state: RunState) -> Plain:
    """Return {x, y, limits}, arguments of `Lines`, of all panels of scores by generation."""
    assert state.submitted
    relative = state.submitted.config.normalise != "none"
    limits = (Limit(at=1.0, says="the best source"),) if relative else ()
    return {"x": GENERATION, "y": Axis(**FITNESS.model_dump()), "limits": limits}


def components(state: RunState) -> Lines | None:
    """Return the panel of the champion's components by generation; None if there are none."""
    rows = generation_rows.rows(state, ("generation", "components"))
    names = sorted({name for row in rows for name in row["components"]})
    if not names:
        return None
    table = [{"generation": row["generation"], **row["components"]} for row in rows]
    full = [{**dict.fromkeys(names), **row} for row in table]
    return Lines(
        name="components",
        title="Components of the champion",
        says="The parts of the champion's score, on the selection slice.",
        series=tuple(_by_generation(full, name) for name in names),
        **_scores(state),
    )


def front(state: RunState) -> Front | None:
    """Return the panel of the Pareto front on selection; None if too few candidates were judged."""
    pareto_front = search_statistics.front(state)
    if pareto_front is None:
        return None
    points = [
        Point(
            id=row["candidate"],
            label=label(state.recipes[row["candidate"]], state.recipes),
            values=row["values"],
            kept=on_front,
        )
        for on_front, part in ((True, "candidates"), (False, "dominated"))
        for row in pareto_front[part]
    ]
    champion = state.champion if any(p.id == state.champion for p in points) else None
    return Front(
        name="front",
        title="Pareto front",
        says=f"{len(pareto_front['candidates'])} of {len(points)} candidates that were measured on the "
        f"selection slice are dominated by no other; hypervolume {pareto_front['hypervolume']:.4g}.",
        axes=tuple(Axis(**axis) for axis in pareto_front["axes"]),
        points=tuple(points),
        chosen=champion,
    )


def domains(state: RunState) -> Matrix | None:
    """Return the panel of what each model does in each domain; None before there is a champion."""
    table = skills.skills(state)
    if table is None or not table.skills:
        return None
    return Matrix(
        name="domains",
        title="Skills by model",
        says=f"What each model does on the {table.slice} slice, domain by domain; without intervals.",
        rows=tuple(map(table.title, table.skills)),
        columns=table.names,
        metrics=tuple(
            Metric(
                name=skill.measure,
                unit="" if skill.kind == "text" else f"of {skill.of}",
                better=skill.better,
            )
            for skill in table.skills
        ),
        values=tuple(skill.values for skill in table.skills),
        ours=OURS,
    )


def generations(rows: Sequence[Plain]) -> Units:
    """Return the panel that lists the closed generations."""
    return Units(
        name="generations",
        title="Generations",
        says="Best, mean, median and spread are on each generation's own draw, the champion on the "
        "selection slice; evaluations, items and seconds are what the run had spent.",
        unit="generation",
        columns=COLUMNS,
        rows=tuple(tuple(row.values()) for row in rows),
    )


def lineage(state: RunState) -> Graph:
    """Return the panel of the champion's ancestors and siblings, as a graph."""
    assert state.champion
    graph = family_svg.lineage(state, state.champion)
    nodes = [
        Node(
            id=node["id"],
            name=node["name"],
            group=node["kind"],
            says=node["what"],
            column=node["generation"],
            value=node["score"],
            ours=node["ancestor"],
        )
        for node in graph["nodes"]
    ]
    return Graph(
        name="lineage",
        title="Lineage of the champion",
        says="What the champion was made from, and what else was made from the same models. Scores are "
        "on the selection slice, or on the draw of the candidate's generation.",
        metric=FITNESS,
        along="generation",
        nodes=tuple(nodes),
        edges=tuple(Edge(source=edge["from"], target=edge["to"]) for edge in graph["edges"]),
    )
