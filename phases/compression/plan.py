"""Recipes of a compression: matrices encoded, and models decoded. Pure.

encode     a matrix at a setting of the menu
point      a whole model, with a setting for every matrix, in one file
probe      a model with one matrix alone at a setting: what its errors cost

Each is of the given model, or of a student.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phases.compression.config import CompressionConfig
from phases.compression.events import (
    CompressionState,
    MatrixRecord,
    SettingRecord,
    Started,
    StudentRecord,
)
from phases.compression.menu import MENU, PLAIN, WHOLE
from runs.kinds.tasks import Decision
from studies.making.making import Make
from weights.recipes import Source, Transform

#: Role of the compressed model, and of the one that is given; of further, smaller ones.
ROLE, STUDENTS = "model", "students"
#: Encodings that are asked for at a time: more than there are devices.
TOGETHER = 256

#: A setting for every matrix, in their order.
Assignment = tuple[str, ...]
#: A model that is encoded: the given one as `started` pins it, or a student.
Subject = Started | StudentRecord


def tried(config: CompressionConfig) -> tuple[SettingRecord, ...]:
    """Return the settings that a run tries; what a codec does not take falls back to plain ones."""
    names = dict.fromkeys((*config.settings, PLAIN, WHOLE))
    return tuple(_record(name) for name in names)


def _record(name: str) -> SettingRecord:
    """Return a setting of the menu with every default parameter written out."""
    from weights import algorithms, codecs

    setting = MENU[name]
    params = codecs.of(setting.codec).Params
    given, other = dict(setting.params), {**setting.params, **setting.embedding}
    return SettingRecord(
        name=name,
        codec=setting.codec,
        params=algorithms.complete(params, given, name),
        embedding=algorithms.complete(params, other, name),
    )


def settings(state: CompressionState) -> tuple[str, ...]:
    """Return the names of the settings that are tried."""
    return tuple(one.name for one in state.started.settings)


def subjects(started: Started) -> tuple[Subject, ...]:
    """Return the models that are encoded, the given one first."""
    return (started, *started.students)


def name(subject: Subject) -> str:
    """Return what a model is called: the given one as it was given, a student as its points."""
    return subject.name if isinstance(subject, StudentRecord) else subject.source.name


def prefix(subject: Subject) -> str:
    """Return what the names of a model's points begin with; nothing for the given model."""
    return f"{subject.name}:" if isinstance(subject, StudentRecord) else ""


def source(subject: Subject) -> str:
    """Return the id of a model's recipe."""
    return subject.source.recipe_id


def grams(subject: Subject) -> str | None:
    """Return the id of the grams of a model as a source; None without calibration."""
    return None if subject.grams is None else Source(digest=subject.grams).id


#: (id of the model, matrix, setting) → (id, recipe).
Encodings = dict[tuple[str, str, str], tuple[str, Transform]]


def _encodings(started: Started, seed: int) -> Encodings:
    """Return every encoding of a run. The ids are hashes, which cost time."""
    found: Encodings = {}
    for subject in subjects(started):
        for matrix in subject.matrices:
            for one in started.settings:
                recipe = _encoding(subject, matrix, one, seed)
                found[source(subject), matrix.name, one.name] = recipe.id, recipe
    return found


def _encoding(subject: Subject, matrix: MatrixRecord, one: SettingRecord, seed: int) -> Transform:
    inputs = {"model": source(subject)}
    if (matrix.layer or matrix.embedding) and (known := grams(subject)) is not None:
        inputs["grams"] = known
    encoding = {
        "tensor": matrix.name,
        "codec": one.codec,
        "params": one.embedding if matrix.embedding else one.params,
    }
    return Transform(operation="encode@1", inputs=inputs, params=encoding, seed=seed)


#: Encodings of the runs that were looked at last: they are asked for thousands of times.
_KNOWN: dict[int, tuple[Started, int, Encodings]] = {}


def encodings(state: CompressionState) -> Encodings:
    """Return (model, matrix, setting) → (id, recipe) of everything that is encoded."""
    started, seed = state.started, state.submitted.config.seed
    known = _KNOWN.get(id(started))
    if known is None or known[0] is not started or known[1] != seed:
        if len(_KNOWN) >= 8:
            _KNOWN.clear()
        known = _KNOWN[id(started)] = started, seed, _encodings(started, seed)
    return known[2]


def unencoded(state: CompressionState) -> Decision:
    """Return the next matrices to encode; nothing if all are."""
    open_ = (
        recipe
        for id_, recipe in encodings(state).values()
        if id_ not in state.made and id_ not in state.refused
    )
    return Decision(tasks=[Make(recipe) for recipe, _ in zip(open_, range(TOGETHER), strict=False)])


def taken(state: CompressionState, subject: Subject, assignment: Sequence[str]) -> Assignment:
    """Return an assignment with plain weights for the matrices that a codec does not take."""
    known, id_ = encodings(state), source(subject)

    def usable(matrix: str, setting: str) -> str:
        order = (setting, PLAIN, WHOLE)
        return next(name for name in order if known[id_, matrix, name][0] not in state.refused)

    pairs = zip(subject.matrices, assignment, strict=True)
    return tuple(usable(m.name, s) for m, s in pairs)


def point(state: CompressionState, subject: Subject, assignment: Sequence[str]) -> Transform:
    """Return the recipe of a model with a setting for every matrix."""
    names = [matrix.name for matrix in subject.matrices]
    wanted = dict(zip(names, taken(state, subject, assignment), strict=True))
    return _decoding(state, subject, wanted, "float16")


def probe(state: CompressionState, subject: Subject, matrix: str, setting: str) -> Transform:
    """Return the recipe of a model with one matrix at a setting, and all else as it is."""
    return _decoding(state, subject, {matrix: setting}, "own")


def _decoding(
    state: CompressionState, subject: Subject, wanted: Mapping[str, str], rest: str
) -> Transform:
    known, id_ = encodings(state), source(subject)
    inputs = {
        f"{n:04}": known[id_, name, setting][0] for n, (name, setting) in enumerate(wanted.items())
    }
    return Transform(
        operation="decode@1",
        inputs={"model": id_, **inputs},
        params={"tensors": list(wanted), "rest": rest},
    )


def known(state: CompressionState) -> dict[str, Any]:
    """Return id → recipe of everything that is encoded."""
    return dict(encodings(state).values())
