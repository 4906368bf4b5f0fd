"""Quiet-STaR as a study: a model learns to think, beside what costs as much without thoughts.

Hard tokens are those that the given model predicts worst; they are frozen before anything is trained.
From one base, ordinary training, pauses and thoughts read the same windows. If thoughts pass the gate,
the model that learned to think is the result, as an ordinary model; else the given model is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from agent_forge.events import Event
from agent_forge.phases.quietstar import figures, recipes
from agent_forge.phases.quietstar.figures import (
    EXCHANGED,
    HARD,
    PAUSED,
    PLAIN,
    RIVALS,
    THOUGHTFUL,
    WEIGHT,
)
from agent_forge.phases.quietstar.recipes import (
    BASE,
    CONTINUED,
    PAUSE,
    PAUSING,
    SHUFFLED,
    SILENT,
    START,
    THINKING,
    THOUGHTS,
    Freeze,
    HardTokensFrozen,
    QuietstarConfig,
    QuietstarState,
    Started,
    Submitted,
    ThoughtArm,
    frozen,
)
from agent_forge.runs.kinds.decide import Task
from agent_forge.runs.panels.head import Result
from agent_forge.runs.panels.panels import Panel
from agent_forge.studies import arm_panels
from agent_forge.studies import run as tables
from agent_forge.studies.comparison import CHOOSING, TEST, lead_line
from agent_forge.studies.events import MODEL, Observed
from agent_forge.studies.making.making import Making, MakingState
from agent_forge.studies.run import ArmLabel, Ask, Extent, Make, Script, StudyRun
from agent_forge.studies.study import Study
from agent_forge.studies.study_view import Data, Plain, Prose, StudyView
from agent_forge.studies.training_plan import as_float32, tokens

if TYPE_CHECKING:
    from agent_forge.phases.quietstar.work import Context
    from agent_forge.runs.home import Home
    from agent_forge.weights.folders.checkpoint import Checkpoint


def fields(run: StudyRun) -> Plain:
    """Return the fields of the report that only this phase has: sizes, result, costs of thoughts."""
    pinned = frozen(run.state, TEST)
    assert pinned is not None
    return {
        "parameters": run.started.model.parameters,
        #: Tokens of a thought.
        "length": run.settings.thought_lengths[-1],
        #: Hard tokens of the test slice, and all its tokens.
        "hard_tokens": count(pinned.tokens),
        "test_tokens": sum(map(sum, pinned.sizes.values())),
        #: The arm that is the result: thoughts, or the given model.
        "chosen": run.state.completed.chosen,
        #: Arm → seconds of a training step, and of measuring over those of continued training.
        "step_seconds": figures.step_seconds(run),
        "cost": figures.costs(run.seen),
    }


def arm_fields(arms: Mapping[str, ThoughtArm]) -> dict[str, object]:
    """Return "arms" → arm → its recipe and its nats a token by domain, hard and all."""
    return {"arms": {name: arm.model_dump() for name, arm in arms.items()}}


def lines(run: StudyRun) -> list[str]:
    """Return the report of a completed run as lines of text for a terminal."""
    arms, words = run.state.completed.arms, run.study.arms
    out = [
        "nats a token (lower is better), test slice, means over domains:",
        f"{'':10s}{'hard':>10s}{'all':>10s}",
    ]
    for name in (name for name in words if name in arms):
        hard, every = (sum(v.values()) / len(v) for v in (arms[name].hard, arms[name].every))
        out.append(f"{name:10s}{hard:10.4f}{every:10.4f}")
    for name in (*RIVALS, SHUFFLED):
        compared = (name, words[name].words, run.leads[name], THOUGHTS)
        out.append(lead_line(*compared, unit="nats a hard token"))
    return [*out, f"gate: {verdict(run)}"]


def verdict(run: StudyRun) -> str:
    """Return the decision of the gate as a sentence."""
    if run.result == SILENT:
        return "thoughts help, and it is the thoughts: the result is the model that thinks"
    done, why = run.state.completed.figures, []
    if done["gain"].low <= 0:
        why.append("thoughts are not below continued training and pauses")
    if done["genuine"].low < 0:
        why.append("exchanged thoughts do not cost half of the gain")
    return f"no gain ({'; '.join(why)}): the given model is passed through unchanged"


def sentences(run: StudyRun) -> list[str]:
    """Return the findings of a completed run as Markdown list items."""
    done, shown = run.state.completed.figures, fields(run)

    def span(name: str) -> str:
        figure = done[name]
        return f"{figure.value:+.4f} nats a hard token ({figure.low:+.4f} to {figure.high:+.4f})"

    cost = shown["cost"].get(THOUGHTS)
    took = f" Measured, a token with thoughts took {cost:.1f} times as long." if cost else ""
    return [
        f"- {verdict(run).capitalize()}.",
        f"- Over continued training thoughts gain {span('over_continued')}, over pauses "
        f"{span('over_pause')}; with thoughts of other positions the model needs "
        f"{span('exchanged')} more.",
        f"- {shown['hard_tokens']:,} of {shown['test_tokens']:,} tokens are hard; thoughts have "
        f"{shown['length']} tokens.{took}",
    ]


def paragraphs(run: StudyRun, role: str) -> list[str]:
    """Return the lines of the model card: tokens read, and code that loads the model with thoughts."""
    return [
        f"Each arm read {tokens(run.trainings[CONTINUED]):,} tokens.",
        "",
        "transformers loads this folder as an ordinary model, without thoughts. If "
        "modeling_thoughts.py lies in it, that file loads the same model with thoughts:",
        "",
        "```python",
        "from modeling_thoughts import Thinker",
        "",
        'model = Thinker.from_pretrained("FOLDER")',
        "ids = model.generate(prompt_ids, 20)",
        "```",
    ]


def count(places: Mapping[str, Sequence[Sequence[int]]]) -> int:
    """Return the number of hard tokens in `places`, domain → their places in each document."""
    return sum(len(hard_tokens) for documents in places.values() for hard_tokens in documents)


#: Arm of the test slice → the model that is measured, and how.
MEASURED = {
    START: (START, PLAIN),
    BASE: (BASE, PLAIN),
    CONTINUED: (CONTINUED, PLAIN),
    PAUSE: (PAUSE, PAUSED),
    THOUGHTS: (THOUGHTS, THOUGHTFUL),
    SHUFFLED: (THOUGHTS, EXCHANGED),
    SILENT: (SILENT, PLAIN),
}
#: The arms that are trained, which are measured on the slice selection, too.
TRAINED = (*RIVALS, THOUGHTS)
#: What a measurement is called, if a model is not measured as it is.
WAYS = ("thought", "shuffled", "pause")


class QuietstarView(StudyView[MakingState]):
    """View of a quietstar run."""

    @override
    def summary_line(self, type_: str, data: Data, names: Mapping[str, str]) -> str | None:
        if type_ == "hard_tokens_frozen":
            return f"{count(data['tokens']):,} hard tokens of the slice {data['on']}"
        if type_ == "observed":
            hard = [v for name, v in data["values"].items() if name.startswith(f"{HARD}/")]
            name = names.get(str(data["recipe_id"]), "")
            way = str(data["measure"]).partition("-hard-tokens")[0]
            way = f" ({way})" if way in WAYS else ""
            return f"{name}{way}, {data['on']}: {sum(hard) / len(hard):.4f} nats a hard token"
        return super().summary_line(type_, data, names)

    @override
    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        first, _, rest = key.partition("/")
        if first == "freeze":
            return f"find the hard tokens of the slice {rest}"
        return super().task_words(key, names)

    @override
    def headline(self, run: StudyRun) -> Result | None:
        if (rival := _rival(run)) is None:
            return None
        return arm_panels.headline(run, THOUGHTS, tables.words(self.kind.arms), rival)

    @override
    def comparison_panels(self, run: StudyRun, result_name: str) -> Sequence[Panel]:
        study, words = self.kind, tables.words(self.kind.arms)
        compared = words, run.seen, run.leads, arm_panels.groups(study.arms)
        arms = arm_panels.arms(
            *(*(study.comparison_title, *compared, result_name, _rival(run) or study.baseline),),
            note=f"The {100 * run.settings.hard:g} % of tokens that the given model predicts worst are "
            f"hard. {arm_panels.SAME_WINDOWS}",
            scale=study.scale,
            cost=figures.COST,
            costs=figures.costs(run.seen),
        )
        done = run.state.completed
        gate = (figures.gate(done.figures),) if done else ()
        names = [name for name in study.arms if name in run.seen]
        return (arms, *gate, figures.domains(names, run.seen, result_name))

    @override
    def fields(self, state: MakingState) -> dict[str, object]:
        run = self.kind.begun(state)
        return {
            "curves": self.curves(state),
            **self.kind.prose.arms(figures.arms(run.seen) if run else {}),
        }


class Quietstar(Study[MakingState]):
    """A model that thinks before each token (phase 3)."""

    name = "quietstar"
    phase = 3
    title = "a quietstar run"
    line = "train a model to think before each token, and see if its thoughts help"
    state = QuietstarState
    answers: ClassVar[Mapping[type[Event], type]] = {HardTokensFrozen: Freeze}
    as_given = (MODEL,)
    figure_of = "part"
    row_figure = ("hard_nats", figures.HARD_NATS.metric)
    result_title = "Quiet-STaR model"
    comparison_title = "Hard tokens with thoughts and without"
    arms: ClassVar[Mapping[str, ArmLabel]] = {
        START: ArmLabel("the model that was given", "without"),
        BASE: ArmLabel("the trained base that all arms branch from", "without"),
        CONTINUED: ArmLabel("ordinary training", "without"),
        PAUSE: ArmLabel("training with pauses, which compute as many tokens as thoughts", "without"),
        THOUGHTS: ArmLabel("a thought before each token", "thoughts"),
        SHUFFLED: ArmLabel(
            "the same model with exchanged thoughts, those of other positions", "thoughts"
        ),
        SILENT: ArmLabel("the model that learned to think, without thoughts", "without"),
    }
    scale = figures.HARD_NATS
    ours = THOUGHTS
    baseline = CONTINUED
    references = (CONTINUED,)
    figure_rules = figures.FIGURES
    slowest = THOUGHTS
    slowest_words = "training with thoughts"
    prose = Prose(
        fields=fields, arms=arm_fields, sentences=sentences, lines=lines, paragraphs=paragraphs
    )
    view = cached_property(QuietstarView)

    # ---- recipes and script ----------------------------------------------------------------------

    @override
    def models_of(self, submitted: Submitted, started: Started) -> dict[str, Making]:
        return recipes.models(submitted, started)

    @override
    def script(self, run: StudyRun) -> Script:
        """Yield the steps: freeze hard tokens, train the arms from one base, compare; then decide."""
        run.foresee(self.models_of(run.submitted, run.started))
        run.arms |= {arm: run.on(*which, TEST) for arm, which in MEASURED.items()}
        run.candidates |= {arm: run.on(*MEASURED[arm]) for arm in TRAINED}
        tasks = {t.key: t for t in (*run.candidates.values(), *run.arms.values())}
        run.foresee(tasks=tasks)

        yield Make([as_float32(run.started)])
        yield run.make(START)
        yield Ask({on: Freeze(run.recipes[START].id, on) for on in (CHOOSING, TEST)})
        yield run.make(BASE)
        yield run.make(PAUSING, THINKING)
        yield Make([run.trainings[arm] for arm in TRAINED])
        yield run.make(*TRAINED)
        yield run.make(SILENT)
        yield Ask(tasks)
        run.result = figures.decided(run)
        chosen = THOUGHTS if run.result == SILENT else START
        return lambda: run.end(chosen=chosen, arms=figures.arms(run.seen))

    @override
    def validate_answer(self, state: MakingState, task: Task, event: Event) -> str | None:
        if isinstance(task, Freeze) and isinstance(event, HardTokensFrozen):
            if (event.recipe_id, event.on) != (task.recipe_id, task.on):
                return "the hard tokens are of another model or slice than was asked for"
            return recipes.wrong(event, state.submitted.config.hard)
        wrong = super().validate_answer(state, task, event)
        if wrong or not isinstance(event, Observed):
            return wrong
        return _elsewhere(state, event)

    # ---- what is shown ---------------------------------------------------------------------------

    @override
    def facts(self, run: StudyRun) -> Mapping[str, tuple[object, str]]:
        pinned = frozen(run.state, TEST)
        return {
            "parameters": (run.started.model.parameters, ""),
            "tokens of an arm": (tokens(run.trainings[CONTINUED]), ""),
            "tokens of a thought": (run.settings.thought_lengths[-1], ""),
            **({"hard tokens": (count(pinned.tokens), "")} if pinned else {}),
            **({"result": ("thinks", "")} if run.result == SILENT else {}),
        }

    @override
    def measured(self, arm: Any) -> Mapping[str, float]:
        return {
            **{f"{domain} hard nats": value for domain, value in arm.hard.items()},
            **{f"{domain} nats": value for domain, value in arm.every.items()},
        }

    # ---- what is its own -------------------------------------------------------------------------

    @override
    def memory_of(self, submitted: Submitted, started: Started) -> int:
        return (16 + (4 if submitted.config.kl else 0)) * started.model.parameters

    @override
    def check_model(self, config: QuietstarConfig, opened: Checkpoint) -> None:
        recipes.window(config, opened.positions)

    @override
    def extent(self, run: StudyRun) -> Extent:
        """Return the `Extent` of the work, with twice the steps of the training with thoughts."""
        steps = run.trainings[THOUGHTS].upto
        counted = (
            f"there are {steps:,}; the other trainings count as much again, which is more than they "
            "take"
        )
        return super().extent(run)._replace(steps=2 * steps, counted=counted)

    @override
    def work(self) -> type[Context]:
        from agent_forge.phases.quietstar.work import Context

        return Context

    @override
    def write_result(self, home: Home, state: MakingState, out: Path) -> dict[str, object]:
        from agent_forge.phases.quietstar.work import write_thinker

        report = super().write_result(home, state, out)
        return {**report, "thoughts_folder": write_thinker(self, home, state, Path(report["folder"]))}


def _rival(run: StudyRun) -> str | None:
    """Return the name of the better rival of thoughts; None before all arms are measured."""
    return min(RIVALS, key=run.mean) if run.seen.keys() >= set(TRAINED) else None


def _elsewhere(state: MakingState, event: Observed) -> str | None:
    """Return why an event is not of the frozen hard tokens; None if it is."""
    pinned = frozen(state, event.on)
    if pinned is None:
        return "the hard tokens were not frozen before"
    expected_sizes = {f"{figures.EVERY}/{domain}": sizes for domain, sizes in pinned.sizes.items()}
    for domain, documents in pinned.tokens.items():
        expected_sizes[f"{HARD}/{domain}"] = tuple(map(len, documents))
    event_sizes = {n: tuple(s) for n, s in event.sizes.items() if not n.startswith(f"{WEIGHT}/")}
    return (
        None
        if event_sizes == expected_sizes
        else "it was measured on other tokens than those that were frozen"
    )
