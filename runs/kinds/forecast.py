"""Forecasts of runs: what one will cost here, before it is begun. Pure.

A forecast holds no guess. An amount is measured when it is asked for, counted exactly, or not known;
and its text says which of these, and from what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path


@dataclass(frozen=True)
class Amount:
    """A number and what it is derived from; None and why it is not known."""

    value: float | None
    how: str


@dataclass(frozen=True)
class Forecast:
    """The cost of a run on this machine by one process, and models like those that it will give."""

    #: Of work, in seconds.
    seconds: Amount
    #: Bytes that are on disk once the run has ended.
    disk: Amount
    #: Bytes that its tasks need at once.
    memory: Amount
    #: Role → folder of an untrained model of the shape of the one that the run will give; empty if
    #: that is not known. By these, a run over the models can be tried before they are made.
    models: Mapping[str, Path] = field(default_factory=dict[str, Path])
    #: File of the items that the run will pin.
    items: Path | None = None

    def took(self, seconds: float, how: str) -> Forecast:
        """Return the forecast with another time."""
        return replace(self, seconds=Amount(seconds, how))


def unknown(why: str) -> Forecast:
    """Return the forecast of a run of which nothing is known, and why."""
    nothing = Amount(None, why)
    return Forecast(nothing, nothing, nothing)
