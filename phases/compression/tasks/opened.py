"""The inputs of a compression in this process: model, items, the inputs of its layers."""

from __future__ import annotations

import time
from functools import cached_property
from pathlib import Path

import torch

from evaluation import kept_items
from evaluation.backends.local_backend import ResidentModel
from evaluation.data.documents import documents
from evaluation.data.items import Item, Text
from evaluation.data.slices import Slice
from evaluation.loading import load_items, load_tokenizer, texts_of
from evaluation.task_context import TaskContext
from phases.compression.events import CompressionState
from phases.compression.submission import NEEDED
from runs.errors import SourceChangedError
from weights.codecs.feedback.calibration import grams, token_counts
from weights.folders.checkpoint import Checkpoint, digest, open_checkpoint
from weights.model import Model
from weights.operations.encode import ROWS
from weights.tensors import HEADS, Weights
from weights.training import modules


class Opened(TaskContext[CompressionState]):
    """The model, items and grams of a compression, opened when they are first used."""

    @cached_property
    def place(self) -> Path:
        """The folder of this machine's own copy of the model."""
        (given,) = self.state.submitted.model
        started = self.state.started
        return self._cache.supply.model(given, started.source if started else None)

    @cached_property
    def model(self) -> Model:
        """The given model, tied weights once. Raises SourceChangedError for other weights."""
        started = self.state.started
        return self._cache.supply.checked(self.place, started.source if started else None)

    @cached_property
    def _checkpoint(self) -> Checkpoint:
        (given,) = self.state.submitted.model
        return open_checkpoint(self.place, Path(given.path))

    @cached_property
    def items(self) -> list[Item]:
        """All items of the data: the pinned ones if they are kept, else read from the files."""
        given, started = self.state.submitted.data, self.state.started
        pinned = started.data_digest if started else None
        kept = kept_items.pinned(self._cache.supply, given, pinned, NEEDED)
        if kept is not None:
            return kept
        return load_items(given, parameters=self._checkpoint.parameters, needed=NEEDED)

    def texts(self, on: Slice) -> dict[str, list[Text]]:
        """Return domain → the documents of a slice."""
        return texts_of(self.items, on)

    @cached_property
    def _resident(self) -> ResidentModel:
        tied = not any(head in self.model.weights for head in HEADS.values())
        return ResidentModel(self.place, self.device, tied)

    @cached_property
    def context(self) -> int:
        """Tokens that a prediction may look back on."""
        return min(self.state.submitted.config.context, self._checkpoint.positions or 1 << 30)

    @cached_property
    def grams(self) -> Weights:
        """The grams of all layers, kept or read again. Raises SourceChangedError for other ones."""
        started = self.state.started
        pinned = started.grams if started else None
        if pinned is not None and (kept := self._cache.get(pinned)) is not None:
            return kept
        began = time.monotonic()
        found, _ = self._calibrated()
        if pinned is not None and digest(found) != pinned:
            raise SourceChangedError(
                "the inputs of layers on the calibration text are not those that the run has pinned: "
                "this machine computes other numbers than the one that started it."
            )
        self._cache.keep(digest(found), found, time.monotonic() - began)
        return found

    @cached_property
    def _embedding(self) -> str:
        """The name of the embedding's weight."""
        embedding = self._resident.module.get_input_embeddings().weight
        own = self._resident.module.named_parameters()
        return next(name for name, parameter in own if parameter is embedding)

    def _calibrated(self) -> tuple[dict[str, torch.Tensor], int]:
        """Return grams of all linear layers with the counts of tokens, and how many tokens."""
        windows, left = [], self.state.submitted.config.calibration
        texts = self.texts("train") or self.texts("search")
        tokenizer = load_tokenizer(str(self.place))
        queues = [
            [w for one in documents(some, tokenizer, self.context) for w in one.windows]
            for some in texts.values()
        ]
        for number in range(max(map(len, queues), default=0)):  # every domain in turn
            for queue in queues:
                if number < len(queue) and left > 0:
                    windows.append(queue[number][:left])
                    left -= len(windows[-1])
        if not windows:
            return {}, 0
        module = modules.build(self.model, self.device).eval()
        found, embedding = grams(module, windows), self._embedding
        rows = len(self.model.weights[embedding])
        found[f"{ROWS}{embedding}"] = token_counts(windows, rows)
        return found, sum(map(len, windows))
