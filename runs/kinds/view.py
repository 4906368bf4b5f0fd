"""Views of a kind of run for lists, the API, the terminal and tables.

All of it is pure, but `full_report`, which may read the logs of the runs that a run delegates.

Every method has a default that suits a kind with nothing of its own to show.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent_forge.events import Envelope, Event, Registry
from agent_forge.events.envelope import Data
from agent_forge.runs import kinds
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.kinds import default_panels
from agent_forge.runs.kinds.capability import Capability, S
from agent_forge.runs.kinds.decide import pending
from agent_forge.runs.kinds.state import State
from agent_forge.runs.panels import tables
from agent_forge.runs.panels.head import Entry, Head, Panels
from agent_forge.runs.panels.panels import Panel
from agent_forge.runs.panels.side_by_side import ComparedRun
from agent_forge.runs.record.lineage import Child
from agent_forge.runs.system.durations import duration

if TYPE_CHECKING:
    from agent_forge.runs.home import Home

#: What a kind notes of a run in its row of the run list (`View.row`), before the first event.
BLANK: Entry = {
    "done": None,
    "result": None,
    "metric": "",
    "value": None,
    "unit": "",
    "better": None,
    "measured_on": "",
    "curve": "[]",
    "stages": None,
    "quality": None,
    "bytes": None,
}
#: Why results do not compare: see `View.yardstick`.
OTHER_DATA = "they were measured on other data"


#: Tasks that devices work on now, each with the seconds since it began.
UnderWay = Sequence[tuple[str, float]]
#: Values of the run list's curve, one for each unit that is done.
Scores = Sequence[float | None]
#: The largest share of a run that has not completed: at its end there is always an event left.
MOST_SHARE = 0.99


@dataclass(frozen=True)
class Outlook:
    """Tasks (or units) done and to do, the share of the work that is done, seconds left at most."""

    done: int
    #: All of them; None if the run has not started, or if they cannot be counted.
    of: int | None
    #: Share of the work that is done, 0 to 1; it includes work on tasks under way.
    inside: float | None
    #: Seconds left at most, None if they cannot be known.
    eta_s: float | None
    #: What `done` and `of` count.
    unit: str = "tasks"
    #: True if `of` is an upper bound: the run may end before.
    bound: bool = False
    #: True if measuring whose time is not known yet comes on top of the time left.
    besides: bool = False

    def words(self, ended: bool = False) -> str:
        """Return the progress as text: units done and, unless it `ended`, the share and time left.

        The share is one of time if all of the time left is known; else it is that of the units.
        """
        timed = self.inside is not None and self.eta_s is not None and not ended
        share = math.floor(100 * min(self.inside or 0.0, MOST_SHARE))
        most = "at most " if self.bound else ""
        parts = [f"{share} % of the time"] if timed and not self.besides else []
        if self.of is not None:
            parts.append(f"{self.done:,} of {most}{self.of:,} {self.unit}")
        elif self.inside is not None and not ended:
            parts += [f"{share} % done", f"{self.done:,} {self.unit}"]
        else:
            parts.append(f"{self.done:,} {self.unit} done")
        if timed and self.eta_s is not None:
            then = " beside measures that were not taken yet" if self.besides else ""
            parts.append(f"{duration(max(1.0, self.eta_s))} left at most{then}")
        return " · ".join(parts)


def outlook(state: State, rehearsal: object = None, under_way: UnderWay = ()) -> Outlook:
    """Return the Outlook of a run of any kind, with a share of at most 0.99 until it has completed."""
    kind_outlook = kinds.of(state.kind).view.outlook(state, rehearsal, under_way)
    if state.completed or kind_outlook.inside is None:
        return kind_outlook
    return replace(kind_outlook, inside=min(kind_outlook.inside, MOST_SHARE))


def overview(state: State, curve: Scores = (), children: Sequence[Child] = ()) -> Panels:
    """Return head and panels of a run of any kind, together with the runs that it delegates.

    Of the run list's curve there is only as much as the state has done.
    """
    kind = kinds.of(state.kind)
    if kind.children is not None:
        panels = kind.children.panels(state, children)
    else:
        panels = kind.view.panels(state, curve[: kind.view.progress(state)[0]])
    return Panels(head=kind.view.head(state), panels=tuple(panels))


def full_report(log: Any, state: State, rows: Sequence[Envelope], curve: Scores = ()) -> str:
    """Return the report for people as Markdown, at any time: of what is known so far.

    Of a completed run it is what its kind writes at the end, of every other run head and panels. `log`
    has the runs that the run delegates.
    """
    kind = kinds.of(state.kind)
    if kind.children is not None:
        return kind.children.report(log, state, rows)
    if state.completed:
        return kind.view.markdown(state, rows, curve)
    return tables.markdown(overview(state, curve))


def compared(state: State, overview: Panels) -> ComparedRun:
    """Return a run's ComparedRun: its head, panels, settings, yardstick and lineage digest."""
    kind = kinds.of(state.kind)
    return ComparedRun(
        head=overview.head,
        panels=overview.panels,
        settings=kind.settings.shown(state.submitted.config) if state.submitted else {},
        yardstick=kind.view.yardstick(state),
        lineage=state.lineage_digest(),
    )


