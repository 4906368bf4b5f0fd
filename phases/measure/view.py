"""Views of a measurement: its figures, and every model by domain. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from events import Envelope, Event
from phases.measure import findings
from phases.measure.events import Completed, Forked, MeasureState, Submitted
from runs.event_types import Figure, Measurement
from runs.kinds import default_panels
from runs.kinds.origin import Ancestor
from runs.kinds.view import OTHER_DATA, View
from runs.panels.head import Fact, Head, Result, digits, listed
from runs.panels.panels import Column, Matrix, Metric, Panel, Units
from studies import paired_bits
from studies.observing import Observed
from weights.recipes import Source

BITS = Metric(name="bits per byte", unit="bit/B", better="down")
#: Columns of the table of figures.
FIGURES = (
    Column(name="figure", type="text"),
    Column(name="value", type="number"),
    Column(name="low", type="number"),
    Column(name="high", type="number"),
    Column(name="what it is", type="text"),
)
#: Figures that are shares, shown beside the result, in words.
SHARES = {
    "retention": "quality kept of the best input",
    "cumulative": "quality kept since the beginning",
    "regression": "loss in the worst domain",
    "size": "size beside the largest input",
}


class MeasureView(View[MeasureState]):
    """The part of a measurement that is shown."""

    def names(self, state: MeasureState) -> dict[str, str]:
        """Return recipe id → the model's name as it was given; equal names get the id's beginning."""
        sources = state.started.sources if state.started else ()
        names = [source.name for source in sources]
        return {
            s.recipe_id: s.name if names.count(s.name) == 1 else f"{s.name} ({s.recipe_id[:6]})"
            for s in sources
        }

    def gist(self, type_: str, data: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event on one line; None for a type that is not its own."""
        match type_:
            case "submitted":
                return data["model"][0]["name"]
            case "started":
                count = sum(data["documents"].values())
                return f"{len(data['sources'])} models, {count:,} documents"
            case "observed":
                values = data["values"].values()
                bits = math.fsum(values) / len(values)
                name = names.get(str(data["recipe_id"]), str(data["recipe_id"])[:12])
                return f"{name}: {bits:.4f} bits per byte"
            case "completed":
                figures = data["figures"].items()
                return ", ".join(f"{k.replace('_', ' ')} {digits(v['value'])}" for k, v in figures)
        return None

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; empty if there are none."""
        if key.startswith("observe/"):
            id_ = key.rpartition("/")[2]
            return f"measure {names.get(id_, id_[:12])}"
        return "read models and items" if key == "start" else ""

    def row(self, entry: dict[str, Any], event: Event) -> None:
        """Note measured models and the bits per byte in the run's row of the run list."""
        match event:
            case Submitted() | Forked():
                entry["measured_on"] = event.config.slice
            case Observed():
                entry["done"] = (entry["done"] or 0) + 1
            case Completed():
                bits = event.figures["bits_per_byte"].value
                entry |= listed(BITS, bits, entry["measured_on"])

    def measurements(self, state: MeasureState, digest: str) -> list[Measurement]:
        """Return the bits per byte and the bytes of a model that is measured."""
        given = state.started.sources if state.started else ()
        ids = {source.recipe_id for source in given if source.digest == digest}
        answers, seed = state.answers.values(), state.submitted.config.seed
        sizes = [Figure(value=state.started.bytes[id_]) for id_ in sorted(ids)]
        return [
            *paired_bits.measurements(answers, ids, "measure", seed),
            *(Measurement(name="bytes of the tensors", figure=size) for size in sizes),
        ]

    def ancestry(self, state: MeasureState, name: str) -> list[Ancestor]:
        """Return the models that are measured, or the one that an id or its beginning means."""
        sources = state.started.sources if state.started else ()
        return [
            Ancestor(
                one.recipe_id,
                "measured",
                f"the model {one.name}, {one.digest[:12]}",
                Source(digest=one.digest).model_dump(mode="json"),
                one.digest,
            )
            for one in sources
            if one.recipe_id.startswith(name)
        ]

    def yardstick(self, state: MeasureState) -> dict[str, Any]:
        """Return the items that results are measured on."""
        return {OTHER_DATA: state.started.data_digest if state.started else None}

    def progress(self, state: MeasureState) -> tuple[int, int | None]:
        """Return (models that are measured, all models)."""
        if state.started is None:
            return 0, None
        return len(findings.found(state)), len(state.started.sources)

    def head(self, state: MeasureState) -> Head:
        """Return the head: the model's bits per byte once all are measured."""
        if not state.completed:
            return default_panels.head(self, state)
        (id_,) = state.started.roles["model"]
        bits = state.completed.figures["bits_per_byte"]
        result = Result(
            name=self.names(state)[id_],
            metric=BITS,
            value=bits.value,
            low=bits.low,
            high=bits.high,
            on=state.submitted.config.slice,
            n=bits.n,
            items="documents",
        )
        return default_panels.head(self, state, result, _facts(state))

    def panels(self, state: MeasureState, curve: Sequence[float | None] = ()) -> Sequence[Panel]:
        """Return the figures, and every model by domain."""
        found: list[Panel] = []
        if state.completed:
            found.append(_figures(state))
        if state.started and findings.found(state):
            found.append(_by_domain(state, self.names(state)))
        return [*found, default_panels.tasks(self, state)]

    def report(self, state: MeasureState, rows: Sequence[Envelope]) -> dict[str, Any]:
        """Return the figures and every model's bits per byte by domain."""
        names, seen = self.names(state), findings.found(state)
        return {
            **super().report(state, rows),
            "figures": {k: v.model_dump() for k, v in state.completed.figures.items()},
            "models": {names[id_]: dict(event.values) for id_, event in seen.items()},
        }

    def summary(self, state: MeasureState, rows: Sequence[Envelope]) -> list[str]:
        """Return the figures, of a completed run."""
        if not state.completed:
            return []
        return [f"- {name}: {one.value:.4f}" for name, one in state.completed.figures.items()]

    def view(self, state: MeasureState) -> dict[str, Any]:
        """Return every model's bits per byte by domain, of those that are measured."""
        if state.started is None:
            return {"models": {}}
        names = self.names(state)
        return {"models": {names[i]: dict(e.values) for i, e in findings.found(state).items()}}


