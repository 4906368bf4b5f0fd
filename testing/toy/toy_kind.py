"""Toy kind of run without torch: it counts, and it misbehaves on request.

A run has `steps` steps of `width` tasks each. A task counts: its value follows from the seed, its
place and the total of the step before, by arithmetic alone. A step's total closes the step. So a
whole run takes milliseconds and has everything that a kind of run can have: several open tasks,
facts between them, a result, a folder, a table. What the toy kind cannot do is not generic.

    FORGE_KINDS=toy=testing.toy.toy_kind:Toy     makes it known; the tests set the variable
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from agent_forge.events import Envelope, Event, failpoints
from agent_forge.runs.errors import ConfigError, NotFoundError, SourceChangedError
from agent_forge.runs.event_types import Figure, MadeModel
from agent_forge.runs.kinds import default_panels
from agent_forge.runs.kinds.controls import Forks
from agent_forge.runs.kinds.decide import Decision, Start, Task
from agent_forge.runs.kinds.files import Verification
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.origin import Ancestor, RunModels
from agent_forge.runs.kinds.tracking import TrackedName, Tracking
from agent_forge.runs.kinds.view import View
from agent_forge.runs.lists.tables import Table
from agent_forge.runs.panels.head import Fact, Head, Result, listed
from agent_forge.runs.panels.panels import Axis, Column, Lines, Metric, Panel, Series, Units
from testing.toy.toy_state import (
    Counted,
    CountTask,
    Forked,
    Started,
    StepCompleted,
    Submitted,
    ToyConfig,
    ToyState,
    digest_of,
    due,
    tasks_of,
    value_of,
)

if TYPE_CHECKING:
    from agent_forge.runs.home import Home

#: The value of FORGE_KINDS that makes the kind known.
KNOWN = "toy=testing.toy.toy_kind:Toy"

#: The version of the arithmetic, which `started` pins; the variable stands for another program.
ARITHMETIC = "sum@1"
OTHER_ARITHMETIC = "FORGE_TOY_ARITHMETIC"

TOTAL = Metric(name="total", better="up")


class ToyContext:
    """The work on a toy run's tasks."""

    def __init__(self, state: ToyState) -> None:
        self.state = state

    def share(self, task: Any, tasks: Sequence[Any]) -> Sequence[Any]:
        """Return the task alone: counting has nothing in common."""
        return [task]

    def prepare(self, tasks: Sequence[Any]) -> None:
        """Do nothing."""

    def carry_out(self, task: Any) -> Event:
        """Return the task's event. Raises ArithmeticError for the failing task."""
        began, config = time.monotonic(), self.state.submitted.config
        time.sleep(config.slow)
        if task.key == config.poison:
            os.kill(os.getpid(), signal.SIGKILL)
        if task.key == config.failing:
            raise ArithmeticError(f"{task.key} cannot be counted")
        if isinstance(task, Start):
            return Started(warnings=(), arithmetic=_arithmetic())
        value = value_of(self.state, task)
        if task.key == config.divergent:
            value += int.from_bytes(os.urandom(3))
        failpoints.hit("toy-counted")
        return Counted(
            step=task.step,
            slot=task.slot,
            value=value,
            digest=digest_of(value),
            seconds=time.monotonic() - began,
        )

    def check_unchanged(self) -> None:
        """Raise SourceChangedError if this process has another arithmetic than the run."""
        pinned, found = self.state.started.arithmetic, _arithmetic()
        if pinned != found:
            raise SourceChangedError(f"the run counts by {pinned}, and this process by {found}.")


def _arithmetic() -> str:
    return os.environ.get(OTHER_ARITHMETIC) or ARITHMETIC


