"""The interface of a kind of run: all that the runner, the queue, the lists and the audit ask of it.

A kind writes its settings, its events, its state, `due` and who does its work. Questions that most
kinds answer alike are grouped in capabilities: a kind that answers otherwise gives a subclass of the
capability's. `runs/kinds/__init__.py` has the table of kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from pydantic import BaseModel

from agent_forge.events import Event
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import Figure, MadeModel
from agent_forge.runs.kinds.asked import CheckResult, Command, Lookup, Plan, Requests, RunRequest
from agent_forge.runs.kinds.capability import Cache, S
from agent_forge.runs.kinds.children import Children
from agent_forge.runs.kinds.controls import Actions, Forks
from agent_forge.runs.kinds.decide import Context, NextWork, Start, Task
from agent_forge.runs.kinds.files import Storage, Verification
from agent_forge.runs.kinds.forecast import Architecture, Architectures, Forecast, unknown
from agent_forge.runs.kinds.origin import RunModels
from agent_forge.runs.kinds.setting_words import KindSettings
from agent_forge.runs.kinds.state import State
from agent_forge.runs.kinds.tracking import Tracking
from agent_forge.runs.kinds.view import View
from agent_forge.runs.record import events

if TYPE_CHECKING:
    from agent_forge.runs.home import Home


class Kind(Generic[S]):
    """A kind of run."""

    #: The first part of its runs' streams, and what people call its runs ("a merging run").
    name: ClassVar[str]
    title: ClassVar[str]
    #: One line for lists of kinds, and the unit that its progress is counted in.
    line: ClassVar[str]
    unit: ClassVar[str] = "step"
    #: What a value of the run list's curve is.
    curve_of: ClassVar[str] = "score"
    #: Number of its phase in the source documents, 1 to 8; None: it is of no phase.
    phase: ClassVar[int | None] = None
    #: The word for its result, in the name of the folder of a run that names none.
    result_name: ClassVar[str] = "result"
    #: Its settings, which have a field `device`.
    config: ClassVar[type[BaseModel]]
    #: Its classes of `submitted` and `forked`.
    submitted: ClassVar[type[events.Submitted]]
    forked: ClassVar[type[events.Forked]]
    state: ClassVar[type[State]]
    #: Event → the class of task that it answers.
    answers: ClassVar[Mapping[type[Event], type]]
    #: Types of events after which the run list is brought up to date, beside the common ones.
    listed: ClassVar[frozenset[str]] = frozenset()
    #: Settings that name models or files. A fork over the API, which may read some folders only, does
    #: not change these.
    naming: ClassVar[frozenset[str]] = frozenset()
    #: Role of the models that a request over the API calls `models`.
    main_role: ClassVar[str] = "sources"
    #: Roles of the models that a run is given, if all of them must be of one architecture and size.
    together: ClassVar[Sequence[str]] = ()
    #: True if its runs pin items to measure on, which other runs may measure on too.
    gives_items: ClassVar[bool] = False
    #: What its command at a terminal has beside what every command has.
    command: ClassVar[Command] = Command()
    #: Figure that a completed run has → "name in words: what it is"; the one table of both.
    figures_of: ClassVar[Mapping[str, str]] = {}
    #: Unit of a figure in `figures_of`, for those that have one.
    figure_units: ClassVar[Mapping[str, str]] = {}

    # ---- capabilities --------------------------------------------------------------------------

    #: What is shown of its runs, and sent to a tracker.
    view: cached_property[View[S]] = cached_property(View[S])
    tracking: cached_property[Tracking[S]] = cached_property(Tracking[S])
    #: What users give: settings, models and data; forks; actions of its own.
    settings: cached_property[KindSettings[S]] = cached_property(KindSettings[S])
    requests: cached_property[Requests[S]] = cached_property(Requests[S])
    forks: cached_property[Forks[S]] = cached_property(Forks[S])
    actions: cached_property[Actions[S]] = cached_property(Actions[S])
    #: What its runs make: models, and files; and if they come out again.
    models: cached_property[RunModels[S]] = cached_property(RunModels[S])
    storage: cached_property[Storage[S]] = cached_property(Storage[S])
    verification: cached_property[Verification[S]] = cached_property(Verification[S])
    #: The runs that its runs delegate; None if it has no tasks that are runs.
    children: cached_property[Children[S]] | None = None

    # ---- deciding: pure ------------------------------------------------------------------------

    def due(self, state: S) -> NextWork:
        """Return what there is to do after `started`: facts that follow, or open tasks."""
        raise NotImplementedError

    def essential(self, state: S, task: str) -> bool:
        """Return True if a run cannot go on without the task: by default if it is the start."""
        return task == Start.key

    def validate_answer(self, state: S, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; by default None: it does."""
        return None

    def wrong_result(self, state: S) -> Iterator[str]:
        """Yield what `completed` says wrongly, beyond lineage and chain; by default nothing."""
        yield from ()

    # ---- asking for a run ----------------------------------------------------------------------

    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        """Return the Plan of a run, by default of one without models and data. Raises ForgeError."""
        if request.models or request.data:
            raise ConfigError(f"{self.title} takes neither models nor data.")
        return Plan(self.name, self.settings.parse(request.config), {}, request.output_dir)

    def check_settings(self, config: BaseModel) -> None:
        """Raise ConfigError if a name in settings, as a task family, is unknown; by default never."""

    def check_machine(self, config: BaseModel) -> None:
        """Raise UnavailableError if the machine lacks what the settings need; by default never."""

    def check(self, plan: Plan) -> CheckResult:
        """Open what the run will open, raise its errors, and return a CheckResult; by default empty."""
        return CheckResult()

    # ---- work ----------------------------------------------------------------------------------

    def context(self, state: S, cache: Cache) -> Context:
        """Open a run's inputs in this process and return the Context; `cache` is its weight cache."""
        raise NotImplementedError

    def memory(self, state: S) -> int:
        """Return the bytes that the run's tasks need on a device; 0, the default, if not known."""
        return 0

    def forecast(self, submitted: events.Submitted, cache: Cache, folder: Path) -> Forecast:
        """Return the Forecast of a run submitted so, by a trial of its work; by default an unknown one.

        `folder` takes the stand-ins of its models. It may take a minute. Raises the errors of a start.
        """
        return unknown("its kind of run cannot tell before it has run")

    # ---- results -------------------------------------------------------------------------------

    def roles(self, config: BaseModel) -> Sequence[str]:
        """Return the roles of the models that a run with these settings gives; by default ()."""
        return ()

    def architectures(self, config: BaseModel, inputs: Architectures) -> Mapping[str, Architecture]:
        """Return role → architecture of the models that a run gives, if known before; by default {}."""
        return {}

    def inputs(self, state: S) -> Mapping[str, Sequence[str]]:
        """Return role → digests of the models' weights that `started` pins, in order; by default {}.

        A run that was given models is taken for an equal one only if its kind says this.
        """
        return {}

    def results(self, state: S) -> dict[str, MadeModel]:
        """Return role → model of a completed run; by default {}."""
        return {}

    def figures(self, state: S) -> dict[str, Figure]:
        """Return name in `figures_of` → figure of a completed run; by default {}."""
        return {}

    def write_result(self, home: Home, state: S, out: Path) -> dict[str, object]:
        """Raise ConfigError; a kind with results writes a folder and returns a report, `folder` too."""
        raise ConfigError(f"run {state.run} is {self.title}: it has no result to write.")


#: A kind whose states are not known where it is used: a log has runs of every kind.
AnyKind = Kind[Any]
