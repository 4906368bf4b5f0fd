"""Recipes, events and state of a compression, and its mixtures of settings. Pure.

    encode     a matrix at a setting of the menu
    point      a whole model, with a setting for every matrix, in one file
    probe      a model with one matrix alone at a setting: what its errors cost

Each is of the given model, or of a student.

The harm of a mixture is estimated as the sum of its matrices' harms (layers quantised one at a time:
Nagel et al. 2021, arXiv 2106.08295). The mixtures on the lower convex hull of bytes and harm are then
found exactly: each matrix goes along its own hull, and the steps of all matrices are taken in order of
the harm that they add for each byte that they save (Everett 1963).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from agent_forge.evaluation.data.slices import Slice
from agent_forge.events import Event, Registry
from agent_forge.phases.compression.settings import MENU, PLAIN, WHOLE, CompressionConfig
from agent_forge.runs.errors import ConfigError
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
from agent_forge.runs.kinds.state import put
from agent_forge.runs.record import events as common
from agent_forge.runs.record.device_setting import on_cpu
from agent_forge.studies.events import Observed, Unmeasurable, earlier_fields
from agent_forge.studies.making.making import Made, MakingState
from agent_forge.studies.run import StudyRun
from agent_forge.weights.recipes import Source, Transform

if TYPE_CHECKING:
    from agent_forge.weights.folders.vocabularies import Tokenizer

#: Slices of the data that a compression measures on.
NEEDED: tuple[Slice, ...] = ("selection", "test")
#: Names of folders and roles that tell nothing.
PLAIN_NAMES = ("", "model")
#: The name of a student whose own tells nothing.
STUDENT = "student"


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


class MatrixRecord(EventPart):
    """A matrix of the model."""

    name: str
    rows: Count
    columns: Count
    #: True if the calibration has its gram: it is a linear layer's, or a tied head's.
    layer: bool
    #: True for the embedding: the calibration has how often each row is read.
    embedding: bool


class SettingRecord(EventPart):
    """A codec at a rate, with every parameter written out."""

    name: str
    codec: str
    params: dict[str, Any]
    #: Parameters for the embedding.
    embedding: dict[str, object]


class StudentRecord(EventPart):
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
    """A matrix was encoded; the digest is of the coded tensor (`weights/operations/coding.py`)."""

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


class Chosen(EventPart):
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


_without_students = earlier_fields(students=[])
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
    """State of a compression. `answers` has observations, or why there are none, by tasks' keys."""

    #: Recipe id → why a codec does not take the matrix.
    refused: dict[str, Refused] = field(default_factory=dict)

    kind: ClassVar[str] = "compression"
    registry = REGISTRY
    handlers = common_state.handlers(Submitted, Forked, Started, Completed) | {
        Encoded: put("made", "recipe_id"),
        Packed: put("made", "recipe_id"),
        Refused: put("refused", "recipe_id"),
    }


#: Name of the file of coded weights in a result.
FILE = "model.forge"
#: Role of the compressed model, and of the one that is given; of further, smaller ones.
ROLE, STUDENTS = "model", "students"
#: A setting for every matrix, in their order.
Assignment = tuple[str, ...]
#: A model that is encoded: the given one as `started` pins it, or a student.
Subject = Started | StudentRecord


def subjects(started: Started) -> tuple[Subject, ...]:
    """Return the models that are encoded: the given one, then the students."""
    return (started, *started.students)


def name(subject: Subject) -> str:
    """Return a model's name: as the user gave it, or a student's short name."""
    return subject.name if isinstance(subject, StudentRecord) else subject.source.name


def prefix(subject: Subject) -> str:
    """Return the text that a model's point names begin with: "NAME:", or "" for the given model."""
    return f"{subject.name}:" if isinstance(subject, StudentRecord) else ""


def source(subject: Subject) -> str:
    """Return the id of a model's own recipe."""
    return subject.source.recipe_id


def grams(subject: Subject) -> str | None:
    """Return the id of a source recipe with a model's grams; None without calibration."""
    return None if subject.grams is None else Source(digest=subject.grams).id


#: (id of the model, matrix, setting) → (id, recipe).
Encodings = dict[tuple[str, str, str], tuple[str, Transform]]


