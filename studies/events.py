"""Events of studies, and measuring as a task: what is asked, recorded, and derived. No torch.

Kinds that train from a given model, or on a text, derive their `Submitted`, `Started` and `Completed`
from these. An observation keeps a value for every item. The figures that people read follow from these
values by the measure's rule, so an audit computes them again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import Field, create_model

from agent_forge.events import Event
from agent_forge.events.envelope import Plain
from agent_forge.events.registry import Upcaster
from agent_forge.runs.event_types import (
    Count,
    Digest,
    EventPart,
    Figure,
    Large,
    ModelReference,
    Profile,
    SourceRecord,
)
from agent_forge.runs.kinds import state as common_state
from agent_forge.runs.record import events as common
from agent_forge.studies.making import making
from agent_forge.studies.making.making import HANDLERS, MakingState

#: Name of an item's group (a domain; of a line, "PLACE/DOMAIN") → a value for each item.
Items = Mapping[str, Sequence[float]]
Sizes = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Observe:
    """Task: measure a model."""

    recipe_id: str
    #: Name and version of the measure.
    measure: str
    #: The slice of the data.
    on: str

    @property
    def key(self) -> str:
        """`observe/MEASURE/SLICE/ID`, where ID is the recipe's."""
        return f"observe/{self.measure}/{self.on}/{self.recipe_id}"


class Observed(Event):
    """A model was measured."""

    type = "observed"

    recipe_id: Digest
    measure: str
    on: str
    #: Name → figure; a domain's, or a place's.
    values: dict[str, float]
    #: Group → for each item: Σ −log p in nats, or 1 if it is solved and 0 if not. Empty for a measure
    #: of weights alone.
    items: dict[str, tuple[float, ...]] = {}
    #: Group → for each item: the bytes or the tokens that it is divided by.
    sizes: dict[str, tuple[int, ...]] = {}
    seconds: float = Field(ge=0)


class Unmeasurable(Event):
    """A model gives NaN or Inf where it was to be measured."""

    type = "unmeasurable"

    recipe_id: Digest
    measure: str
    on: str
    reason: str


def bits_per_byte(items: Items, sizes: Sizes) -> dict[str, float]:
    """Return domain → bits per byte: −log₂ p of all windows (or documents) over their bytes."""
    return {d: math.fsum(items[d]) / math.log(2) / sum(sizes[d]) for d in sorted(items)}


def nats_per_token(items: Items, sizes: Sizes) -> dict[str, float]:
    """Return group → nats a token: the sum of its items' nats over the sum of their tokens."""
    return {group: math.fsum(items[group]) / sum(sizes[group]) for group in sorted(items)}


def losses_along(items: Items, sizes: Sizes) -> dict[str, float]:
    """Return place → loss in nats a token, the mean over domains. Groups are "PLACE/DOMAIN"."""
    places: dict[str, list[float]] = {}
    for group in sorted(items):
        loss = math.fsum(items[group]) / sum(sizes[group])
        places.setdefault(group.partition("/")[0], []).append(loss)
    return {place: math.fsum(losses) / len(losses) for place, losses in places.items()}


def solved(items: Items, sizes: Sizes) -> dict[str, float]:
    """Return cell → share of its items that are solved. An item is a score from 0 to 1, of size 1."""
    return {cell: math.fsum(items[cell]) / sum(sizes[cell]) for cell in sorted(items)}


#: Measure → the rule that computes its figures from its items. `int8-bits-per-byte` is of a ternary
#: model whose linear layers read their inputs as int8. `prompt-divergence` is from the given model
#: under prompts, whose replies are the items. `hard-tokens` are of documents: the hard tokens, and all
#: tokens; also of a model that thinks, that pauses, or whose thoughts are exchanged.
RULES: dict[str, Callable[[Items, Sizes], dict[str, float]]] = {
    "behaviour@1": solved,
    "bits-per-byte@1": bits_per_byte,
    "exact-answers@1": solved,
    "hard-tokens@1": nats_per_token,
    "int8-bits-per-byte@1": bits_per_byte,
    "loss-along-line@1": losses_along,
    "pause-hard-tokens@1": nats_per_token,
    "own-replies@1": solved,
    "persona-tool-success@1": solved,
    "prompt-divergence@1": nats_per_token,
    "prompted-right-replies@1": solved,
    "prompted-tool-success@1": solved,
    "reply-loss@1": nats_per_token,
    "right-replies@1": solved,
    "rolling-bits-per-byte@1": bits_per_byte,
    "shuffled-hard-tokens@1": nats_per_token,
    "thought-hard-tokens@1": nats_per_token,
    "tool-success@1": solved,
}


def answered(task: Observe, items: Items, sizes: Sizes, began: float) -> Observed:
    """Return the `Observed` event of a task whose measure has a rule; `began`: start by `monotonic`."""
    return Observed(
        recipe_id=task.recipe_id,
        measure=task.measure,
        on=task.on,
        values=RULES[task.measure](items, sizes),
        items={group: tuple(numbers) for group, numbers in items.items()},
        sizes={group: tuple(numbers) for group, numbers in sizes.items()},
        seconds=time.monotonic() - began,
    )


