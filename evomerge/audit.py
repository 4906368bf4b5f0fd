"""Is a run's history what it says? Pure: rows in, findings out.

chain      every row's hash fits its content and the row before, stream by stream
events     every row validates under its type and schema
decisions  what was due after each prefix is what then happened, with the strategy that the run names;
fitness follows from the recorded outcomes
result     the fold has the champion, the lineage digest and the chain head that `completed` says
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from events import Envelope, Event, EventsError, UnknownEventError, chain
from evomerge import facts, watching
from evomerge.control import CONTROLS, refusal
from evomerge.errors import ForgeError
from evomerge.fitness.layer_choice import choose
from evomerge.history import appends
from evomerge.run import (
    Build,
    BuildBaseline,
    ChooseLayers,
    Decision,
    Evaluate,
    Measure,
    Start,
    Task,
    due,
    open_tasks,
)
from evomerge.state import RunState, absorb

Level = Literal["error", "unchecked"]
Check = Literal["chain", "events", "decisions", "result", "weights", "fitness", "artifacts"]

#: The kind of task that an event answers.
ANSWERS: dict[type[Event], type[Task]] = {
    facts.Started: Start,
    facts.Profiled: Measure,
    facts.BaselineBuilt: BuildBaseline,
    facts.LayersChosen: ChooseLayers,
    facts.Seeded: Build,
    facts.Merged: Build,
    facts.Mutated: Build,
    facts.Sampled: Build,
    facts.Crossed: Build,
    facts.Evaluated: Evaluate,
}


@dataclass(frozen=True)
class Finding:
    """Something that is not as it should be, or that could not be checked."""

    level: Level
    check: Check
    message: str
    #: The event's place in the history, from 1.
    place: int | None = None


@dataclass(frozen=True)
class Anchor:
    """An event's hash that was noted outside of the history."""

    version: int
    head: str
    noted_in: str


def audit(rows: Sequence[Envelope], anchors: Sequence[Anchor] = ()) -> list[Finding]:
    """Everything that can be checked from the log alone, for a run's whole history."""
    found = list(_chain(rows, anchors))
    broken = bool(found)
    unreadable = list(_events(rows))
    found += unreadable
    if broken or unreadable:
        why = (
            "not checked: the history is broken" if broken else "not checked: see the events above"
        )
        return [*found, *(Finding("unchecked", check, why) for check in ("decisions", "result"))]
    return [*found, *_decisions(rows)]


def _chain(rows: Sequence[Envelope], anchors: Sequence[Anchor]) -> Iterator[Finding]:
    start = 0
    streams = list(dict.fromkeys(row.stream for row in rows))
    for stream in streams:
        own = [row for row in rows if row.stream == stream]
        for found in chain.check(own):
            yield Finding("error", "chain", found.message, start + found.version)
        if stream == streams[-1]:
            for anchor in anchors:
                lost = chain.missing_tail(own, anchor.version, anchor.head, anchor.noted_in)
                if lost is not None:
                    yield Finding("error", "chain", lost.message, start + lost.version)
        start += len(own)


def _events(rows: Sequence[Envelope]) -> Iterator[Finding]:
    for place, row in enumerate(rows, start=1):
        try:
            facts.REGISTRY.load(row)
        except UnknownEventError as error:
            yield Finding("unchecked", "events", str(error), place)
        except EventsError as error:
            yield Finding("error", "events", str(error), place)


def _decisions(rows: Sequence[Envelope]) -> list[Finding]:
    state, found, done = RunState(), [], set[str]()
    try:
        for group in appends(rows):
            events = [facts.REGISTRY.load(row) for row in group]
            problem = _undecided(state, group, events, done)
            done |= {row.key.partition("/")[2] for row in group}
            if problem is not None:
                found.append(Finding("error", "decisions", problem, state.place + 1))
            absorb(state, group)
            if state.completed and not state.place < len(rows):
                found += _result(state, rows)
    except ForgeError as error:  # a strategy that this program does not have
        found.append(Finding("unchecked", "decisions", str(error), state.place + 1))
    except (AssertionError, LookupError, ValueError, ArithmeticError, TypeError) as error:
        what = f"the history cannot have been decided: {type(error).__name__}: {error}"
        found.append(Finding("error", "decisions", what, state.place + 1))
    return found


