"""Phase 6: the use of tools, and personas, baked into a model, in cycles.

An iteration bakes the verified turns of the current model under a prompt, at a part of the strength.
Its model is kept if it solves at least as much of the selection slice as the model before, else that
one goes on and the cycle ends (`recipes.py`). The last model that was kept is the result.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from agent_forge.evaluation.trajectories.sampled import Sampled
from agent_forge.events import Event
from agent_forge.phases.tool_baking import figures, recipes, words
from agent_forge.phases.tool_baking.recipes import (
    HOLDING,
    START,
    BakingState,
    CycleSample,
    CycleSwitched,
    Iteration,
    IterationEnded,
    Propose,
    Proposed,
)
from agent_forge.phases.tool_baking.settings import LEAST, BakingConfig
from agent_forge.runs.kinds.asked import CheckResult, Plan
from agent_forge.runs.kinds.decide import Task
from agent_forge.runs.panels.head import Result
from agent_forge.runs.panels.panels import Panel
from agent_forge.studies import given_dtype
from agent_forge.studies.comparison import CHOOSING, TEST
from agent_forge.studies.events import MODEL, Observe
from agent_forge.studies.making.making import MakingState
from agent_forge.studies.run import ArmLabel, Note, Script, ScriptStep, StudyRun
from agent_forge.studies.study import Study
from agent_forge.studies.study_view import Data, Prose, StudyView
from agent_forge.studies.training_panels import Group
from agent_forge.studies.training_plan import as_float32
from agent_forge.weights.training.windows import BAKED

if TYPE_CHECKING:
    from agent_forge.phases.tool_baking.work import Context


class BakingView(StudyView[MakingState]):
    """View of a baking run."""

    @override
    def summary_line(
        self, type_: str, data: Mapping[str, object], names: Mapping[str, str]
    ) -> str | None:
        name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
        return words.summary_line(type_, data, name) or super().summary_line(type_, data, names)

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        first, _, rest = key.partition("/")
        name = names.get(rest.rpartition("/")[2], "the model")
        work = {"sample": "work on tasks", "propose": "propose personas"}.get(first)
        return f"let {name} {work}" if work else super().task_words(key, names)

    @override
    def progress(self, state: MakingState) -> tuple[int, int | None]:
        run = self.kind.begun(state)
        if run is None:
            return 0, None
        done, of = super().progress(state)
        return done, of if run.result else run.settings.iterations * run.settings.steps

    @override
    def yardstick(self, state: MakingState) -> dict[str, object]:
        tools = state.started.tasks if state.started else None
        return {**super().yardstick(state), "they were measured on other tool tasks": tools}

    @override
    def headline(self, run: StudyRun) -> Result | None:
        return words.headline(run, self.kind.result_title, self.kind.arms[START].words)

    @override
    def panels(self, state: MakingState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        run = self.kind.begun(state)
        if run is None:
            return []
        return words.panels(run, self.kind.arms, self.kind.comparison_title, self.curves(state))


class Baking(Study[MakingState]):
    """Tools and personas baked into a model, in cycles (phase 6)."""

    name = "baking"
    phase = 6
    title = "a baking run"
    line = "bake the use of tools, and personas, into a model, in cycles"
    state = BakingState
    as_given = (MODEL,)
    listed = frozenset({Sampled.type, Proposed.type, IterationEnded.type, CycleSwitched.type})
    answers: ClassVar[Mapping[type[Event], type]] = {Sampled: CycleSample, Proposed: Propose}
    figure_of = "of"
    row_figure = ("success", words.SUCCESS)
    result_title = "baked model"
    comparison_title = "Tool tasks that are solved"
    #: The result has the name of its iteration.
    arms: ClassVar[Mapping[str, ArmLabel]] = {
        START: ArmLabel("the given model, without a prompt", "given"),
        figures.PROMPTED: ArmLabel("the given model under the prompt of the tools", "given"),
    }
    baseline = START
    figure_rules = figures.RULES
    prose = Prose(
        fields=words.report_fields,
        sentences=words.sentences,
        lines=words.lines,
        paragraphs=words.paragraphs,
    )
    view = cached_property(BakingView)

    # ---- script ----------------------------------------------------------------------------------

    @override
    def script(self, run: StudyRun) -> Script:
        """Yield the steps: sample turns to measure on, bake in cycles, compare."""
        settings, started, first = run.settings, run.started, as_float32(run.started)
        iterations: list[Iteration] = run.known.setdefault("iterations", [])
        switches: list[CycleSwitched] = run.known.setdefault("switches", [])
        run.foresee(given_dtype.with_rounded(started, {START: first}))
        opening = _measured(run, START)
        run.foresee(tasks=opening)
        for name in tuple(run.recipes):
            yield run.make(name)
        yield run.ask({HOLDING: recipes.held(started)})
        score = figures.success((yield run.ask(opening))[figures.SUCCESS])

        newest, model, cycle = START, first, settings.cycles[0]
        while cycle is not None:
            iteration = Iteration(len(iterations) + 1, cycle, model, score)
            iterations.append(iteration)
            iteration.ended = yield from _bake(run, iteration)
            after = iteration.ended.after
            if after is not None and iteration.ended.outcome == "kept":
                newest, score = recipes.name(iteration.number), after
                model = run.recipes.get(f"{newest}{given_dtype.FLOAT32}", run.recipes[newest])
            ends = [past_iteration.ended for past_iteration in iterations if past_iteration.ended]
            if switch := recipes.switch(settings, ends, switches):
                switches.append((yield Note(f"switch/{iteration.number}", switch)))
                cycle = switch.next

        run.result = newest
        start, result = run.recipes[START], run.recipes[newest]
        run.known["solved"] = {
            START: figures.scored(start, TEST),
            figures.PROMPTED: Observe(start.id, figures.UNDER_PROMPT, TEST),
            newest: figures.scored(result, TEST),
        }
        run.arms |= {name: run.on(name, figures.BITS, TEST) for name in (START, newest)}
        tasks = [run.known["solved"][figures.PROMPTED]]
        for recipe in (start, result):
            bits = Observe(recipe.id, figures.BITS, TEST)
            tasks += [figures.scored(recipe, TEST), figures.apart(recipe, TEST), bits]
        yield run.ask({task.key: task for task in tasks})
        return lambda: run.end(chosen=run.result)

    # ---- tasks -----------------------------------------------------------------------------------

    @override
    def validate_answer(self, state: MakingState, task: Task, event: Event) -> str | None:
        if isinstance(task, Propose) and isinstance(event, Proposed):
            return _unproposed(state.submitted.config, task, event)
        return super().validate_answer(state, task, event)

    # ---- what is shown ---------------------------------------------------------------------------

    @override
    def started_line(self, data: Data) -> str:
        trained = data.get("trainable")
        adapters = f", adapters of {trained:,} parameters" if trained else ""
        return f"{sum(data['counts'].values()):,} tasks, calls as {data['form']}{adapters}"

    @override
    def groups(self, state: MakingState) -> Sequence[Group]:
        return [{name: (recipe,)} for name, recipe in self.trainings(state).items()]

    @override
    def facts(self, run: StudyRun) -> Mapping[str, tuple[str | float, str]]:
        return words.facts(run)

    # ---- work ------------------------------------------------------------------------------------

    @override
    def check_settings(self, config: BakingConfig) -> None:
        from agent_forge.tools import tasks as tool_tasks

        for family in config.families:
            tool_tasks.find(family)

    @override
    def check_machine(self, config: BakingConfig) -> None:
        from agent_forge.phases.tool_baking import tool_tasks

        tool_tasks.check_machine(config)

    @override
    def check(self, plan: Plan) -> CheckResult:
        from agent_forge.phases.tool_baking import tool_tasks

        return tool_tasks.check(plan)

    @override
    def work(self) -> type[Context]:
        from agent_forge.phases.tool_baking.work import Context

        return Context

    @override
    def further_folders(self, run: StudyRun, out: Path) -> dict[str, str | None]:
        """Write each persona to a file that `forge bake --prompt` reads; return an empty dict."""
        from agent_forge.weights.folders.checkpoint import publish

        personas = words.personas(run)

        def fill(folder: Path) -> None:
            for number, row in enumerate(personas, 1):
                place = folder / f"{row.iteration:02d}-{number:02d}.txt"
                place.write_text(row.text, "utf-8")

        if personas:
            publish(out / "personas", fill)
        return {}


def _measured(run: StudyRun, name: str) -> dict[str, Observe]:
    """Return name → task to measure a model on the selection slice: success and divergence."""
    recipe = run.recipes[name]
    return {figures.SUCCESS: figures.scored(recipe), figures.DIVERGENCE: figures.apart(recipe)}


def _bake(run: StudyRun, iteration: Iteration) -> Generator[ScriptStep, Any, IterationEnded]:
    """Yield the steps of an iteration: sample, bake, measure; return its `iteration_ended` event."""
    settings, start = run.settings, iteration.start
    if iteration.cycle == "personas":
        proposed = (yield run.ask({"personas": Propose(start.id)}))["personas"]
        if not proposed.personas:
            return (yield iteration.note("nothing", why="the model proposes no persona"))
        scored = yield run.ask({"auditions": Observe(start.id, figures.PERSONAS, CHOOSING)})
        shares = iteration.auditions = figures.auditions(proposed, scored["auditions"])
        iteration.persona = max(shares, key=lambda text: shares[text])
        if shares[iteration.persona] <= iteration.before:
            why = "no persona solves more than the model without one"
            return (yield iteration.note("nothing", why=why))
    task = recipes.sample(settings, iteration.cycle, start)
    written = iteration.written = (yield run.ask({"turns": task}))["turns"]
    if (turns := written.streams[BAKED].trajectories) < LEAST:
        why = f"{turns} turns under the prompt led to a solved task"
        return (yield iteration.note("nothing", why=why))
    name, whole = recipes.name(iteration.number), recipes.name(iteration.number, whole=True)
    end = recipes.full(run.submitted, run.started, start, written)
    half = recipes.half(settings, start, end)
    models = {whole: end, **given_dtype.with_rounded(run.started, {name: half})}
    run.foresee(models)
    for each in models:
        yield run.make(each)
    observations = yield run.ask(_measured(run, name))
    after = figures.success(observations[figures.SUCCESS])
    return (yield iteration.note("kept" if after >= iteration.before else "reverted", after))


def _unproposed(config: BakingConfig, task: Propose, event: Proposed) -> str | None:
    """Return why an event does not answer the task; None if it does."""
    if event.recipe_id != task.recipe_id:
        return "another model proposed personas than the one that was asked"
    if len(event.personas) > config.personas or len(set(event.personas)) < len(event.personas):
        return "it has more personas than were asked for, or one of them twice"
    if any(not text.strip() for text in event.personas):
        return "a persona has no text"
    return None
