"""Phase 8: a smaller model of the same family, distilled from a given one.

The student has new weights. It is trained on the text and on what the given model predicts, beside the
same student on the text alone; the better one on the selection slice is the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field
from typing_extensions import override

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import HalfPrecision, Large
from agent_forge.runs.kinds.asked import Command
from agent_forge.runs.kinds.forecast import Architecture, Architectures
from agent_forge.runs.kinds.setting_words import TRAINING, Labels
from agent_forge.runs.record.device_setting import on_cpu
from agent_forge.studies import comparison, given_dtype, study_view
from agent_forge.studies.events import (
    MODEL,
    GivenCompleted,
    GivenStarted,
    GivenSubmitted,
    Observe,
    history,
    not_divided,
    not_rounded,
    without_watch,
)
from agent_forge.studies.making.making import Making, MakingState
from agent_forge.studies.run import ArmLabel, Make, Script, StudyRun, best, bits, count, ratio
from agent_forge.studies.settings import Positive, TrainingConfig, Watched
from agent_forge.studies.study import Study
from agent_forge.studies.study_view import Data, Plain, Prose
from agent_forge.studies.training_plan import tokens, training
from agent_forge.weights.recipes import Train, Transform

if TYPE_CHECKING:
    from agent_forge.studies.work import Context
    from agent_forge.weights.folders.checkpoint import Checkpoint

MEASURE = "bits-per-byte@1"
#: Arms: the given model, the student that learns from it, and the student without it.
TEACHER, DISTILLED, ALONE = "teacher", "distilled", "alone"
#: The new weights that both students begin with.
FRESH = "fresh"

# ---- settings ------------------------------------------------------------------------------------

#: Share of the given model's size.
Share = Annotated[float, Field(gt=0, le=1)]


class StudentConfig(TrainingConfig, Watched):
    """Settings: how large the student is, how long and how it is trained."""

    labels: ClassVar[Labels] = {
        "Size of the student": {
            "width": "Share of the width",
            "depth": "Share of the layers",
            "hidden": "Hidden size",
            "layers": "Layers",
            "intermediate": "Feed-forward size",
            "heads": "Attention heads",
            "kv_heads": "Key-value heads",
        },
        "Distillation": {
            "distillation": "Weight of distillation",
            "temperature": "Temperature",
            "alone": "Also train without the given model",
        },
        TRAINING: {"rate": "Learning rate"},
    }

    width: Share = Field(
        0.5,
        description="Share of the given model's hidden size, feed-forward size and heads that the "
        "student has.",
    )
    depth: Share = Field(0.5, description="Share of the given model's layers that the student has.")
    hidden: int | None = Field(None, ge=1, description="Hidden size; none: by `width`.")
    layers: int | None = Field(None, ge=1, description="Layers; none: by `depth`.")
    intermediate: int | None = Field(
        None, ge=1, description="Size of the feed-forward layers; none: by `width`."
    )
    heads: int | None = Field(
        None,
        ge=1,
        description="Attention heads; none: by `width`, or with `hidden` as many as keep their size.",
    )
    kv_heads: int | None = Field(
        None, ge=1, description="Heads of keys and values; none: shared as in the given model."
    )
    rate: Positive = Field(4e-3, description="Peak learning rate.")
    distillation: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of the loss that is the divergence from the given model; the text has the "
        "rest.",
    )
    temperature: Positive = Field(
        1.0,
        description="What logits are divided by before the given model and the student are compared.",
    )
    alone: bool = Field(
        True,
        description="Also train the same student without the given model, on the same text; the better "
        "one on the selection slice is the result.",
    )


# ---- events --------------------------------------------------------------------------------------


class Submitted(GivenSubmitted):
    """A student run was asked for."""

    schema_version = 4

    config: StudentConfig


class Started(GivenStarted):
    """Model, text, sizes and profile were pinned."""

    schema_version = 3

    #: Half precision that the given model has and results are rounded to; None: results are float32.
    dtype: HalfPrecision | None = None
    #: Settings of config.json in which the student differs from the given model.
    sizes: dict[str, int | tuple[str, ...]]
    #: Parameters of the student.
    parameters: Large


class Completed(GivenCompleted):
    """The students are trained and compared with the given model."""

    #: The arm that is the result: the better student on the selection slice.
    chosen: str


# ---- sizes of a student --------------------------------------------------------------------------

#: Size → the names that families give it.
HIDDEN = ("hidden_size", "n_embd", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
HEADS = ("num_attention_heads", "n_head", "num_heads")
KV_HEADS = ("num_key_value_heads",)
INTERMEDIATE = ("intermediate_size", "n_inner", "d_ff")

#: Setting of config.json → its value.
Changes = dict[str, int | tuple[str, ...]]


def changes(config: Mapping[str, Any], student: StudentConfig) -> Changes:
    """Return the student's sizes, under the names of the given model's config.json.

    Raises ConfigError for a config without a size, and for sizes that do not divide.
    """
    hidden, layers = _named(config, HIDDEN), _named(config, LAYERS)
    heads, width = _named(config, HEADS), student.width
    dimension = config.get("head_dim") or config[hidden] // config[heads]
    sizes: Changes = {layers: student.layers or max(1, round(config[layers] * student.depth))}
    sizes[heads] = count = student.heads or (
        max(1, student.hidden // dimension) if student.hidden else max(1, round(config[heads] * width))
    )
    pairs = max(1, round(config[hidden] * width / (2 * count)))  # rotations turn numbers in pairs
    sizes[hidden] = whole = student.hidden or 2 * count * pairs
    if not config.get("head_dim") and (whole % count or whole // count % 2):
        raise ConfigError(
            f"a hidden size of {whole} gives {count} heads no even size: set hidden to a multiple of "
            f"{2 * count}, or heads to another number."
        )
    if shared := _key(config, KV_HEADS):
        sizes[shared] = _kv_heads(count, config[heads], config[shared], student.kv_heads)
    if inner := _key(config, INTERMEDIATE):
        sizes[inner] = student.intermediate or max(1, round(config[inner] * width))
    elif student.intermediate:
        raise ConfigError("the given model's config.json has no size of feed-forward layers to set.")
    if types := config.get("layer_types"):
        sizes["layer_types"] = tuple(types[i % len(types)] for i in range(_int(sizes[layers])))
    return sizes


def of_student(config: Mapping[str, object], student: StudentConfig) -> dict[str, object] | None:
    """Return the fields of the student's config.json; None if the given one lacks its sizes.

    Raises ConfigError for sizes that do not divide.
    """
    if any(_key(config, names) is None for names in (HIDDEN, LAYERS, HEADS)):
        return None
    return {**config, **changes(config, student)}


def _kv_heads(count: int, heads: int, shared: int, kv_heads: int | None) -> int:
    """Return the number of key-value heads: `kv_heads`, or the most at that share dividing `count`.

    The given model has `shared` of them for its `heads`. Raises ConfigError if `kv_heads` does not
    divide `count`.
    """
    if kv_heads is None:
        most = max(1, count * shared // heads)
        return max(n for n in range(1, most + 1) if count % n == 0)
    if count % kv_heads:
        raise ConfigError(f"{count} heads cannot share {kv_heads} heads of keys and values evenly.")
    return kv_heads


def _key(config: Mapping[str, object], names: Sequence[str]) -> str | None:
    """Return the first of `names` under which a config has an integer; None without one."""
    return next((name for name in names if isinstance(config.get(name), int)), None)


def _named(config: Mapping[str, object], names: Sequence[str]) -> str:
    key = _key(config, names)
    if key is None:
        raise ConfigError(
            f"the given model's config.json has no {names[0]}: a smaller one cannot be described."
        )
    return key


def _int(value: int | tuple[str, ...]) -> int:
    assert isinstance(value, int)
    return value


# ---- the study -----------------------------------------------------------------------------------


def fields(run: StudyRun) -> dict[str, object]:
    """Return the fields of the report: parameters of both models, sizes, and the chosen arm."""
    started = run.started
    return {
        "given": started.model.parameters,
        "parameters": started.parameters,
        "sizes": started.sizes,
        "chosen": run.result,
    }


def lines(run: StudyRun) -> list[str]:
    """Return the lines of a completed run's report; the last has the result and its size."""
    student, teacher = run.started.parameters, run.started.model.parameters
    fewer = f"{student:,} parameters, {teacher / student:.1f} times fewer than {teacher:,}"
    return [*study_view.lines(run), f"result: {run.result}, {fewer}"]


