"""Panels of a quietstar run: the gate, and loss by domain of hard tokens and of all. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phases.quietstar.figures import EVERY, FIGURES, HARD, by_domain
from runs.event_types import Figure
from runs.panels.panels import Gate, Gates, Matrix
from runs.panels.shapes import Metric
from studies.comparison import Seen

ANY = Metric(name="loss", unit="nat/token", better="down")
GAIN = Metric(name="gain on hard tokens", unit="nat/token", better="up")
COST = Metric(name="time to measure", unit="times continued", better="down")


def gate(figures: Mapping[str, Figure]) -> Gates:
    """Return both conditions of the gate with their intervals."""
    rows = []
    for name in ("gain", "genuine"):
        figure: Any = figures[name]  # with an interval
        met = figure.low > 0 if name == "gain" else figure.low >= 0
        rows.append(
            Gate(
                name=FIGURES[name].words,
                metric=GAIN,
                value=figure.value,
                low=figure.low,
                high=figure.high,
                limit=0.0,
                verdict="pass" if met else "pass unchanged",
            )
        )
    return Gates(
        name="gate",
        title="Gate: is it the thoughts?",
        says="The worse end of both intervals must reach 0; else the given model is the result.",
        gates=tuple(rows),
    )


def domains(names: list[str], observations: Seen, result_name: str) -> Matrix:
    """Return nats a token by domain and arm: of hard tokens, and of all."""
    measured = by_domain(observations[result_name], HARD)
    parts = {f"{domain}, hard": f"{HARD}/{domain}" for domain in measured}
    parts |= {f"{domain}, all": f"{EVERY}/{domain}" for domain in measured}
    return Matrix(
        name="quality",
        title="Loss by domain",
        says="Nats a token on the test slice, of the hard tokens and of all; fewer are better.",
        rows=tuple(parts),
        columns=tuple(names),
        metrics=(ANY,),
        values=tuple(tuple(observations[n].values[part] for n in names) for part in parts.values()),
        ours=result_name,
    )
