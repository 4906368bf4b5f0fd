"""Names that a kind of run sends to a tracker such as W&B, as data. Pure.

A kind lists every name with its unit and meaning (`Kind.catalogue`). The sender refuses a name that
is not listed, so the list is complete. docs/metrics.md is made from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from runs.errors import ConfigError
from runs.event_types import Figure

#: Destination of a name: the rows of the run's history, its summary, its settings, or the
#: description of its result.
Place = Literal["row", "summary", "config", "result"]
#: Where the names of a place may stand too: a summary repeats the last row.
_ALSO: dict[Place, tuple[Place, ...]] = {"summary": ("row",)}
#: Parts of a figure, beside its value: suffix → meaning.
PARTS = {"low": "lower end of the 95 % interval", "high": "its upper end", "n": "items behind it"}
#: Unit of a number without one: a ratio, a share, a score.
PLAIN = "1"
#: Unit of a text.
TEXT = "text"


@dataclass(frozen=True)
class TrackedName:
    """A name that is sent, or a pattern of names: `{domain}_avg` has one part that varies."""

    name: str
    #: SI or the field's own ("nats/token"); `1`: a pure number, `count`, `text`.
    unit: str
    meaning: str
    place: Place = "row"

    def fits(self, name: str) -> bool:
        """Return True if the name is this one, or of this pattern."""
        return _pattern(self.name).fullmatch(name) is not None


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """Return the expression of a name; a part in braces is anything without a slash."""
    parts = re.split(r"(\{\w+\})", name)
    return re.compile("".join("[^/]+" if p.startswith("{") else re.escape(p) for p in parts))


STATUS = TrackedName("status", TEXT, "status of the run: running, completed, failed …", "summary")


def of_figures(
    figures_of: Mapping[str, str], units: Mapping[str, str] | None = None
) -> list[TrackedName]:
    """Return the names of a completed run's figures: `final/FIGURE`, its interval and its items."""
    found = []
    for name, meaning in figures_of.items():
        unit = (units or {}).get(name, PLAIN)
        found.append(TrackedName(f"final/{name}", unit, meaning, "summary"))
    if found:
        for part, meaning in PARTS.items():
            unit = "count" if part == "n" else "that of the figure"
            name = f"final/{{figure}}_{part}"
            found.append(TrackedName(name, unit, f"of a figure above: {meaning}", "summary"))
    return found


def figures(measured: Mapping[str, Figure]) -> dict[str, float | int]:
    """Return the figures of a run under the names of `of_figures`; what is not known is left out."""
    told: dict[str, float | int] = {}
    for name, figure in measured.items():
        told[f"final/{name}"] = figure.value
        parts = ((part, getattr(figure, part)) for part in PARTS)
        told |= {f"final/{name}_{part}": value for part, value in parts if value is not None}
    return told


def unlisted(listed: Sequence[TrackedName], place: Place, names: Iterable[str]) -> list[str]:
    """Return the names that no entry for that place fits, in order."""
    usable = [one for one in listed if one.place in (place, *_ALSO.get(place, ()))]
    return [name for name in names if not any(one.fits(name) for one in usable)]


def check(kind: Any, place: Place, names: Iterable[str]) -> None:
    """Raise ConfigError if a name that is to be sent is not in the catalogue of the run's kind."""
    if missing := unlisted(kind.catalogue(), place, names):
        raise ConfigError(
            f"runs of kind {kind.name} may not send {', '.join(missing)} to a tracker: the kind's "
            f"catalogue has no such name for a {place} (`tracked_names` of its class)."
        )
