"""Studies: kinds of run that make models by a script, compare them as arms, and give one of them.

A study is settings, recipes, a script, and a table of arms and figures. What is due, found, shown,
written and verified follows from these. No torch: methods that work on weights import what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel
from typing_extensions import override

from agent_forge.events import Envelope, Event
from agent_forge.events.envelope import Data
from agent_forge.runs.event_types import Figure, MadeModel
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.kinds.asked import CheckResult, Lookup, Plan, RunRequest
from agent_forge.runs.kinds.decide import NextWork, Start, Task
from agent_forge.runs.kinds.files import Storage, Verification
from agent_forge.runs.kinds.forecast import Architecture, Architectures, Forecast
from agent_forge.runs.kinds.kind import AnyKind, Kind
from agent_forge.runs.kinds.origin import RunModels
from agent_forge.runs.kinds.state import EVERY
from agent_forge.runs.kinds.tracking import Tracking
from agent_forge.runs.panels.panels import Metric, Panel
from agent_forge.runs.record.events import Completed, Submitted
from agent_forge.studies import arm_panels, given_dtype, origins, run, submission
from agent_forge.studies.comparison import BITS_PER_BYTE, Scale
from agent_forge.studies.events import MODEL, Observe, Observed
from agent_forge.studies.events import Arm as ComparedArm
from agent_forge.studies.making import making, shared_snapshots
from agent_forge.studies.making.making import Advanced, Made, MakeTask, Making, MakingState, Trained
from agent_forge.studies.origins import StudyModels
from agent_forge.studies.run import ArmLabel, Extent, FigureRule, Script, StudyRun, derive
from agent_forge.studies.study_view import ItemView, Plain, Prose, StudyTracking, StudyView
from agent_forge.studies.submission import ItemRequests, StudyRequests, StudySettings
from agent_forge.studies.training_panels import BITS, Group
from agent_forge.studies.training_plan import memory
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage.weight_cache import Artifacts

if TYPE_CHECKING:
    from agent_forge.runs.home import Home
    from agent_forge.studies.events import GivenStarted, GivenSubmitted
    from agent_forge.studies.work import Context
    from agent_forge.weights.folders.checkpoint import Checkpoint

S = TypeVar("S", bound=MakingState)

#: Events of every study that are listed.
LISTED = frozenset({Advanced.type, Made.type, Trained.type, Observed.type})


class StudyStorage(Storage[S]):
    """The files that runs of a study leave on machines."""

    kind: AnyStudy

    @override
    def built(self, row: Envelope) -> str | None:
        if row.type not in (Made.type, Advanced.type):
            return None
        return getattr(self.kind.state.registry.load(row), "recipe_id", None)

    @override
    def needs(self, task: object) -> str | None:
        """Return the id of the snapshot that a segment goes on from, or of the model read, or None."""
        return making.needs(task)

    @override
    def keep(self, state: S, cache: Artifacts) -> None:
        """Remove the snapshots of trainings that have ended: their results are on disk."""
        if state.started is not None and state.made:
            self.kind.work()(state, cache).tidy()

    @override
    def resumes(self, state: S, cache: Artifacts) -> list[str]:
        if state.started is None:
            return []
        return shared_snapshots.sentences(state, self.kind.trainings(state), cache)

    @override
    def stored(self, state: S) -> frozenset[str]:
        return frozenset(shared_snapshots.names(state).values())

    @override
    def items_address(self, state: S) -> str:
        from agent_forge.evaluation.training_text import kept_text

        pins = state.started
        return kept_text.address(pins.streams, pins.files, pins.items)

    @override
    def items_file(self, state: S, cache: Artifacts) -> Path:
        from agent_forge.evaluation.training_text.kept_text import ITEMS

        return self.kind.work()(state, cache).text.folder / ITEMS

    @override
    def result_files(self, state: S, cache: Artifacts) -> list[tuple[str, Path]]:
        from agent_forge.studies import work as files

        run, roles = self.kind.run(state), self.kind.roles(state.submitted.config)
        context = self.kind.work().to_read(state, cache, run.result_digests)
        return files.files(context, cache, [run.name_of(role) for role in roles])

    @override
    def materialise(
        self, home: Home, state: S, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        from agent_forge.studies import work as files

        return files.materialise(self.kind, home, state, head, recipe_id, folders)


class StudyVerification(Verification[S]):
    """The rules by which second results of a study's runs are compared with the recorded ones."""

    kind: AnyStudy

    @override
    def agrees(self, state: S, recorded: Event, repeat: Event) -> bool:
        return super().agrees(state, recorded, making.settled(recorded, repeat))

    @property
    @override
    def remeasured(self) -> tuple[type[Event], ...]:
        return tuple(event for event in super().remeasured if self.kind.answers[event] is not MakeTask)

    @override
    def reopened(self, state: S, cache: Artifacts) -> tuple[Context, Sequence[str]]:
        return self.kind.work().opened(state, cache), ()

    @override
    def chosen(self, state: S, which: str) -> list[str]:
        if which == "all":
            return origins.every(state, self.kind.recipes(state))
        return [self.kind.models.find(state, MODEL if which == "champion" else which)]

    @override
    def rebuild(
        self, state: S, cache: Artifacts, ids: Sequence[str], say: Callable[[str], None]
    ) -> Iterator[Finding]:
        from agent_forge.studies import work

        yield from work.rebuild(self.kind, state, cache, ids, say)

    @override
    def cached(self, state: S, cache: Artifacts) -> Iterator[Finding]:
        from agent_forge.studies.making import model_files

        yield from model_files.cached((event.digest for event in state.made.values()), cache)

    @override
    def document(self, folder: Path) -> Plain | None:
        from agent_forge.studies.making import model_files
        from agent_forge.weights.storage.output_folder import TRAINED, mark_of

        return model_files.document(folder, (mark_of(self.kind.name), TRAINED))

    @override
    def folder(
        self, home: Home, folder: Path, document: Plain, state: S | None, is_known: bool
    ) -> Iterator[Finding]:
        from agent_forge.studies.making import model_files

        digests = None if state is None else dict[str, str]()
        if state is not None and state.started:
            recipes = self.kind.named(state).items()
            digests = {r: state.made[m.id].digest for r, m in recipes if m.id in state.made}
        yield from model_files.folder(folder, document, digests)


