"""Forecast of a compression: one matrix is encoded at every setting here, and nothing is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from phases.compression import recipes
from phases.compression.events import CompressionState, SettingRecord, Submitted
from phases.compression.figures import SELECTION
from phases.compression.opened_model import OpenedModel, Texts
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

#: Documents of a domain that are scored.
PROBED = 8


def forecast(submitted: Submitted, cache: Artifacts, folder: Path) -> Forecast:
    """Return what a compression costs here. Raises the errors of a start."""
    set_threads()
    state = CompressionState()
    state.take(submitted)
    context = Context(state, cache)
    opening = timed(lambda: state.take(context.started()))
    some = {d: texts[:PROBED] for d, texts in context.texts(SELECTION).items()}
    whole, read, passes = _bytes(context), 0, 0
    scoring = encoding = kept = 0.0
    for subject, opened in zip(recipes.subjects(state.started), context.models, strict=True):
        sizes: dict[str, tuple[int, ...]] = {}
        took = least(lambda of=opened, to=sizes: to.update(_scored(of, some)))
        read, count = sum(map(sum, sizes.values())), _passes(state, subject)
        scoring, passes = scoring + count * took * whole / read, passes + count
        seconds, bytes_ = _encodings(context, subject, opened)
        encoding, kept = encoding + seconds, kept + bytes_
    numbers = sum(one.float32_bytes // 4 for one in recipes.subjects(state.started))
    return Forecast(
        Amount(
            opening + encoding + scoring,
            "timed here: each model's largest matrix took every setting once, and all matrices "
            f"{duration(encoding)} at its pace; {passes} measurements of {whole:,} bytes of text "
            f"{duration(scoring)}, at the pace of {read:,} of them; the start {duration(opening)}. "
            "Writing and decoding files come on top",
        ),
        Amount(
            kept + 4 * numbers,
            "the largest matrix' codes, for all matrices; and the chosen weights in float32",
        ),
        Amount(12 * numbers, "counted: models as given, decoded, and in a model's object"),
        {ROLE: stand_ins.write(context.given.place, folder / "given", ROLE)},
    )


def _scored(opened: OpenedModel, texts: Texts) -> dict[str, tuple[int, ...]]:
    """Score some texts; return domain → the bytes of each document."""
    return opened.scored(opened.model.weights, texts, "given")[1]


def _bytes(context: Context) -> int:
    """Return the bytes of text of the selection slice."""
    every = (text for texts in context.texts(SELECTION).values() for text in texts)
    return sum(len(one.text.encode("utf-8", "replace")) for one in every)


def _passes(state: CompressionState, subject: Subject) -> int:
    """Return the number of measurements, those of the test slice counted as if of selection."""
    config, points = state.submitted.config, len(state.started.settings)
    mixing = config.mixtures and len(config.settings) > 1
    last = 3 if subject == state.started else 1
    return points + last + (len(subject.matrices) + config.mixtures if mixing else 0)


def _encodings(context: Context, subject: Subject, opened: OpenedModel) -> tuple[float, float]:
    """Return the seconds and bytes that all matrices at all settings take, at the largest's pace."""
    largest = max(subject.matrices, key=lambda m: (m.rows * m.columns, m.name))
    numbers = sum(m.rows * m.columns for m in subject.matrices) / (largest.rows * largest.columns)
    known = opened.grams if subject.grams else {}
    seed = context.state.submitted.config.seed
    seconds = bytes_ = 0.0
    for setting in context.state.started.settings:
        params = setting.embedding if largest.embedding else setting.params
        coded: list[CodedTensor] = []

        def code(one: SettingRecord = setting, params: Any = params, to: Any = coded) -> None:
            name, tensor = largest.name, opened.model.weights[largest.name]
            rows = known.get(f"{ROWS}{name}")
            to.append(coded_file.code(name, tensor, one.codec, params, known.get(name), seed, rows))

        try:
            seconds += least(code)
        except ConfigError:  # it stays plain
            continue
        bytes_ += coded[-1].coded.bytes
    return seconds * numbers, bytes_ * numbers
