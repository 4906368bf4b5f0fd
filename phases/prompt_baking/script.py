"""Phase 6: a prompt becomes weights, at a strength that is measured.

The given model writes replies under the prompts, and is trained to write them without. Strengths
between both models, and stops of the training, are measured on the selection slice, and one of them
is the result of the stage; a run of several stages goes on from it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from evaluation.trajectories import sampled
from evaluation.trajectories.sampled import Sample, Sampled
from events import Event
from phases.prompt_baking import figures, panels, prompts, recipes, submission, words
from phases.prompt_baking.events import BakeState, Submitted
from phases.prompt_baking.figures import BEHAVIOUR, BITS, DIVERGENCE
from phases.prompt_baking.recipes import PARENT, Course
from runs.kinds.asked import Asked, Checked, Command, Lookup, Plan
from runs.kinds.forecast import Forecast
from runs.kinds.tasks import Task
from runs.panels.head import Result
from runs.panels.panels import Panel
from studies import study_report
from studies.comparison import TEST
from studies.events import MODEL
from studies.making.making import MakingState
from studies.observing import Observe
from studies.run import Run
from studies.script import Make, Script, Step
from studies.study import Study
from studies.tables import Arm
from studies.training_plan import as_float32
from studies.training_rows import Group

if TYPE_CHECKING:
    from phases.prompt_baking.work import Context


class Bake(Study[MakingState]):
    """A prompt baked into a model (phase 6)."""

    name = "bake"
    phase = 6
    title = "a bake"
    line = "bake a prompt into a model's weights: it answers without the prompt as with it"
    command = Command(
        options={
            "prompts": "--prompt FILE",
            "sequence": "--sequence",
            "pursuit": "--pursuit",
            "others": "--keep FILE",
        },
        words=(
            "Bake a prompt into a model's weights: it answers without the prompt as with "
            "it.\n\nMODEL is a folder, Hub id, RUN or RUN:ROLE. The model writes replies under the "
            "prompt, and is trained to predict them without it, while its predictions on ordinary "
            "text and under other prompts stay as they are. Several strengths between both models "
            "are measured, and the best one is the result. NAME.check.json beside a prompt's file "
            "says how replies are checked. The folder of --out gets the model, a card with the "
            "figures, and the report."
        ),
        read=submission.read,
        examples=(
            "forge bake models/base --prompt style.txt --out baked",
            "forge bake models/base --prompt style.txt --prompt tools.txt --keep summary.txt",
            "forge bake models/base --prompt style.txt --data questions.jsonl --set reply_tokens=64",
            "forge bake models/base --prompt style.txt --prompt persona.txt --sequence --out baked",
            "forge bake Qwen/Qwen3-0.6B --prompt style.txt --lora 16 --out baked",
        ),
    )
    state = BakeState
    as_given = (MODEL,)
    listed = frozenset({Sampled.type})
    answers: ClassVar[Mapping[type[Event], type]] = {Sampled: Sample}
    figure_of = "of"
    row_figure = ("ratio", panels.RATIO)
    result_title = "baked model"
    comparison_title = "Ordinary text"
    #: The arms have the names of their recipes.
    arms: ClassVar[Mapping[str, Arm]] = {}
    baseline = PARENT
    figure_rules = figures.RULES

    # ---- script ----------------------------------------------------------------------------------

    def script(self, run: Run) -> Script:
        """Let the given model write replies; bake what changes them, stage by stage; compare."""
        settings, started = run.settings, run.started
        courses: list[Course] = run.known.setdefault("courses", [])
        stages = run.known["stages"] = prompts.stages(settings)
        yield run.make(**{PARENT: as_float32(started)})
        written = (yield run.ask({"replies": recipes.sample(settings, started)}))["replies"]
        digests = {name: stream.digest for name, stream in written.streams.items()}
        effect = run.on(PARENT, DIVERGENCE)
        if effect.key not in run.state.answers:  # the first stage is what most likely comes
            _plan(run, _begun(run, stages[0]), digests)
        changed = (yield run.ask({"effect": effect}))["effect"]
        run.known["stages"] = figures.active(settings, changed)
        for stage in run.known["stages"]:
            yield from _bake(run, _begun(run, stage), digests)

        run.result = courses[-1].best if courses else PARENT
        yield _compared(run)
        return lambda: run.end(chosen=run.result, met=figures.met(run.figures))

    # ---- tasks -----------------------------------------------------------------------------------

    def unasked(self, state: MakingState, task: Task, event: Event) -> str | None:
        """Return why the event does not answer the open task; None if it does."""
        if isinstance(task, Sample) and isinstance(event, Sampled):
            return sampled.unasked(task, event)
        return super().unasked(state, task, event)

    def asked_for(self, settings: Mapping[str, Any], config: Any) -> bool:
        """Return True if the settings are those; contexts that were not given are the default ones."""
        return super().asked_for({"contexts": config.contexts, **settings}, config)

    # ---- what is shown ---------------------------------------------------------------------------

    def observations(self, state: MakingState) -> Sequence[Observe]:
        """Return all that the run measures, as far as it is known or expected."""
        return [*super().observations(state), *figures.expected(self.run(state))]

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
        return words.gist(type_, data, name) or super().gist(type_, data, names)

    def started_line(self, data: Mapping[str, Any]) -> str:
        """Return the tokens of the prompts, and the parameters of adapters."""
        trained = data.get("trainable")
        adapters = f", adapters of {trained:,} parameters" if trained else ""
        return f"prompts of {data['prompt_tokens']:,} tokens{adapters}"

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        if key.startswith("sample/"):
            return "sample replies under the prompts"
        return super().task_words(key, names)

    def progress(self, state: MakingState) -> tuple[int, int | None]:
        """Return (steps that are done, steps in all); of prompts that change nothing, none."""
        run = self.begun(state)
        if run is None:
            return 0, None
        return super().progress(state)[0], run.settings.steps * len(run.known["stages"])

    def groups(self, state: MakingState) -> Sequence[Group]:
        """Return the trainings of the prompts, one after the other."""
        return [{name: (recipe,)} for name, recipe in self.trainings(state).items()]

    def arms_of(self, run: Run) -> Mapping[str, Arm]:
        """Return the given model, the result of every stage, and the end of the last training."""
        groups = {name: "given" if name == PARENT else "baked" for name in run.arms}
        return {name: Arm(words.of_arm(name), group) for name, group in groups.items()}

    def headline(self, run: Run) -> Result | None:
        """Return the ratio of divergences; None until it is known."""
        return panels.headline(run, self.result_title)

    def facts(self, run: Run) -> Mapping[str, tuple[Any, str]]:
        """Return the sizes of model and prompts, and the figures of the result."""
        return panels.facts(run)

    def panels(self, state: MakingState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return the strength curve, divergences, behaviour, arms, training curves and models."""
        run = self.begun(state)
        if run is None:
            return []
        return [*panels.panels(run), *study_report.panels(self, run, self.curves(state))]

    def report_fields(self, run: Run) -> dict[str, Any]:
        """Return the prompts, the strengths, and what was measured of divergences and replies."""
        return words.report_fields(run)

    def sentences(self, run: Run) -> list[str]:
        """Return the ratio, the drift, and what other prompts and replies show."""
        return words.sentences(run)

    def lines(self, state: MakingState) -> list[str]:
        """Return the report of a completed run as lines of text for a terminal."""
        return words.lines(self.run(state))

    def card_words(self, run: Run, role: str) -> list[str]:
        """Return what the model does, and the prompts."""
        return words.card_words(run)

    # ---- work ------------------------------------------------------------------------------------

    def plan(self, request: Asked, lookup: Lookup) -> Plan:
        """Return the plan of the run of one `model`.

        Raises ConfigError, DataError, UnavailableError.
        """
        return submission.plan(self, request, lookup)

    def check(self, plan: Plan) -> Checked:
        """Open model (header only), tokenizer and data; raise the errors that a start would raise."""
        return submission.check(plan)

    def forecast(self, submitted: Submitted, cache: Any, folder: Path) -> Forecast:
        """Return what a run that is submitted so costs here. Raises the errors of a start."""
        from phases.prompt_baking.forecast import forecast

        return forecast(submitted, cache, folder)

    def _work(self) -> type[Context]:
        """Return the class of contexts, which loads torch."""
        from phases.prompt_baking.work import Context

        return Context


