"""The interface of a kind of run: all that the runner, the queue, the lists and the audit ask of it.

A kind writes its settings, its events, its state and `due`; the other methods have defaults or say
who does its work. `runs/kinds/__init__.py` has the table of kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

from pydantic import BaseModel

from agent_forge.events import Envelope, Event
from agent_forge.runs.errors import ConfigError, NotFoundError, did_you_mean
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.kinds import tracking
from agent_forge.runs.kinds.asked import Checked, Command, Lookup, NamedInputs, Plan, RunRequest
from agent_forge.runs.kinds.decide import Decision, Delegate, Start, Task
from agent_forge.runs.kinds.origin import Origin
from agent_forge.runs.kinds.outcome import Cache, Outcome
from agent_forge.runs.kinds.state import State
from agent_forge.runs.kinds.view import View
from agent_forge.runs.record import events

if TYPE_CHECKING:
    from agent_forge.runs.home import Home

S = TypeVar("S", bound=State)
#: Wrong settings that one error names.
FAULTS = 8

#: An audit's statement about a run: level ("error", "unchecked", "note"), check, message.
Statement = tuple[str, str, str]


class Context(Protocol):
    """The opened inputs of one run in one process, and the work on its tasks."""

    #: The state that the context was opened for; its tasks are carried out from it.
    state: State

    def carry_out(self, task: Task) -> Event:
        """Do the task and return its event; append nothing. Raises the errors of the work."""
        ...

    def check_unchanged(self) -> None:
        """Raise a ForgeError if an input or the profile is not the one that `started` pins."""
        ...

    def share(self, task: Task, tasks: Sequence[Task]) -> Sequence[Task]:
        """Return the open tasks, this one first, whose work one process had better do at once."""
        ...

    def prepare(self, tasks: Sequence[Task]) -> None:
        """Do the work that these tasks share. `carry_out` is then called for each of them."""
        ...


def given_models(submitted: events.Submitted) -> dict[str, list[ModelReference]]:
    """Return role → the models that a run is given, from the fields of its `submitted`."""
    models: dict[str, list[ModelReference]] = {}
    for name in type(submitted).model_fields:
        value: object = getattr(submitted, name)
        values = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        if references := [member for member in values if isinstance(member, ModelReference)]:
            models[name] = references
    return models


class Kind(View[S], Outcome[S]):
    """A kind of run."""

    #: Its classes of `submitted` and `forked`.
    submitted: ClassVar[type[events.Submitted]]
    forked: ClassVar[type[events.Forked]]
    state: ClassVar[type[State]]
    #: Event → the class of task that it answers.
    answers: ClassVar[Mapping[type[Event], type]]
    #: Types of events after which the run list is brought up to date, beside the common ones.
    listed: ClassVar[frozenset[str]] = frozenset()
    #: True if its settings may be given as the text of a file of its own (`read`, `written`).
    has_file: ClassVar[bool] = False
    #: Settings that name models or files. A fork over the API, which may read some folders only, does
    #: not change these.
    naming: ClassVar[frozenset[str]] = frozenset()
    #: Role of the models that a request over the API calls `models`.
    main_role: ClassVar[str] = "sources"
    #: What its command at a terminal has beside what every command has.
    command: ClassVar[Command] = Command()

    @property
    def delegates(self) -> bool:
        """True if runs of this kind have tasks that are runs."""
        return Delegate in self.answers.values()

    @property
    def remeasured(self) -> tuple[type[Event], ...]:
        """The answers that `forge verify --recompute` obtains again."""
        return tuple(e for e, task in self.answers.items() if task not in (Start, Delegate))

    # ---- a tracker: pure ---------------------------------------------------------------------

    def catalogue(self) -> Sequence[tracking.TrackedName]:
        """Return every name that a run of this kind sends to a tracker; it may send no other."""
        settings = (
            tracking.TrackedName(name, tracking.SETTING, field.description or "", "config")
            for name, field in self.config.model_fields.items()
            if name not in self.naming
        )
        figures = tracking.of_figures(self.figures_of, self.figure_units)
        return [*self.tracked_names, tracking.STATUS, *figures, *settings, tracking.INSIDE]

    def tracked_config(self, state: S) -> dict[str, object]:
        """Return the settings for a tracker, without those that name models or files."""
        settings = self.shown(state.submitted.config) if state.submitted else {}
        return {name: value for name, value in settings.items() if name not in self.naming}

    def tracked_summary(self, state: S) -> dict[str, object]:
        """Return the status, and the figures of a completed run."""
        figures = tracking.figures(self.figures(state)) if state.completed else {}
        return {"status": state.status, **figures}

    # ---- deciding: pure ----------------------------------------------------------------------

    def due(self, state: S) -> Decision:
        """Return what there is to do after `started`: facts that follow, or open tasks."""
        raise NotImplementedError

    def essential(self, state: S, task: str) -> bool:
        """Return True if a run cannot go on without the task, even if its `quarantine` lets it."""
        return task == Start.key

    def validate_answer(self, state: S, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does. For the audit."""
        return None

    def agrees(self, state: S, recorded: Event, repeat: Event) -> bool:
        """Return True if a second result of a task does not contradict the recorded one."""
        return events.without_volatile(recorded) == events.without_volatile(repeat)

    def act(self, state: S, action: str, about: str, reason: str | None) -> list[Event]:
        """Return the events of an action of the kind's own that a user asks for, such as an override.

        `about` names the part of the run that is meant. Raises NotFoundError, ConfigError.
        """
        raise NotFoundError(f"run {state.run} is {self.title}, for which there is no {action!r}.")

    def refuses(self, state: S, event: Event) -> str | None:
        """Return why a user's event of the kind's own makes no sense now; None if it does."""
        return None

    def fingerprint(self, event: Event) -> str:
        """Return the telling part of a result, for `divergence_detected`."""
        data = events.without_volatile(event)
        return str(data.get("digest") or data)

    def wrong_result(self, state: S) -> Iterator[str]:
        """Yield what `completed` says beyond lineage and chain that the events contradict."""
        yield from ()

    # ---- forks: pure -------------------------------------------------------------------------

    def changed(self, config: BaseModel, changes: Mapping[str, object]) -> Any:
        """Return the settings with changes, given as a user gives them. Raises ConfigError."""
        return self.parse({**config.model_dump(mode="json"), **changes})

    def changes(self, before: BaseModel, after: BaseModel) -> dict[str, object]:
        """Return the changes that `changed` turns `before` into `after` with, as `forked` has them."""
        old, new = self.shown(before), self.shown(after)
        return {name: value for name, value in new.items() if value != old[name]}

    def check_fork(self, state: S, changes: Mapping[str, object]) -> None:
        """Raise ConfigError if a fork at this state may not change these settings.

        By default a run that has started may change no setting.
        """
        if changes and state.started:
            raise ConfigError(
                f"setting {next(iter(changes))} cannot change in a fork of a run that has started. "
                "Start a new run instead."
            )

    def fork_fields(self, config: BaseModel, changes: Mapping[str, object]) -> dict[str, object]:
        """Return further fields of the kind's `forked` event."""
        return {}

    def wrong_fork(self, state: S, fork: events.Forked) -> str | None:
        """Return why the kind's own fields of `forked` do not follow; None if they do."""
        return None

    def place_of(self, rows: Sequence[Envelope], unit: int) -> int:
        """Return the place at which a fork redoes the end of a unit. Raises ConfigError."""
        raise ConfigError(f"{self.title} is forked at an event: give --at POSITION.")

    def end_of(self, rows: Sequence[Envelope], unit: int) -> int:
        """Return the place right after a unit has ended. Raises ConfigError."""
        raise ConfigError(f"{self.title} has no generations: name an event, RUN@57.")

    # ---- asking for a run ----------------------------------------------------------------------

    def parse(self, settings: Mapping[str, object]) -> Any:
        """Return the settings that a user gives. Raises ConfigError."""
        from pydantic import ValidationError

        try:
            return self.config.model_validate(settings)
        except ValidationError as error:
            faults = [": ".join(filter(None, self.fault(e))) for e in error.errors()]
            more = f"; and {len(faults) - FAULTS} more" if len(faults) > FAULTS else ""
            message = "; ".join(faults[:FAULTS]) + more
            raise ConfigError(f"settings of {self.title}: {message}.") from error

    def asked_for(self, settings: Mapping[str, object], config: BaseModel) -> bool:
        """Return True if a run that is asked for with these settings can have the settings `config`."""
        return self.parse(settings) == config

    def fault(self, error: Mapping[str, Any]) -> tuple[str, str]:
        """Return the setting of one of pydantic's errors ("": of several), and what is wrong."""
        what = str(error["msg"]).removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            hint = did_you_mean(str(error["loc"][-1]), self.config.model_fields)
            what = f"there is no such setting{hint}: `forge settings {self.name}` lists them"
        if error["type"] == "tuple_type":
            what = 'a list is needed, as ["one", "two"]'
        if error["type"] in ("too_short", "too_long"):
            bound = "least {min_length}" if error["type"] == "too_short" else "most {max_length}"
            what = f"a list of at {bound} is needed, not of {{actual_length}}".format(**error["ctx"])
        return ".".join(map(str, error["loc"])), what

    def read(self, text: str) -> dict[str, object]:
        """Return the settings that the text of a run's own file gives. Raises ConfigError.

        By default always: most kinds have no file of their own.
        """
        raise ConfigError(f"{self.title} has no file of its own: give its settings.")

    def written(self, config: Mapping[str, object]) -> str | None:
        """Return the text of a run's own file with these settings; None if its kind has no file."""
        return None

    def inputs_in(self, config: Mapping[str, object], there: Callable[[str], bool]) -> NamedInputs:
        """Return the models and data that the settings of a run name; by default none.

        `there` tells if a name is the path of a folder that is there. Raises ConfigError.
        """
        return NamedInputs()

    def taken(self, settings: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
        """Return the settings that are taken of those that a user gives, and why others are not.

        By default all are taken. Raises ConfigError.
        """
        return dict(settings), ()

    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        """Return the plan of a run. Raises ConfigError or UnavailableError before any work."""
        if request.models or request.data:
            raise ConfigError(f"{self.title} takes neither models nor data.")
        return Plan(self.name, self.parse(request.config), {}, request.output_dir)

    def check_settings(self, config: BaseModel) -> None:
        """Raise ConfigError for a name in the settings that does not exist, such as a task family."""

    def check_machine(self, config: BaseModel) -> None:
        """Raise UnavailableError if this machine lacks a package or a program that settings need.

        By default nothing is needed.
        """

    def placed(self, data: str) -> str:
        """Return data as a user names it with an absolute path. Raises ForgeError."""
        return str(Path(data).absolute())

    def check(self, plan: Plan) -> Checked:
        """Open what the run will open; raise the errors that it would raise."""
        return Checked()

    def again(self, submitted: events.Submitted) -> RunRequest:
        """Return a run as a user would ask for it: the settings that are no default, models, data.

        A model is named by its Hub id and commit, or by its folder.
        """
        try:
            config = self.changes(self.parse({}), submitted.config)
        except ConfigError:  # a setting has no default
            config = self.shown(submitted.config)
        models = {
            role: [f"{m.hub_id}@{m.revision}" if m.hub_id else m.path for m in records]
            for role, records in given_models(submitted).items()
        }
        data = getattr(submitted, "data", ())
        return RunRequest(self.name, config, models, data, submitted.output_dir)

    def texts(self, submitted: events.Submitted) -> Iterator[tuple[str, str]]:
        """Yield (text, what it is) of the texts in the kind's own fields of `submitted`."""
        for models in given_models(submitted).values():
            yield from ((model.name, "a model's name") for model in models)
        yield from ((path, "a path") for path in getattr(submitted, "data", ()))

    # ---- scheduling: pure ----------------------------------------------------------------------

    def memory(self, state: S) -> int:
        """Return the bytes that the run's tasks need on a device; 0 if that is not known."""
        return 0

    def built(self, row: Envelope) -> str | None:
        """Return the id of what an event's row says was built, or None."""
        return None

    def needs(self, task: Task) -> str | None:
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

    def materialise(
        self, home: Home, state: S, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        """Return a folder with a model of the run; build it into the last of `folders` if need be.

        `head` is the head of the run's chain. Raises ForgeError.
        """
        raise NotImplementedError

    # ---- work ----------------------------------------------------------------------------------

    def context(self, state: S, cache: Cache) -> Context:
        """Open a run's inputs in this process. `cache` is the process's weight cache."""
        raise NotImplementedError

    def keep(self, state: S, cache: Cache) -> None:
        """Write to disk what a restart would need most and is in memory only."""

    def resumes(self, state: S, cache: Cache) -> list[str]:
        """Return sentences on where work that is under way goes on, with this weight cache."""
        return []

    def stored(self, state: S) -> frozenset[str]:
        """Return the names of what a run has in the shared store only in order to go on."""
        return frozenset()

    def making_seconds(self, state: S, digest: str) -> float:
        """Return the seconds that it took to make weights of the run; 0: not known."""
        return 0.0

    def result_files(self, state: S, cache: Cache) -> list[tuple[str, Path]]:
        """Return (name in an archive, file) of the result's weights. Raises ForgeError."""
        return []

    def write_result(self, home: Home, state: S, out: Path) -> dict[str, object]:
        """Write the result's folder and return the report, with `folder`. Raises ForgeError."""
        raise ConfigError(f"run {state.run} is {self.title}: it has no result to write.")

    # ---- verification: what the audit of the log alone cannot check ----------------------------

    def chosen(self, state: S, which: str) -> list[str]:
        """Return the ids of what to make again: "champion", "all" or the beginning of an id.

        Raises NotFoundError.
        """
        raise NotFoundError(f"run {state.run} is {self.title}: nothing of it can be rebuilt.")

    def rebuild(
        self, state: S, cache: Cache, ids: Sequence[str], say: Callable[[str], None]
    ) -> Iterator[Any]:
        """Make results again; yield a finding for each that differs from the recorded one.

        `cache` is empty but for the inputs of runs. `say` hears of each result.
        """
        yield from ()

    def reopened(self, state: S, cache: Cache) -> tuple[Context, Sequence[str]]:
        """Return the context of a started run to measure again in, and how its profile differs.

        Raises ForgeError if nothing can be measured here, UnreproducedError for other numbers under the
        run's profile.
        """
        context = self.context(state, cache)
        context.check_unchanged()
        return context, ()

    def comparable(self, event: Event, recorded: Event) -> dict[str, Any]:
        """Return the data of an answer that must come out again; `recorded` is the recorded answer."""
        return events.without_volatile(event)

    def cached(self, state: S, cache: Cache) -> Iterator[Any]:
        """Yield a finding for each of the run's cached files that is not what the log says."""
        yield from ()

    def document(self, folder: Path) -> dict[str, object] | None:
        """Return `run`, `chain_head` and more of a result's folder; None for another kind's.

        Raises DataError.
        """
        return None

    def verify_folder(
        self, home: Home, folder: Path, document: dict[str, object], state: S | None, is_known: bool
    ) -> Iterator[Any]:
        """Yield findings about a result's folder; `is_known`: this log has its run.

        `state` is the run's, None if the log has no such run or its history is broken.
        """
        yield from ()


#: A kind whose states are not known where it is used: a log has runs of every kind.
AnyKind = Kind[Any]
