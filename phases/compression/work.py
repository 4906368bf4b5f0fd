"""The work of a compression's tasks: pin model, items and grams; encode; decode; measure."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.items import Text
from agent_forge.evaluation.data.packing import documents, in_turn
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.kept_items import TaskContext
from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.evaluation.measures import perplexity
from agent_forge.events import Event, failpoints
from agent_forge.phases.compression import recipes
from agent_forge.phases.compression.figures import PROBES
from agent_forge.phases.compression.recipes import (
    NEEDED,
    CompressionState,
    Encoded,
    MatrixRecord,
    Packed,
    Refused,
    Started,
    StudentRecord,
    Subject,
    check_student,
    student_names,
    tried,
)
from agent_forge.phases.compression.settings import CompressionConfig
from agent_forge.runs import kinds
from agent_forge.runs.errors import (
    ConfigError,
    NotFiniteError,
    SourceChangedError,
    SourceError,
    UnmeasurableError,
)
from agent_forge.runs.event_types import ModelReference, SourceRecord
from agent_forge.runs.kinds.decide import Start, Task
from agent_forge.runs.system import process_limits
from agent_forge.studies.events import Observe, Observed, Unmeasurable, answered
from agent_forge.studies.making.maker import Maker, snapshots
from agent_forge.studies.making.making import MakeTask
from agent_forge.studies.run import StudyRun
from agent_forge.studies.study_view import Plain
from agent_forge.weights import operations
from agent_forge.weights.codecs.feedback.calibration import grams, token_counts
from agent_forge.weights.folders import gguf_note
from agent_forge.weights.folders.checkpoint import Checkpoint, digest, open_checkpoint
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.formats import coded_file
from agent_forge.weights.operations import coding
from agent_forge.weights.operations.coding import ROWS, unpacked
from agent_forge.weights.recipes import Transform
from agent_forge.weights.storage.inputs import recorded
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.tensors import HEADS, Tensors, Weights
from agent_forge.weights.training.models import modules

Texts = Mapping[str, Sequence[Text]]


class OpenedModel:
    """The given model or a student, opened when it is first used."""

    def __init__(
        self,
        inputs: ModelReference,
        pinned: Callable[[], Subject | None],
        config: CompressionConfig,
        cache: Artifacts,
        device: str,
        calibration: Callable[[], Texts],
    ) -> None:
        """Open a model. `pinned` returns its record in `started`, `calibration` the texts to read."""
        self.given, self._pinned = inputs, pinned
        self._config, self._cache, self._device = config, cache, device
        self._calibration = calibration

    @property
    def pinned(self) -> Subject | None:
        """The record of the model in `started`; None before the start."""
        return self._pinned()

    @cached_property
    def place(self) -> Path:
        """The folder of the model on this machine: a private copy."""
        return self._cache.supply.model(self.given, self.pinned.source if self.pinned else None)

    @cached_property
    def model(self) -> Tensors:
        """The model with weights, tied ones once. Raises SourceChangedError if the weights changed."""
        pinned = self.pinned.source if self.pinned else None
        return self._cache.supply.checked(self.place, pinned)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model's files, headers only."""
        return open_checkpoint(self.place, Path(self.given.path))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises SourceError."""
        return load_tokenizer(str(self.place))

    @cached_property
    def resident(self) -> ResidentModel:
        """The module of this architecture into which weights to measure are loaded."""
        tied = not any(head in self.model.weights for head in HEADS.values())
        return ResidentModel(self.place, self._device, tied)

    @cached_property
    def window(self) -> int:
        """The number of tokens that a prediction may look back on."""
        return min(self._config.context, self.checkpoint.positions or 1 << 30)

    @cached_property
    def embedding(self) -> str:
        """The name of the embedding's weight."""
        embedding = self.resident.module.get_input_embeddings().weight
        parameters = self.resident.module.named_parameters()
        return next(name for name, parameter in parameters if parameter is embedding)

    @cached_property
    def grams(self) -> Weights:
        """Grams of all layers, cached or read again. Raises SourceChangedError if they differ."""
        pinned = self.pinned.grams if self.pinned else None
        if pinned is not None and (stored_grams := self._cache.get(pinned)) is not None:
            return stored_grams
        began = time.monotonic()
        layer_grams, _ = self.calibrated()
        if pinned is not None and digest(layer_grams) != pinned:
            raise SourceChangedError(
                "the inputs of layers on the calibration text are not those that the run has pinned."
            )
        self._cache.keep(digest(layer_grams), layer_grams, time.monotonic() - began)
        return layer_grams

    def calibrated(self) -> tuple[dict[str, torch.Tensor], int]:
        """Return (layer → gram of its inputs, and counts of tokens; number of tokens read)."""
        texts = self._calibration().values()
        split = [documents(group, self.tokenizer, self.window) for group in texts]
        windows = in_turn(split, self._config.calibration)
        if not windows:
            return {}, 0
        module = modules.build(self.model, self._device, frozen=True).eval()
        layer_grams = grams(module, windows)
        process_limits.give_back()
        rows = len(self.model.weights[self.embedding])
        layer_grams[f"{ROWS}{self.embedding}"] = token_counts(windows, rows)
        return layer_grams, sum(map(len, windows))

    def scored(
        self, weights: Weights, texts: Texts, name: str
    ) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[int, ...]]]:
        """Return (domain → −log p in nats of each document, domain → bytes of each).

        Raises UnmeasurableError if a number is not finite.
        """
        self.resident.load(weights)
        return perplexity.scored(self.resident, texts, self.tokenizer, self.window, name)


