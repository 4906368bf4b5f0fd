"""Head and panels of a cognate run: training curves, quality, the line from the base. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phases.cognate import findings, plan
from phases.cognate.events import CognateState
from runs.panels.head import Fact, Result
from runs.panels.panels import (
    Arm,
    Arms,
    Axis,
    Column,
    Edge,
    Graph,
    Lead,
    Lines,
    Matrix,
    Metric,
    Node,
    Panel,
    Series,
    Units,
)
from weights.recipes import Train, Transform

BITS = Metric(name="bits per byte", unit="bit/B", better="down")
STEPS = Axis(name="step", whole=True)

Curves = Mapping[str, list[dict[str, Any]]]


def result(state: CognateState) -> Result | None:
    """Return how much better specialists are on their own domains than the base, on average.

    None until all are measured.
    """
    quality = findings.quality(state) if state.started else {}
    domains = state.submitted.config.domains if state.submitted else ()
    if not all(role in quality for role in (plan.BASE, *domains)):
        return None
    gains = [1 - quality[d][d] / quality[plan.BASE][d] for d in domains]
    return Result(
        name="specialists on their own domains, against the base",
        metric=Metric(name="fewer bits per byte", unit="share", better="up"),
        value=sum(gains) / len(gains),
        on=findings.SLICE,
        n=len(domains),
    )


def facts(state: CognateState) -> tuple[Fact, ...]:
    """Return the size of the models, the text, and the tokens that were trained on."""
    if state.started is None:
        return ()
    read = sum(e.tokens for one in state.advanced.values() for e in one.values())
    return (
        Fact(name="parameters", value=state.started.parameters),
        Fact(name="tokens of text", value=sum(state.started.tokens.values())),
        Fact(name="tokens trained on", value=read),
        Fact(name="precision", value=state.submitted.config.precision),
    )


def panels(state: CognateState, curves: Curves) -> list[Panel]:
    """Return the panels of what is there: curves, then figures, then models and their lineage."""
    found: list[Panel] = []
    if any(curves.values()):
        found += [
            _curve(curves, "loss", Axis(name="loss", unit="nat/token", better="down"), "Loss"),
            _curve(curves, "norm", Axis(name="norm", log=True), "Norm of the gradient"),
            _curve(curves, "rate", Axis(name="learning rate"), "Learning rate"),
        ]
    if state.started is None:
        return found
    if quality := findings.quality(state):
        found.append(_quality(quality))
        found += _leads(state, quality)
    if line := findings.line(state):
        found.append(_line(line))
    return [*found, _models(state), _lineage(state)]


def _curve(curves: Curves, field: str, y: Axis, title: str) -> Lines:
    """Return a quantity along the steps of every training."""
    series = tuple(
        Series(
            name=role,
            role="reference" if role == plan.BASE else "ours",
            x=tuple(point["step"] for point in points),
            y=tuple(point[field] for point in points),
        )
        for role, points in curves.items()
        if points
    )
    says = f"{title} along the steps of each training; a point is the mean of the steps before it."
    return Lines(name=field, title=title, says=says, x=STEPS, y=y, series=series)


def _quality(quality: Mapping[str, Mapping[str, float]]) -> Matrix:
    """Return bits per byte by model and domain."""
    domains = tuple(next(iter(quality.values())))
    return Matrix(
        name="quality",
        title="Quality by domain",
        says="Each specialist is to have the fewest bits per byte on its own domain.",
        rows=domains,
        columns=tuple(quality),
        metrics=(BITS,),
        values=tuple(tuple(row[d] for row in quality.values()) for d in domains),
    )


def _leads(state: CognateState, quality: Mapping[str, Mapping[str, float]]) -> list[Panel]:
    """Return each specialist beside the others on its own domain; with the lead over the next best."""
    domains, windows = state.submitted.config.domains, findings.found(state, findings.QUALITY)
    if not all(role in quality for role in (plan.BASE, *domains)):
        return []
    panels: list[Panel] = []
    for role, lead in findings.leads(state).items():
        verdict = "better" if lead.low > 0 else "worse" if lead.high < 0 else "level"
        over = Lead(value=lead.difference, low=lead.low, high=lead.high, verdict=verdict)
        arms = tuple(
            Arm(
                name=other,
                group="base" if other == plan.BASE else "specialist",
                value=figures[role],
                n=len(windows[other].sizes[role]),
                lead=over if other == lead.rival else None,
            )
            for other, figures in quality.items()
        )
        told = "leads" if verdict == "better" else "does not show a lead over"
        says = f"On text of {role} the {role} specialist {told} the next best, {lead.rival}."
        panels.append(
            Arms(
                name=f"lead-{role}",
                title=f"The {role} specialist",
                says=says,
                metric=BITS,
                ours=role,
                baseline=lead.rival,
                arms=arms,
            )
        )
    return panels


def _line(line: Mapping[str, list[float]]) -> Lines:
    """Return the loss along the straight lines from the base to the specialists."""
    series = tuple(Series(name=r, x=findings.PLACES, y=tuple(y)) for r, y in line.items())
    barriers = [
        role for role, losses in line.items() if findings.barrier(losses) > findings.BARRIER
    ]
    told = f"A barrier on the way to {', '.join(barriers)}" if barriers else "No barrier"
    return Lines(
        name="line",
        title="From the base to the specialists",
        says=f"{told}: models with a barrier between them cannot be merged by averaging.",
        x=Axis(name="place", unit="0 base, 1 specialist"),
        y=Axis(name="loss", unit="nat/token", better="down"),
        series=series,
    )


def _spent(state: CognateState, recipe: Train | Transform) -> tuple[int, int, float]:
    """Return the steps that are done, all steps, and the seconds that they took; 0 without steps."""
    if not isinstance(recipe, Train):
        return 0, 0, 0.0
    seconds = sum(e.seconds for e in state.advanced.get(recipe.stem, {}).values())
    return state.steps(recipe), recipe.upto, seconds


def _models(state: CognateState) -> Units:
    """Return base and specialists with their steps and weights."""
    models = plan.models(state)
    rows = tuple(
        (
            role,
            *_spent(state, recipe),
            state.made[recipe.id].digest[:12] if recipe.id in state.made else None,
        )
        for role, recipe in models.items()
    )
    return Units(
        name="models",
        title="Models",
        says="The specialists start from the base.",
        unit="model",
        columns=(
            Column(name="model", type="text"),
            Column(name="steps", type="integer"),
            Column(name="of", type="integer"),
            Column(name="seconds", type="number", unit="s"),
            Column(name="weights", type="text"),
        ),
        rows=rows,
    )


def _lineage(state: CognateState) -> Graph:
    """Return text, first weights, base and specialists, and what made each of which."""
    models = plan.models(state)
    specialists = [role for role in models if role != plan.BASE]
    made = {role: recipe.id in state.made for role, recipe in models.items()}
    given = state.started.base
    first = given.name if given else "first weights"
    group = "trained" if given is None else "given"
    nodes = [
        Node(id="text", name="text", group="data", column=0, says=state.started.items[:12]),
        Node(id="untrained", name=first, group="given" if given else "initialised", column=0),
        Node(id=plan.BASE, name=plan.BASE, group=group, column=1, ours=made[plan.BASE]),
    ]
    nodes += [Node(id=r, name=r, group="trained", column=2, ours=made[r]) for r in specialists]
    says = "float32" if given else "train"
    edges = [Edge(source="untrained", target=plan.BASE, says=says)]
    readers = specialists if given else [plan.BASE]
    edges += [Edge(source="text", target=role, says="text") for role in readers]
    edges += [Edge(source=plan.BASE, target=role, says="train") for role in specialists]
    says = "Who was made of what; `forge lineage` has the recipes."
    return Graph(name="lineage", title="Lineage", says=says, nodes=tuple(nodes), edges=tuple(edges))
