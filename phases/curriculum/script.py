"""The curriculum as a study: training that follows success, beside fixed orders of its tasks.

Arms advance side by side: each chooses a mix, trains a segment, measures, and may go back to the model
before a burst or train on its own dreams. Arms share the models of the segments in which they were
alike. Task families, model and machine are checked before any work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from agent_forge.evaluation import task_families
from agent_forge.evaluation.task_families.gym import Gym
from agent_forge.events import Event
from agent_forge.phases.curriculum import figures, panels, recipes
from agent_forge.phases.curriculum.figures import MEASURE, ArmCourse, CurriculumRun
from agent_forge.phases.curriculum.mixing import mix
from agent_forge.phases.curriculum.recipes import (
    START,
    STATE,
    Dream,
    Dreamed,
    MixChosen,
    Started,
    Submitted,
)
from agent_forge.phases.curriculum.settings import CurriculumConfig
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.kinds.asked import Lookup, Plan, RunRequest
from agent_forge.runs.kinds.decide import Task
from agent_forge.runs.kinds.view import Outlook, UnderWay
from agent_forge.runs.panels.head import Result
from agent_forge.runs.panels.panels import Panel
from agent_forge.studies import given_dtype, submission, training_panels, training_plan
from agent_forge.studies.comparison import TEST, mean
from agent_forge.studies.events import MODEL, Observed
from agent_forge.studies.making.making import MakingState
from agent_forge.studies.run import ArmLabel, Extent, FigureRule, Make, Note, Script, StudyRun, Together
from agent_forge.studies.study import Study
from agent_forge.studies.study_view import Curves, Data, Prose, StudyTracking, StudyView, curves
from agent_forge.studies.training_panels import Group
from agent_forge.studies.training_plan import as_float32
from agent_forge.tools import tasks as tool_tasks

if TYPE_CHECKING:
    from agent_forge.phases.curriculum.work import Context
    from agent_forge.weights.folders.checkpoint import Checkpoint


class CurriculumView(StudyView[MakingState]):
    """View of a curriculum run."""

    @override
    def progress(self, state: MakingState) -> tuple[int, int | None]:
        run = self.kind.begun(state)
        if run is None:
            return 0, None
        segments = [segment for chain in _chains(run).values() for segment in chain]
        done = sum(state.steps(segment) - segment.first for segment in segments)
        return done, self.kind.extent(run).steps

    @override
    def outlook(self, state: MakingState, rehearsal: object, under_way: UnderWay = ()) -> Outlook:
        """Return an `Outlook`: the steps done and in all, the share done, and the seconds left.

        The next mixes are not known: a step is taken to cost what those before cost, with what was
        measured between them.
        """
        done, of = self.progress(state)
        unit = f"{self.kind.unit}s"
        if state.completed:
            return Outlook(done, of, 1.0, 0.0, unit)
        if not done or of is None:
            return Outlook(done, of, 0.0 if of else None, None, unit)
        segments = [event for events in state.advanced.values() for event in events.values()]
        measured = [event for event in state.answers.values() if isinstance(event, Observed)]
        spent = math.fsum(event.seconds for event in (*segments, *measured))
        left = spent * (of - done) / done / max(1, len(under_way))
        return Outlook(done, of, done / of, left, unit)

    @override
    def curves(self, state: MakingState) -> Curves:
        return curves(state, _chains(self.kind.run(state))) if state.started is not None else {}

    @override
    def summary_line(self, type_: str, data: Data, names: Mapping[str, str]) -> str | None:
        match type_:
            case "observed":
                name, values = names.get(str(data["recipe_id"]), ""), data["values"].values()
                return f"{name}, {data['on']}: {sum(values) / len(values):.1%} solved"
            case "mix_chosen":
                return panels.mix_line(MixChosen.model_validate(data))
            case "dreamed":
                name, cells = names.get(str(data["recipe_id"]), ""), data["cells"].values()
                items, right = (sum(cell[key] for cell in cells) for key in ("items", "right"))
                return f"{name}: {items} of {len(cells)} cells, {right} of them right"
        return super().summary_line(type_, data, names)

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        if key.startswith("dream/"):
            return f"let {names.get(key.rpartition('/')[2], 'a model')} dream"
        return super().task_words(key, names).replace("text and model", "items and model")

    @override
    def yardstick(self, state: MakingState) -> dict[str, object]:
        tools = state.started.tool_items if state.started else None
        return {**super().yardstick(state), "they were measured on other tool tasks": tools}

    @override
    def headline(self, run: Any) -> Result | None:
        return panels.headline(run, self.kind.arms[START].words)

    @override
    def panels(self, state: MakingState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        run: Any = self.kind.begun(state)
        return [] if run is None else panels.panels(self.kind, run, self.curves(state))

    @override
    def fields(self, state: MakingState) -> dict[str, object]:
        if state.started is None:
            return {"curves": {}, "accuracy": {}, "mixes": {}}
        run: Any = self.kind.run(state)
        courses = run.courses.items()
        return {
            "curves": self.curves(state),
            "accuracy": {arm: mean(event) for arm, event in run.seen.items()},
            "mixes": {arm: [e.mix for e in course.mixes] for arm, course in courses if course.mixes},
        }


class CurriculumTracking(StudyTracking[MakingState]):
    """Tracker rows of a curriculum run."""

    @override
    def rows(self, state: MakingState, after: int) -> list[tuple[int, dict[str, object]]]:
        if state.started is None:
            return []
        config = state.submitted.config
        ends = dict.fromkeys(config.arms, recipes.bounds(config, state.started.context)[-1])
        return training_panels.rows(state, self.kind.groups(state), after, ends)


class Curriculum(Study[MakingState]):
    """A model is trained on tasks at the edge of what it can do (phase 5)."""

    name = "curriculum"
    phase = 5
    title = "a curriculum run"
    line = "train a model on tasks at the edge of what it can do, and compare with fixed orders"
    state = STATE
    result_title = "curriculum"
    #: Its items are problems; a gate of a pipeline measures texts.
    gives_items = False
    listed = frozenset({MixChosen.type, Dreamed.type})
    answers: ClassVar[Mapping[type[Event], type]] = {Dreamed: Dream}
    as_given = (MODEL,)
    arms: ClassVar[Mapping[str, ArmLabel]] = {
        START: ArmLabel("the model that was given", "given"),
        "adaptive": ArmLabel("trained at the edge of what it can do", "trained"),
        "uniform": ArmLabel("trained on all levels alike", "trained"),
        "easy_to_hard": ArmLabel("trained on level after level", "trained"),
        "chaos": ArmLabel("as adaptive, with bursts of noise and learning rate", "trained"),
        "dreams": ArmLabel("as adaptive, and on its own answers to what it has passed", "trained"),
        "self_model": ArmLabel("as adaptive, with a loss on its own activations", "trained"),
        "stages": ArmLabel("trained in stages, with each of these in one of them", "trained"),
    }
    baseline = START
    comparison_title = "Accuracy after as many tokens"
    figure_rules: ClassVar[Mapping[str, FigureRule]] = figures.RULES
    figure_of = "cell"
    row_figure = ("accuracy", panels.ACCURACY)
    prose = Prose(
        report=panels.report,
        sentences=panels.sentences,
        lines=panels.lines,
        paragraphs=panels.paragraphs,
    )
    view = cached_property(CurriculumView)
    tracking = cached_property(CurriculumTracking)

    # ---- script ------------------------------------------------------------------------------

    @override
    def run(self, state: MakingState) -> CurriculumRun:
        return state.remembered(("run",), lambda: CurriculumRun(self, state))

    @override
    def script(self, run: Any) -> Script:
        """Yield the steps: train all arms side by side, choose the best, compare all."""
        run.courses = {arm: ArmCourse(arm) for arm in run.settings.arms}
        yield run.make(**{START: as_float32(run.started)})
        yield Together({arm: self._trained(run, course) for arm, course in run.courses.items()})
        run.result = figures.best(run.courses, run.settings.seed)
        yield run.compare({arm: run.on(arm, MEASURE, TEST) for arm in (START, *run.courses)})
        return lambda: run.end(chosen=run.result, arms=figures.compared(run.seen))

    def _trained(self, run: CurriculumRun, course: ArmCourse) -> Script:
        """Yield the steps of an arm: for each segment dream if due, choose a mix, train, measure."""
        config, arm = run.settings, course.arm
        measured = yield run.ask({START: run.on(START, MEASURE)})
        course.measured.append(measured[START])
        for number in range(config.segments):
            begins, streams = course.origin(config.relapse), {}
            if cells := mix.dreamt(config, arm, number, figures.success(course.of(begins))):
                dreamt = yield run.ask({"dreams": Dream(begins, cells)})
                course.dreamt[number] = dreamt["dreams"]
                streams = recipes.streams(dreamt["dreams"])
            event = partial(_mix, config, course, begins, [*streams])
            chosen = yield Note(f"mix/{arm}/{number}", event)
            before = begins if number else None
            recipe = recipes.segment(run.submitted, run.started, chosen, before, streams)
            course.mixes.append(chosen)
            course.segments.append(recipe)
            name = recipes.name(config, arm, number)
            models = {name: recipe}
            if number + 1 == config.segments:  # it may be the result
                models = given_dtype.with_rounded(run.started, models)
            run.foresee(models)
            for model in models.values():
                yield Make([model])
            measured = yield run.ask({name: run.on(name, MEASURE)})
            course.measured.append(measured[name])

    @override
    def validate_answer(self, state: MakingState, task: Task, event: Event) -> str | None:
        if isinstance(task, Dream) and isinstance(event, Dreamed):
            return recipes.validate_answer(task, event, state.submitted.config.dream_items)
        return super().validate_answer(state, task, event)

    @override
    def measured(self, arm: Any) -> Mapping[str, float]:
        return {"accuracy": arm.accuracy}

    # ---- asking for a run --------------------------------------------------------------------

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        if request.data:
            raise ConfigError(f"{self.title} takes no data: its tasks are made by a program.")
        config, models = submission.of_models(self, request, lookup)
        fields = {"model": models["model"][0], "data": ()}
        return Plan(self.name, config, fields, request.output_dir)

    @override
    def check_settings(self, config: CurriculumConfig) -> None:
        for family in config.families:
            check_family(config, family)

    @override
    def check_machine(self, config: CurriculumConfig) -> None:
        from agent_forge.evaluation.sandbox.sandbox import Sandbox

        if f"{task_families.TOOLS}execution" in config.families:
            Sandbox.open().close()

    @override
    def check_model(self, config: CurriculumConfig, opened: Checkpoint) -> None:
        from agent_forge.evaluation.training_text.kept_text import given_tokenizer
        from agent_forge.phases.curriculum.items import check_items

        _check_layer(config, opened.config)
        context = training_plan.window(config, opened.positions)
        recipes.check_length(config, context)
        check_items(config, given_tokenizer(opened.folder), context)

    # ---- work --------------------------------------------------------------------------------

    @override
    def memory_of(self, submitted: Submitted, started: Started) -> int:
        return 16 * started.model.parameters

    @override
    def extent(self, run: StudyRun) -> Extent:
        config, arms = run.settings, len(run.settings.arms)
        models = arms * config.segments + 1
        steps = arms * recipes.bounds(config, run.started.context)[-1]
        rounded = 0 if run.started.dtype is None else arms
        return Extent(steps, models, rounded, models + arms + 1)

    @override
    def work(self) -> type[Context]:
        from agent_forge.phases.curriculum.work import Context

        return Context

    # ---- progress and curves -----------------------------------------------------------------

    @override
    def groups(self, state: MakingState) -> Sequence[Group]:
        return [_chains(self.run(state))]

    # ---- what is shown -----------------------------------------------------------------------

    @override
    def facts(self, run: StudyRun) -> Mapping[str, tuple[object, str]]:
        config, started = run.settings, run.started
        return {
            "families": (len(config.families), ""),
            "levels": (config.levels, ""),
            "items to train on": (sum(started.pool.values()), ""),
            "tokens of a training": (recipes.tokens(config, started.context)[-1], ""),
        }


def _chains(run: Any) -> Group:
    """Return arm → the recipes of its segments so far."""
    return {arm: course.segments for arm, course in run.courses.items()}


def _mix(config: CurriculumConfig, course: ArmCourse, begins: str, dreamt: Sequence[str]) -> MixChosen:
    """Return the `mix_chosen` event of an arm's next segment.

    `begins` is the id of the model that the segment begins with, `dreamt` are streams of its dreams.
    """
    arm, number = course.arm, len(course.mixes)
    before = course.mixes[-1].frontiers if course.mixes else {}
    success = figures.success(course.of(begins))
    shares, frontiers = mix.choose(config, arm, number, success, before)
    return MixChosen(
        arm=arm,
        segment=number,
        mix=mix.with_text(config, mix.with_dreams(config, shares, dreamt)),
        frontiers=frontiers,
        stage=mix.stage(config, arm, number),
        added=mix.added(config, arm, number),
        returned=begins != course.measured[-1].recipe_id,
    )


def check_family(config: CurriculumConfig, family: str) -> None:
    """Raise ConfigError if a family is unknown, cannot be learned, or has too few levels."""
    if not task_families.uses_tools(family):
        task_family = task_families.find(family)
        if isinstance(task_family, Gym):
            task_family.check(config.levels)
        return
    name = family.removeprefix(task_families.TOOLS)
    tool_tasks.find(name)
    if name == "repair":
        raise ConfigError(
            f"{family} is left to baking: its tasks have no answer that can be learned token by token."
        )
    if config.levels > tool_tasks.LEVELS:
        raise ConfigError(
            f"the family {family} has {tool_tasks.LEVELS} levels, and levels is {config.levels}."
        )


def _check_layer(config: CurriculumConfig, settings: Mapping[str, object]) -> None:
    """Raise ConfigError if a self-model is asked for and the model lacks its layer."""
    from agent_forge.weights.training.models.self_model import SelfModel

    trained = "self_model" in (*config.arms, *config.adds) or "stages" in config.arms
    blocks = settings.get("num_hidden_layers")
    if trained and isinstance(blocks, int):
        SelfModel(weight=config.self_weight, layer=config.self_layer).of(blocks)