def validate_answer(task: Observe, event: Observed | Unmeasurable) -> str | None:
    """Return why an event does not answer the task; None if it does. For the audit."""
    if (event.recipe_id, event.measure, event.on) != (task.recipe_id, task.measure, task.on):
        return "another model, measure or slice was measured than the one that was asked for"
    if isinstance(event, Unmeasurable):
        return None
    if set(event.items) != set(event.sizes):
        return "its items and their sizes are not of the same groups"
    if any(len(event.items[group]) != len(event.sizes[group]) for group in event.items):
        return "it has another number of items than of sizes"
    rule = RULES.get(event.measure)
    if rule is not None and rule(event.items, event.sizes) != event.values:
        return "its figures do not follow from its items"
    return None


#: Role of a run's result.
MODEL = "model"


class Arm(EventPart):
    """A model that was measured on the test slice."""

    recipe_id: Digest
    #: Domain → bits per byte.
    bits_per_byte: dict[str, float]


class Result(EventPart):
    """A model that the run gives."""

    recipe_id: Digest
    #: BLAKE3 of its weights.
    digest: Digest


def earlier_settings(**settings: object) -> Upcaster:
    """Return an upcaster that gives a request's data the settings of earlier runs."""

    def upcast(data: Plain) -> Plain:
        return {**data, "config": {**data["config"], **settings}}

    return upcast


def earlier_fields(**fields: object) -> Upcaster:
    """Return an upcaster that gives an event's data the fields of earlier runs."""
    return lambda data: {**data, **fields}


#: Upcasters of requests: no loss ended earlier trainings, and they were of all weights.
without_watch = earlier_settings(divergence=None)
all_weights = earlier_settings(train="full")
#: Of `started`: earlier trainings had no adapters, the settings alone gave the accumulation, and
#: results were float32.
without_adapters = earlier_fields(trainable=None)
not_divided = earlier_fields(accumulation=None)
not_rounded = earlier_fields(dtype=None)


class GivenSubmitted(common.Submitted):
    """A run was asked for."""

    #: The model that trainings begin with or learn from.
    model: ModelReference
    #: Files and folders of text, each PATH or DOMAIN=PATH; none: the built-in text.
    data: tuple[str, ...] = ()


class TextStarted(common.Started):
    """Text and profile were pinned."""

    #: Domain → BLAKE3 of its token ids, in the order in which training reads them.
    streams: dict[str, Digest]
    #: Domain → number of those tokens.
    tokens: dict[str, Large]
    #: Name → BLAKE3 of the files of tokenizer and configuration, which all models share.
    files: dict[str, Digest]
    #: BLAKE3 of the items to measure on.
    items: Digest
    profile: Profile
    #: BLAKE3 of weights and optimiser after three fixed steps: what the profile must reproduce.
    canary: Digest
    #: Tokens of a window.
    context: Count
    #: Steps of a segment; no part of the lineage.
    segment: Count


class GivenStarted(TextStarted):
    """Model, text and profile were pinned."""

    model: SourceRecord
    #: Parts that a step's windows are computed in, because fewer did not fit in memory; None: those of
    #: the settings.
    accumulation: Count | None = None


class ModelsCompleted(common.Completed):
    """All models are made, and figures follow from what was measured."""

    #: Role → the model.
    models: dict[str, Result]
    figures: dict[str, Figure]


class GivenCompleted(ModelsCompleted):
    """All models are made and compared."""

    #: Name → what was compared.
    arms: dict[str, Arm]


def history(
    name: str,
    submitted: type[common.Submitted],
    started: type[common.Started],
    completed: type[common.Completed],
    *further: type[Event],
    requests: Sequence[Upcaster] = (),
    starts: Sequence[Upcaster] = (),
    upcasters: Mapping[tuple[str, int], Upcaster] = MappingProxyType({}),
    kept_by: tuple[type[Event], ...] = (),
    makes: bool = True,
) -> type[MakingState]:
    """Return the class of the states of a kind of run, with the registry of its events.

    The registry also gets `forked` and the event of measuring; if the runs make models, `makes`, the
    events of making, too. `requests` are upcasters from the schemas 1, 2 … of `submitted` and
    `forked`, `starts` of `started`, `upcasters` of the `further` events. Answers are found under their
    tasks' keys. Events of the types `kept_by` leave the cache of a state as it is.
    """
    forked = _forked(submitted)
    reading = dict(upcasters)
    for event, steps in ((submitted, requests), (forked, requests), (started, starts)):
        reading |= {(event.type, schema): step for schema, step in enumerate(steps, start=1)}
    of_making = making.EVENTS if makes else ()
    every = (submitted, forked, started, *of_making, Observed, *further, completed)

    class StudyState(MakingState):
        """State of a run of one kind of study."""

        kind = name
        registry = common.registry(every, reading)
        handlers = common_state.handlers(submitted, forked, started, completed) | HANDLERS
        outside = making.OUTSIDE
        keeping = kept_by

    return StudyState


def _forked(submitted: type[common.Submitted]) -> type[common.Forked]:
    """Return the class of the event `forked` whose settings are those of the class `submitted`."""
    settings: Any = (submitted.model_fields["config"].annotation, ...)
    forked = create_model(
        "Forked", __base__=common.Forked, __doc__=common.Forked.__doc__, config=settings
    )
    forked.schema_version = submitted.schema_version
    return forked
