"""Panels of a run that trains from a given model: arms, and quality by domain. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from runs.event_types import Figure
from runs.panels.head import Result
from runs.panels.panels import Arm, Arms, Lead, Matrix
from studies import comparison, paired_bits, training_panels
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
    """Return the result's bits per byte beside the baseline's; None until both are measured.

    The baseline itself, as a result, stands beside nothing.
    """
    if run.result not in run.seen or baseline not in run.seen:
        return None
    event, more = run.seen[run.result], run.leads.get(baseline)
    return Result(
        name=name,
        model=event.recipe_id,
        metric=BITS,
        value=paired_bits.mean(event),
        over=words[baseline] if more else None,
        lead=lead(more) if more else None,
        on=comparison.TEST,
        n=items(event),
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
) -> Arms:
    """Return the arms with the leads of the arm `ours` over them; `words`: arm → what it is.

    `note` is a sentence on all of them.
    """
    found = tuple(
        Arm(
            name=name,
            group=groups[name],
            value=paired_bits.mean(seen[name]),
            n=items(seen[name]),
            lead=lead(leads[name]) if name in leads else None,
        )
        for name in words
        if name in seen
    )
    said = "; ".join(f"{name}: {words[name]}" for name in words if name in seen)
    return Arms(
        name="arms",
        title=title,
        says=f"{said}. {note}",
        metric=BITS,
        ours=ours,
        baseline=baseline if baseline in seen else None,
        arms=found,
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
