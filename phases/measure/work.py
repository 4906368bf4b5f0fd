"""The work of a measurement: pin models and items, score documents, forecast, compare weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from agent_forge.evaluation import kept_items
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.items import Item, Text
from agent_forge.evaluation.kept_items import TaskContext
from agent_forge.evaluation.loading import load_items, load_tokenizer, texts_of
from agent_forge.evaluation.measures import perplexity
from agent_forge.events import Event
from agent_forge.phases.measure.figures import MeasureState, Role, Started, Submitted
from agent_forge.runs.errors import ForgeError, SourceChangedError
from agent_forge.runs.event_types import ModelReference, SourceRecord
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.kinds.decide import Start, Task
from agent_forge.runs.kinds.forecast import Amount, Forecast
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.system.durations import duration, least
from agent_forge.studies.events import Observe, Observed, answered
from agent_forge.studies.work import begun
from agent_forge.weights.folders import gguf_note
from agent_forge.weights.folders.checkpoint import Checkpoint, digest, open_checkpoint
from agent_forge.weights.storage.inputs import recorded
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.tensors import Weights

#: With fewer documents than this in a domain, a note says that intervals are rough.
FEW = 20
#: Documents of a domain that a forecast scores.
PROBED = 8


class Context(TaskContext[MeasureState]):
    """The opened items of a measurement, and the work on its tasks."""

    @cached_property
    def items(self) -> list[Item]:
        """All items of the data: the pinned ones if they are kept, else read from the files."""
        data, started = self.state.submitted.data, self.state.started
        needed = (self.state.submitted.config.slice,)
        pinned = started.data_digest if started else None
        pinned_items = kept_items.pinned(self._cache.supply, data, pinned, needed)
        return (
            load_items(data, parameters=self._largest, needed=needed)
            if pinned_items is None
            else pinned_items
        )

    @property
    def _largest(self) -> int:
        """Parameters of the largest model: built-in items are as many as it can afford."""
        if self.state.started is not None:
            return max(source.parameters for source in self.state.started.sources)
        models = [reference for group in self.state.submitted.given().values() for reference in group]
        return max(open_checkpoint(self._cache.supply.model(m, None)).parameters for m in models)

    @cached_property
    def texts(self) -> dict[str, list[Text]]:
        """Domain → the documents that are measured on."""
        return texts_of(self.items, self.state.submitted.config.slice)

    def carry_out(self, task: Task) -> Event:
        """Do the task and return its event; append nothing. Raises the errors of the work."""
        if isinstance(task, Start):
            return self.started()
        assert isinstance(task, Observe)
        return self.observed(task)

    # ---- started -------------------------------------------------------------------------------

    def started(self) -> Started:
        """Read models and items; return the event that pins them. Raises SourceError, DataError."""
        sources: dict[str, SourceRecord] = {}
        roles: dict[Role, tuple[str, ...]] = {}
        sizes: dict[str, int] = {}
        rounded: list[str] = []
        for role, models in self.state.submitted.given().items():
            records = [self._record(model) for model in models]
            rounded += [w for model in models for w in gguf_note.warnings(Path(model.path))]
            for record, size in records:
                sources.setdefault(record.recipe_id, record)
                sizes[record.recipe_id] = size
            roles[role] = tuple(source_record.recipe_id for source_record, _ in records)
        supply, pinned = self._cache.supply, data_items.digest(self.items)
        kept_items.keep(supply, self.state.submitted.data, self.items, pinned)
        counts = {domain: len(texts) for domain, texts in self.texts.items()}
        return Started(
            warnings=(*dict.fromkeys(rounded), *notes(counts)),
            sources=tuple(sources.values()),
            roles=roles,
            data_digest=pinned,
            documents=counts,
            profile=self.profile(),
            bytes=sizes,
        )

    def _record(self, reference: ModelReference) -> tuple[SourceRecord, int]:
        """Return (record, bytes of tensors) of a model, whose copy is shared. Raises SourceError."""
        place = self._cache.supply.model(reference, None)
        checkpoint = open_checkpoint(place, Path(reference.path))
        record = recorded(reference, place, checkpoint)
        self._cache.supply.share_model(place)
        return record, checkpoint.bytes

    # ---- observed ------------------------------------------------------------------------------

    def observed(self, task: Observe) -> Observed:
        """Score every document. Raises SourceError for a model that gives no finite numbers."""
        began = time.monotonic()
        return answered(task, *self.scored(task.recipe_id, self.texts), began)

    def scored(
        self, recipe_id: str, texts: Mapping[str, Sequence[Text]]
    ) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[int, ...]]]:
        """Return domain → −log p in nats of each document, and domain → their bytes.

        Raises SourceError for a model that gives no finite numbers.
        """
        place, model = self._opened(recipe_id)
        context = min(self.state.submitted.config.context, model.positions or 1 << 30)
        name = self._source(recipe_id)[1].name
        return perplexity.scored(model, texts, load_tokenizer(str(place)), context, name)

    def _source(self, recipe_id: str) -> tuple[ModelReference, SourceRecord]:
        """Return a model as it was given, and as it is pinned."""
        started = self.state.started
        record = next(source for source in started.sources if source.recipe_id == recipe_id)
        for role, models in self.state.submitted.given().items():
            for reference, id_ in zip(models, started.roles[role], strict=True):
                if id_ == recipe_id:
                    return reference, record
        raise AssertionError("a pinned model was given")

    def _opened(self, recipe_id: str) -> tuple[Path, ResidentModel]:
        """Return a model's folder and the model. Raises SourceChangedError for other weights."""
        place, checkpoint, weights = self.pinned(recipe_id)
        model = ResidentModel(place, self.device, checkpoint.tied)
        model.load(weights)
        return place, model

    def pinned(self, recipe_id: str) -> tuple[Path, Checkpoint, Weights]:
        """Return a model's folder, its opened files and its weights.

        Raises SourceChangedError for other weights than the pinned ones.
        """
        reference, record = self._source(recipe_id)
        place = self._cache.supply.model(reference, record)
        checkpoint = open_checkpoint(place, Path(reference.path))
        weights = checkpoint.tensors()
        if digest(weights) != record.digest:
            self._cache.supply.forget(place)
            raise SourceChangedError(
                f"the weights of model {record.name} are not those that the run has pinned. Put the "
                "old files back, or start a new run."
            )
        return place, checkpoint, weights


