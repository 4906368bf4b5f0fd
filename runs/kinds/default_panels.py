"""Head and panels of a run whose kind says nothing of its own: progress, scores, tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent_forge.runs import kinds
from agent_forge.runs.kinds.decide import pending
from agent_forge.runs.kinds.state import State
from agent_forge.runs.panels.head import Fact, Head, Result, measured
from agent_forge.runs.panels.panels import Axis, Lines, Panel, Series, Units, columns

#: Columns of the table of tasks.
TASKS = columns(what="text", state="text", failed_attempts="integer", task="text")


def head(
    kind: kinds.AnyKind, state: State, result: Result | None = None, facts: Sequence[Fact] = ()
) -> Head:
    """Return the head of a run; a kind that measures something gives its result and facts."""
    done, of = kind.view.progress(state)
    troubles = {
        "tasks that failed": len(state.failures),
        "tasks given up": len(state.quarantined),
        "diverging results": len(state.divergences),
    }
    own_facts = [Fact(name=name, value=count) for name, count in troubles.items() if count]
    if state.completed and (name := kind.view.unchanged(state)):
        name = name.removeprefix(f"{state.run.rpartition('.')[0]}.")  # a pipeline's id says nothing
        own_facts.append(Fact(name="result", value=f"{name}, which the run was given, unchanged"))
    ending = state.failed or state.cancelled
    if ending and ending.reason:
        decision = kind.actions.decision(state)
        reason = decision.words(state.run) if decision else ending.reason
        own_facts.append(Fact(name="reason", value=reason))
    return Head(
        run=state.run,
        kind=state.kind,
        title=kind.title,
        status=state.status,
        place=state.place,
        result=result,
        done=done,
        of=of,
        unit=kind.unit,
        facts=(*facts, *own_facts),
    )


def sentences(head: Head) -> list[str]:
    """Return a list of at most two sentences: a head's result, and all its facts in one."""
    texts: list[str] = []
    if result := head.result:
        what = " ".join(dict.fromkeys((result.name, result.metric.name)))
        on = f" on the {result.on}" if result.on else ""
        value = measured(result.value, result.metric.unit, result.low, result.high)
        sentence = f"{what[:1].upper()}{what[1:]}: {value}{on}"
        texts.append(f"{result.says or sentence}.")
    if head.facts:
        facts = (f"{fact.name} {fact.words()}" for fact in head.facts)
        texts.append(f"{', '.join(facts)}.".capitalize())
    return texts


def panels(kind: kinds.AnyKind, state: State, curve: Sequence[float | None]) -> list[Panel]:
    """Return a list of panels: the curve, if it has a score, and the table of the run's tasks."""
    curves: list[Panel] = []
    if any(value is not None for value in curve):
        curves.append(scores(kind, curve))
    return [*curves, tasks(kind, state)]


def scores(kind: kinds.AnyKind, curve: Sequence[float | None]) -> Lines:
    """Return the run list's curve as a panel."""
    series = Series(name=kind.curve_of, x=tuple(range(len(curve))), y=tuple(curve))
    says = f"The {kind.curve_of} of each {kind.unit}, as the list of runs has it."
    x, y = Axis(name=kind.unit, whole=True), Axis(name=kind.curve_of)
    return Lines(name="scores", title="Score", says=says, x=x, y=y, series=(series,))


def tasks(kind: kinds.AnyKind, state: State) -> Units:
    """Return a table, as a panel, of tasks: done, given up, failed, and what the run does next."""
    names = kind.view.names(state)
    states = dict.fromkeys(state.answers, "done")
    states |= dict.fromkeys(state.quarantined, "given up")
    states |= {key: "open" for key in pending(state) if key not in states}
    states |= {key: "failed" for key in state.failures if key not in states}
    rows = [
        (kind.view.task_words(key, names), what, failure.attempt if failure else 0, key)
        for key, what, failure in ((k, what, state.failures.get(k)) for k, what in states.items())
    ]
    counts = ", ".join(
        f"{number} {what}"
        for what in ("done", "open", "failed", "given up")
        if (number := sum(row[1] == what for row in rows))
    )
    says, shown = f"{counts}." if counts else "No task has begun.", tuple(rows)
    return Units(name="tasks", title="Tasks", says=says, unit="task", columns=TASKS, rows=shown)