#: Told when a run starts without what its setting `calibration` asks for.
UNCALIBRATED = (
    "the items have no document of the train or the search slice to calibrate on: codecs make up for "
    "no rounding errors, and a token's frequency counts for nothing"
)


class Context(TaskContext[CompressionState]):
    """The opened inputs of a compression, and the work on its tasks."""

    needed = NEEDED

    # ---- what is opened when it is first used --------------------------------------------------

    @cached_property
    def models(self) -> list[OpenedModel]:
        """The given model, and the students in their order."""
        submitted = self.state.submitted
        return [
            OpenedModel(
                model,
                partial(self._record, number),
                submitted.config,
                self._cache,
                self.device,
                lambda: self.texts("train") or self.texts("search"),
            )
            for number, model in enumerate((*submitted.model, *submitted.students))
        ]

    def _record(self, number: int) -> Subject | None:
        """Return the record of model `number` in `started`; None before the start."""
        started = self.state.started
        return recipes.subjects(started)[number] if started else None

    @property
    def given(self) -> OpenedModel:
        """The model that retention is counted against."""
        return self.models[0]

    def model_of(self, recipe: Transform) -> OpenedModel:
        """Return the opened model that a recipe of an encoding or decoding reads."""
        return self.model_by_id(recipe.inputs["model"])

    def model_by_id(self, source: str) -> OpenedModel:
        """Return the opened model whose own recipe has this id."""
        return next(m for m in self.models if m.pinned and recipes.source(m.pinned) == source)

    @property
    @override
    def largest(self) -> int:
        return self.given.checkpoint.parameters

    @cached_property
    def maker(self) -> Maker:
        """The maker of the run's recipes."""
        started, loaders = self.state.started, {}
        for subject, opened in zip(recipes.subjects(started), self.models, strict=True):
            loaders[recipes.source(subject)] = lambda opened=opened: opened.model
            if (id_ := recipes.grams(subject)) is not None:
                loaders[id_] = lambda opened=opened: Tensors({}, opened.grams)
        profile = str(started.profile.of_machine)
        snapshot_store = snapshots(self._cache, profile)
        return Maker(
            self.state, self._cache, self.encodings, dict, dict, snapshot_store, self.device, loaders
        )

    @property
    def run(self) -> StudyRun:
        """The run, as its script has described it so far."""
        kind: Any = kinds.of(self.state.kind)
        return kind.run(self.state)

    @property
    def encodings(self) -> Mapping[str, Transform]:
        """Recipe id → recipe of every encoding."""
        return dict(recipes.encodings(self.run).values())

    # ---- tasks ---------------------------------------------------------------------------------

    def carry_out(self, task: Task) -> Event:
        """Do a task and return its event; append nothing. Raises the errors of the work."""
        if isinstance(task, Start):
            return self.started()
        if isinstance(task, MakeTask):
            assert isinstance(task.recipe, Transform)
            encodes = task.recipe.operation == "encode@1"
            return self._encoded(task) if encodes else self._packed(task.recipe)
        assert isinstance(task, Observe)
        return self.observed(task)

    # ---- started -------------------------------------------------------------------------------

    def started(self) -> Started:
        """Return the event that pins models, items and grams. Raises SourceError, DataError."""
        submitted, whole = self.state.submitted, self._pinned(self.given)
        calibration, tokens = submitted.config.calibration, whole["calibrated"]
        return Started(
            **whole,
            warnings=gguf_note.warnings(Path(submitted.model[0].path))
            + ((UNCALIBRATED,) if calibration and not tokens else ()),
            settings=tried(submitted.config),
            data_digest=self.keep_items(),
            selection={d: len(texts) for d, texts in self.texts("selection").items()},
            test={d: len(texts) for d, texts in self.texts("test").items()},
            profile=self.profile(),
            students=self._students(whole["source"]),
        )

    def _students(self, source: SourceRecord) -> tuple[StudentRecord, ...]:
        """Return the students' records. Raises ConfigError if one is too large or a duplicate."""
        records: list[StudentRecord] = []
        names = student_names([model.name for model in self.state.submitted.students])
        for name, opened in zip(names, self.models[1:], strict=True):
            record = StudentRecord(name=name, **self._pinned(opened))
            tokenizer, other = opened.tokenizer, self.given.tokenizer
            check_student(name, record.source.parameters, source.parameters, tokenizer, other)
            if any(record.source.digest == earlier.source.digest for earlier in records):
                raise ConfigError(f"student {name} has the weights of another one: give it once.")
            records.append(record)
        return tuple(records)

    def _pinned(self, opened: OpenedModel) -> Plain:
        """Return the fields that a model's record pins. Raises SourceError, NotFiniteError."""
        weights, checkpoint = opened.checkpoint.tensors(), opened.checkpoint
        _check_finite(weights)
        record = recorded(opened.given, opened.place, checkpoint)
        self._cache.supply.share_model(opened.place)
        calibration = self.state.submitted.config.calibration
        layers, tokens = opened.calibrated() if calibration else ({}, 0)
        if layers:
            self._cache.keep(digest(layers), layers, 1.0)
        matrices = tuple(
            MatrixRecord(
                name=n,
                rows=t.shape[0],
                columns=t.shape[1],
                layer=n in layers,
                embedding=n == opened.embedding,
            )
            for n, t in sorted(opened.model.weights.items())
            if t.dim() == 2 and t.is_floating_point()
        )
        if not matrices:
            raise SourceError(f"model {record.name} has no matrix that could be encoded.")
        return {
            "source": record,
            "matrices": matrices,
            "grams": digest(layers) if layers else None,
            "calibrated": tokens,
            "float32_bytes": 4 * sum(t.numel() for t in opened.model.weights.values()),
            "bytes": checkpoint.bytes,
        }

    # ---- encoded, packed -----------------------------------------------------------------------

    def _encoded(self, task: MakeTask) -> Encoded | Refused:
        """Encode a matrix and keep it; return `encoded` with its errors, or `refused`."""
        try:
            event = self.maker.make(task)
            coded = unpacked(self.maker.weights(task.recipe))
            assert isinstance(task.recipe, Transform)
            opened = self.model_of(task.recipe)
            grams = opened.grams if opened.pinned and opened.pinned.grams else {}
            errors = coding_errors(coded, opened.model.weights[coded.name], grams)
        # Of the codec, for this matrix' shape or size, or for what it decodes to.
        except (ConfigError, NotFiniteError) as error:
            return Refused(recipe_id=task.recipe.id, reason=str(error))
        return Encoded(**event.model_dump(), bytes=coded.coded.bytes, **errors)

    def _packed(self, recipe: Transform) -> Packed:
        """Return the `packed` event of a model: write its file, measure and decode it, remove it."""
        began = time.monotonic()
        place = packing(self._cache, self.state.run)
        place.mkdir(parents=True, exist_ok=True)
        file = place / f"{recipe.id[:32]}.{os.getpid()}.forge"
        try:
            written = self.write(recipe, file)
        finally:
            file.unlink(missing_ok=True)
        failpoints.hit("model-packed")
        return Packed(
            recipe_id=recipe.id,
            recipe=recipe,
            digest=written.digest,
            bytes=written.bytes,
            seconds=time.monotonic() - began,
        )

    def write(
        self, recipe: Transform, file: Path, files: Mapping[str, bytes] | None = None
    ) -> coded_file.WrittenCoded:
        """Write coded weights to `file`; return its digest and size. `files` are companions by name."""
        params = coding.Decoding.model_validate(recipe.params)
        record = recipe.model_dump(mode="json") if files else None
        inputs = self._inputs(recipe)
        config = self.model_of(recipe).model.config
        return coded_file.write(file, coding.tensors(inputs, params), config, files, record)

    def _inputs(self, recipe: Transform) -> dict[str, Tensors]:
        """Return role → model of a decoding's inputs: each encoding, and the given model."""
        encodings, models = self.encodings, {}
        for role, id_ in recipe.inputs.items():
            if id_ in encodings:
                models[role] = Tensors({}, self.maker.weights(encodings[id_]))
            else:
                models[role] = self.model_by_id(id_).model
        return models

    def weights(self, recipe: Transform) -> Weights:
        """Return the weights of a decoded model, from the cache or decoded again.

        Raises SourceChangedError if they differ from the recorded ones.
        """
        event = self.state.made.get(recipe.id)
        if event is not None and (stored_weights := self._cache.get(event.digest)) is not None:
            return stored_weights
        decoded_weights = operations.apply(recipe, self._inputs(recipe)).weights
        if event is not None and digest(decoded_weights) != event.digest:
            raise SourceChangedError(
                f"model {recipe.id[:12]} decoded again has the weights "
                f"{digest(decoded_weights)[:12]}, the log "
                f"says {event.digest[:12]}."
            )
        return decoded_weights

    # ---- observed ------------------------------------------------------------------------------

    def observed(self, task: Observe) -> Observed | Unmeasurable:
        """Return the `observed` event with the scores of a slice's documents, or `unmeasurable`."""
        began = time.monotonic()
        recipe = self._recipe(task.recipe_id)
        if recipe is None:
            opened = self.model_by_id(task.recipe_id)
            weights = opened.model.weights
        else:
            opened, weights = self.model_of(recipe), self.weights(recipe)
        if recipe is not None and task.on == "test":  # the chosen model
            event = self.state.made[recipe.id]
            assert isinstance(event, Packed)
            self._cache.keep(event.digest, weights, event.seconds)
        on: Slice = "test" if task.on == "test" else "selection"
        try:
            scored = opened.scored(weights, self.texts(on), task.recipe_id[:12])
        except UnmeasurableError as error:
            return Unmeasurable(**asdict(task), reason=error.reason)
        return answered(task, *scored, began)

    def _recipe(self, recipe_id: str) -> Transform | None:
        """Return the recipe of a decoded model by its id; None for a model as it was given."""
        if recipe_id in map(recipes.source, recipes.subjects(self.state.started)):
            return None
        event = self.state.made.get(recipe_id)
        if event is not None:
            assert isinstance(event, Packed)
            return event.recipe
        every = self.run.known[PROBES].values()
        probes = (probe for of in every for probe in of.values())
        return next(probe.recipe for probe in probes if probe.task.recipe_id == recipe_id)


