"""Prompt baking (phase 6) as a study: a prompt becomes weights, at a strength that is measured.

The given model writes replies under the prompts, and is trained to write them without. Strengths
between both models, and stops of the training, are measured on the selection slice; the best of them
is the result of the stage. A run of several stages continues from it. Settings, model, prompts and data
are checked before any work. Panels show the strength curve, divergences by prompt, and replies that
pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from agent_forge.evaluation.data import training_texts
from agent_forge.evaluation.trajectories.sampled import Sampled, SampleReplies
from agent_forge.evaluation.verifiers.form import check_patterns
from agent_forge.events import Event
from agent_forge.phases.prompt_baking import figures, recipes, words
from agent_forge.phases.prompt_baking.figures import BEHAVIOUR, BITS, DIVERGENCE, LIMITS
from agent_forge.phases.prompt_baking.recipes import PARENT, BakeState, Course
from agent_forge.phases.prompt_baking.settings import BakeConfig
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.kinds.asked import CheckResult, Command, Lookup, Plan, RunRequest, read_prompts
from agent_forge.runs.kinds.wording import figure_metric
from agent_forge.runs.panels.head import Result, quantity
from agent_forge.runs.panels.panels import Lines, Matrix, Panel, Series
from agent_forge.runs.panels.shapes import Axis, Limit, Metric
from agent_forge.runs.system.bounded_files import read_json
from agent_forge.studies import arm_panels, comparison, submission
from agent_forge.studies.comparison import TEST
from agent_forge.studies.events import MODEL, Observe, Observed
from agent_forge.studies.making.making import MakingState
from agent_forge.studies.run import ArmLabel, Make, Script, ScriptStep, StudyRun
from agent_forge.studies.settings import MIX
from agent_forge.studies.study import Study
from agent_forge.studies.study_view import Prose, StudyView
from agent_forge.studies.training_panels import Group
from agent_forge.studies.training_plan import as_float32

if TYPE_CHECKING:
    from agent_forge.phases.prompt_baking.work import Context

RATIO = Metric(name="ratio of divergences", better="down")
NATS = Metric(name="divergence", unit="nat/token", better="down")
#: Figures of the result that are shown as facts.
SHOWN = ("strength", "drift", "others", "kept", "success", "far_ratio")
#: Panel along the strength → axis, and what it is.
ALONG = {
    "ratio": (
        Axis(name="ratio of divergences", better="down"),
        "KL from the prompted model, over that of the given model without the prompt.",
    ),
    "drift": (
        Axis(name="change of bits per byte", better="down"),
        "Largest relative change of a domain of ordinary text.",
    ),
}


def panels(run: StudyRun) -> list[Panel]:
    """Return the panels of strengths, divergences and replies that the events so far allow."""
    shown: list[Panel] = []
    curves, apart, behaved = words.curves(run), figures.apart(run), figures.behaved(run)
    if curves:
        shown += [_along(run, name, index, curves) for index, name in enumerate(ALONG)]
    if PARENT in apart:
        shown.append(_divergences(run, apart))
    if PARENT in behaved:
        shown.append(_behaviour(behaved))
    return shown


def _along(
    run: StudyRun, name: str, index: int, curves: dict[str, dict[float, tuple[float, float]]]
) -> Lines:
    """Return the panel of curves of ratio or drift by strength; a series for each way to it."""
    (axis, says), done = ALONG[name], run.state.completed
    chosen = f" Chosen: {words.of_arm(run.result)}." if run.result else ""
    if done and name in done.met:
        value = quantity(done.figures[name].value, figure_metric(run.study, name).unit)
        how = f"{words.MET[done.met[name]]} the limit of {words.LIMIT[name]}"
        chosen += f" On the test slice the value is {value}, {how}."
    return Lines(
        name=name,
        title=f"{axis.name[:1].upper()}{axis.name[1:]} by strength",
        says=f"{says} On the {comparison.CHOOSING} slice.{chosen}",
        x=Axis(name="strength"),
        y=axis,
        series=tuple(
            Series(
                name=title,
                role="ours" if title == words.INTERPOLATED else "alternative",
                x=tuple(points),
                y=tuple(pair[index] for pair in points.values()),
            )
            for title, points in curves.items()
        ),
        limits=(Limit(at=LIMITS[name], says="limit"),),
    )


def _behaviour(behaved: dict[str, Observed]) -> Matrix:
    """Return the table panel of the share of passing replies, by check, place and model."""
    says = (
        "Share of greedy replies on the test slice that pass a prompt's check: with and without the "
        "prompts, at the beginning (near) and after ordinary text (far)."
    )
    metric = Metric(name="replies that pass", better="up")
    return arm_panels.groups_by_arm("behaviour", "Replies that pass", says, metric, behaved)


def _divergences(run: StudyRun, apart: dict[str, Observed]) -> Matrix:
    """Return the table panel of divergences on the test slice, by prompt and arm."""
    numbered_prompts = enumerate(recipes.measured(run.settings), 1)
    listed = "; ".join(f"{figures.OTHER}{n}: “{text.strip()[:60]}”" for n, text in numbered_prompts)
    says = (
        "On the test slice. prompt: how far a model without the baked prompt is from the given one "
        f"with it. The others: how far each is from the given one, both with that prompt. {listed}."
    )
    title = "Divergence from the given model under prompts"
    return arm_panels.groups_by_arm("divergences", title, says, NATS, apart, run.result)


def read(setting: str, files: Sequence[Path]) -> dict[str, object]:
    """Return setting → the texts of the files, and "checks" beside prompts. Raises ConfigError."""
    texts = read_prompts(setting, files)
    if setting != "prompts":
        return texts
    places = [file.with_suffix(".check.json") for file in files]
    checks = [read_json(p, error=ConfigError) if p.exists() else None for p in places]
    return {**texts, "checks": checks if any(checks) else []}


def _check_domains(config: BakeConfig, trained: Sequence[str], contexts: Sequence[str]) -> None:
    """Raise ConfigError unless contexts have text, and ordinary text is measured beside them."""
    for domain in contexts:
        if domain not in config.domains or domain not in trained:
            raise ConfigError(
                f"the contexts' domain {domain!r} is not both measured and trained on: add it to "
                "domains and to mix, or name others in contexts."
            )
    if not set(config.domains) - set(contexts):
        raise ConfigError(
            "all domains that are measured are contexts, so nothing shows if the model drifts: add "
            "ordinary text, or name fewer domains in contexts."
        )
    if config.neutral_weight and not set(trained) - set(contexts):
        raise ConfigError(
            "all text to train on is contexts: add ordinary text, or set neutral_weight to 0."
        )


class BakeView(StudyView[MakingState]):
    """View of a bake."""

    @override
    def summary_line(
        self, type_: str, data: Mapping[str, object], names: Mapping[str, str]
    ) -> str | None:
        name = names.get(str(data.get("recipe_id")), str(data.get("recipe_id"))[:12])
        return words.summary_line(type_, data, name) or super().summary_line(type_, data, names)

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        if key.startswith("sample/"):
            return "sample replies under the prompts"
        return super().task_words(key, names)

    @override
    def progress(self, state: MakingState) -> tuple[int, int | None]:
        run = self.kind.begun(state)
        if run is None:
            return 0, None
        return super().progress(state)[0], run.settings.steps * len(run.known["stages"])

    @override
    def headline(self, run: StudyRun) -> Result | None:
        done = run.state.completed
        if done is None or "ratio" not in done.figures:
            return None
        return arm_panels.figured(run, self.kind.result_title, RATIO, done.figures["ratio"])

    @override
    def panels(self, state: MakingState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        run = self.kind.begun(state)
        if run is None:
            return []
        return [*panels(run), *super().panels(state, curve)]


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
        read=read,
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
    answers: ClassVar[Mapping[type[Event], type]] = {Sampled: SampleReplies}
    figure_of = "of"
    row_figure = ("ratio", RATIO)
    result_title = "baked model"
    comparison_title = "Ordinary text"
    #: The arms have the names of their recipes.
    arms: ClassVar[Mapping[str, ArmLabel]] = {}
    baseline = PARENT
    figure_rules = figures.RULES
    prose = Prose(
        fields=words.report_fields,
        sentences=words.sentences,
        lines=words.lines,
        paragraphs=words.paragraphs,
    )
    view = cached_property(BakeView)

    # ---- script ----------------------------------------------------------------------------------

    @override
    def script(self, run: StudyRun) -> Script:
        """Yield the steps: sample replies, bake stage by stage, compare."""
        settings, started = run.settings, run.started
        courses: list[Course] = run.known.setdefault("courses", [])
        stages = run.known["stages"] = recipes.stages(settings)
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

    # ---- what is shown ---------------------------------------------------------------------------

    @override
    def observations(self, state: MakingState) -> Sequence[Observe]:
        return [*super().observations(state), *figures.expected(self.run(state))]

    @override
    def started_line(self, data: Mapping[str, object]) -> str:
        trained = data.get("trainable")
        adapters = f", adapters of {trained:,} parameters" if trained else ""
        return f"prompts of {data['prompt_tokens']:,} tokens{adapters}"

    @override
    def groups(self, state: MakingState) -> Sequence[Group]:
        return [{name: (recipe,)} for name, recipe in self.trainings(state).items()]

    @override
    def arms_of(self, run: StudyRun) -> Mapping[str, ArmLabel]:
        groups = {name: "given" if name == PARENT else "baked" for name in run.arms}
        return {name: ArmLabel(words.of_arm(name), group) for name, group in groups.items()}

    @override
    def facts(self, run: StudyRun) -> Mapping[str, tuple[object, str]]:
        started, done = run.started, run.state.completed
        shown: dict[str, tuple[float | str, str]] = {
            "parameters": (started.model.parameters, ""),
            "tokens of the prompts": (started.prompt_tokens, ""),
        }
        if started.trainable is not None:
            shown["trained parameters"] = started.trainable, ""
        if run.result == PARENT:
            shown["the prompts change"] = "nothing: nothing was trained", ""
        figures = done.figures if done is not None else {}
        for name in SHOWN:
            if figure := figures.get(name):
                metric = figure_metric(run.study, name)
                shown[metric.name] = figure.value, metric.unit
        return shown

    # ---- work ------------------------------------------------------------------------------------

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        base = submission.plan(self, request, lookup, recipes.built_in)
        config: BakeConfig = base.config
        if not config.prompts:
            raise ConfigError(
                "a bake needs a prompt: --prompt FILE of forge bake, or the setting prompts."
            )
        check_patterns(config.checks)
        data, domains = base.fields["data"], tuple[str, ...]()
        trained: Sequence[str] = tuple(MIX)
        if data:
            domains = training_texts.domains(data)
            trained = (*domains, *recipes.built_in(config, domains))
        contexts = config.contexts or (domains if data else ("code",))
        _check_domains(config, tuple(config.mix or trained), contexts)
        return replace(base, config=config.model_copy(update={"contexts": tuple(contexts)}))

    @override
    def check(self, plan: Plan) -> CheckResult:
        from agent_forge.evaluation.training_text.kept_text import given_tokenizer

        opened = submission.opened(plan)
        checked = submission.checked(plan, opened)
        tokenizer = given_tokenizer(Path(plan.fields["model"].path))
        config: BakeConfig = plan.config
        if config.top is not None and config.top >= len(tokenizer):
            raise ConfigError(f"top is {config.top}, the model predicts {len(tokenizer):,} tokens.")
        recipes.check_room(recipes.beginnings(config, tokenizer), config, opened.positions)
        submission.trainable(config, opened.config)
        return checked

    @override
    def work(self) -> type[Context]:
        from agent_forge.phases.prompt_baking.work import Context

        return Context


def _begun(run: StudyRun, stage: recipes.BakeStage) -> Course:
    """Append a stage to the run, which starts from the previous stage's result; return it."""
    courses: list[Course] = run.known["courses"]
    before = courses[-1].candidates[str(courses[-1].best)].recipe if courses else None
    course = Course(stage, recipes.begin(run.started, before))
    courses.append(course)
    run.foresee(course.models(run.started))
    return course