def changed(first: Mapping[str, object], second: Mapping[str, object]) -> dict[str, list[object]]:
    """Return setting → [first, second] where they differ; None for a setting that a run lacks."""
    names = [*first, *(name for name in second if name not in first)]
    both = {name: [first.get(name), second.get(name)] for name in names}
    return {name: pair for name, pair in both.items() if pair[0] != pair[1]}


class View(Capability[S]):
    """View of runs of a kind."""

    def names(self, state: S) -> dict[str, str]:
        """Return recipe id → what people call the recipe; by default {}."""
        return {}

    def summary_line(self, type_: str, data: Data, names: Mapping[str, str]) -> str | None:
        """Return the telling part of an event of the kind's own on one line; by default None."""
        return None

    def task_words(self, key: str, names: Mapping[str, str]) -> str:
        """Return a task's key in words; by default ""."""
        return ""

    def row(self, entry: Entry, event: Event) -> None:
        """Note an event in the run's row `entry` of the run list, in place; by default do nothing.

        `done` is the number of the last complete unit, `curve` a list of one value a unit. The value
        of the result (`runs.panels.head.listed`) is the one that `head` shows.
        """

    def progress(self, state: S) -> tuple[int, int | None]:
        """Return (units that are done, units in all or None); by default tasks with an answer."""
        done = len(state.answers)
        return done, done if state.completed else None

    def fields(self, state: S) -> dict[str, object]:
        """Return the kind's own part of what the API says of a run; by default {}."""
        return {}

    def head(self, state: S) -> Head:
        """Return what is shown of a run first, but for what it does now, which no log has."""
        return default_panels.head(self.kind, state)

    def unchanged(self, state: S) -> str | None:
        """Return the name of the given model that is the run's result; None, the default, if none is.

        `state` is of a run that has completed. Every head then says that the run changed nothing.
        """
        return None

    def panels(self, state: S, curve: Scores = ()) -> Sequence[Panel]:
        """Return the panels of a run, the most telling first.

        `curve` has the run list's value for each unit that is done. A kind that says nothing shows
        that curve and its tasks.
        """
        return default_panels.panels(self.kind, state, curve)

    def part(self, state: S, name: str, **query: object) -> dict[str, object]:
        """Raise NotFoundError; a kind with parts such as `population` returns the part for the API."""
        raise NotFoundError(f"run {state.run} is {self.kind.title}: it has no {name}.")

    def report(self, state: S, rows: Sequence[Envelope]) -> dict[str, object]:
        """Return a completed run's report as a dict; by default its id and lineage digest."""
        return {"run": state.run, "lineage_digest": state.completed.lineage_digest}

    def markdown(self, state: S, rows: Sequence[Envelope], curve: Scores = ()) -> str:
        """Return the report of a run that has completed as Markdown; by default head and panels."""
        return tables.markdown(overview(state, curve))

    def picture(self, report: dict[str, object]) -> bytes | None:
        """Return the SVG file of a report's picture as bytes; None, the default, without one."""
        return None

    def summary(self, state: S, rows: Sequence[Envelope]) -> Sequence[str]:
        """Return what the run has found, as lines of Markdown: a part of a report of several runs.

        By default result and facts of the head.
        """
        return default_panels.sentences(self.head(state))

    def message(self, state: S, unit: int | None = None) -> dict[str, Any]:
        """Return the source documents' progress message, a dict; by default `unit` is ignored."""
        done, of = self.progress(state)
        share = 1.0 if state.completed else min(done / of, MOST_SHARE) if of else 0.0
        return {
            "type": "progress",
            "run": state.run,
            "task_id": state.run,
            "phase": self.kind.name,
            "status": state.status,
            "progress": share,
            "percent": 100 * share,
        }

    def unit_of(self, row: Envelope) -> int | None:
        """Return the number of the unit that an event ends; None, the default, if it ends none."""
        return None

    def ending(self, state: S) -> dict[str, object]:
        """Return the kind's fields of the end message: {"models": {role: recipe id}}, or {} if none."""
        models = getattr(state.completed, "models", {})
        return {"models": {role: model.recipe_id for role, model in models.items()}} if models else {}

    def snapshot(self, state: S) -> dict[str, object]:
        """Return a dict of a run's id, place, status, progress and pending work, for `forge replay`."""
        done, of = self.progress(state)
        return {
            "run": state.run,
            "place": state.place,
            "status": state.status,
            "done": done,
            "of": of,
            "pending": pending(state),
        }

    def difference(self, a: S, b: S) -> dict[str, object]:
        """Return {"settings": {name: [a's, b's]} that differ, "same_lineage": bool} of two runs."""
        settings_a, settings_b = (self.kind.settings.shown(s.submitted.config) for s in (a, b))
        same = a.lineage_digest() == b.lineage_digest()
        return {"settings": changed(settings_a, settings_b), "same_lineage": same}

    def yardstick(self, state: S) -> dict[str, object]:
        """Return {why results do not compare: the value that two runs must share}; by default {}."""
        return {}

    def layers(
        self, home: Home, state: S, recipe_id: str
    ) -> tuple[str, dict[str, object] | None, list[str]]:
        """Raise NotFoundError; a kind with layers returns (cache key, sources or None, command)."""
        raise NotFoundError(f"run {state.run} is {self.kind.title}: it has no layers.")

    def tables(self) -> Mapping[str, Callable[[S, Sequence[Envelope]], Any]]:
        """Return name → function(state, rows) of the kind's tables, for Parquet; by default {}."""
        return {}

    def tokens(self, event: Event) -> int:
        """Return the number of tokens that the answered task processed; by default 0."""
        return 0

    def rehearsable(self, state: S) -> bool:
        """Return True if `rehearse` can count the run's tasks within seconds; by default False."""
        return False

    def rehearse(self, state: S) -> object:
        """Return the count of the run's tasks; None, the default, if it cannot be told."""
        return None

    def outlook(self, state: S, rehearsal: object, under_way: UnderWay = ()) -> Outlook:
        """Return the run's progress; by its units, unless the kind knows better.

        `under_way` has the tasks that devices work on now, each with the seconds since it began.
        """
        done, of = self.progress(state)
        if state.completed:
            return Outlook(done, done, 1.0, 0.0, f"{self.kind.unit}s")
        return Outlook(done, of, done / of if of else None, None, f"{self.kind.unit}s")


#: A view of runs whose states are not known where it is used.
AnyView = View[Any]


class Curve:
    """The values that a kind notes in the run list, one for each unit that is done."""

    def __init__(self, view: AnyView, registry: Registry) -> None:
        self._view, self._registry = view, registry
        self._entry: Entry = dict(BLANK)

    def take(self, rows: Iterable[Envelope]) -> None:
        """Add the values of further rows, which are all of types that the registry knows."""
        for _, event in self._registry.load_each(rows):
            self._view.row(self._entry, event)

    @property
    def values(self) -> list[float | None]:
        """The values so far, one for each unit that is done; None for a unit without a value."""
        return json.loads(self._entry["curve"])
