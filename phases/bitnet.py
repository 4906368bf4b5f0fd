"""Phase 4: a model becomes ternary by training, beside its honest alternatives.

The ternary model is trained from the given one, and measured beside continued training in full
precision, the model itself, the best rounding without training, and, if asked for, ternary training
from new weights: all at equal tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field
from torch.nn import Module
from typing_extensions import override

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import Large
from agent_forge.runs.kinds.asked import Command
from agent_forge.runs.kinds.setting_words import TRAINING, Labels
from agent_forge.runs.panels.panels import Column, Panel, Units
from agent_forge.runs.record.device_setting import on_cpu
from agent_forge.studies import comparison, study_view
from agent_forge.studies.arm_panels import SAME_WINDOWS
from agent_forge.studies.comparison import CHOOSING, TEST
from agent_forge.studies.events import (
    MODEL,
    GivenCompleted,
    GivenStarted,
    GivenSubmitted,
    history,
    not_divided,
    without_watch,
)
from agent_forge.studies.making.making import Making, MakingState
from agent_forge.studies.run import ArmLabel, Script, StudyRun, best, bits, count, lead, ratio
from agent_forge.studies.settings import Positive, TrainingConfig, Watched
from agent_forge.studies.study import Study
from agent_forge.studies.study_view import Data, Prose
from agent_forge.studies.training_plan import as_float32, mix, tokens, training
from agent_forge.weights.recipes import Train, Transform

if TYPE_CHECKING:
    from agent_forge.studies.work import Context
    from agent_forge.weights.folders.checkpoint import Checkpoint

#: Role of the full-precision weights behind the ternary ones.
MASTER = "master"
#: Names of further models: the one that was given (in float32), continued training in full precision,
#: a ternary training from new weights and these.
START, FULL, SCRATCH, FRESH = "start", "full", "scratch", "fresh"
SCRATCH_MASTER = "scratch-master"
#: The arm with the best way of rounding without training, and the names of all ways.
UNTRAINED, WAYS = "untrained", ("absmean", "least-squares", "sigma", "feedback")
#: Measures of models in full precision, and of ternary ones that read int8 activations.
FLOAT, INT8 = "bits-per-byte@1", "int8-bits-per-byte@1"
#: A scale without training, in standard deviations of the weights; measured in docs/benchmarks.md.
SIGMAS = 1.8
#: Approximate number of tokens of calibration text.
CALIBRATION = 32_768
#: Folder of the packed model in a result.
PACKED = "packed"

# ---- settings and events -------------------------------------------------------------------------


class BitnetConfig(TrainingConfig, Watched):
    """Settings: how long is trained, how weights are rounded, what is compared."""

    labels: ClassVar[Labels] = {
        "Ternary weights": {
            "group": "Columns that share a scale",
            "int8_activations": "Int8 activations",
            "quantisation_warmup": "Warm-up of quantisation",
            "distillation": "Weight of distillation",
            "scratch": "Also train from new weights",
        },
        TRAINING: {"rate": "Learning rate, ternary", "full_rate": "Learning rate, full precision"},
    }

    rate: Positive = Field(
        4e-3,
        description="Peak learning rate of ternary training; it takes higher ones than full precision.",
    )
    full_rate: Positive = Field(
        2e-3, description="Peak learning rate of the continued training in full precision."
    )
    group: int = Field(
        0,
        ge=0,
        description="Columns of a row that share a scale; 0: one for each matrix, as the formats for "
        "other programs need.",
    )
    int8_activations: bool = Field(
        True, description="Linear layers read their inputs as int8, with a scale for each token."
    )
    quantisation_warmup: float = Field(
        0.5, ge=0, le=1, description="Share of the steps in which quantisation rises from none to all."
    )
    distillation: float = Field(
        0.0,
        ge=0,
        description="Weight of the divergence from the model that the run starts from; 0: none.",
    )
    scratch: bool = Field(
        False, description="Also train a ternary model from new weights, with as many tokens."
    )


class Submitted(GivenSubmitted):
    """A bitnet run was asked for."""

    schema_version = 4

    config: BitnetConfig


class Started(GivenStarted):
    """Model, text and profile were pinned."""

    schema_version = 2

    #: Weights in matrices that become ternary, of all parameters of the model.
    ternary: Large
    #: Bytes of the tensors: in float32, and packed in two bits a ternary weight with their scales.
    bytes: Large
    packed: Large


class Completed(GivenCompleted):
    """All models are made and compared."""

    #: The way of rounding without training that was the best on the selection slice.
    untrained: str


# ---- the study -----------------------------------------------------------------------------------


def fields(run: StudyRun) -> dict[str, object]:
    """Return fields of the report: counts of weights, bytes, and the chosen way of rounding."""
    started = run.started
    return {
        "parameters": started.model.parameters,
        "ternary": started.ternary,
        "untrained": run.known[UNTRAINED],
        #: Bytes of the tensors in float32, and packed.
        "bytes": started.bytes,
        "packed": started.packed,
    }


def lines(run: StudyRun) -> list[str]:
    """Return the lines of a completed run's report; the last has the sizes and the best rounding."""
    pins, way = run.started, run.known[UNTRAINED]
    return [
        *study_view.lines(run),
        f"packed: {pins.packed:,} bytes, {pins.packed / pins.bytes:.1%} of {pins.bytes:,} in "
        f"float32; {pins.ternary:,} of {pins.model.parameters:,} weights are ternary; best "
        f"rounding without training: {way}",
    ]