def sentences(run: StudyRun) -> list[str]:
    """Return Markdown list items: size and quality of the student, and its lead over the other."""
    figures, parameters = run.state.completed.figures, run.started.parameters
    retention = figures["retention"]
    out = [
        f"- The student has {parameters:,} parameters, {figures['ratio'].value:.1f} times fewer "
        f"than the given model, and {figures['bits_per_byte'].value:.4f} bits per byte: "
        f"{retention.value:.4f} of the quality ({retention.low:.4f} to {retention.high:.4f})."
    ]
    other = ALONE if run.result == DISTILLED else DISTILLED
    if more := run.leads.get(other):
        out.append(
            f"- It is the arm {run.result}; the arm {other} needs {more.value:.4f} bits per byte "
            f"more ({more.low:.4f} to {more.high:.4f}), with as many tokens."
        )
    return out


def paragraphs(run: StudyRun, role: str) -> list[str]:
    """Return a list of one line for the model card: the training tokens and the arm."""
    read = tokens(run.trainings[DISTILLED])
    return [f"Trained on {read:,} tokens from new weights: {run.study.arms[str(run.result)].words}."]


def next_steps(run: StudyRun, name: str) -> list[str]:
    """Return a list of one command, which compresses the given model beside the student."""
    return [f"forge compress {run.submitted.model.path} --student {name} --out DIR"]


