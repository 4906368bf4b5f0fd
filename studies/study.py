"""Studies: kinds of run that make models by a script, compare them as arms, and give one of them.

A study is settings, recipes, a script, and a table of arms and figures. What is due, found, shown,
written and verified follows from these. No torch: methods that work on weights import what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import BaseModel
from typing_extensions import override

from agent_forge.events import Envelope, Event
from agent_forge.events.envelope import Data
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.event_types import Figure, MadeModel, Measurement
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.kinds import default_panels
from agent_forge.runs.kinds.architecture import Architecture
from agent_forge.runs.kinds.asked import Checked, Lookup, Plan, RunRequest
from agent_forge.runs.kinds.decide import Decision, Start, Task
from agent_forge.runs.kinds.forecast import Forecast
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.origin import Ancestor, Origin
from agent_forge.runs.kinds.state import EVERY
from agent_forge.runs.kinds.tracking import Parts
from agent_forge.runs.kinds.view import OTHER_DATA, Outlook
from agent_forge.runs.panels.head import Head, Result
from agent_forge.runs.panels.panels import Metric, Panel
from agent_forge.runs.record.events import Completed, Submitted
from agent_forge.studies import arm_panels, given_dtype, origins, run, study_view, submission
from agent_forge.studies.comparison import BITS_PER_BYTE, Scale
from agent_forge.studies.events import MODEL, Observe, Observed
from agent_forge.studies.events import Arm as ComparedArm
from agent_forge.studies.making import making, resuming
from agent_forge.studies.making.making import Advanced, Made, Make, Making, MakingState, Trained
from agent_forge.studies.run import Arm, Extent, FigureRule, Run, Script, derive, words
from agent_forge.studies.study_view import Plain, Prose
from agent_forge.studies.training_pace import outlook
from agent_forge.studies.training_panels import BITS, NAMES, Group
from agent_forge.studies.training_panels import rows as training_rows
from agent_forge.studies.training_plan import memory
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage.weight_cache import Artifacts

if TYPE_CHECKING:
    from agent_forge.runs.home import Home
    from agent_forge.runs.lists.tables import Table
    from agent_forge.studies.events import GivenStarted, GivenSubmitted
    from agent_forge.studies.work import Context, Costs
    from agent_forge.weights.folders.checkpoint import Checkpoint

S = TypeVar("S", bound=MakingState)

#: Events of every study that are listed.
LISTED = frozenset({Advanced.type, Made.type, Trained.type, Observed.type})
#: What a study that trains nothing has as every other kind, unless it says otherwise.
OF_TRAININGS = (
    *("curve_of", "document", "find", "gives_items", "models", "origin", "outlook", "part", "resumes"),
    *("result_files", "result_name", "results", "stored", "tables", "tracked_names", "tracked_parts"),
    *("unchanged", "write_result"),
)


class Study(Kind[S]):
    """A kind of run that is a script and a table."""

    #: The kind's own event of the end.
    completed: type[Completed]
    main_role = "model"
    gives_items = True
    curve_of = "losses of its trainings"
    result_name = "models"
    tracked_names = NAMES
    #: Beside what every study has: event → task that it answers, and types that are listed.
    answers: ClassVar[Mapping[type[Event], type]] = {}
    listed: ClassVar[frozenset[str]] = LISTED
    #: Types of events of which a terminal has a line for every tenth of all tasks only.
    counted: ClassVar[frozenset[str]] = frozenset()

    # ---- the table -------------------------------------------------------------------------------

    #: Arm → what it is. The order is that of pictures and tables.
    arms: ClassVar[Mapping[str, Arm]]
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
            answers = {types["started"]: Start, Made: Make, Advanced: Make, Observed: Observe}
            every = {event: task for event, task in answers.items() if event.type in types}
            derive(cls, types)
            cls.answers, cls.listed = {**every, **cls.answers}, cls.listed | LISTED
            for name in () if Advanced in cls.answers else OF_TRAININGS:
                if getattr(cls, name) is getattr(Study, name):
                    setattr(cls, name, getattr(Kind, name))

    # ---- what a phase writes, or may write ---------------------------------------------------------

    def script(self, run: Run) -> Script:
        """Run the kind; at its end return the function that gives the fields of `completed`."""
        raise NotImplementedError

    def models_of(self, submitted: GivenSubmitted, started: GivenStarted) -> dict[str, Making]:
        """Return name → recipe of all that follows from what was pinned, each after its inputs."""
        raise NotImplementedError

    def check_model(self, config: BaseModel, opened: Checkpoint) -> None:
        """Raise ConfigError for a given model that the run cannot be of, before any work."""

    def sizes(self, settings: Mapping[str, object], config: BaseModel) -> Plain:
        """Return the settings of config.json in which the models differ from the given one."""
        return {}

    def pinned_fields(self, context: Context, common: Mapping[str, object]) -> Plain:
        """Return the fields of `started` beside those that every study has."""
        return {}

    def fitted_module(self, context: Context, module: Any, measure: str) -> Any:
        """Return a model's module as it is measured."""
        return module

    def started_line(self, data: Data) -> str:
        """Return what `started` says on one line."""
        return f"{data['model']['parameters']:,} parameters, windows of {data['context']} tokens"

    def facts(self, run: Run) -> Mapping[str, tuple[float | str, str]]:
        """Return name → (value, unit) of what is shown beside the result."""
        return {}

    def comparison_panels(self, run: Run, result: str) -> Sequence[Panel]:
        """Return the panels of the arms, once the arm `result` is measured."""
        text = self.comparison_title, self.comparison_note
        return arm_panels.compared(run, self.arms_of(run), result, self.baseline, *text)

    def own_panels(self, run: Run) -> Sequence[Panel]:
        """Return the panels beside arms, domains, curves and models."""
        return ()

    def arms_of(self, run: Run) -> Mapping[str, Arm]:
        """Return the arms of a run: those of the table."""
        return self.arms

    def references_of(self, run: Run) -> Sequence[str]:
        """Return the trainings that curves show as references."""
        return self.references

    def slowest_of(self, models: Mapping[str, Making]) -> Train | None:
        """Return the training that takes longest, of the recipes of a run by name."""
        return given_dtype.trainings(models).get(self.slowest)

    def further_folders(self, run: Run, out: Path) -> dict[str, str | None]:
        """Write further folders into a result's; return name → folder, None for one left out."""
        return {}

    def memory_of(self, submitted: Submitted, started: GivenStarted) -> int:
        """Return the bytes of weights, gradients and optimiser of a training, and of its teacher."""
        return memory(started.model.parameters, getattr(started, "trainable", None))

    def extent(self, run: Run) -> Extent:
        """Return how much there is to do in all, by what a run that has just started foresees."""
        return run.extent()

    def costs(self, context: Context) -> Costs:
        """Return what a run that has started does beside its start, and what it leaves."""
        from agent_forge.studies.work import of_steps

        return of_steps(self, context)

    def parameters(self, state: S) -> int:
        """Return the number of the result's parameters: as many as the given model has."""
        return state.started.model.parameters

    def contents(self, config: BaseModel) -> Mapping[str, Sequence[str]]:
        """Return word → what a result's folder has of it."""
        return {"models": self.roles(config), "items": ["items"]}

    @property
    def trains(self) -> bool:
        """True if its runs train: its state has the events of trainings."""
        return Advanced in self.answers

    @property
    def purpose(self) -> str:
        """Key of the random draws of trainings and intervals: all arms have the same."""
        return self.name

    def run(self, state: S) -> Run:
        """Return a started run with all that its script has said."""
        return state.remembered(EVERY, lambda: Run(self, state))

    def begun(self, state: S) -> Run | None:
        """Return a run with all that its script has said; None before it has started."""
        return self.run(state) if state.started is not None else None

    @override
    def due(self, state: S) -> Decision:
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
    def agrees(self, state: S, recorded: Event, repeat: Event) -> bool:
        return super().agrees(state, recorded, making.settled(recorded, repeat))

    @override
    def validate_answer(self, state: S, task: Task, event: Event) -> str | None:
        return run.validate_answer(task, event)

    @override
    def memory(self, state: S) -> int:
        return self.memory_of(state.submitted, state.started) if state.started is not None else 0

    @override
    def needs(self, task: object) -> str | None:
        return making.needs(task)

    @override
    def built(self, row: Envelope) -> str | None:
        if row.type not in (Made.type, Advanced.type):
            return None
        return getattr(self.state.registry.load(row), "recipe_id", None)

    @override
    def tokens(self, event: Event) -> int:
        return event.tokens if isinstance(event, Advanced) else 0

    @property
    @override
    def remeasured(self) -> tuple[type[Event], ...]:
        return tuple(event for event in super().remeasured if self.answers[event] is not Make)

    def named(self, state: S) -> Mapping[str, Making]:
        """Return name → recipe of all that the run makes; `model` is there once it is known."""
        return self.run(state).named

    @override
    def result_id(self, state: S) -> str | None:
        run = self.begun(state)
        model = run.named.get(MODEL) if run else None
        return model.id if model is not None and model.id in state.made else None

    @override
    def result(self, state: S) -> str | None:
        id_ = self.result_id(state)
        return state.made[id_].digest if id_ else None

    @override
    def results(self, state: S) -> dict[str, MadeModel]:
        models = state.completed.models.items()
        return {role: MadeModel(recipe_id=m.recipe_id, digest=m.digest) for role, m in models}

    @override
    def inputs(self, state: S) -> dict[str, list[str]]:
        return {"model": [state.started.model.digest]}

    @override
    def unchanged(self, state: S) -> str | None:
        return study_view.unchanged(state)

    @override
    def architectures(
        self, config: BaseModel, architectures_by_role: Mapping[str, Sequence[Architecture | None]]
    ) -> Mapping[str, Architecture]:
        first = next(iter(architectures_by_role.get("model", ())), None)
        return dict.fromkeys(self.as_given, first) if first else {}

    @override
    def measurements(self, state: S, digest: str) -> list[Measurement]:
        return study_view.measurements(state, digest)

    def measured(self, arm: ComparedArm) -> Mapping[str, float]:
        """Return what the model registry lists of an arm that was compared: bits per byte."""
        return arm.bits_per_byte

    @override
    def models(self, event: Event, state: S) -> list[Plain]:
        done = isinstance(event, self.completed)
        return study_view.models(self, event, state) if done else []

    @override
    def figures(self, state: S) -> dict[str, Figure]:
        return dict(state.completed.figures)

    @override
    def find(self, state: S, name: str) -> str:
        if state.started is None:
            raise NotFoundError(f"run {state.run} has made no models yet.")
        return origins.find(state, self.named(state), name)

    @override
    def origin(self, state: S, rows: Sequence[Envelope], name: str) -> Origin:
        recipe_id = self.find(state, name or MODEL)
        roles = self.roles(state.submitted.config)
        recipes = {**self.named(state), **self.recipes(state)}
        model = origins.origin(state, recipes, recipe_id, roles)
        return replace(model, name=self.result_title) if model.name == MODEL else model

    @override
    def ancestry(self, state: S, name: str) -> list[Ancestor]:
        return origins.ancestry(state, self.named(state), self.find(state, name or MODEL))

    @override
    def chosen(self, state: S, which: str) -> list[str]:
        if which == "all":
            return origins.every(state, self.recipes(state))
        return [self.find(state, MODEL if which == "champion" else which)]

    @override
    def placed(self, data: str) -> str:
        from agent_forge.evaluation.data import items, training_texts

        return training_texts.absolute(data) if self.trains else items.absolute(data)

    @override
    def asked_for(self, settings: Mapping[str, object], config: BaseModel) -> bool:
        """Return True if the settings are those; domains that were not given are those of the data."""
        domains = config.model_dump(include={"domains"})
        return super().asked_for({**domains, **settings}, config)

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        plan = submission.plan if self.trains else submission.plan_on_items
        return plan(self, request, lookup)

    @override
    def check(self, plan: Plan) -> Checked:
        self.check_model(plan.config, opened := submission.opened(plan))
        return submission.checked(plan, opened)

    def recipes(self, state: S) -> Mapping[str, Making]:
        """Return name → recipe of all that a started run makes, as far as it is known."""
        return self.run(state).recipes

    def trainings(self, state: S) -> Mapping[str, Train]:
        """Return name → recipe of every model that a started run trains."""
        return self.run(state).trainings

    def observations(self, state: S) -> Sequence[Observe]:
        """Return all that a started run measures, as far as it is known."""
        return [*self.run(state).observations.values()]

    @override
    def made(self, state: S, digest: str) -> str | None:
        return next((id_ for id_, event in state.made.items() if event.digest == digest), None)

    @override
    def yardstick(self, state: S) -> Plain:
        pinned = "items" if self.trains else "data_digest"
        return {OTHER_DATA: getattr(state.started, pinned, None)}

    @override
    def names(self, state: S) -> dict[str, str]:
        run = self.begun(state)
        return {} if run is None else study_view.names(run, self.trainings(state))

    @override
    def summary_line(self, type_: str, data: Data, names: Mapping[str, str]) -> str | None:
        return study_view.summary_line(self, type_, data, names)

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        return study_view.task_words(key, names)

    @override
    def row(self, entry: Plain, event: Event) -> None:
        study_view.row(entry, event, *self.row_figure)

    @override
    def progress(self, state: S) -> tuple[int, int | None]:
        return study_view.progress(state, self.trainings(state)) if state.started else (0, None)

    @override
    def outlook(
        self, state: S, rehearsal: object, under_way: Sequence[tuple[str, float]] = ()
    ) -> Outlook:
        trainings = () if state.started is None else tuple(self.trainings(state).values())
        if not trainings and not state.completed:
            return super().outlook(state, rehearsal, under_way)
        unit, tasks = f"{self.unit}s", self.observations(state)
        return outlook(state, trainings, tasks, under_way, unit)

    def curves(self, state: S) -> study_view.Curves:
        """Return name → points of its training: step, loss, norm of the gradient, rate."""
        trainings = self.trainings(state).items() if state.started else ()
        return study_view.curves(state, {name: (recipe,) for name, recipe in trainings})

    def groups(self, state: S) -> Sequence[Group]:
        """Return the trainings for a tracker in groups, one after the other; by default one group.

        A run that learns of further trainings only adds groups.
        """
        return [{name: (recipe,) for name, recipe in self.trainings(state).items()}]

    @override
    def tracked(self, state: S, after: int) -> list[tuple[int, Plain]]:
        return training_rows(state, self.groups(state), after) if state.started else []

    @override
    def tracked_parts(self, state: S) -> Parts:
        groups = self.groups(state) if state.started else ()
        return {"model": {name for group in groups for name in group}}

    def headline(self, run: Run) -> Result | None:
        """Return the result beside the baseline; None until both are measured."""
        arms = words(self.arms_of(run))
        return arm_panels.headline(run, self.result_title, arms, self.baseline)

    @override
    def head(self, state: S) -> Head:
        run = self.begun(state)
        if run is None:
            return default_panels.head(self, state)
        facts = study_view.facts(state, self.trainings(state), self.facts(run))
        result = study_view.called(self.headline(run), self.names(state))
        return default_panels.head(self, state, result, facts)

    @override
    def panels(self, state: S, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        run = self.begun(state)
        return [] if run is None else study_view.panels(self, run, self.curves(state))

    @override
    def report(self, state: S, rows: Sequence[Envelope]) -> Plain:
        return {**super().report(state, rows), **self.prose.report(self.run(state))}

    @override
    def summary(self, state: S, rows: Sequence[Envelope]) -> list[str]:
        return self.prose.sentences(self.run(state)) if state.completed else []

    def lines(self, state: S) -> list[str]:
        """Return the report of a completed run as lines of text for a terminal."""
        return self.prose.lines(self.run(state))

    @override
    def view(self, state: S) -> Plain:
        observations = run.seen if (run := self.begun(state)) else {}
        bits = {arm: dict(event.values) for arm, event in observations.items()}
        return {"curves": self.curves(state), "bits_per_byte": bits}

    @override
    def part(self, state: S, name: str, **options: object) -> Plain:
        if name != "lineage" or state.started is None:
            return super().part(state, name, **options)
        recipes = self.recipes(state).items()
        return {n: {"id": recipe.id, "recipe": recipe.model_dump(mode="json")} for n, recipe in recipes}

    @override
    def tables(self) -> Mapping[str, Callable[[S, Sequence[Envelope]], Table]]:
        return study_view.tables_of(self)

    # ---- work, in a process that may load torch ----------------------------------------------

    @override
    def forecast(self, submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
        from agent_forge.studies.work import forecast

        return forecast(self, self._work(), submitted, cache, folder)

    def _work(self) -> type[Context]:
        """Return the class of contexts, which loads torch."""
        from agent_forge.studies.work import Context

        return Context

    @override
    def context(self, state: S, cache: Artifacts) -> Context:
        from agent_forge.weights.threads import set_threads

        set_threads()
        return self._work()(state, cache)

    @override
    def reopened(self, state: S, cache: Artifacts) -> tuple[Context, Sequence[str]]:
        return self._work().opened(state, cache), ()

    @override
    def items_address(self, state: S) -> str:
        from agent_forge.evaluation.training_text import kept_text

        pins = state.started
        return kept_text.address(pins.streams, pins.files, pins.items)

    @override
    def items_file(self, state: S, cache: Artifacts) -> Path:
        from agent_forge.evaluation.training_text.kept_text import ITEMS

        return self._work()(state, cache).text.folder / ITEMS

    @override
    def keep(self, state: S, cache: Artifacts) -> None:
        """Remove the snapshots of trainings that have ended: their results are on disk."""
        if state.started is not None and state.made:
            self._work()(state, cache).tidy()

    @override
    def resumes(self, state: S, cache: Artifacts) -> list[str]:
        return resuming.sentences(state, self.trainings(state), cache) if state.started else []

    @override
    def stored(self, state: S) -> frozenset[str]:
        return frozenset(resuming.names(state).values())

    @override
    def making_seconds(self, state: S, digest: str) -> float:
        return state.making_seconds(digest)

    @override
    def materialise(
        self, home: Home, state: S, head: str, recipe_id: str, folders: Sequence[Path]
    ) -> str:
        from agent_forge.studies import work as files

        recipes = self.recipes(state)
        return files.materialise(self._work(), home, state, head, recipes, recipe_id, folders)

    @override
    def result_files(self, state: S, cache: Artifacts) -> list[tuple[str, Path]]:
        from agent_forge.studies import work as files

        run, roles = self.run(state), self.roles(state.submitted.config)
        context = self._work().to_read(state, cache, run.result_digests)
        return files.files(context, cache, [run.name_of(role) for role in roles])

    @override
    def write_result(self, home: Home, state: S, out: Path) -> Plain:
        from agent_forge.studies import work as files

        return files.write(self, self._work(), home, state, out)

    @override
    def rebuild(
        self, state: S, cache: Artifacts, ids: Sequence[str], say: Callable[[str], None]
    ) -> Iterator[Finding]:
        from agent_forge.studies import work

        recipes = {name: recipe for name, recipe in self.recipes(state).items() if recipe.id in ids}
        yield from work.rebuild(self._work(), state, cache, recipes, say)

    @override
    def document(self, folder: Path) -> Plain | None:
        from agent_forge.studies import work

        return work.document(self.name, folder)

    @override
    def verify_folder(
        self, home: Home, folder: Path, document: Plain, state: S | None, is_known: bool
    ) -> Iterator[Finding]:
        from agent_forge.studies import work

        recipes = self.named(state) if state is not None and state.started else dict[str, Making]()
        yield from work.folder(state, recipes, folder, document)

    @override
    def cached(self, state: MakingState, cache: Artifacts) -> Iterator[Finding]:
        from agent_forge.studies.making import model_files

        yield from model_files.cached((event.digest for event in state.made.values()), cache)