def sentences(run: StudyRun) -> list[str]:
    """Return Markdown list items: the quality beside the alternatives, and the size."""
    figures, pins = run.state.completed.figures, run.started
    more, way = run.leads[UNTRAINED], run.known[UNTRAINED]
    beside = {name: 1 / figures[name].value - 1 for name in ("retention", "retention_of_start")}
    out = [
        f"- The ternary model has {figures['bits_per_byte'].value:.4f} bits per byte: "
        f"{beside['retention']:+.1%} against continued training in full precision with as many "
        f"tokens, {beside['retention_of_start']:+.1%} against the model that was given.",
        f"- The best rounding without training ({way}) needs {more.value:.4f} bits per byte more "
        f"({more.low:.4f} to {more.high:.4f}).",
        f"- Packed it has {pins.packed:,} bytes, {figures['size'].value:.1%} of those in float32.",
    ]
    return [line.replace("%", " %") for line in out]


def paragraphs(run: StudyRun, role: str) -> list[str]:
    """Return two lines of a model card: what the model of `role` is, and its training tokens."""
    words = {
        MODEL: "ternary weights, as float32: −s, 0 or s in every matrix of a linear layer.",
        MASTER: "the full-precision weights that the ternary ones are rounded from.",
        PACKED: "ternary weights in two bits each, which transformers loads (format `bitnet`).",
    }
    model, read = run.started.model, tokens(run.trainings[MASTER])
    return [
        f"{role}: {model.parameters:,} parameters, {words[role]}",
        f"Trained on {read:,} tokens from {model.name}.",
    ]


