"""The inputs of a compression in this process: items, and the models that it encodes."""

from __future__ import annotations

from functools import cached_property, partial

from evaluation import kept_items
from evaluation.data.items import Item, Text
from evaluation.data.slices import Slice
from evaluation.loading import load_items, texts_of
from evaluation.task_context import TaskContext
from phases.compression import plan
from phases.compression.events import CompressionState
from phases.compression.plan import Subject
from phases.compression.submission import NEEDED
from phases.compression.tasks.opened_model import OpenedModel
from weights.recipes import Transform


class Opened(TaskContext[CompressionState]):
    """The models and items of a compression, opened when they are first used."""

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
        """Return what `started` pins of a model, by its place; None before the start."""
        started = self.state.started
        return plan.subjects(started)[number] if started else None

    @property
    def given(self) -> OpenedModel:
        """The model that retention is counted against."""
        return self.models[0]

    def model_of(self, recipe: Transform) -> OpenedModel:
        """Return the model that a recipe of an encoding or a decoding is of."""
        return self.model_by_id(recipe.inputs["model"])

    def model_by_id(self, source: str) -> OpenedModel:
        """Return a model by the id of its own recipe."""
        return next(m for m in self.models if m.pinned and plan.source(m.pinned) == source)

    @cached_property
    def items(self) -> list[Item]:
        """All items of the data: the pinned ones if they are kept, else read from the files."""
        given, started = self.state.submitted.data, self.state.started
        pinned = started.data_digest if started else None
        kept = kept_items.pinned(self._cache.supply, given, pinned, NEEDED)
        if kept is not None:
            return kept
        return load_items(given, parameters=self.given.checkpoint.parameters, needed=NEEDED)

    def texts(self, on: Slice) -> dict[str, list[Text]]:
        """Return domain → the documents of a slice."""
        return texts_of(self.items, on)
