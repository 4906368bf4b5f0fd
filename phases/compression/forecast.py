"""Forecast of a compression: some rows are encoded at every setting, and nothing is recorded."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from phases.compression import recipes
from phases.compression.events import CompressionState, MatrixRecord, Submitted
from phases.compression.figures import SELECTION
from phases.compression.opened_model import OpenedModel
from phases.compression.recipes import ROLE, Subject
from phases.compression.work import Context
from runs.errors import ConfigError
from runs.kinds.forecast import Amount, Forecast
from runs.system.durations import duration
from runs.system.stopwatch import least, timed
from weights.folders import stand_ins
from weights.formats import coded_file
from weights.formats.coded_file import CodedTensor
from weights.operations.encode import ROWS
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads

#: Documents of a domain that are scored, and numbers of a matrix that are encoded, in whole rows.
PROBED, CODED = 8, 1 << 18


def forecast(submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return what a compression costs here. Raises the errors of a start."""
    set_threads()
    state = CompressionState()
    state.take(submitted)
    context = Context(state, cache)
    opening = timed(lambda: state.take(context.started()))
    samples = {d: texts[:PROBED] for d, texts in context.texts(SELECTION).items()}
    every = (text for texts in context.texts(SELECTION).values() for text in texts)
    whole, read, passes = (
        sum(len(document.text.encode("utf-8", "replace")) for document in every),
        0,
        0,
    )
    scoring = encoding = stored_bytes = 0.0
    for subject, opened in zip(recipes.subjects(state.started), context.models, strict=True):
        sizes: dict[str, tuple[int, ...]] = {}
        took = least(
            lambda of=opened, to=sizes: to.update(of.scored(of.model.weights, samples, "given")[1])
        )
        read, count = sum(map(sum, sizes.values())), _passes(state, subject)
        scoring, passes = scoring + count * took * whole / read, passes + count
        seconds, bytes_ = _encodings(context, subject, opened)
        encoding, stored_bytes = encoding + seconds, stored_bytes + bytes_
    numbers = sum(model.float32_bytes // 4 for model in recipes.subjects(state.started))
    return Forecast(
        Amount(
            opening + encoding + scoring,
            "timed here: rows of each kind of matrix took every setting, and all matrices "
            f"{duration(encoding)} at its pace; {passes} measurements of {whole:,} bytes of text "
            f"{duration(scoring)}, at the pace of {read:,} of them; the start {duration(opening)}. "
            "Writing and decoding files come on top",
        ),
        Amount(
            stored_bytes + 4 * numbers,
            "the codes of those rows, for all matrices; and the chosen weights in float32",
        ),
        Amount(12 * numbers, "counted: models as given, decoded, and in a model's object"),
        {ROLE: stand_ins.write(context.given.place, folder / "given", ROLE)},
    )


def _passes(state: CompressionState, subject: Subject) -> int:
    """Return the number of measurements, those of the test slice counted as if of selection."""
    config, points = state.submitted.config, len(state.started.settings)
    mixing = config.mixtures and len(config.settings) > 1
    last = 3 if subject == state.started else 1
    return points + last + (len(subject.matrices) + config.mixtures if mixing else 0)


def _encodings(context: Context, subject: Subject, opened: OpenedModel) -> tuple[float, float]:
    """Return the seconds and bytes of all matrices at all settings, at the pace of some rows.

    A codec's pace depends on the columns, and embeddings have parameters of their own: the largest
    matrix of each kind stands for the others.
    """
    grams = opened.grams if subject.grams else {}
    seed = context.state.submitted.config.seed
    kinds: dict[tuple[int, bool], list[MatrixRecord]] = {}
    for matrix in subject.matrices:
        kinds.setdefault((matrix.columns, matrix.embedding), []).append(matrix)
    seconds = bytes_ = 0.0
    for (columns, embedding), matrices in kinds.items():
        largest = max(matrices, key=lambda m: m.rows)
        count = max(1, min(largest.rows, CODED // columns))
        share = sum(m.rows for m in matrices) / count
        tensor = opened.model.weights[largest.name][:count]
        gram, rows = grams.get(largest.name), grams.get(f"{ROWS}{largest.name}")
        arguments = (gram, seed, None if rows is None else rows[:count])
        for setting in context.state.started.settings:
            params = setting.embedding if embedding else setting.params
            code = partial(coded_file.code, largest.name, tensor, setting.codec, params, *arguments)
            coded: list[CodedTensor] = []
            try:
                seconds += share * least(lambda code=code, to=coded: to.append(code()))
            except ConfigError:  # it stays plain
                continue
            bytes_ += share * coded[-1].coded.bytes
    return seconds, bytes_