def _plan(run: StudyRun, course: Course, digests: Mapping[str, str]) -> None:
    """Set the models of a stage once its replies are sampled."""
    course.plan(run.submitted, run.started, digests)
    run.foresee(course.models(run.started))


def _bake(run: StudyRun, course: Course, digests: Mapping[str, str]) -> Script:
    """Yield the steps of a stage: sample if it has replies of its own, train, interpolate, measure.

    Sets the stage's `best` model at the end.
    """
    if course.stage.samples:
        yield Make([course.start])
        again = SampleReplies(course.start.id, tuple(recipes.sampled(course.stage)))
        more = (yield run.ask({"replies": again}))["replies"]
        digests = {**digests, **{name: s.digest for name, s in more.streams.items()}}
    _plan(run, course, digests)
    assert course.full is not None
    choices = {task.key: task for task in (run.on(PARENT, BITS), *figures.choices(course))}
    run.foresee(tasks=choices)
    stops = [
        candidate.training for candidate in course.candidates.values() if candidate.training is not None
    ]
    for recipe in (course.start, *stops, course.full):
        yield Make([recipe])
    yield run.make(*course.candidates)
    yield run.ask(choices)
    course.best = figures.nearest(figures.curve(run, course))


def _compared(run: StudyRun) -> ScriptStep:
    """Return the step that measures the given model, the results, and the last training's end."""
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
