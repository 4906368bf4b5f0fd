"""The report and the card of a compression. Pure."""

from __future__ import annotations

from typing import Any

from phases.compression import comparison, findings, plan
from phases.compression.comparison import Rival
from phases.compression.events import CompressionState
from phases.compression.findings import Point
from phases.compression.plan import Subject


def rows(state: CompressionState) -> list[dict[str, Any]]:
    """Return the rate–distortion table: a row for each point, the fewest bytes first.

    `failure` says why a point could not be measured; its bits per byte are then None.
    """
    kept = {p.name for p in findings.front(findings.points(state))}
    return [_row(state, point, point.name in kept) for point in findings.attempted(state)]


def _row(state: CompressionState, point: Point, kept: bool) -> dict[str, Any]:
    assert point.packed is not None
    pairs, of = zip(point.subject.matrices, point.assignment, strict=True), point.subject
    events = [e for m, s in pairs if (e := findings.encoded(state, of, m.name, s)) is not None]
    size, whole = point.packed.bytes, state.started.float32_bytes
    return {
        "point": point.name,
        "model": plan.name(of),
        "codec": point.series,
        "bytes": size,
        "ratio": whole / size,
        "bits_per_weight": 32 * size / of.float32_bytes,
        "bits_per_byte": point.bits,
        "retention": point.retention,
        "regression": point.regression,
        "weight_error": _pooled(of, events),
        "encoding_seconds": sum(e.seconds for e in events),
        "decoding_seconds": sum(e.decoding_seconds for e in events),
        "front": kept,
        "failure": point.failure,
    }


def _pooled(subject: Subject, events: list[Any]) -> float:
    """Return the mean relative squared error of the matrices, by their numbers of weights."""
    sizes = {m.name: m.rows * m.columns for m in subject.matrices}
    weights = [sizes[e.recipe.params["tensor"]] for e in events]
    total = sum(weights)
    return sum(e.error * w for e, w in zip(events, weights, strict=True)) / total


def report(state: CompressionState) -> dict[str, Any]:
    """Return the report of a completed compression, as JSON has it."""
    done = state.completed
    return {
        "model": state.started.source.name,
        "chosen": done.chosen.model_dump(),
        "figures": {name: one.model_dump() for name, one in done.figures.items()},
        "given": {
            "bits_per_byte": findings.given(state),
            "bytes": state.started.bytes,
            "float32_bytes": state.started.float32_bytes,
        },
        "students": [
            {
                "name": one.name,
                "model": one.source.name,
                "bits_per_byte": findings.own(state, one),
                "float32_bytes": one.float32_bytes,
            }
            for one in state.started.students
        ],
        "points": rows(state),
        "mixtures": [_pair(one) for one in comparison.rivals(state)],
        "not_taken": findings.fallbacks(state),
    }


def _pair(pair: Rival) -> dict[str, Any]:
    """Return a mixture beside a single setting that takes at least as many bytes."""
    assert pair.single.packed is not None
    assert pair.mixture.packed is not None
    return {
        "setting": pair.single.name,
        "setting_bytes": pair.single.packed.bytes,
        "mixture": pair.mixture.name,
        "mixture_bytes": pair.mixture.packed.bytes,
        "difference": pair.difference.model_dump(),
    }


def card(state: CompressionState) -> str:
    """Return the card of the compressed model, Markdown."""
    done, name = state.completed, state.started.source.name
    kept = done.figures["retention"]
    lines = [
        f"# {name}, compressed",
        "",
        *_student(state),
        f"{done.chosen.bytes:,} bytes, {done.figures['ratio'].value:.1f} times smaller than float32, "
        f"by the point {done.chosen.point} of the curve below. On the test slice it keeps "
        f"{kept.value:.4f} of the quality ({kept.low:.4f} to {kept.high:.4f}, {kept.n} documents): "
        "bits per byte of the given model over its own.",
        "",
        "    forge decompress model.forge FOLDER",
        "",
        "    from agent_forge import load_coded, load_coded_tokenizer",
        '    model, tokenizer = load_coded("model.forge"), load_coded_tokenizer("model.forge")',
        "",
        "Measured on the selection slice, which the point was chosen by:",
        "",
        *table(state),
        "",
        f"Made by run {state.run}.",
        "",
    ]
    return "\n".join(lines)


def _student(state: CompressionState) -> list[str]:
    """Return lines that say which student the chosen file holds; none if it holds the given model."""
    chosen = findings.choose(state)
    assert chosen is not None
    subject = chosen.subject
    if subject is state.started:
        return []
    own, given = subject.source.parameters, state.started.source.parameters
    name = plan.name(subject)
    return [f"The file holds the student {name}: {own:,} parameters instead of {given:,}.", ""]


def table(state: CompressionState) -> list[str]:
    """Return the rate–distortion table as Markdown; points of the front are marked."""
    lines = [
        "| point | bytes | × float32 | bits a weight | bits per byte | retention | "
        "worst domain | front |",
        "|---|---:|---:|---:|---:|---:|---:|:-:|",
    ]
    for row in rows(state):
        measured = (
            f"{row['bits_per_byte']:.4f} | {row['retention']:.4f} | {row['regression']:+.2%}"
            if row["failure"] is None
            else f"failed: {row['failure']} | | "
        )
        lines.append(
            f"| {row['point']} | {row['bytes']:,} | {row['ratio']:.2f} | {row['bits_per_weight']:.3f} "
            f"| {measured} | {'•' if row['front'] else ''} |"
        )
    return lines
