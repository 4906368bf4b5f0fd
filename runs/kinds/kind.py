"""The interface of a kind of run: all that the runner, the queue, the lists and the audit ask of it.

A kind writes its settings, its events, its state and `due`; the other methods have defaults or say
who does its work. `runs/kinds/__init__.py` has the table of kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel

from events import Envelope, Event
from runs.errors import ConfigError, NotFoundError
from runs.kinds import events
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from runs.kinds.decide import pending
from runs.kinds.origin import Origin
from runs.kinds.state import State
from runs.kinds.tasks import Context, Decision, Start, Task

if TYPE_CHECKING:
    from runs.home import Home

S = TypeVar("S", bound=State)

#: An audit's statement about a run: level ("error", "unchecked", "note"), check, message.
Statement = tuple[str, str, str]


@dataclass(frozen=True)
class Outlook:
    """Tasks (or units) done and to do, the share of the work that is done, seconds left at most."""

    done: int
    #: All of them; None if the run has not started, or if they cannot be counted.
    of: int | None
    #: Share of the work that is done, 0 to 1; it includes work on tasks under way.
    inside: float | None
    #: Seconds left at most, None if they cannot be known.
    eta_s: float | None
    #: What `done` and `of` count.
    unit: str = "tasks"


class Kind(Generic[S]):
    """A kind of run."""

    #: The first part of its runs' streams, and what people call its runs ("a merging run").
    name: ClassVar[str]
    title: ClassVar[str]
    #: One line for lists of kinds, and the unit that its progress is counted in.
    line: ClassVar[str]
    unit: ClassVar[str] = "step"
    #: The word for its result, in the name of the folder of a run that names none.
    result_name: ClassVar[str] = "result"
    #: Its settings, which have a field `device`; its classes of `submitted` and `forked`.
    config: ClassVar[type[BaseModel]]
    submitted: ClassVar[type[events.Submitted]]
    forked: ClassVar[type[events.Forked]]
    state: ClassVar[type[State]]
    #: Event → the class of task that it answers.
    answers: ClassVar[Mapping[type[Event], type]]
    #: Types of events after which the run list is brought up to date, beside the common ones.
    listed: ClassVar[frozenset[str]] = frozenset()

    # ---- deciding: pure ----------------------------------------------------------------------

    def due(self, state: S) -> Decision:
        """Return what there is to do after `started`: facts that follow, or open tasks."""
        raise NotImplementedError

    def essential(self, state: S, task: str) -> bool:
        """Return True if a run cannot go on without the task, even if its `quarantine` lets it."""
        return task == Start.key

    def unasked(self, state: S, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does. For the audit."""
        return None

    def agrees(self, state: S, recorded: Event, found: Event) -> bool:
        """Return True if a second result of a task does not contradict the recorded one."""
        return events.luckless(recorded) == events.luckless(found)

    def essence(self, event: Event) -> str:
        """Return the telling part of a result, for `divergence_detected`."""
        data = events.luckless(event)
        return str(data.get("digest") or data)

    def wrong_result(self, state: S) -> Iterator[str]:
        """Yield what `completed` says beyond lineage and chain that the events contradict."""
        yield from ()

    # ---- forks: pure -------------------------------------------------------------------------

    def changed(self, config: Any, changes: Mapping[str, Any]) -> Any:
        """Return the settings with changes, given as a user gives them. Raises ConfigError."""
        return self.parse({**config.model_dump(mode="json"), **changes})

    def changes(self, before: Any, after: Any) -> dict[str, Any]:
        """Return the changes that `changed` turns `before` into `after` with, as `forked` has them."""
        old, new = self.shown(before), self.shown(after)
        return {name: value for name, value in new.items() if value != old[name]}

    def check_fork(self, state: S, changes: Mapping[str, Any]) -> None:
        """Raise ConfigError if a fork at this state may not change these settings.

        By default a run that has started may change no setting.
        """
        if changes and state.started:
            raise ConfigError(
                f"setting {next(iter(changes))} cannot change in a fork of a run that has started. "
                "Start a new run instead."
            )

    def fork_fields(self, config: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return further fields of the kind's `forked` event."""
        return {}

    def wrong_fork(self, state: S, fork: Any) -> str | None:
        """Return why the kind's own fields of `forked` do not follow; None if they do."""
        return None

    def place_of(self, rows: Sequence[Envelope], unit: int) -> int:
        """Return the place at which a fork redoes the end of a unit. Raises ConfigError."""
        raise ConfigError(f"{self.title} is forked at an event: give --at POSITION.")

    def end_of(self, rows: Sequence[Envelope], unit: int) -> int:
        """Return the place right after a unit has ended. Raises ConfigError."""
        raise ConfigError(f"{self.title} has no generations: name an event, RUN@57.")

    # ---- asking for a run ----------------------------------------------------------------------

    def parse(self, given: Mapping[str, Any]) -> Any:
        """Return the settings that a user gives. Raises ConfigError."""
        from pydantic import ValidationError

        try:
            return self.config.model_validate(given)
        except ValidationError as error:
            said = "; ".join(": ".join(self.fault(e)) for e in error.errors())
            raise ConfigError(f"settings of {self.title}: {said}.") from error

    def fault(self, error: Any) -> tuple[str, str]:
        """Return the setting that one of pydantic's errors is about, and what is wrong with it."""
        what = str(error["msg"]).removeprefix("Value error, ")
        return ".".join(map(str, error["loc"])), what

    def plan(self, asked: Asked, lookup: Lookup) -> Plan:
        """Return the plan of a run. Raises ConfigError or UnavailableError before any work."""
        if asked.models or asked.data:
            raise ConfigError(f"{self.title} takes neither models nor data.")
        return Plan(self.name, self.parse(asked.config), {}, asked.output_dir)

    def check(self, plan: Plan) -> Checked:
        """Open what the run will open; raise the errors that it would raise."""
        return Checked()

    def texts(self, submitted: Any) -> Iterator[tuple[str, str]]:
        """Yield (text, what it is) of the texts in the kind's own fields of `submitted`."""
        yield from ()

    # ---- what is shown: pure -----------------------------------------------------------------

    def shown(self, config: Any) -> dict[str, Any]:
        """Return name → value of the settings as people see them, as JSON has them."""
        return config.model_dump(mode="json")

    def names(self, state: S) -> dict[str, str]:
        """Return recipe id → what people call the recipe."""
        return {}

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        return None

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        return ""

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note an event in the run's row of the run list: `done`, `result`, `score`, `curve`.

        `done` is the number of the last complete unit, `curve` a list of one value a unit.
        """

    def models(self, event: Event, state: S) -> list[dict[str, Any]]:
        """Return the models that `started` or `completed` brings into the model registry.

        Each has `name`, `kind`, `digest`, `parameters`, `path`, `metrics` and `lineage`.
        """
        return []

    def progress(self, state: S) -> tuple[int, int | None]:
        """Return (units that are done, units in all or None)."""
        return 0, None

    def view(self, state: S) -> dict[str, Any]:
        """Return the kind's own part of what the API says of a run."""
        return {}

    def part(self, state: S, name: str, **asked: Any) -> dict[str, Any]:
        """Return a further part of what the API says, such as `population`. Raises NotFoundError."""
        raise NotFoundError(f"run {state.run} is {self.title}: it has no {name}.")

    def report(self, state: S, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the report of a run that has completed."""
        return {"run": state.run, "lineage_digest": state.completed.lineage_digest}

    def message(self, state: S, unit: int | None = None) -> dict[str, Any]:
        """Return the source documents' progress message, at the end of a unit (the newest)."""
        done, of = self.progress(state)
        share = 1.0 if state.completed else done / of if of else 0.0
        return {
            "type": "progress", "run": state.run, "task_id": state.run, "phase": self.name,
            "status": state.status, "progress": share, "percent": 100 * share,
        }  # fmt: skip

    def unit_of(self, row: Envelope) -> int | None:
        """Return the number of the unit that an event ends; None for every other event."""
        return None

    def ending(self, state: S) -> dict[str, Any]:
        """Return the kind's own fields of the message that the run has ended."""
        return {}

    def snapshot(self, state: S) -> dict[str, Any]:
        """Return a run at a place of its history as plain data, for `forge replay`."""
        done, of = self.progress(state)
        return {
            "run": state.run, "place": state.place, "status": state.status, "done": done, "of": of,
            "pending": pending(state),
        }  # fmt: skip

    def difference(self, a: S, b: S) -> dict[str, Any]:
        """Return how run B differs from run A, for `forge diff`."""
        mine, theirs = (self.shown(s.submitted.config) for s in (a, b))
        changed = {k: [v, theirs[k]] for k, v in mine.items() if v != theirs[k]}
        return {"settings": changed, "same_lineage": a.lineage_digest() == b.lineage_digest()}

    def comparison(self, a: S, b: S) -> dict[str, Any]:
        """Return how two runs differ, and their results side by side, for `forge compare`."""
        return self.difference(a, b)

    def layers(self, home: Home, state: S, recipe_id: str) -> tuple[str, dict[str, Any] | None]:
        """Return the cache key of what a model's layers are made of, and that if it is known.

        Raises NotFoundError if models of this kind have no such layers.
        """
        raise NotFoundError(f"run {state.run} is {self.title}: it has no layers.")

    def layers_command(self, run: str, recipe_id: str) -> list[str]:
        """Return the command that works out what a model's layers are made of, in a process."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Return the settings: JSON schema and defaults."""
        return {
            "schema": self.config.model_json_schema(),
            "defaults": self.config().model_dump(mode="json"),
        }

    def tables(self) -> Mapping[str, Any]:
        """Return name → function(state, rows) of the kind's tables, for Parquet and notebooks."""
        return {}

    def tracked(self, state: S, after: int) -> list[tuple[int, dict[str, Any]]]:
        """Return (unit, row) for a tracker, of units after `after`."""
        return []

    def tracked_config(self, state: S) -> dict[str, Any]:
        """Return the settings for a tracker."""
        return self.shown(state.submitted.config) if state.submitted else {}

    def tracked_summary(self, state: S) -> dict[str, Any]:
        """Return the summary for a tracker."""
        return {"status": state.status}

    def tracked_result(self, state: S) -> dict[str, Any] | None:
        """Return the result as a tracker's artifact: `metadata`, `file` and its JSON `content`.

        None if there is no result to send.
        """
        return None

    def rehearsable(self, state: S) -> bool:
        """Return True if `rehearse` can count the run's tasks within seconds."""
        return False

    def rehearse(self, state: S) -> Any:
        """Return the count of the run's tasks, or None if it cannot be told."""
        return None

    def outlook(
        self, state: S, rehearsal: Any, under_way: Sequence[tuple[str, float]] = ()
    ) -> Outlook:
        """Return the run's progress; by its units, unless the kind knows better.

        `under_way` has the tasks that devices work on now, each with the seconds since it began.
        """
        done, of = self.progress(state)
        if state.completed:
            return Outlook(done, done, 1.0, 0.0, f"{self.unit}s")
        return Outlook(done, of, done / of if of else None, None, f"{self.unit}s")

    # ---- scheduling: pure ----------------------------------------------------------------------

    def memory(self, state: S) -> int:
        """Return the bytes that the run's tasks need on a device; 0 if that is not known."""
        return 0

    def built(self, row: Envelope) -> str | None:
        """Return the id of what an event's row says was built, or None."""
        return None

    def needs(self, task: Any) -> str | None:
        """Return the id of what a task reads and some device has built, or None."""
        return None

    def tokens(self, event: Event) -> int:
        """Return the number of tokens that a task processed."""
        return 0

    # ---- results -------------------------------------------------------------------------------

    def result(self, state: S) -> str | None:
        """Return the digest of the weights of the run's result; None if there are none."""
        return None

    def result_id(self, state: S) -> str | None:
        """Return the recipe id of the run's result, final or so far; None if there is none."""
        return None

    def find(self, state: S, name: str) -> str:
        """Return the recipe id that a name within the run means. Raises NotFoundError."""
        raise NotFoundError(f"run {state.run} has no model {name!r}: it is {self.title}.")

    def origin(self, state: S, rows: Sequence[Envelope], name: str) -> Origin:
        """Return the origin of a model of the run; without a name, of its result.

        Raises NotFoundError, by default always: a kind that makes models names their origins.
        """
        raise NotFoundError(f"run {state.run} is {self.title}, which makes no models.")

    def settle(
        self, home: Home, state: S, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        """Return a folder with a model of the run; build it into the last of `folders` if need be.

        `head` is the head of the run's chain. Raises ForgeError.
        """
        raise NotImplementedError

    # ---- work ----------------------------------------------------------------------------------

    def context(self, state: S, cache: Any) -> Context:
        """Open a run's inputs in this process. `cache` is the process's weight cache."""
        raise NotImplementedError

    def keep(self, state: S, cache: Any) -> None:
        """Write to disk what a restart would need most and is in memory only."""

    def result_files(self, state: S, cache: Any) -> list[tuple[str, Path]]:
        """Return (name in an archive, file) of the result's weights. Raises ForgeError."""
        return []

    def write_result(self, home: Home, state: S, out: Path) -> dict[str, Any]:
        """Write the result's folder and return the report, with `folder`. Raises ForgeError."""
        raise ConfigError(f"run {state.run} is {self.title}: it has no result to write.")

    # ---- verification: what the audit of the log alone cannot check ----------------------------

    def chosen(self, state: S, which: str) -> list[str]:
        """Return the ids of what to make again: "champion", "all" or the beginning of an id.

        Raises NotFoundError.
        """
        raise NotFoundError(f"run {state.run} is {self.title}: nothing of it can be rebuilt.")

    def rebuild(
        self, state: S, cache: Any, ids: Sequence[str], tolerance: float | None,
        say: Callable[[str], None],
    ) -> Iterator[Any]:  # fmt: skip
        """Make results again; yield a finding for each that differs from the recorded one.

        With a tolerance, numbers are measured again too. `say` hears of each result.
        """
        yield from ()

    def cached(self, state: S, cache: Any) -> Iterator[Any]:
        """Yield a finding for each of the run's cached files that is not what the log says."""
        yield from ()

    def document(self, folder: Path) -> dict[str, Any] | None:
        """Return `run`, `chain_head` and more of a result's folder; None if it is none of the kind.

        Raises DataError.
        """
        return None

    def verify_folder(
        self, home: Home, folder: Path, document: dict[str, Any], state: S | None, known: bool
    ) -> Iterator[Any]:
        """Yield findings about a result's folder; `known`: this log has its run.

        `state` is the run's, None if the log has no such run or its history is broken.
        """
        yield from ()
