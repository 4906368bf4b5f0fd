"""Parts of the events of runs that train from a given model: what every such kind records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pydantic import create_model

from events import Event
from events.registry import Upcaster
from runs.event_types import Figure, ModelReference, Part, Profile, SourceRecord
from runs.kinds import state as common_state
from runs.record import events as common
from runs.system.digests import Digest
from runs.system.integers import Count, Large
from studies.making import events as making
from studies.making.making import HANDLERS, MakingState
from studies.observing import Observed

#: Role of a run's result.
MODEL = "model"


class Arm(Part):
    """A model that was measured on the test slice."""

    recipe_id: Digest
    #: Domain → bits per byte.
    bits_per_byte: dict[str, float]


class Result(Part):
    """A model that the run gives."""

    recipe_id: Digest
    #: BLAKE3 of its weights.
    digest: Digest


def without_watch(data: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked for with the setting `divergence`: it ended no earlier training."""
    return {**data, "config": {**data["config"], "divergence": None}}


def all_weights(data: dict[str, Any]) -> dict[str, Any]:
    """Return what was asked for with the setting `train`: earlier trainings were of all weights."""
    return {**data, "config": {**data["config"], "train": "full"}}


def without_adapters(data: dict[str, Any]) -> dict[str, Any]:
    """Return `started` with `trainable`: earlier trainings were of all weights."""
    return {**data, "trainable": None}


def not_divided(data: dict[str, Any]) -> dict[str, Any]:
    """Return `started` with `accumulation`: in earlier runs the settings alone said the parts."""
    return {**data, "accumulation": None}


def not_rounded(data: dict[str, Any]) -> dict[str, Any]:
    """Return `started` with `dtype`: the results of earlier runs are float32."""
    return {**data, "dtype": None}


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
) -> type[MakingState]:
    """Return the state of a kind of run, with the registry of its events.

    Its `forked`, and events of making and measuring, are there in any case. `requests` and `starts`
    read the schemas 1, 2 … of `submitted` and `forked`, and of `started`, as the next one; `upcasters`
    are of `further` events. Answers are found under their tasks' keys. Events of the types `kept_by`
    keep what is remembered of a state.
    """
    forked = _forked(submitted)
    reading = dict(upcasters)
    for event, steps in ((submitted, requests), (forked, requests), (started, starts)):
        reading |= {(event.type, schema): step for schema, step in enumerate(steps, start=1)}
    every = (submitted, forked, started, *making.EVENTS, Observed, *further, completed)

    class StudyState(MakingState):
        """State of a run of one kind of study."""

        kind = name
        registry = common.registry(every, reading)
        handlers = common_state.handlers(submitted, forked, started, completed) | HANDLERS
        outside = making.OUTSIDE
        keeping = kept_by

    return StudyState


def _forked(submitted: type[common.Submitted]) -> type[common.Forked]:
    """Return the event that a run was branched from another, with the settings of `submitted`."""
    settings: Any = (submitted.model_fields["config"].annotation, ...)
    forked = create_model(
        "Forked", __base__=common.Forked, __doc__=common.Forked.__doc__, config=settings
    )
    forked.schema_version = submitted.schema_version
    return forked