def packing(cache: Artifacts, run: str) -> Path:
    """Return the folder of a run's files that are being measured."""
    return cache.folder / "packing" / run


def _check_finite(weights: Weights) -> None:
    """Raise NotFiniteError if a tensor has NaN or Inf."""
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise NotFiniteError(f"tensor {name} holds NaN or Inf: the model cannot be compressed.")


def coding_errors(coded: coded_file.CodedTensor, matrix: torch.Tensor, grams: Weights) -> Plain:
    """Return fields of `encoded`: errors of a coded matrix (or its first rows), seconds of decoding."""
    began = time.monotonic()
    decoded, original = coded_file.decode(coded).double(), matrix.double()
    seconds, rows = time.monotonic() - began, grams.get(f"{ROWS}{coded.name}")
    gram = grams.get(coded.name) if rows is None else None  # what an embedding puts out are its rows
    lost, counts = original - decoded, None if rows is None else rows[: len(original)]
    output_error = _output_error(lost, original, gram, counts)
    error = _ratio(lost, original, None)
    return {"error": error, "output_error": output_error, "decoding_seconds": seconds}


def _output_error(
    lost: torch.Tensor, original: torch.Tensor, gram: torch.Tensor | None, rows: torch.Tensor | None
) -> float | None:
    """Return the relative squared error of a layer's outputs; None if its inputs are unknown.

    `rows` counts how often each row of an embedding is read.
    """
    if rows is not None:
        weights = rows.sqrt()[:, None]
        return _ratio(lost * weights, original * weights, None)
    return None if gram is None else _ratio(lost, original, gram)


def _ratio(lost: torch.Tensor, original: torch.Tensor, gram: torch.Tensor | None) -> float:
    """Return ‖lost‖² / ‖original‖², of the outputs if `gram` is given; 0 if `original` is 0."""
    if gram is None:
        below = float(original.square().sum())
        return float(lost.square().sum()) / below if below else 0.0
    below = float(((original @ gram) * original).sum())
    above = float(((lost @ gram) * lost).sum())
    return max(0.0, above / below) if below > 0 else 0.0
