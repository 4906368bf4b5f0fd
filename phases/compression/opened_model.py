"""A model that a compression encodes, in this process: weights, module, the inputs of its layers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from evaluation.backends.local_backend import ResidentModel
from evaluation.data.documents import documents, in_turn
from evaluation.data.items import Text
from evaluation.loading import load_tokenizer
from evaluation.measures import rolling
from phases.compression.recipes import Subject
from phases.compression.settings import CompressionConfig
from runs.errors import SourceChangedError
from runs.event_types import ModelReference
from runs.system import freed_memory
from weights.codecs.feedback.calibration import grams, token_counts
from weights.folders.checkpoint import Checkpoint, digest, open_checkpoint
from weights.model import Model
from weights.operations.encode import ROWS
from weights.storage.weight_cache import Artifacts
from weights.tensors import HEADS, Weights
from weights.training.models import modules

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
        """The folder of this machine's own copy of the model."""
        return self._cache.supply.model(self.given, self.pinned.source if self.pinned else None)

    @cached_property
    def model(self) -> Model:
        """The model, tied weights once. Raises SourceChangedError for other weights."""
        pinned = self.pinned.source if self.pinned else None
        return self._cache.supply.checked(self.place, pinned)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model's files, headers only."""
        return open_checkpoint(self.place, Path(self.given.path))

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer. Raises SourceError."""
        return load_tokenizer(str(self.place))

    @cached_property
    def resident(self) -> ResidentModel:
        """The object that computes with weights of this architecture."""
        tied = not any(head in self.model.weights for head in HEADS.values())
        return ResidentModel(self.place, self._device, tied)

    @cached_property
    def window(self) -> int:
        """Tokens that a prediction may look back on."""
        return min(self._config.context, self.checkpoint.positions or 1 << 30)

    @cached_property
    def embedding(self) -> str:
        """The name of the embedding's weight."""
        embedding = self.resident.module.get_input_embeddings().weight
        parameters = self.resident.module.named_parameters()
        return next(name for name, parameter in parameters if parameter is embedding)

    @cached_property
    def grams(self) -> Weights:
        """The grams of all layers, kept or read again. Raises SourceChangedError for other ones."""
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
        """Return grams of all linear layers with the counts of tokens, and how many tokens."""
        texts = self._calibration().values()
        split = [documents(group, self.tokenizer, self.window) for group in texts]
        windows = in_turn(split, self._config.calibration)
        if not windows:
            return {}, 0
        module = modules.build(self.model, self._device, frozen=True).eval()
        layer_grams = grams(module, windows)
        freed_memory.give_back()
        rows = len(self.model.weights[self.embedding])
        layer_grams[f"{ROWS}{self.embedding}"] = token_counts(windows, rows)
        return layer_grams, sum(map(len, windows))

    def scored(
        self, weights: Weights, texts: Texts, name: str
    ) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[int, ...]]]:
        """Return domain → −log p in nats of each document, and domain → their bytes.

        Raises UnmeasurableError for weights that give no finite numbers.
        """
        self.resident.load(weights)
        return rolling.scored(self.resident, texts, self.tokenizer, self.window, name)