class Student(Study[MakingState]):
    """A smaller model, distilled from a given one (phase 8)."""

    name = "student"
    phase = 8
    title = "a student run"
    line = "train a smaller model of a given one's family to predict as that one does"
    state = history(
        *(name, Submitted, Started, Completed),
        requests=(without_watch, on_cpu, dict),
        starts=(not_divided, not_rounded),
    )
    command = Command(
        options={"tokens": "--tokens", "width": "--width", "depth": "--depth"},
        examples=(
            "forge student models/base --out small --width 0.5 --depth 0.5",
            "forge compress models/base --student RUN --out packed",
        ),
    )
    result_title = "student"
    comparison_title = "Student beside the given model"
    arms: ClassVar[Mapping[str, ArmLabel]] = {
        TEACHER: ArmLabel("the model that was given", "given"),
        DISTILLED: ArmLabel(
            "the student, trained on the text and on what the given model predicts", "student"
        ),
        ALONE: ArmLabel("the same student, trained on the text alone", "student"),
    }
    baseline = TEACHER
    references = (ALONE,)
    figure_rules = {
        "retention": ratio(TEACHER, "quality kept of the given model: its bits per byte over ours"),
        "bits_per_byte": bits("bits per byte: of the student, the mean over domains"),
        "parameters": count(lambda p: p.parameters, "parameters: those of the student", "count"),
        "ratio": count(
            lambda p: p.model.parameters / p.parameters,
            "times fewer parameters: those of the given model over the student's",
        ),
    }
    slowest = DISTILLED
    slowest_words = "distillation"
    prose = Prose(
        fields=fields, sentences=sentences, lines=lines, paragraphs=paragraphs, next_steps=next_steps
    )

    @override
    def models_of(self, submitted: Submitted, started: Started) -> dict[str, Making]:
        config = submitted.config
        sizes = {name: list(v) if isinstance(v, tuple) else v for name, v in started.sizes.items()}
        fresh = Transform(
            operation="resized@1",
            inputs={"of": started.model.recipe_id},
            params={"changes": sizes},
            seed=config.seed,
        )

        def student(objective: str, params: Plain, inputs: dict[str, str]) -> Train:
            rate, watch = config.rate, config.divergence
            first, purpose = fresh.id, self.purpose
            return training(submitted, started, purpose, first, objective, params, rate, inputs, watch)

        params = {"weight": config.distillation, "temperature": config.temperature}
        distilled = student("distil@1", params, {"teacher": started.model.recipe_id})
        alone = {ALONE: student("lm@1", {}, {})} if config.alone else {}
        return {FRESH: fresh, **given_dtype.with_rounded(started, {DISTILLED: distilled, **alone})}

    @override
    def script(self, run: StudyRun) -> Script:
        """Yield the steps: train the students, choose the better one, compare with the given model."""
        run.foresee(self.models_of(run.submitted, run.started))
        students = [*run.trainings]
        chosen = {name: run.on(name, MEASURE) for name in students}
        teacher = Observe(run.started.model.recipe_id, MEASURE, comparison.TEST)
        compared = {name: run.on(name, MEASURE, comparison.TEST) for name in students}
        run.foresee(tasks={**chosen, TEACHER: teacher})
        run.foresee(tasks=compared)

        yield run.make(FRESH)
        yield Make([*run.trainings.values()])
        yield run.make(*students)
        run.result = best((yield run.choose(chosen)))
        yield run.compare({TEACHER: teacher, **compared})
        return lambda: run.end(chosen=run.result)

    # ---- what is shown ---------------------------------------------------------------------------

    @override
    def started_line(self, data: Data) -> str:
        return f"{data['parameters']:,} parameters of {data['model']['parameters']:,}"

    @override
    def facts(self, run: StudyRun) -> Mapping[str, tuple[object, str]]:
        student, teacher = run.started.parameters, run.started.model.parameters
        return {
            "parameters": (student, ""),
            "of the given model": (teacher, ""),
            "times fewer": (teacher / student, ""),
            "tokens of a training": (tokens(run.trainings[DISTILLED]), ""),
        }

    # ---- what is the student's own ---------------------------------------------------------------

    @override
    def parameters(self, state: MakingState) -> int:
        return state.started.parameters

    @override
    def memory_of(self, submitted: Submitted, started: Started) -> int:
        return 16 * started.parameters + 4 * started.model.parameters

    @override
    def architectures(self, config: StudentConfig, inputs: Architectures) -> Mapping[str, Architecture]:
        model = next(iter(inputs.get(MODEL, ())), None)
        student = of_student(model, config) if model else None
        return dict.fromkeys(self.roles(config), student) if student else {}

    @override
    def check_model(self, config: StudentConfig, opened: Checkpoint) -> None:
        from agent_forge.weights.operations.fresh import parameters, resized

        size = parameters(resized(opened.config, changes(opened.config, config)))
        check_smaller(size, opened.parameters)

    @override
    def sizes(self, base_config: Mapping[str, object], config: StudentConfig) -> dict[str, object]:
        sizes = changes(base_config, config)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in sizes.items()}

    @override
    def pinned_fields(self, context: Context, common: Mapping[str, Any]) -> dict[str, object]:
        from agent_forge.weights.operations.fresh import parameters

        size = parameters(context.settings)
        check_smaller(size, common["model"].parameters)
        return {"sizes": dict(context.sizes), "parameters": size, "dtype": context.dtype}


def check_smaller(student: int, teacher: int) -> None:
    """Raise ConfigError unless `student` has fewer parameters than `teacher`."""
    if student >= teacher:
        raise ConfigError(
            f"a student of {student:,} parameters is not smaller than the given model, which has "
            f"{teacher:,}: set a smaller width, depth, hidden, layers or intermediate."
        )