class Study(Kind[S]):
    """A kind of run that is a script and a table."""

    #: The kind's own event of the end.
    completed: type[Completed]
    main_role = "model"
    gives_items = True
    curve_of = "losses of its trainings"
    result_name = "models"
    view = cached_property(StudyView[S])
    tracking = cached_property(StudyTracking[S])
    settings = cached_property(StudySettings[S])
    requests = cached_property(StudyRequests[S])
    models = cached_property(StudyModels[S])
    storage = cached_property(StudyStorage[S])
    verification = cached_property(StudyVerification[S])
    #: Beside what every study has: event → task that it answers, and types that are listed.
    answers: ClassVar[Mapping[type[Event], type]] = {}
    listed: ClassVar[frozenset[str]] = LISTED
    #: Types of events of which a terminal has a line for every tenth of all tasks only.
    counted: ClassVar[frozenset[str]] = frozenset()

    # ---- the table -------------------------------------------------------------------------------

    #: Arm → what it is. The order is that of pictures and tables.
    arms: ClassVar[Mapping[str, ArmLabel]]
    #: The arm that the result stands beside, and trainings that curves show as references.
    baseline: ClassVar[str]
    references: ClassVar[Sequence[str]] = ()
    #: Title of the comparison, a sentence on its arms, and what the result is called.
    comparison_title: ClassVar[str]
    comparison_note: ClassVar[str] = arm_panels.SAME_WINDOWS
    result_title: ClassVar[str]
    #: The training that takes longest, whose first steps are the canary; empty: it has one of its own.
    slowest: ClassVar[str] = ""
    slowest_words: ClassVar[str] = "training"
    figure_rules: ClassVar[Mapping[str, FigureRule]]
    #: What it says of a run that has completed.
    prose: ClassVar[Prose] = Prose()
    #: What arms are compared by.
    scale: ClassVar[Scale] = BITS_PER_BYTE
    #: The arm that the others are compared with; None: the result.
    ours: ClassVar[str | None] = None
    #: Roles of the models that it gives, the result first.
    result_roles: ClassVar[Sequence[str]] = (MODEL,)
    #: Roles of its models that are of the given model's architecture and sizes.
    as_given: ClassVar[Sequence[str]] = ()
    #: Column of the table of figures with what a figure is of.
    figure_of: ClassVar[str] = "domain"
    #: Figure of a completed run that the run list shows, if the run has it, and its metric.
    row_figure: ClassVar[tuple[str, Metric]] = ("bits_per_byte", BITS)

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Derive settings, events, answers and figures from the state and the table."""
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "state"):
            types = cls.state.registry.types()
            answers = {types["started"]: Start, Made: MakeTask, Advanced: MakeTask, Observed: Observe}
            every = {event: task for event, task in answers.items() if event.type in types}
            derive(cls, types)
            cls.answers, cls.listed = {**every, **cls.answers}, cls.listed | LISTED

    # ---- what a phase writes, or may write ---------------------------------------------------------

    def script(self, run: StudyRun) -> Script:
        """Yield the run's steps; at the end return a function that gives the fields of `completed`."""
        raise NotImplementedError

    def models_of(self, submitted: GivenSubmitted, started: GivenStarted) -> dict[str, Making]:
        """Return name → recipe of all that follows from what was pinned, each after its inputs."""
        raise NotImplementedError

    def check_model(self, config: BaseModel, opened: Checkpoint) -> None:
        """Raise ConfigError for a given model that the run cannot be of; by default never."""

    def sizes(self, settings: Mapping[str, object], config: BaseModel) -> Plain:
        """Return settings of config.json in which models differ from the given one; by default {}."""
        return {}

    def pinned_fields(self, context: Context, common: Mapping[str, object]) -> Plain:
        """Return the fields of `started` beside those that every study has; by default {}."""
        return {}

    def fitted_module(self, context: Context, module: Any, measure: str) -> Any:
        """Return a model's module as it is measured; by default `module` itself."""
        return module

    def started_line(self, data: Data) -> str:
        """Return a line of text on `started`: the numbers of parameters and of a window's tokens."""
        return f"{data['model']['parameters']:,} parameters, windows of {data['context']} tokens"

    def facts(self, run: StudyRun) -> Mapping[str, tuple[float | str, str]]:
        """Return name → (value, unit) of what is shown beside the result; by default {}."""
        return {}

    def own_panels(self, run: StudyRun) -> Sequence[Panel]:
        """Return the panels beside arms, domains, curves and models; by default ()."""
        return ()

    def arms_of(self, run: StudyRun) -> Mapping[str, ArmLabel]:
        """Return arm → its label (words and group), of a run's arms: by default those of the table."""
        return self.arms

    def slowest_of(self, models: Mapping[str, Making]) -> Train | None:
        """Return the recipe of the training that takes longest; None if it is not in `models`."""
        return given_dtype.trainings(models).get(self.slowest)

    def further_folders(self, run: StudyRun, out: Path) -> dict[str, str | None]:
        """Write further folders into a result's; return name → folder or None; by default {}."""
        return {}

    def memory_of(self, submitted: Submitted, started: GivenStarted) -> int:
        """Return the bytes of weights, gradients and optimiser of a training, and of its teacher."""
        return memory(started.model.parameters, getattr(started, "trainable", None))

    def extent(self, run: StudyRun) -> Extent:
        """Return an `Extent`: all steps, models and measurements that a just started run foresees."""
        return run.extent()

    def parameters(self, state: S) -> int:
        """Return the number of the result's parameters: as many as the given model has."""
        return state.started.model.parameters

    def contents(self, config: BaseModel) -> Mapping[str, Sequence[str]]:
        """Return {"models": the roles, "items": ["items"]}, the folders within a result's folder."""
        return {"models": self.roles(config), "items": ["items"]}

    @property
    def purpose(self) -> str:
        """Key of the random draws of trainings and intervals: all arms have the same."""
        return self.name

    def run(self, state: S) -> StudyRun:
        """Return the `StudyRun` of a started run, with all that its script has said."""
        return state.remembered(EVERY, lambda: StudyRun(self, state))

    def begun(self, state: S) -> StudyRun | None:
        """Return the `StudyRun` of a run, with all that its script has said; None before the start."""
        return self.run(state) if state.started is not None else None

    @override
    def due(self, state: S) -> NextWork:
        return self.run(state).due(self.completed)

    @override
    def wrong_result(self, state: S) -> Iterator[str]:
        yield from self.run(state).contradictions()

    @override
    def essential(self, state: S, task: str) -> bool:
        return True

    @override
    def roles(self, config: BaseModel) -> Sequence[str]:
        return self.result_roles

    @override
    def validate_answer(self, state: S, task: Task, event: Event) -> str | None:
        return run.validate_answer(task, event)

    @override
    def memory(self, state: S) -> int:
        return self.memory_of(state.submitted, state.started) if state.started is not None else 0

    def named(self, state: S) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes; `model` is there once it is known."""
        return self.run(state).named

    @override
    def results(self, state: S) -> dict[str, MadeModel]:
        models = state.completed.models.items()
        return {role: MadeModel(recipe_id=m.recipe_id, digest=m.digest) for role, m in models}

    @override
    def inputs(self, state: S) -> dict[str, list[str]]:
        return {"model": [state.started.model.digest]}

    @override
    def architectures(self, config: BaseModel, inputs: Architectures) -> Mapping[str, Architecture]:
        first = next(iter(inputs.get("model", ())), None)
        return dict.fromkeys(self.as_given, first) if first else {}

    def measured(self, arm: ComparedArm) -> Mapping[str, float]:
        """Return domain → bits per byte of an arm that was compared, for the model registry."""
        return arm.bits_per_byte

    @override
    def figures(self, state: S) -> dict[str, Figure]:
        return dict(state.completed.figures)

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        return submission.plan(self, request, lookup)

    @override
    def check(self, plan: Plan) -> CheckResult:
        self.check_model(plan.config, opened := submission.opened(plan))
        return submission.checked(plan, opened)

    def recipes(self, state: S) -> Mapping[str, Making]:
        """Return name → recipe of all that a started run makes, as far as it is known."""
        return self.run(state).recipes

    def trainings(self, state: S) -> Mapping[str, Train]:
        """Return name → recipe of every model that a started run trains."""
        return self.run(state).trainings

    def observations(self, state: S) -> Sequence[Observe]:
        """Return a list of the `Observe` tasks of a started run, as far as they are known."""
        return [*self.run(state).observations.values()]

    def groups(self, state: S) -> Sequence[Group]:
        """Return a list of groups (name → recipes) of trainings for a tracker; by default one group.

        A run that learns of further trainings only adds groups.
        """
        return [{name: (recipe,) for name, recipe in self.trainings(state).items()}]

    def lines(self, state: S) -> list[str]:
        """Return the report of a completed run as lines of text for a terminal."""
        return self.prose.lines(self.run(state))

    # ---- work, in a process that may load torch ----------------------------------------------

    @override
    def forecast(self, submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
        from agent_forge.studies.work import forecast

        return forecast(self, submitted, cache, folder)

    def work(self) -> type[Context]:
        """Return the class of the study's contexts; the import loads torch."""
        from agent_forge.studies.work import Context

        return Context

    @override
    def context(self, state: S, cache: Artifacts) -> Context:
        from agent_forge.weights.threads import set_threads

        set_threads()
        return self.work()(state, cache)

    @override
    def write_result(self, home: Home, state: S, out: Path) -> Plain:
        from agent_forge.studies import work as files

        return files.write(self, home, state, out)


class ItemStudy(Study[S]):
    """A study that trains nothing and measures on items; by default it gives no models."""

    gives_items, curve_of = False, Kind.curve_of
    result_name, result_roles = Kind.result_name, ()
    results, write_result = AnyKind.results, AnyKind.write_result
    view = cached_property(ItemView[S])
    tracking = cached_property(Tracking[S])
    requests = cached_property(ItemRequests[S])
    models = cached_property(RunModels[S])
    storage = cached_property(Storage[S])
    verification = cached_property(Verification[S])

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        return submission.plan_on_items(self, request, lookup)


#: A study whose states are not known where it is used.
AnyStudy = Study[Any]
