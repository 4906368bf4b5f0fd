"""Recipes of a compression: matrices encoded, and models decoded. Pure.

encode     a matrix at a setting of the menu
point      a whole model, with a setting for every matrix, in one file
probe      a model with one matrix alone at a setting: what its errors cost

Each is of the given model, or of a student.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phases.compression.events import MatrixRecord, SettingRecord, Started, StudentRecord
from phases.compression.menu import MENU, PLAIN, WHOLE
from phases.compression.settings import CompressionConfig
from studies.run import Run
from weights.recipes import Source, Transform

#: Role of the compressed model, and of the one that is given; of further, smaller ones.
ROLE, STUDENTS = "model", "students"
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
    setting_params, other = dict(setting.params), {**setting.params, **setting.embedding}
    return SettingRecord(
        name=name,
        codec=setting.codec,
        params=algorithms.complete(params, setting_params, name),
        embedding=algorithms.complete(params, other, name),
    )


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
    encoding_recipes: Encodings = {}
    for subject in subjects(started):
        for matrix in subject.matrices:
            for setting in started.settings:
                recipe = _encoding(subject, matrix, setting, seed)
                encoding_recipes[source(subject), matrix.name, setting.name] = recipe.id, recipe
    return encoding_recipes


def _encoding(
    subject: Subject, matrix: MatrixRecord, setting: SettingRecord, seed: int
) -> Transform:
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


def encodings(run: Run) -> Encodings:
    """Return (model, matrix, setting) → (id, recipe) of everything that is encoded."""
    started, seed = run.started, run.settings.seed
    cached = _CACHE.get(id(started))
    if cached is None or cached[0] is not started or cached[1] != seed:
        if len(_CACHE) >= 8:
            _CACHE.clear()
        cached = _CACHE[id(started)] = started, seed, _encodings(started, seed)
    return cached[2]


def taken(run: Run, subject: Subject, assignment: Sequence[str]) -> Assignment:
    """Return an assignment with plain weights for the matrices that a codec does not take."""
    recipes, id_, refused = encodings(run), source(subject), run.state.refused

    def usable(matrix: str, setting: str) -> str:
        order = (setting, PLAIN, WHOLE)
        return next(name for name in order if recipes[id_, matrix, name][0] not in refused)

    pairs = zip(subject.matrices, assignment, strict=True)
    return tuple(usable(m.name, s) for m, s in pairs)


def point(run: Run, subject: Subject, assignment: Assignment) -> Transform:
    """Return the recipe of a model with a setting for every matrix, each of which its codec takes."""
    names = [matrix.name for matrix in subject.matrices]
    return _decoding(run, subject, dict(zip(names, assignment, strict=True)), "float16")


def probe(run: Run, subject: Subject, matrix: str, setting: str) -> Transform:
    """Return the recipe of a model with one matrix at a setting, and all else as it is."""
    return _decoding(run, subject, {matrix: setting}, "own")


def _decoding(run: Run, subject: Subject, settings: Mapping[str, str], rest: str) -> Transform:
    recipes, id_ = encodings(run), source(subject)
    coded = (recipes[id_, name, setting][0] for name, setting in settings.items())
    inputs = {f"{n:04}": encoding for n, encoding in enumerate(coded)}
    return Transform(
        operation="decode@1",
        inputs={"model": id_, **inputs},
        params={"tensors": list(settings), "rest": rest},
    )