class Bitnet(Study[MakingState]):
    """A model with ternary weights (phase 4)."""

    name = "bitnet"
    phase = 4
    title = "a bitnet run"
    line = "train a model to have ternary weights, and compare it with the alternatives"
    state = history(
        *(name, Submitted, Started, Completed),
        requests=(without_watch, on_cpu, dict),
        starts=(not_divided,),
    )
    command = Command(
        options={"tokens": "--tokens"},
        words=(
            "Train a model to have weights of -s, 0 and s in its linear layers (BitNet "
            "b1.58).\n\nMODEL is a folder, Hub id, RUN or RUN:ROLE. The ternary model is measured "
            "beside continued training in full precision, the model itself and the best rounding "
            "without training, at equal tokens. The folder of --out gets the models and the "
            "report."
        ),
        examples=(
            "forge bitnet models/base --out ternary",
            "forge bitnet 20261121-3fa9c1:base --out ternary --tokens 5000000 --data law=texts/law",
            "forge export RUN --format gguf --type TQ2_0 --out model.gguf",
        ),
    )
    as_given = (MASTER,)
    result_roles = (MODEL, MASTER)
    result_title = "ternary model"
    comparison_title = "Ternary beside its alternatives"
    comparison_note = f"{SAME_WINDOWS} {MASTER}: the full-precision weights behind the ternary ones."
    arms: ClassVar[Mapping[str, ArmLabel]] = {
        START: ArmLabel("the model that was given", "float"),
        FULL: ArmLabel("continued training in full precision", "float"),
        MODEL: ArmLabel("ternary training", "ternary"),
        SCRATCH: ArmLabel("ternary training from new weights", "ternary"),
        UNTRAINED: ArmLabel("ternary without training", "ternary"),
    }
    baseline = FULL
    references = (FULL,)
    figure_rules = {
        "bits_per_byte": bits("bits per byte: of the ternary model, the mean over domains"),
        "retention": ratio(
            FULL,
            "quality kept of continued training: bits per byte after continued training in full "
            "precision with as many tokens, over the ternary model's own",
        ),
        "retention_of_start": ratio(
            START, "quality kept of the given model: its bits per byte over the ternary model's own"
        ),
        "lead_over_untrained": lead(
            UNTRAINED,
            "lead over rounding without training: bits per byte that the best such rounding needs more",
        ),
        "size": count(
            lambda p: p.packed / p.bytes,
            "size beside float32: bytes of the packed tensors, over those of the tensors in float32",
            "share",
        ),
    }
    slowest = MASTER
    slowest_words = "ternary training"
    prose = Prose(fields=fields, sentences=sentences, lines=lines, paragraphs=paragraphs)

    # ---- recipes and script ----------------------------------------------------------------------

    @override
    def models_of(self, submitted: Submitted, started: Started) -> dict[str, Making]:
        config, first = submitted.config, as_float32(started)
        full = training(
            *(submitted, started, self.purpose, first.id, "lm@1", {}, config.full_rate),
            divergence=config.divergence,
        )
        master = self.master(submitted, started, first.id, first.id)
        models: dict[str, Making] = {
            START: first,
            FULL: full,
            MASTER: master,
            **self.untrained(submitted, started),
            MODEL: self.rounded(submitted, master.id),
        }
        if config.scratch:
            inputs = {"of": started.model.recipe_id}
            fresh = Transform(operation="fresh@1", inputs=inputs, seed=config.seed)
            scratch = self.master(submitted, started, fresh.id, None)
            rounded = self.rounded(submitted, scratch.id)
            models |= {FRESH: fresh, SCRATCH_MASTER: scratch, SCRATCH: rounded}
        return models

    def master(self, submitted: Submitted, started: Started, first: str, teacher: str | None) -> Train:
        """Return the recipe of a ternary training; `first` and `teacher` are ids of recipes."""
        config = submitted.config
        params = {
            "group": config.group,
            "int8_activations": config.int8_activations,
            "warmup": config.quantisation_warmup,
            "distillation": config.distillation if teacher else 0.0,
        }
        inputs = {"teacher": teacher} if teacher and config.distillation else {}
        rate, watch = config.rate, config.divergence
        purpose = self.purpose
        return training(submitted, started, purpose, first, "ternary@1", params, rate, inputs, watch)

    def rounded(self, submitted: Submitted, of: str, method: str = WAYS[0]) -> Transform:
        """Return the recipe that rounds the model with recipe id `of` to packed ternary weights."""
        group = submitted.config.group
        params: dict[str, object] = {"method": method, "group": group, "sigmas": SIGMAS}
        return Transform(operation="ternary-pack@1", inputs={"of": of}, params=params)

    def untrained(self, submitted: Submitted, started: Started) -> dict[str, Transform]:
        """Return way → recipe of the given model, rounded without training."""
        of = as_float32(started).id
        digests = {domain: started.streams[domain] for domain in mix(submitted, started)}
        params: dict[str, object] = {
            "data": digests,
            "context": started.context,
            "windows": max(1, CALIBRATION // started.context),
            "sigmas": SIGMAS,
            "damping": 0.01,
        }
        fed_back = Transform(
            operation="ternary-feedback@1", inputs={"of": of}, params=params, seed=submitted.config.seed
        )
        ways = {way: self.rounded(submitted, of, way) for way in WAYS[:-1]}
        return {**ways, WAYS[-1]: fed_back}

    @override
    def script(self, run: StudyRun) -> Script:
        """Yield the steps: train, round, choose the best rounding without training, compare."""
        run.foresee(self.models_of(run.submitted, run.started))
        run.result = MODEL
        first, last = (START, FRESH), (MODEL, SCRATCH)
        there = run.recipes.keys()
        ternary = INT8 if run.settings.int8_activations else FLOAT
        ways = {way: run.on(way, ternary) for way in WAYS}
        floats = {name: run.on(name, FLOAT, TEST) for name in (START, FULL)}
        ternaries = {name: run.on(name, ternary, TEST) for name in last if name in there}
        run.foresee(tasks=ways)
        run.foresee(tasks={**floats, **ternaries})
        run.arms |= {**floats, **ternaries}

        yield run.make(*(name for name in first if name in there))
        yield run.make(*(name for name in there if name not in (*first, *last)))
        yield run.make(*(name for name in last if name in there))
        way = run.known[UNTRAINED] = best((yield run.choose(ways)))
        yield run.compare({**floats, **ternaries, UNTRAINED: run.on(way, ternary, TEST)})
        return lambda: run.end(untrained=way)

    # ---- what is shown ---------------------------------------------------------------------------

    @override
    def started_line(self, data: Data) -> str:
        share = data["ternary"] / data["model"]["parameters"]
        return f"{data['model']['parameters']:,} parameters, {share:.0%} become ternary"

    @override
    def facts(self, run: StudyRun) -> Mapping[str, tuple[object, str]]:
        return {
            "parameters": (run.started.model.parameters, ""),
            "of them ternary": (run.started.ternary, ""),
            "packed": (run.started.packed, "bytes"),
            "tokens of a training": (tokens(run.trainings[MASTER]), ""),
        }

    @override
    def own_panels(self, run: StudyRun) -> Sequence[Panel]:
        way = run.known.get(UNTRAINED)
        if way is None:
            return ()
        rows = [
            (name, comparison.mean(run.state.answers[task.key]), name == way)
            for name, task in run.candidates.items()
        ]
        return [
            Units(
                name="rounding",
                title="Rounding without training",
                says=f"On the {CHOOSING} slice: the best one is the arm {UNTRAINED}.",
                unit="way",
                columns=(
                    Column(name="way", type="text"),
                    Column(name="bits per byte", type="number", better="down"),
                    Column(name="chosen", type="flag"),
                ),
                rows=tuple(rows),
            )
        ]

    # ---- what is its own -------------------------------------------------------------------------

    @override
    def memory_of(self, submitted: Submitted, started: Started) -> int:
        return (16 + (4 if submitted.config.distillation else 0)) * started.model.parameters

    @override
    def check_model(self, config: BitnetConfig, opened: Checkpoint) -> None:
        from agent_forge.weights.ternary import linears, quantiser

        for name in (matrices := linears.of_config(opened.config)):
            if name not in opened.shapes:
                raise ConfigError(
                    f"{opened.given}: it lacks the matrix {name}, which its config describes."
                )
            quantiser.check_group(name, opened.shapes[name][1][-1], config.group)
        if not matrices:
            raise ConfigError(f"{opened.given} has no linear layers: nothing in it can be ternary.")

    @override
    def pinned_fields(self, context: Context, common: Mapping[str, Any]) -> dict[str, object]:
        from agent_forge.weights import operations
        from agent_forge.weights.ternary import linears, packing

        whole = Transform(operation="float32@1", inputs={"of": common["model"].recipe_id})
        first = operations.apply(whole, {"of": context.given()})
        matrices = set(linears.of_config(first.config))
        group = context.state.submitted.config.group
        return {
            "ternary": sum(first.weights[name].numel() for name in matrices),
            "bytes": packing.bytes_of(first.weights),
            "packed": packing.packed_bytes(first.weights, matrices, group),
        }

    @override
    def fitted_module(self, context: Context, module: Module, measure: str) -> object:
        """Return the module; for the measure `INT8`, its linear layers now read int8 activations."""
        from agent_forge.weights.ternary import linears

        if measure == INT8:
            linears.compute_packed(module, context.state.submitted.config.group, int8=True)
        return module

    @override
    def further_folders(self, run: StudyRun, out: Path) -> dict[str, str | None]:
        import shutil

        from agent_forge.weights.folders.checkpoint import open_checkpoint, publish
        from agent_forge.weights.formats import bitnet_folder

        checkpoint, place = open_checkpoint(out / MODEL), out / PACKED
        shutil.rmtree(place, ignore_errors=True)
        if run.settings.group or not run.settings.int8_activations:
            return {"packed_folder": None}
        try:
            bitnet_folder.check(checkpoint)
        except ConfigError:
            return {"packed_folder": None}

        def fill(folder: Path) -> None:
            bitnet_folder.write(checkpoint, folder)
            (folder / "README.md").write_text(self.prose.card(run, PACKED), "utf-8")

        publish(place, fill)
        return {"packed_folder": str(place)}
