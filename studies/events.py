"""Parts of the events of runs that train from a given model: what every such kind records."""

from __future__ import annotations

from typing import Any

from runs.event_types import ModelReference, Part
from runs.record import events as common
from runs.system.digests import Digest

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


class ModelsCompleted(common.Completed):
    """All models are made."""

    #: Role → the model.
    models: dict[str, Result]


class GivenCompleted(ModelsCompleted):
    """All models are made and compared."""

    #: Name → what was compared.
    arms: dict[str, Arm]
