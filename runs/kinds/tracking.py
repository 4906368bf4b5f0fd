"""Names that a kind of run sends to a tracker such as W&B, as data. Pure.

A kind lists every name with its unit and meaning (`Tracking.names`); the phase is the kind's own
(`Kind.phase`). The sender refuses a name that is not listed, so the list is complete. In a pattern
such as `{model}/loss` the varying part is one of the run's own models (`Allowed`). docs/metrics.md is
made from the lists.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds.capability import Capability, S

if TYPE_CHECKING:
    from agent_forge.runs.kinds.state import State

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
#: Unit of a setting of the run, whose description is that of the setting.
SETTING = "setting"
#: Part of a pattern → the values that it may have in a run.
Parts = Mapping[str, Collection[str]]
_PART = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class TrackedName:
    """A name that is sent, or a pattern of names: `{domain}_avg` has one part that varies."""

    name: str
    #: SI or the field's own ("nats/token"); `1`: a pure number, `count`, `text`.
    unit: str
    meaning: str
    place: Place = "row"

    def fits(self, name: str) -> bool:
        """Return True if the name is this one, or of this pattern in some run."""
        return _pattern(self.name).fullmatch(name) is not None


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """Return the compiled regular expression of a name; `{part}` is anything without a slash."""
    return re.compile(_expression(name, None))


def _expression(name: str, parts: Parts | None) -> str:
    """Return a regular expression, as text, of a name whose `{part}`s have these values; None: any."""
    pieces = _PART.split(name)  # text, part, text, part, …, text
    for at in range(1, len(pieces), 2):
        values = None if parts is None else [re.escape(choice) for choice in parts.get(pieces[at], ())]
        none = "[^/]+" if values is None else "(?!)"
        pieces[at] = f"(?:{'|'.join(values)})" if values else none
    pieces[::2] = map(re.escape, pieces[::2])
    return "".join(pieces)


STATUS = TrackedName("status", TEXT, "status of the run: running, completed, failed …", "summary")
#: The values inside of settings; the part `setting` has their names.
INSIDE = TrackedName("{setting}", SETTING, "value inside of a setting: `gates.metric`", "config")


def names(values: Mapping[str, object]) -> Iterator[str]:
    """Yield the names of values; of a value with names inside only those: `profile.device`."""
    for name, value in values.items():
        inner = [f"{name}.{path}" for path in _inside(value)]
        yield from inner or [name]


def _inside(value: object) -> Iterator[str]:
    """Yield the names inside of a value, through lists."""
    if isinstance(value, Mapping):
        yield from names(cast("Mapping[str, object]", value))
    elif isinstance(value, list | tuple):
        for entry in cast("Sequence[object]", value):
            yield from _inside(entry)


def of_figures(
    figures_of: Mapping[str, str], units: Mapping[str, str] | None = None
) -> list[TrackedName]:
    """Return TrackedNames of a completed run's figures: `final/FIGURE`, its interval and its items."""
    entries: list[TrackedName] = []
    for name, meaning in figures_of.items():
        unit = (units or {}).get(name, PLAIN).replace("share", PLAIN)
        entries.append(TrackedName(f"final/{name}", unit, meaning, "summary"))
    if entries:
        for part, meaning in PARTS.items():
            unit = "count" if part == "n" else "that of the figure"
            name = f"final/{{figure}}_{part}"
            entries.append(TrackedName(name, unit, f"of a figure above: {meaning}", "summary"))
    return entries


def figures(measured: Mapping[str, Figure]) -> dict[str, float | int]:
    """Return {`final/FIGURE`: number} of figures, intervals and items, without what is not known."""
    values: dict[str, float | int] = {}
    for name, figure in measured.items():
        values[f"final/{name}"] = figure.value
        parts = ((part, getattr(figure, part)) for part in PARTS)
        values |= {f"final/{name}_{part}": value for part, value in parts if value is not None}
    return values


def unlisted(listed: Sequence[TrackedName], place: Place, names: Iterable[str]) -> list[str]:
    """Return the names that no entry for that place fits in any run, in order."""
    entries = _entries(listed, place)
    return [name for name in names if not any(entry.fits(name) for entry in entries)]


def _entries(listed: Sequence[TrackedName], place: Place) -> list[TrackedName]:
    """Return the entries for a place; for "summary" those for "row", too."""
    return [entry for entry in listed if entry.place in (place, *_ALSO.get(place, ()))]


class Tracking(Capability[S]):
    """Tracker rows of runs of a kind."""

    #: The names that `rows` and `result` have.
    further: ClassVar[Sequence[TrackedName]] = ()

    def names(self) -> Sequence[TrackedName]:
        """Return a TrackedName for each name or pattern of names that a run of this kind may send."""
        kind = self.kind
        settings = (
            TrackedName(name, SETTING, field.description or "", "config")
            for name, field in kind.config.model_fields.items()
            if name not in kind.naming
        )
        return [
            *self.further,
            STATUS,
            *of_figures(kind.figures_of, kind.figure_units),
            *settings,
            INSIDE,
        ]

    def parts(self, state: S) -> Parts:
        """Return part → values that a run has for the patterns of `names`; by default {}.

        `figure` and `setting` are there in any case.
        """
        return {}

    def config(self, state: S) -> dict[str, object]:
        """Return the settings, without those that name models or files."""
        kind = self.kind
        settings = kind.settings.shown(state.submitted.config) if state.submitted else {}
        return {name: value for name, value in settings.items() if name not in kind.naming}

    def summary(self, state: S) -> dict[str, object]:
        """Return {"status": the run's status}, with the figures `final/FIGURE` of a completed run."""
        values = figures(self.kind.figures(state)) if state.completed else {}
        return {"status": state.status, **values}

    def rows(self, state: S, after: int) -> list[tuple[int, dict[str, object]]]:
        """Return [(unit, row)] of the units after `after`; by default []."""
        return []

    def result(self, state: S) -> dict[str, Any] | None:
        """Return the result as a dict: `metadata`, `file` and its JSON `content`; by default None.

        None if there is no result to send.
        """
        return None


class Allowed:
    """The names that one run may send to a place: the catalogue, with the run's parts in patterns."""

    def __init__(self, kind: kinds.AnyKind, state: State, place: Place) -> None:
        settings = kind.settings.shown(state.submitted.config) if state.submitted else {}
        shown = {name: value for name, value in settings.items() if name not in kind.naming}
        setting_names = [*shown, *names(shown)]
        # Every kind has figures and settings, also those of a strategy of somebody else's.
        parts: Parts = {
            "figure": kind.figures_of,
            "setting": setting_names,
            **kind.tracking.parts(state),
        }
        expressions = (
            _expression(entry.name, parts) for entry in _entries(kind.tracking.names(), place)
        )
        self._kind, self._place = kind.name, place
        self._fitting = re.compile("|".join(expressions))

    def unlisted(self, values: Mapping[str, object]) -> list[str]:
        """Return the names of values, and inside of values, that the run may not send."""
        return [name for name in names(values) if not self._fitting.fullmatch(name)]

    def check(self, values: Mapping[str, object]) -> None:
        """Raise ConfigError if the run may not send one of the names."""
        if missing := self.unlisted(values):
            raise ConfigError(
                f"runs of kind {self._kind} may not send {', '.join(missing)} to a tracker: the "
                f"kind's catalogue has no such name for a {self._place} (`further` and `parts` of its "
                "`tracking`)."
            )
