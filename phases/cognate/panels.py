"""Head and panels of a cognate run: training curves, quality, the line from the base. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from phases.cognate import findings, plan
from phases.cognate.events import CognateState
from runs.panels.head import Fact, Result
from runs.panels.panels import (
    COMPARED,
    Arm,
    Arms,
    Axis,
    Edge,
    Graph,
    Lines,
    Matrix,
    Metric,
    Node,
    Panel,
    Series,
)
from studies import training_panels
from studies.training_panels import BITS, Curves

FEWER = Metric(name="fewer bits per byte", unit="share", better="up")
SLICE = f"{findings.SLICE} slice"


def result(state: CognateState) -> Result | None:
    """Return how much better specialists are on their own domains than the base, on average.

    None until all are measured.
    """
    quality = findings.quality(state) if state.started else {}
    domains = state.submitted.config.domains if state.submitted else ()
    if not all(role in quality for role in (plan.BASE, *domains)):
        return None
    share = findings.gain(state)
    value, low, high = share.value, share.low or 0.0, share.high or 0.0
    less = f"{abs(value):.1%} {'fewer' if value >= 0 else 'more'}".replace("%", " %")
    ends = f"{low:.1%} to {high:.1%}".replace("%", " %")
    return Result(
        name="specialists on their own domains, against the base",
        metric=FEWER,
        value=value,
        low=share.low,
        high=share.high,
        on=SLICE,
        n=share.n,
        items="windows",
        says=f"on their own domains the specialists need {less} bits per byte than the base "
        f"({SLICE}, {share.n:,} windows; 95 %: {ends})",
    )


def gain(quality: Mapping[str, Mapping[str, float]]) -> float:
    """Return how many bits per byte fewer specialists need on their own domains: the mean share."""
    base = quality[plan.BASE]
    shares = [1 - quality[role][role] / base[role] for role in sorted(quality) if role != plan.BASE]
    return sum(shares) / len(shares)


def facts(state: CognateState) -> tuple[Fact, ...]:
    """Return the size of the models, the text, and the tokens that were trained on."""
    if state.started is None:
        return ()
    read = sum(e.tokens for one in state.advanced.values() for e in one.values())
    return (
        *training_panels.speed(state, plan.trainings(state).values()),
        Fact(name="parameters", value=state.started.parameters),
        *(
            [Fact(name="trained parameters", value=state.started.trainable)]
            if state.started.trainable is not None
            else []
        ),
        Fact(name="tokens of text", value=sum(state.started.tokens.values())),
        Fact(name="tokens trained on", value=read),
        Fact(name="precision", value=state.submitted.config.precision),
    )


def panels(state: CognateState, curves: Curves) -> list[Panel]:
    """Return the panels of what is there: curves, then figures, then models and their lineage."""
    if state.started is None:
        return []
    trainings = {**plan.models(state), **plan.trainings(state)}
    found = training_panels.curves(curves, [plan.BASE], state, trainings)
    if quality := findings.quality(state):
        found.append(_quality(quality))
        found += _leads(state, quality)
    if line := findings.line(state):
        found.append(_line(line))
    says = "The specialists start from the base."
    models = training_panels.models(state, plan.models(state), says, plan.trainings(state))
    return [*found, models, _lineage(state)]


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
        over = training_panels.lead(lead.difference, lead.low, lead.high)
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
        told = COMPARED[over.verdict]
        says = f"On text of {role} the {role} specialist is {told} the best other, {lead.rival}."
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
        says=f"{told}. A barrier is a loss more than {findings.BARRIER:g} nats a token above the "
        "straight line between the losses of both ends. Models with a barrier between them cannot be "
        "merged by averaging.",
        x=Axis(name="place", unit="0 base, 1 specialist"),
        y=Axis(name="loss", unit="nat/token", better="down"),
        series=series,
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
    says = (state.started.dtype or "float32") if given else "train"
    edges = [Edge(source="untrained", target=plan.BASE, says=says)]
    readers = specialists if given else [plan.BASE]
    edges += [Edge(source="text", target=role, says="text") for role in readers]
    edges += [Edge(source=plan.BASE, target=role, says="train") for role in specialists]
    says = "Who was made of what; `forge lineage` has the recipes."
    return Graph(name="lineage", title="Lineage", says=says, nodes=tuple(nodes), edges=tuple(edges))
