"""Events and state of a compression."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import Field

from events import Event, Registry
from phases.compression.settings import CompressionConfig
from runs.event_types import Figure, ModelReference, Part, Profile, SourceRecord
from runs.kinds import state as common_state
from runs.kinds.state import put
from runs.record import events as common
from runs.record.device_setting import on_cpu
from runs.system.digests import Digest
from runs.system.integers import Count, Large
from studies.making.events import Made
from studies.making.making import MakingState
from studies.observing import Observed, Unmeasurable


class Submitted(common.Submitted):
    """A compression was asked for."""

    schema_version = 4

    config: CompressionConfig
    #: One model.
    model: tuple[ModelReference, ...]
    #: Smaller models with the same tokenizer, whose points stand on the same front.
    students: tuple[ModelReference, ...] = ()
    #: Files and folders of items; none: the built-in ones.
    data: tuple[str, ...] = ()


class Forked(common.Forked):
    """A compression was branched from another."""

    schema_version = 3

    config: CompressionConfig


class MatrixRecord(Part):
    """A matrix of the model."""

    name: str
    rows: Count
    columns: Count
    #: True if the calibration has its gram: it is a linear layer's, or a tied head's.
    layer: bool
    #: True for the embedding: the calibration has how often each row is read.
    embedding: bool


class SettingRecord(Part):
    """A codec at a rate, with every parameter written out."""

    name: str
    codec: str
    params: dict[str, Any]
    #: Parameters for the embedding.
    embedding: dict[str, Any]


class StudentRecord(Part):
    """A smaller model, as it was pinned; its fields are those of the given model in `started`."""

    #: The first part of its points' names.
    name: str
    source: SourceRecord
    matrices: tuple[MatrixRecord, ...]
    grams: Digest | None
    calibrated: Large
    float32_bytes: Large
    bytes: Large


class Started(common.Started):
    """Model, items and profile were pinned, and the inputs of layers read."""

    schema_version = 2

    source: SourceRecord
    #: What is tried on every matrix, in order. A later menu changes nothing of the run.
    settings: tuple[SettingRecord, ...]
    #: In order of name: what codecs are tried on. All other tensors stay as they are, in 16 bits.
    matrices: tuple[MatrixRecord, ...]
    #: BLAKE3 of the grams of all layers and the counts of tokens; None without calibration.
    grams: Digest | None
    #: Tokens that they are of.
    calibrated: Large
    #: SHA-256 of all items (`evaluation.data.items.digest`).
    data_digest: Digest
    #: Domain → number of documents of the slices that are measured on.
    selection: dict[str, Large]
    test: dict[str, Large]
    profile: Profile
    #: Bytes of all parameters in float32, and as the model was given.
    float32_bytes: Large
    bytes: Large
    #: In the order in which they were given.
    students: tuple[StudentRecord, ...] = ()


class Encoded(Made):
    """A matrix was encoded; the digest is of the coded tensor (`weights/operations/encode.py`)."""

    type = "encoded"

    #: Bytes that a file takes for it.
    bytes: Large
    #: ‖W − Ŵ‖² / ‖W‖², of the weights; and of the layer's outputs on the calibration text, where its
    #: inputs are known.
    error: float = Field(ge=0)
    output_error: float | None = Field(default=None, ge=0)
    decoding_seconds: float = Field(ge=0)


class Refused(Event):
    """A codec does not take a matrix; it stays in 16 bits."""

    type = "refused"

    recipe_id: Digest
    reason: str


class Packed(Made):
    """A whole model was decoded, and the file that it is decoded from was written and measured."""

    type = "packed"

    #: Bytes of the file, without tokenizer.
    bytes: Large


class Chosen(Part):
    """The model that a compression gives."""

    #: Name of the point.
    point: str
    recipe_id: Digest
    digest: Digest
    bytes: Large


class Completed(common.Completed):
    """A point of the front was chosen, and measured on the test slice."""

    chosen: Chosen
    figures: dict[str, Figure]


def _without_students(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of schema 2: earlier runs had no students."""
    return {**data, "students": []}


REGISTRY: Registry = common.registry(
    (Submitted, Forked, Started, Encoded, Refused, Packed, Observed, Unmeasurable, Completed),
    {
        (Submitted.type, 1): _without_students,
        (Submitted.type, 2): dict,
        (Forked.type, 1): dict,
        (Started.type, 1): _without_students,
        (Submitted.type, 3): on_cpu,
        (Forked.type, 2): on_cpu,
    },
)


@dataclass
class CompressionState(MakingState):
    """State of a compression.

    Observations, and why there are none of a model, are in `answers` under their tasks' keys.
    """

    #: Recipe id → why a codec does not take the matrix.
    refused: dict[str, Refused] = field(default_factory=dict)

    kind: ClassVar[str] = "compression"
    registry = REGISTRY
    handlers = common_state.handlers(Submitted, Forked, Started, Completed) | {
        Encoded: put("made", "recipe_id"),
        Packed: put("made", "recipe_id"),
        Refused: put("refused", "recipe_id"),
    }
