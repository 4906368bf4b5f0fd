"""Figures of completed runs in words, by the tables of their kinds. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_forge.runs.event_types import Figure
from agent_forge.runs.panels.head import measured
from agent_forge.runs.panels.shapes import Better, Metric

if TYPE_CHECKING:
    from agent_forge.runs.kinds.kind import AnyKind

#: Unit of a tracker → how panels spell it.
_UNITS = {"bits/byte": "bit/B", "nats/token": "nat/token", "bytes": "B", "count": ""}


def figure_metric(kind: AnyKind, figure: str, better: Better | None = None) -> Metric:
    """Return the Metric of a figure: name in words, `better`, and unit, empty if the name says it."""
    label, colon, _ = kind.figures_of.get(figure, "").partition(": ")
    name = label if colon else figure.replace("_", " ")
    unit = kind.figure_units.get(figure, "")
    unit = "" if name.replace(" per ", "/") == unit else _UNITS.get(unit, unit)
    return Metric(name=name, unit=unit, better=better)


def figure_text(kind: AnyKind, name: str, figure: Figure) -> str:
    """Return a figure in words with its interval: "quality kept 96.10 % (95.94 % to 96.26 %)"."""
    metric = figure_metric(kind, name)
    return f"{metric.name} {measured(figure.value, metric.unit, figure.low, figure.high)}"
