"""Head and panels of a compression: the front, the table of points, the matrices. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phases.compression import comparison, findings, plan, report
from phases.compression.events import CompressionState
from runs.panels.head import Fact, Result
from runs.panels.panels import (
    Axis,
    Column,
    Front,
    Metric,
    Panel,
    Units,
)
from runs.panels.panels import Point as Dot
from runs.panels.shapes import Limit

KEPT = Metric(name="kept", unit="share", better="up")
POINTS = (
    Column(name="point", type="text"),
    Column(name="model", type="text"),
    Column(name="codec", type="text"),
    Column(name="bytes", type="integer", unit="B"),
    Column(name="× float32", type="number"),
    Column(name="bits a weight", type="number"),
    Column(name="bits per byte", type="number"),
    Column(name="retention", type="number"),
    Column(name="worst domain", type="number"),
    Column(name="weights' error", type="number"),
    Column(name="encoding", type="number", unit="s"),
    Column(name="decoding", type="number", unit="s"),
)
#: What a table of points has besides if one of them could not be measured.
FAILURE = Column(name="failed", type="text")
AGAINST = (
    Column(name="setting", type="text"),
    Column(name="its bytes", type="integer", unit="B"),
    Column(name="mixture", type="text"),
    Column(name="bytes", type="integer", unit="B"),
    Column(name="bits per byte less", type="number"),
    Column(name="low", type="number"),
    Column(name="high", type="number"),
)
MATRICES = (
    Column(name="matrix", type="text"),
    Column(name="rows", type="integer"),
    Column(name="columns", type="integer"),
    Column(name="tried at", type="text"),
    Column(name="rise of bits per byte", type="number"),
    Column(name="setting", type="text"),
)


def result(state: CompressionState) -> Result | None:
    """Return what the chosen model keeps; None before it is chosen."""
    if not state.completed:
        return None
    kept = state.completed.figures["retention"]
    return Result(
        name=state.completed.chosen.point,
        metric=KEPT,
        value=kept.value,
        low=kept.low,
        high=kept.high,
        on=findings.TEST,
        n=kept.n,
        items="documents",
    )


def facts(state: CompressionState) -> tuple[Fact, ...]:
    """Return the sizes: of the given model, and of the file once it is chosen."""
    if state.started is None:
        return ()
    told = [
        Fact(name="parameters", value=state.started.source.parameters),
        *(
            Fact(name=f"parameters of {one.name}", value=one.source.parameters)
            for one in state.started.students
        ),
        Fact(name="bytes in float32", value=state.started.float32_bytes),
    ]
    if state.completed:
        told.append(Fact(name="bytes of the file", value=state.completed.chosen.bytes))
        told.append(Fact(name="times smaller", value=state.completed.figures["ratio"].value))
    return tuple(told)


def panels(state: CompressionState) -> list[Panel]:
    """Return the panels of what is there."""
    if state.started is None or findings.given(state) is None or not findings.attempted(state):
        return []
    found = comparison.rivals(state)
    against = [_against(found)] if found else []
    return [_front(state), _points(state), *against, _matrices(state)]


def _front(state: CompressionState) -> Front:
    """Return bytes and bits per byte of all points."""
    found, own = findings.points(state), findings.given(state)
    kept = {p.name for p in findings.front(found)}
    dots = tuple(
        Dot(
            id=p.name,
            label=p.name,
            series=plan.prefix(p.subject).rstrip(":") or p.series,
            values=(p.packed.bytes, p.bits),
            kept=p.name in kept,
        )
        for p in found
        if p.packed is not None and p.bits is not None
    )
    config = state.submitted.config
    limits = [Limit(at=own, says="the given model")] if own else []
    if config.budget:
        limits.append(Limit(at=config.budget, says="budget", axis=0))
    elif own:
        most = own / config.retention
        limits.append(Limit(at=most, says="retention that is asked for"))
    return Front(
        name="front",
        title="Size and quality",
        says="Bytes of whole files against bits per byte on the selection slice; a point of the front "
        "is beaten by no other in both.",
        axes=(
            Axis(name="bytes", unit="B", log=True, better="down"),
            Axis(name="bits per byte", unit="bit/B", better="down"),
        ),
        points=dots,
        chosen=state.completed.chosen.point if state.completed else None,
        limits=tuple(limits),
    )


def _points(state: CompressionState) -> Units:
    """Return the rate–distortion table."""
    keys = (
        "point",
        "model",
        "codec",
        "bytes",
        "ratio",
        "bits_per_weight",
        "bits_per_byte",
        "retention",
        "regression",
    )
    more = ("weight_error", "encoding_seconds", "decoding_seconds")
    found = report.rows(state)
    told = "Bytes are those of whole files, embedding included, tokenizer not. The worst domain is the "
    told += "largest rise of bits per byte in any, as a share."
    failed = sum(row["failure"] is not None for row in found)
    if failed:
        more = (*more, "failure")
        told += f" {failed} of {len(found)} could not be measured, and are never chosen."
    rows = tuple(tuple(row[key] for key in (*keys, *more)) for row in found)
    return Units(
        name="points",
        title="Points",
        says=told,
        unit="point",
        columns=(*POINTS, FAILURE) if failed else POINTS,
        rows=rows,
    )


def _against(found: Sequence[comparison.Rival]) -> Units:
    """Return mixtures beside single settings that take at least as many bytes."""
    rows = tuple(
        (
            pair.single.name,
            pair.single.packed.bytes,
            pair.mixture.name,
            pair.mixture.packed.bytes,
            -pair.difference.value,
            *sorted(-end for end in (pair.difference.low, pair.difference.high) if end is not None),
        )
        for pair in found
        if pair.single.packed is not None and pair.mixture.packed is not None
    )
    ahead = sum((pair.difference.high or 0.0) < 0 for pair in found)
    return Units(
        name="mixtures",
        title="Mixtures against single settings",
        says="The largest mixture that takes no more bytes than a setting for all matrices, and the "
        "bits per byte that it saves on the selection slice, with the interval of a paired bootstrap "
        f"over documents. {ahead} of {len(rows)} intervals are above zero.",
        unit="setting",
        columns=AGAINST,
        rows=rows,
    )


def _matrices(state: CompressionState) -> Units:
    """Return each matrix with what the model lost with it alone, and its chosen setting."""
    rows = [row for subject in plan.subjects(state.started) for row in _tried(state, subject)]
    refused = len(findings.fallbacks(state))
    told = (
        f" {refused} times a codec did not take a matrix, which then has 16 bits."
        if refused
        else ""
    )
    return Units(
        name="matrices",
        title="Matrices",
        says=f"What the model loses with a matrix alone at a setting, and its setting now.{told}",
        unit="matrix",
        columns=MATRICES,
        rows=tuple(rows),
    )


def _tried(state: CompressionState, subject: plan.Subject) -> list[tuple[Any, ...]]:
    """Return the rows of a model's matrices; settings are those of the chosen point, if it is its."""
    probed = findings.probed_all(state) and state.submitted.config.mixtures
    tried = findings.probed(state, subject) if probed else {}
    rises = findings.rises(state, subject) if probed else {}
    chosen, taken = findings.choose(state), dict[str, str]()
    if chosen and chosen.subject == subject:
        names = [matrix.name for matrix in subject.matrices]
        taken = dict(zip(names, chosen.assignment, strict=True))
    before = plan.prefix(subject)
    return [
        (
            f"{before}{m.name}",
            m.rows,
            m.columns,
            tried.get(m.name),
            rises.get(m.name),
            taken.get(m.name),
        )
        for m in subject.matrices
    ]