def _undecided(
    state: RunState, group: Sequence[Envelope], events: Sequence[Event], done: set[str]
) -> str | None:
    """Why this append does not follow from the state before it; None where it does.

    `done` are the tasks that were answered before it.
    """
    first = events[0]
    if isinstance(first, facts.Submitted):
        return None if state.place == 0 else f"event {group[0].type} is not at the beginning"
    if isinstance(first, facts.Forked):
        return _unlike_past(state, first)
    if isinstance(first, facts.DivergenceDetected):
        return None
    if isinstance(first, CONTROLS):
        why = refusal(state, first)
        return None if why is None else f"the run could not be {group[0].type}: {why}"
    if isinstance(first, facts.TaskFailed | facts.TaskDied):
        asked = first.task in done or first.task in {task.key for task in open_tasks(state)}
        return None if asked else f"task {first.task} failed, but was not asked for"
    if type(first) in ANSWERS:
        return _unasked(state, open_tasks(state), group[0], first)
    decision = due(state)
    if isinstance(first, facts.Failed) and state.started is None:
        return None  # what was given could not be used: said by the start itself
    return _unlike(decision, group, events)


def _unlike_past(state: RunState, fork: facts.Forked) -> str | None:
    assert state.submitted
    expected = {**state.submitted.config.model_dump(mode="json"), **fork.changes}
    if fork.head != state.head:
        return "the fork names another past than the one before it"
    if expected != fork.config.model_dump(mode="json"):
        return "the fork's settings are not those before it with its changes"
    named = (fork.strategy or "").partition("@")[0]
    if named != fork.changes.get("strategy", ""):
        return "the fork names another strategy than its settings"
    return None


def _unlike(decision: Decision, group: Sequence[Envelope], events: Sequence[Event]) -> str | None:
    """Facts: the very same, in the same order."""
    wanted = [(new.event.type, new.event) for new in decision.facts]
    if wanted == [(event.type, event) for event in events]:
        return None
    told = ", ".join(row.type for row in group)
    asked = ", ".join(type_ for type_, _ in wanted) or "tasks only"
    if asked == told:
        return f"{told} does not say what follows from the events before"
    return f"{told} does not follow from the events before, which ask for: {asked}"


def _unasked(state: RunState, tasks: list[Task], row: Envelope, event: Event) -> str | None:
    """An answer: its task was asked for, and it is an answer to that task."""
    suffix = row.key.partition("/")[2]
    task = next((t for t in tasks if t.key == suffix), None)
    if task is None or not isinstance(task, ANSWERS[type(event)]):
        return f"{row.type} answers task {suffix}, which the events before do not ask for"
    if isinstance(task, Build | BuildBaseline):
        wanted = task.recipe if isinstance(task, BuildBaseline) else task.proposal.recipe
        if getattr(event, "recipe", None) != wanted or getattr(event, "recipe_id", "") != wanted.id:
            return f"{row.type} holds another recipe than the one that was asked for"
    if isinstance(event, facts.LayersChosen) and isinstance(task, ChooseLayers):
        if event.proposal != task.proposal.recipe.id:
            return "layers were chosen for another proposal than the one that was asked for"
        if event.layers != choose(event.scores):
            return "the layers are not those that the recorded gains choose"
    if isinstance(event, facts.Evaluated) and isinstance(task, Evaluate):
        return _mismeasured(state, event, task)
    return None


def _mismeasured(state: RunState, event: facts.Evaluated, task: Evaluate) -> str | None:
    """Fitness follows from the outcomes; nobody can raise it by hand."""
    asked = (task.recipe_id, task.slice, task.generation)
    if (event.recipe_id, event.slice, event.generation) != asked:
        return "something else was measured than what was asked for"
    if event.components is None:
        bare = event.fitness is None and not event.outcomes
        return None if bare else "there is a fitness without anything measured"
    seen = {d: (len(o.nll), len(o.right), len(o.solved)) for d, o in event.outcomes.items()}
    draws = event.scored or state.draws(event.slice, event.generation)
    if seen != {d: (len(x.windows), len(x.questions), len(x.problems)) for d, x in draws.items()}:
        return "other items were measured than those that were drawn"
    if wrong := watching.unfounded(state, event):
        return wrong
    found = state.measure(event.recipe_id, event.outcomes)
    if found != event.components:
        return "the components are not those of the recorded outcomes"
    judged = state.judge(event.recipe_id, event.slice, event.generation, found, event.scored)
    if (event.reference, event.fitness) != judged:
        return "the fitness is not that of the recorded outcomes"
    return None


def _result(state: RunState, rows: Sequence[Envelope]) -> Iterator[Finding]:
    """What `completed` says of the events before it."""
    done = state.completed
    assert done
    place = 1 + max(i for i, row in enumerate(rows) if row.type == facts.Completed.type)
    if done.champion != state.champion:
        yield Finding("error", "result", "the champion is not the one of the events before", place)
    if done.lineage_digest != state.lineage_digest():
        yield Finding("error", "result", "the lineage digest is not that of the events", place)
    if rows[place - 1].prev_hash != done.chain_head:
        yield Finding("error", "result", "the chain head is not the event before's hash", place)