def _facts(state: MeasureState) -> list[Fact]:
    figures = state.completed.figures
    shares = [
        Fact(name=words, value=100 * figures[name].value, unit="%")
        for name, words in SHARES.items()
        if name in figures
    ]
    return [*shares, *(Fact(name=n, value=figures[n].value) for n in ("bytes",) if n in figures)]


def _figures(state: MeasureState) -> Units:
    """Return the figures with their intervals."""
    figures = state.completed.figures
    rows = tuple(
        (k.replace("_", " "), f.value, f.low, f.high, findings.FIGURES[k])
        for k, f in figures.items()
    )
    return Units(
        name="figures",
        title="Figures",
        says="Intervals are the middle 95 % of a paired bootstrap over documents.",
        unit="figure",
        columns=FIGURES,
        rows=rows,
    )


def _by_domain(state: MeasureState, names: Mapping[str, str]) -> Matrix:
    """Return bits per byte by domain and model."""
    seen = findings.found(state)
    (own,) = state.started.roles["model"]
    domains = tuple(state.started.documents)
    return Matrix(
        name="quality",
        title="Bits per byte by domain",
        says=f"On {sum(state.started.documents.values())} documents; fewer bits are better.",
        rows=domains,
        columns=tuple(names[id_] for id_ in seen),
        metrics=(BITS,),
        values=tuple(tuple(event.values[d] for event in seen.values()) for d in domains),
        ours=names[own] if own in seen else None,
    )
