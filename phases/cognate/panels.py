"""Panels of a cognate run: training curves, quality, the line from the base. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from agent_forge.phases.cognate import figures
from agent_forge.phases.cognate.figures import BARRIER, PLACES, TRAININGS
from agent_forge.phases.cognate.recipes import BASE
from agent_forge.runs.panels.head import Result
from agent_forge.runs.panels.panels import (
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
from agent_forge.studies import training_panels
from agent_forge.studies.run import StudyRun
from agent_forge.studies.training_panels import BITS, Curves

FEWER = Metric(name="fewer bits per byte", unit="share", better="up")
SLICE = f"{figures.SLICE} slice"


def result(run: StudyRun) -> Result | None:
    """Return the headline, the share of bits that specialists save; None until all are measured."""
    if run.seen.keys() != run.arms.keys():
        return None
    share = figures.gain(run)
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
    """Return the mean share of bits per byte that specialists save on their own domains."""
    base = quality[BASE]
    shares = [1 - quality[role][role] / base[role] for role in sorted(quality) if role != BASE]
    return sum(shares) / len(shares)


def panels(run: StudyRun, curves: Curves) -> list[Panel]:
    """Return the panels that the events so far allow: curves, figures, models, and lineage."""
    trainings = run.known[TRAININGS]
    models = {role: run.recipes[role] for role in run.arms}
    shown = training_panels.curves(curves, [BASE], run.state, {**models, **trainings})
    if quality := figures.quality(run):
        shown.append(_quality(quality))
    if run.seen.keys() == run.arms.keys():
        shown += _leads(run, quality)
    if line := figures.line(run):
        shown.append(_line(line))
    says, chains = "The specialists start from the base.", {n: (t,) for n, t in trainings.items()}
    shown.append(training_panels.models(run.state, models, says, chains))
    return [*shown, _lineage(run)]


def _quality(quality: Mapping[str, Mapping[str, float]]) -> Matrix:
    """Return a table panel of bits per byte, with domains as rows and models as columns."""
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


def _leads(run: StudyRun, quality: Mapping[str, Mapping[str, float]]) -> list[Panel]:
    """Return a panel for each specialist: the models on its domain, and its lead over the next."""
    panels: list[Panel] = []
    for role, lead in figures.leads(run).items():
        over = training_panels.lead(lead.difference, lead.low, lead.high)
        arms = tuple(
            Arm(
                name=other,
                group="base" if other == BASE else "specialist",
                value=values[role],
                n=len(run.seen[other].sizes[role]),
                lead=over if other == lead.rival else None,
            )
            for other, values in quality.items()
        )
        comparison = COMPARED[over.verdict]
        says = f"On text of {role} the {role} specialist is {comparison} the best other, {lead.rival}."
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
    """Return a panel of curves: the loss along the straight lines from the base to the specialists."""
    series = tuple(Series(name=r, x=PLACES, y=tuple(y)) for r, y in line.items())
    barriers = [role for role, losses in line.items() if figures.barrier(losses) > BARRIER]
    sentence = f"A barrier on the way to {', '.join(barriers)}" if barriers else "No barrier"
    return Lines(
        name="line",
        title="From the base to the specialists",
        says=f"{sentence}. A barrier is a loss more than {BARRIER:g} nats a token above the "
        "straight line between the losses of both ends. Models with a barrier between them cannot be "
        "merged by averaging.",
        x=Axis(name="place", unit="0 base, 1 specialist"),
        y=Axis(name="loss", unit="nat/token", better="down"),
        series=series,
    )


def _lineage(run: StudyRun) -> Graph:
    """Return a graph panel: text, first weights, base and specialists, and which made which."""
    started, specialists, base = run.started, run.settings.domains, run.started.base
    made_roles = {role: run.recipes[role].id in run.state.made for role in run.arms}
    first = base.name if base else "first weights"
    group = "trained" if base is None else "given"
    nodes = [
        Node(id="text", name="text", group="data", column=0, says=started.items[:12]),
        Node(id="untrained", name=first, group="given" if base else "initialised", column=0),
        Node(id=BASE, name=BASE, group=group, column=1, ours=made_roles[BASE]),
    ]
    nodes += [Node(id=r, name=r, group="trained", column=2, ours=made_roles[r]) for r in specialists]
    says = (started.dtype or "float32") if base else "train"
    edges = [Edge(source="untrained", target=BASE, says=says)]
    readers = specialists if base else [BASE]
    edges += [Edge(source="text", target=role, says="text") for role in readers]
    edges += [Edge(source=BASE, target=role, says="train") for role in specialists]
    says = "Who was made of what; `forge lineage` has the recipes."
    return Graph(name="lineage", title="Lineage", says=says, nodes=tuple(nodes), edges=tuple(edges))