def notes(documents: Mapping[str, int]) -> list[str]:
    """Return a note for each domain with few documents."""
    return [
        f"domain {domain} has {count} documents: intervals are rough."
        for domain, count in documents.items()
        if count < FEW
    ]


def forecast(kind: Kind, submitted: Submitted, cache: Artifacts) -> Forecast:
    """Return what a measurement costs here. Raises the errors of a start."""
    context, opening = begun(kind, Context, submitted, cache)
    state = context.state
    probes = {domain: texts[:PROBED] for domain, texts in context.texts.items()}
    first, sizes = state.started.sources[0].recipe_id, dict[str, tuple[int, ...]]()
    scoring = least(lambda: sizes.update(context.scored(first, probes)[1]))
    every = (text for texts in context.texts.values() for text in texts)
    whole = sum(len(item.text.encode("utf-8", "replace")) for item in every)
    read, models = sum(map(sum, sizes.values())), len(state.started.sources)
    largest = max(source.parameters for source in state.started.sources)
    return Forecast(
        Amount(
            opening + models * scoring * whole / read,
            f"timed here: {read:,} bytes of text took one model {duration(scoring)}; {models} models "
            f"are to read {whole:,} bytes each; the start {duration(opening)}",
        ),
        Amount(0.0, "it leaves figures in the log only"),
        Amount(8 * largest, "counted: the largest model's weights, twice; activations come on top"),
    )


def same_weights(
    state: MeasureState, cache: Artifacts, ids: Sequence[str], say: Callable[[str], None]
) -> Iterator[Finding]:
    """Yield `unchecked` for each model that cannot be opened as it was pinned."""
    context = Context(state, cache)
    for source in state.started.sources:
        if source.recipe_id not in ids:
            continue
        try:
            context.pinned(source.recipe_id)
        except ForgeError as error:
            yield Finding("unchecked", "weights", str(error))
        else:
            say(f"the weights of {source.name} have the digest {source.digest[:12]} as recorded")