def _begun(run: Run, stage: prompts.Stage) -> Course:
    """Return a stage that begins with the result of the one before it."""
    courses: list[Course] = run.known["courses"]
    before = courses[-1].candidates[str(courses[-1].best)].recipe if courses else None
    course = Course(stage, recipes.begin(run.started, before))
    courses.append(course)
    run.foresee(course.models(run.started))
    return course


def _plan(run: Run, course: Course, digests: Mapping[str, str]) -> None:
    """Name the models of a stage, whose replies are sampled."""
    course.plan(run.submitted, run.started, digests)
    run.foresee(course.models(run.started))


def _bake(run: Run, course: Course, digests: Mapping[str, str]) -> Generator[Step, Any, None]:
    """Train, with stops on the way, on replies of the given model or, in a pursuit, of the start.

    Then choose one of the models that come out.
    """
    if course.stage.again:
        yield Make([course.start])
        more = (yield run.ask({"replies": recipes.sample_again(course)}))["replies"]
        digests = {**digests, **{name: s.digest for name, s in more.streams.items()}}
    _plan(run, course, digests)
    assert course.full is not None
    choices = {task.key: task for task in (run.on(PARENT, BITS), *figures.choices(course))}
    run.foresee(tasks=choices)
    stops = [
        candidate.training
        for candidate in course.candidates.values()
        if candidate.training is not None
    ]
    for recipe in (course.start, *stops, course.full):
        yield Make([recipe])
    yield run.make(*course.candidates)
    yield run.ask(choices)
    course.best = figures.nearest(figures.curve(run, course))


def _compared(run: Run) -> Step:
    """Return the step that measures the given model, the results, and the end of the last training."""
    courses: Sequence[Course] = run.known["courses"]
    results = [str(course.best) for course in courses]
    ends = [recipes.name(1.0, course.stage.number) for course in courses[-1:]]
    names = tuple(dict.fromkeys((PARENT, *results, *ends)))
    apart = {name: run.on(name, DIVERGENCE, TEST) for name in names}
    run.arms |= {name: run.on(name, BITS, TEST) for name in names}
    checked = (PARENT, *results) if any(run.settings.checks) else ()
    behaved = {name: run.on(name, BEHAVIOUR, TEST) for name in checked}
    run.known |= {"apart": apart, "behaved": behaved}
    tasks = [task for name in names for task in (apart[name], run.arms[name])]
    return run.ask({task.key: task for task in (*tasks, *behaved.values())})