def _encodings(started: Started, seed: int) -> Encodings:
    """Return (model, matrix, setting) → (id, recipe) of every encoding. The ids' hashes take time."""
    encoding_recipes: Encodings = {}
    for subject in subjects(started):
        for matrix in subject.matrices:
            for setting in started.settings:
                recipe = _encoding(subject, matrix, setting, seed)
                encoding_recipes[source(subject), matrix.name, setting.name] = recipe.id, recipe
    return encoding_recipes


def _encoding(subject: Subject, matrix: MatrixRecord, setting: SettingRecord, seed: int) -> Transform:
    inputs = {"model": source(subject)}
    if (matrix.layer or matrix.embedding) and (gram_id := grams(subject)) is not None:
        inputs["grams"] = gram_id
    encoding = {
        "tensor": matrix.name,
        "codec": setting.codec,
        "params": setting.embedding if matrix.embedding else setting.params,
    }
    return Transform(operation="encode@1", inputs=inputs, params=encoding, seed=seed)


#: Encodings of the runs that were looked at last: they are asked for thousands of times.
_CACHE: dict[int, tuple[Started, int, Encodings]] = {}


def encodings(run: StudyRun) -> Encodings:
    """Return (model, matrix, setting) → (id, recipe) of every encoding, from a cache if possible."""
    started, seed = run.started, run.settings.seed
    cached = _CACHE.get(id(started))
    if cached is None or cached[0] is not started or cached[1] != seed:
        if len(_CACHE) >= 8:
            _CACHE.clear()
        cached = _CACHE[id(started)] = started, seed, _encodings(started, seed)
    return cached[2]


def taken(run: StudyRun, subject: Subject, assignment: Sequence[str]) -> Assignment:
    """Return `assignment` as a tuple, with a plain setting for each matrix that a codec refused."""
    recipes, id_, refused = encodings(run), source(subject), run.state.refused

    def usable(matrix: str, setting: str) -> str:
        order = (setting, PLAIN, WHOLE)
        return next(name for name in order if recipes[id_, matrix, name][0] not in refused)

    pairs = zip(subject.matrices, assignment, strict=True)
    return tuple(usable(m.name, s) for m, s in pairs)


def point(run: StudyRun, subject: Subject, assignment: Assignment) -> Transform:
    """Return the recipe of a model that is decoded with a setting for every matrix."""
    names = [matrix.name for matrix in subject.matrices]
    return _decoding(run, subject, dict(zip(names, assignment, strict=True)), "float16")


def probe(run: StudyRun, subject: Subject, matrix: str, setting: str) -> Transform:
    """Return the recipe of a model with one matrix encoded at a setting, and all others unchanged."""
    return _decoding(run, subject, {matrix: setting}, "own")


def _decoding(run: StudyRun, subject: Subject, settings: Mapping[str, str], rest: str) -> Transform:
    recipes, id_ = encodings(run), source(subject)
    coded = (recipes[id_, name, setting][0] for name, setting in settings.items())
    inputs = {f"{n:04}": encoding for n, encoding in enumerate(coded)}
    return Transform(
        operation="decode@1",
        inputs={"model": id_, **inputs},
        params={"tensors": list(settings), "rest": rest},
    )


@dataclass(frozen=True)
class Option:
    """A setting for a matrix."""

    setting: str
    bytes: int
    #: Estimated rise of bits per byte.
    harm: float


@dataclass(frozen=True)
class MatrixSettings:
    """A setting for every matrix, in the order of the matrices."""

    settings: tuple[str, ...]
    #: Bytes and harm of all matrices.
    bytes: int
    harm: float


def hull(options: Sequence[Option]) -> list[Option]:
    """Return the options on the lower convex hull of harm over bytes, from the fewest bytes up.

    The hull ends at the least harm. Ties are broken by the setting's name.
    """
    corners: list[Option] = []
    for option in sorted(options, key=lambda o: (o.bytes, o.harm, o.setting)):
        if corners and option.harm >= corners[-1].harm:
            continue
        while len(corners) > 1 and _gain(corners[-2], corners[-1]) <= _gain(corners[-2], option):
            corners.pop()
        corners.append(option)
    return corners


def _gain(less: Option, more: Option) -> float:
    """Return the estimated harm that each further byte removes between two options."""
    return (less.harm - more.harm) / (more.bytes - less.bytes)


