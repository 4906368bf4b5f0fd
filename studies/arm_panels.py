"""Panels of a run that trains from a given model: arms, and quality by domain. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from runs.event_types import Figure
from runs.panels.head import Result
from runs.panels.panels import Arm, Arms, Lead, Matrix, Metric
from studies import comparison, training_panels
from studies.comparison import BITS_PER_BYTE, Scale
from studies.observing import Observed
from studies.run import Run
from studies.training_panels import BITS

Seen = Mapping[str, Observed]
#: Said of arms whose trainings are alike.
SAME_WINDOWS = "Each training reads the same windows."


def lead(figure: Figure) -> Lead:
    """Return the lead that a figure with an interval is."""
    assert figure.low is not None
    assert figure.high is not None
    return training_panels.lead(figure.value, figure.low, figure.high)


def headline(run: Run, name: str, words: Mapping[str, str], baseline: str) -> Result | None:
    """Return our arm's figure beside the baseline's; None until both are measured.

    The baseline itself, as a result, stands beside nothing.
    """
    if run.ours not in run.seen or baseline not in run.seen:
        return None
    event, scale, more = run.seen[run.ours], run.study.scale, run.leads.get(baseline)
    return Result(
        name=name,
        model=event.recipe_id,
        metric=scale.metric,
        value=scale.mean(event),
        over=words[baseline] if more else None,
        lead=lead(more) if more else None,
        on=f"{comparison.TEST} slice",
        n=scale.count(event),
    )


def arms(
    title: str,
    words: Mapping[str, str],
    seen: Seen,
    leads: Mapping[str, Figure],
    groups: Mapping[str, str],
    ours: str,
    baseline: str,
    note: str = SAME_WINDOWS,
    scale: Scale = BITS_PER_BYTE,
    cost: Metric | None = None,
    costs: Mapping[str, float] = MappingProxyType({}),
) -> Arms:
    """Return the arms with the leads of the arm `ours` over them; `words`: arm → what it is.

    `note` is a sentence on all of them; `costs`: arm → what it cost, by the metric `cost`.
    """
    found = tuple(
        Arm(
            name=name,
            group=groups[name],
            value=scale.mean(seen[name]),
            n=scale.count(seen[name]),
            lead=lead(leads[name]) if name in leads else None,
            cost=costs.get(name),
        )
        for name in words
        if name in seen
    )
    said = "; ".join(f"{name}: {words[name]}" for name in words if name in seen)
    return Arms(
        name="arms",
        title=title,
        says=f"{said}. {note}",
        metric=scale.metric,
        ours=ours,
        baseline=baseline if baseline in seen else None,
        arms=found,
        cost=cost,
    )


def items(event: Observed) -> int:
    """Return the number of items that a model was measured on."""
    return sum(map(len, event.items.values()))


def domains(words: Mapping[str, str], seen: Seen, ours: str) -> Matrix:
    """Return bits per byte by domain and arm."""
    names = [name for name in words if name in seen]
    found = tuple(seen[ours].values)
    return Matrix(
        name="quality",
        title="Bits per byte by domain",
        says="On the test slice; fewer bits are better.",
        rows=found,
        columns=tuple(names),
        metrics=(BITS,),
        values=tuple(tuple(seen[name].values[d] for name in names) for d in found),
        ours=ours,
    )