class ToyView(View[ToyState]):
    """The views of a toy run."""

    def names(self, state: ToyState) -> dict[str, str]:
        """Return the digest of each step's total → what people call it."""
        return {digest_of(done.total): f"total of step {done.step}" for done in state.steps}

    def summary_line(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        match type_:
            case "counted":
                return f"step {data['step']}, slot {data['slot']}: {data['value']}"
            case "step_completed":
                return f"step {data['step']}: {data['total']}"
            case "completed":
                return names.get(data["digest"], str(data["total"]))
            case "submitted":
                return f"{data['config']['steps']} steps of {data['config']['width']}"
            case "started":
                return str(data["arithmetic"])
        return None

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        first, _, rest = key.partition("/")
        if first == "count":
            step, _, slot = rest.partition("/")
            return f"count slot {slot} of step {step}"
        return "pin the arithmetic" if key == Start.key else ""

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note steps and totals in the run's row of the run list."""
        if isinstance(event, StepCompleted):
            curve = [*json.loads(entry["curve"]), event.total]
            result = digest_of(event.total)
            entry |= {"done": event.step, "result": result, **listed(TOTAL, float(event.total))}
            entry["curve"] = json.dumps(curve)

    def progress(self, state: ToyState) -> tuple[int, int | None]:
        """Return (steps that are closed, all steps)."""
        return len(state.steps), state.submitted.config.steps if state.submitted else None

    def unit_of(self, row: Envelope) -> int | None:
        """Return the step that an event closes, or None."""
        return json.loads(row.data)["step"] if row.type == StepCompleted.type else None

    def fields(self, state: ToyState) -> dict[str, Any]:
        """Return the totals."""
        return {"totals": [done.total for done in state.steps]}

    def head(self, state: ToyState) -> Head:
        """Return the head, with the newest total as the result."""
        result = None
        if state.steps:
            total = state.total
            result = Result(name="total", model=digest_of(total), metric=TOTAL, value=total)
        arithmetic = state.started.arithmetic if state.started else "not pinned yet"
        facts = (Fact(name="arithmetic", value=arithmetic),)
        return default_panels.head(self.kind, state, result, facts)

    def panels(self, state: ToyState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return totals by step, the steps as a table, and the tasks."""
        wanted = state.submitted.config.steps
        steps = tuple((done.step, done.total) for done in state.steps)
        x, y = (tuple(column) for column in zip(*steps, strict=True)) if steps else ((), ())
        return [
            Lines(
                name="totals",
                title="Totals",
                says=f"The total is {state.total} after {len(steps)} of {wanted} steps.",
                x=Axis(name="step", whole=True),
                y=Axis(name="total", better="up"),
                series=(Series(name="total", x=x, y=y),),
            ),
            Units(
                name="steps",
                title="Steps",
                says=f"{len(steps)} steps of {state.submitted.config.width} tasks are closed.",
                unit=self.kind.unit,
                columns=(
                    Column(name="step", type="integer"),
                    Column(name="total", type="integer", better="up"),
                ),
                rows=steps,
            ),
            default_panels.tasks(self.kind, state),
        ]

    def part(self, state: ToyState, name: str, **asked: Any) -> dict[str, Any]:
        """Return `lineage`: the closed steps. Raises NotFoundError for any other part."""
        if name != "lineage":
            return super().part(state, name, **asked)
        return {"steps": [done.model_dump(mode="json") for done in state.steps]}

    def ending(self, state: ToyState) -> dict[str, Any]:
        """Return the total of the message that the run has ended."""
        return {"total": state.total}

    def report(self, state: ToyState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {**super().report(state, rows), "total": state.total, "events": len(rows)}

    def tables(self) -> Mapping[str, Any]:
        """Return the table of steps."""
        return {"steps": _steps}


class ToyTracking(Tracking[ToyState]):
    """The values that toy runs send to a tracker."""

    further = (
        TrackedName("step", "count", "number of the step"),
        TrackedName("total", "1", "total of the steps so far"),
        TrackedName("run", "text", "name of the run", "result"),
        TrackedName("total", "1", "total of all steps", "result"),
    )

    def rows(self, state: ToyState, after: int) -> list[tuple[int, dict[str, Any]]]:
        """Return (step, row) for a tracker."""
        rows = ({"step": done.step, "total": done.total} for done in state.steps)
        return [(row["step"], row) for row in rows if row["step"] > after]

    def result(self, state: ToyState) -> dict[str, Any] | None:
        """Return the total as a tracker's artifact."""
        told = {"run": state.run, "total": state.total}
        return {"metadata": told, "file": "total.json", "content": told}


class ToyForks(Forks[ToyState]):
    """The rules of forks of toy runs."""

    def check(self, state: ToyState, changes: Mapping[str, Any]) -> None:
        """Raise ConfigError unless only `steps` changes, to no fewer than are done."""
        super().check(state, {k: v for k, v in changes.items() if k != "steps"})
        if changes.get("steps", len(state.steps)) < len(state.steps):
            raise ConfigError(f"{len(state.steps)} steps are done: give steps as many, or more.")

    def place_of(self, rows: Sequence[Envelope], unit: int) -> int:
        """Return the place before the event that closes a step. Raises ConfigError."""
        return self.end_of(rows, unit) - 1

    def end_of(self, rows: Sequence[Envelope], unit: int) -> int:
        """Return the place right after a step was closed. Raises ConfigError."""
        for place, row in enumerate(rows, start=1):
            if self.kind.view.unit_of(row) == unit:
                return place
        raise ConfigError(f"step {unit} is not closed.")


class Totals(RunModels[ToyState]):
    """The totals of a toy run, named by their digests."""

    def result(self, state: ToyState) -> MadeModel | None:
        """Return the newest total: it is named by its digest."""
        if not state.steps:
            return None
        return MadeModel(recipe_id=digest_of(state.total), digest=digest_of(state.total))

    def find(self, state: ToyState, name: str) -> str:
        """Return the digest of a step's total that begins with `name`. Raises NotFoundError."""
        found = [id_ for id_ in self.kind.view.names(state) if name and id_.startswith(name)]
        if len(found) != 1:
            raise NotFoundError(f"run {state.run} has no total {name!r}.")
        return found[0]

    def ancestry(self, state: ToyState, name: str) -> list[Ancestor]:
        """Return the total that a name means (the newest without one) and those before it."""
        wanted = self.find(state, name or digest_of(state.total))
        found = []
        for done in state.steps:
            told = done.model_dump(mode="json")
            words = f"total {done.total}"
            found.append(Ancestor(digest_of(done.total), f"step {done.step}", words, told))
            if found[-1].recipe_id == wanted:
                break
        return found[::-1]


class ToyVerification(Verification[ToyState]):
    """The second counts of toy runs."""

    @property
    def remeasured(self) -> tuple[type[Event], ...]:
        """Nothing: `rebuild` counts again."""
        return ()

    def chosen(self, state: ToyState, which: str) -> list[str]:
        """Return the keys of the tasks to count again: one, or all."""
        keys_ = sorted(state.answers)
        if which in ("all", "champion"):
            return keys_
        if which not in keys_:
            raise NotFoundError(f"run {state.run} has no result of task {which}.")
        return [which]

    def rebuild(
        self,
        state: ToyState,
        cache: Any,
        ids: Sequence[str],
        say: Callable[[str], None],
    ) -> Iterator[Any]:
        """Yield an error for each value that does not come out again."""
        from agent_forge.runs.history.audit import Finding

        again = ToyState()
        again.submitted = state.submitted
        for done in state.steps:
            for task in tasks_of(again):
                event = state.answers.get(task.key)
                if task.key not in ids or not isinstance(event, Counted):
                    continue
                value = value_of(again, task)
                say(f"{task.key} is {value}")
                if event.value != value:
                    what = f"{task.key} was {event.value}, and is {value} now"
                    yield Finding("error", "weights", what)
            again.steps.append(done)

    def document(self, folder: Path) -> dict[str, Any] | None:
        """Return the document of a result's folder; None if the folder has none."""
        file = folder / "total.json"
        return json.loads(file.read_text("utf-8")) if file.is_file() else None

    def folder(
        self, home: Home, folder: Path, document: dict[str, Any], state: Any, known: bool
    ) -> Iterator[Any]:
        """Yield an error if the folder says another total than the run."""
        from agent_forge.runs.history.audit import Finding

        if state is None:
            yield Finding("unchecked", "files", f"run {document['run']} is not in this log")
        elif document["total"] != state.total:
            what = f"the folder says {document['total']}, the log {state.total}"
            yield Finding("error", "files", what)


class Toy(Kind[ToyState]):
    """Counting."""

    name = "toy"
    title = "a toy run"
    curve_of = "total"
    line = "count, to test what every kind of run shares"
    config = ToyConfig
    submitted = Submitted
    forked = Forked
    state = ToyState
    answers: ClassVar[Mapping[type[Event], type]] = {Started: Start, Counted: CountTask}
    listed = frozenset({StepCompleted.type})
    figures_of: ClassVar[Mapping[str, str]] = {"total": "total: that of all steps"}
    view = cached_property(ToyView)
    tracking = cached_property(ToyTracking)
    forks = cached_property(ToyForks)
    models = cached_property(Totals)
    verification = cached_property(ToyVerification)

    def due(self, state: ToyState) -> Decision:
        """Return what there is to do after `started`."""
        return due(state)

    def validate_answer(self, state: ToyState, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(event, Counted):
            if CountTask(event.step, event.slot) != task:
                return "another slot was counted than the one that was asked for"
            if event.digest != digest_of(event.value):
                return "the digest is not that of the value"
        return None

    def wrong_result(self, state: ToyState) -> Iterator[str]:
        """Yield what `completed` says that the steps contradict."""
        done = state.completed
        if (done.total, done.digest) != (state.total, digest_of(state.total)):
            yield "the total is not that of the steps before"

    # ---- results and work ----------------------------------------------------------------------

    def roles(self, config: Any) -> Sequence[str]:
        """Return the role of what a run gives."""
        return ["total"]

    def results(self, state: ToyState) -> dict[str, MadeModel]:
        """Return the total, named by its digest."""
        digest = digest_of(state.total)
        return {"total": MadeModel(recipe_id=digest, digest=digest)}

    def figures(self, state: ToyState) -> dict[str, Figure]:
        """Return the total."""
        return {"total": Figure(value=state.total)}

    def context(self, state: ToyState, cache: Any) -> ToyContext:
        """Return the work on the run's tasks."""
        return ToyContext(state)

    def write_result(self, home: Home, state: ToyState, out: Path) -> dict[str, Any]:
        """Write a folder with the total; return the report, with `folder`."""
        out.mkdir(parents=True, exist_ok=True)
        told = {**self.view.report(state, ()), "folder": str(out.absolute()), "chain_head": state.head}
        (out / "total.json").write_text(json.dumps(told) + "\n", "utf-8")
        return told


def _steps(state: ToyState, _rows: Sequence[Envelope]) -> Table:
    """Return the table of steps."""
    rows = [{"step": done.step, "total": done.total} for done in state.steps]
    return Table({"step": "int", "total": "int"}, rows)
