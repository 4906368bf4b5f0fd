"""Forecast of a compression: one matrix is encoded at every setting here, and nothing is recorded."""

from __future__ import annotations

from pathlib import Path

from phases.compression.events import CompressionState, SettingRecord, Submitted
from phases.compression.findings import SELECTION
from phases.compression.plan import ROLE
from phases.compression.tasks.execute import Context
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
    sizes: dict[str, tuple[int, ...]] = {}
    scoring = least(lambda: sizes.update(context.scored(context.model.weights, some, "given")[1]))
    read, whole = sum(map(sum, sizes.values())), _bytes(context)
    passes = _passes(state)
    encoding, kept = _encodings(context)
    numbers = state.started.float32_bytes // 4
    model = folder / "given"
    return Forecast(
        Amount(
            opening + encoding + passes * scoring * whole / read,
            f"timed here: the largest matrix took every setting once, and all matrices "
            f"{duration(encoding)} at its pace; {passes} measurements of {whole:,} bytes of text, "
            f"of which {read:,} took {duration(scoring)}; the start {duration(opening)}. Writing and "
            "decoding files come on top",
        ),
        Amount(
            kept + 4 * numbers,
            "the largest matrix' codes, for all matrices; and the chosen weights in float32",
        ),
        Amount(12 * numbers, "counted: the model as given, decoded, and in the model's object"),
        {ROLE: stand_ins.write(context.place, model, ROLE)},
    )


def _bytes(context: Context) -> int:
    """Return the bytes of text of the selection slice."""
    every = (text for texts in context.texts(SELECTION).values() for text in texts)
    return sum(len(one.text.encode("utf-8", "replace")) for one in every)


def _passes(state: CompressionState) -> int:
    """Return the number of measurements, those of the test slice counted as if of selection."""
    config, points = state.submitted.config, len(state.started.settings)
    mixing = config.mixtures and len(config.settings) > 1
    return points + 3 + (len(state.started.matrices) + config.mixtures if mixing else 0)


def _encodings(context: Context) -> tuple[float, float]:
    """Return the seconds and bytes that all matrices at all settings take, at the largest's pace."""
    matrices = context.state.started.matrices
    largest = max(matrices, key=lambda m: (m.rows * m.columns, m.name))
    numbers = sum(m.rows * m.columns for m in matrices) / (largest.rows * largest.columns)
    seconds = bytes_ = 0.0
    for setting in context.state.started.settings:
        coded: list[CodedTensor] = []
        try:
            seconds += least(
                lambda one=setting, to=coded: to.append(_code(context, one, largest.name))
            )
        except ConfigError:  # it stays plain
            continue
        bytes_ += coded[-1].coded.bytes
    return seconds * numbers, bytes_ * numbers


def _code(context: Context, setting: SettingRecord, name: str) -> CodedTensor:
    matrix = next(m for m in context.state.started.matrices if m.name == name)
    params = setting.embedding if matrix.embedding else setting.params
    known = context.grams if context.state.started.grams else {}
    tensor, seed = context.model.weights[name], context.state.submitted.config.seed
    rows = known.get(f"{ROWS}{name}")
    return coded_file.code(name, tensor, setting.codec, params, known.get(name), seed, rows)