def ladder(matrices: Sequence[Sequence[Option]]) -> list[MatrixSettings]:
    """Return the mixtures of least harm, the fewest bytes first; neighbours differ in one matrix."""
    hulls = [hull(options) for options in matrices]
    steps = sorted(
        (-_gain(hulls[m][i], hulls[m][i + 1]), m, i)
        for m in range(len(hulls))
        for i in range(len(hulls[m]) - 1)
    )
    place = [0] * len(hulls)
    mixtures = [_mixture(hulls, place)]
    for _, matrix, index in steps:
        place[matrix] = index + 1
        mixtures.append(_mixture(hulls, place))
    return mixtures


def _mixture(hulls: Sequence[Sequence[Option]], place: Sequence[int]) -> MatrixSettings:
    taken = [options[at] for options, at in zip(hulls, place, strict=True)]
    return MatrixSettings(
        tuple(o.setting for o in taken), sum(o.bytes for o in taken), sum(o.harm for o in taken)
    )


def within(mixtures: Sequence[MatrixSettings], most: int) -> MatrixSettings | None:
    """Return the largest mixture of a ladder with at most `most` bytes; None if all are larger."""
    return next((m for m in reversed(mixtures) if m.bytes <= most), None)


def below(mixtures: Sequence[MatrixSettings], most: float) -> MatrixSettings | None:
    """Return the smallest mixture of a ladder whose harm is at most `most`; None if all exceed it."""
    return next((m for m in mixtures if m.harm <= most), None)


def harms(errors: Mapping[str, float], probe: str, rise: float, least: float) -> dict[str, float]:
    """Return setting → harm: its squared error times the cost of a unit of error at this matrix.

    `rise` is how many bits per byte more the model needed with the matrix alone at `probe`, and counts
    for at least `least`: a rise that is nought or less is noise.
    """
    cost = max(rise, least) / errors[probe] if errors[probe] else 0.0
    return {name: cost * error for name, error in errors.items()}


def tried(config: CompressionConfig) -> tuple[SettingRecord, ...]:
    """Return the settings that every matrix is tried at: the user's, then plain 16 and 32 bits."""
    names = dict.fromkeys((*config.settings, PLAIN, WHOLE))
    return tuple(_record(name) for name in names)


def _record(name: str) -> SettingRecord:
    """Return the record of a menu's setting, with every default parameter written out."""
    from agent_forge.weights import algorithms, codecs

    setting = MENU[name]
    params = codecs.of(setting.codec).Params
    setting_params, other = dict(setting.params), {**setting.params, **setting.embedding}
    return SettingRecord(
        name=name,
        codec=setting.codec,
        params=algorithms.complete(params, setting_params, name),
        embedding=algorithms.complete(params, other, name),
    )


def student_names(texts: Sequence[str]) -> list[str]:
    """Return a short name for each student: distinct, of letters, digits, ".", "_" and "-"."""
    names: list[str] = []
    for text in texts:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
        name = STUDENT if plain in PLAIN_NAMES else plain
        same = sum(other == name or other.startswith(f"{name}+") for other in names)
        names.append(f"{name}+{same + 1}" if same else name)
    return names


def check_student(
    name: str, own_size: int, given_size: int, tokenizer: Tokenizer, other_tokenizer: Tokenizer
) -> None:
    """Raise ConfigError if a student is not smaller than the given model, or has another tokenizer.

    `own_size` and `given_size` are numbers of parameters; `other_tokenizer` is the given model's.
    """
    if own_size >= given_size:
        raise ConfigError(
            f"student {name} has {own_size:,} parameters, not fewer than the {given_size:,} "
            "of the given model: "
            "its points would be no smaller."
        )
    if _form(tokenizer) != _form(other_tokenizer):
        raise ConfigError(
            f"student {name} has another tokenizer than the given model: give a model that reads text "
            "as that one does, such as the result of a student run."
        )


def _form(tokenizer: Tokenizer) -> object:
    """Return a value that is equal for tokenizers that cut text alike."""
    if tokenizer.is_fast:
        return tokenizer.backend_tokenizer.to_str()
    return type(tokenizer).__name__, tokenizer.get_vocab()
