"""`forge compare`, `replay` and `diff`: runs beside each other, or at earlier places. No torch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime

import click

from agent_forge.cli import panels as screen
from agent_forge.cli.options import (
    emit,
    home,
    json_option,
    name_of,
    names_of,
    say,
    screen_width,
    table,
    warn_skipped,
)
from agent_forge.cli.panels import cell
from agent_forge.cli.runs.inspect import overview
from agent_forge.events import Envelope, EventStore
from agent_forge.runs import kinds
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.kinds.state import State
from agent_forge.runs.kinds.view import compared
from agent_forge.runs.panels.head import Result, in_words, quantity
from agent_forge.runs.panels.panels import Panel
from agent_forge.runs.panels.side_by_side import SideBySide, side_by_side


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN …")
@click.option("--panel", metavar="NAME", help="Show this panel; without it the first of the lines.")
@json_option
def compare_command(runs: tuple[str, ...], panel: str | None, as_json: bool) -> None:
    """Compare runs of any kinds: results, settings that differ, panels of one name.

    It says first if the results can be compared at all, and if not, why. A place of a run, such as
    RUN@57, stands for the run as it was then.

    \b
    Example:
      forge compare 20261121-3fa9c1 20261122-77aa01
      forge compare 20261121-3fa9c1 20261122-77aa01 --panel rivals
    """
    views = [compared(state, overview(state, rows)) for state, rows in places(*runs)]
    data = side_by_side(views)
    data = data.model_copy(update={"names": names_of([head.run for head in data.heads])})
    if as_json:
        emit(data.model_dump(mode="json"))
    elif panel is not None:
        _echo_panel(data, panel)
    else:
        _echo(data)


def _echo_panel(data: SideBySide, name: str) -> None:
    """Print the panels of one name. Raises NotFoundError, which lists the names in common."""
    panels = _panels(data)
    if name not in panels:
        there = ", ".join(panels) or "none"
        raise NotFoundError(f"these runs have no panel {name!r} in common. They have: {there}.")
    for run, panel in panels[name]:
        say("\n".join(["", *screen.whole(panel, run, screen_width())]))


def _panels(data: SideBySide) -> dict[str, list[tuple[str, Panel]]]:
    """Return {name: [(run, panel), ...]} of the panels that the runs have in common, lines first."""
    panels: dict[str, list[tuple[str, Panel]]] = {}
    for lines in data.lines:
        panels[lines.name] = [(data.heads[0].run, lines)]
    for beside in data.beside:
        panels[beside.name] = [
            (part.run, part.panel.model_copy(update={"title": f"{part.panel.title}, {name}"}))
            for part in beside.panels
            for name in (data.names.get(part.run, part.run),)
        ]
    return panels


def _echo(data: SideBySide) -> None:
    """Print judgements, results, settings that differ, one line panel, and names of panels."""
    for judgement in data.judgements:
        answer = f"no: {judgement.why_not}" if judgement.why_not else "yes"
        same = "; their lineages are the same, bit for bit" if judgement.same_lineage else ""
        both = (data.names.get(run, run) for run in (judgement.run, judgement.other))
        say(f"comparable {' and '.join(both)}: {answer}{same}")
    table(["run", "kind", "status", "done", "result", "interval", "measured on"], _results(data))
    runs = [data.names.get(head.run, head.run) for head in data.heads]
    if data.settings:
        cells = [[row.name, *map(_setting, row.values)] for row in data.settings]
        table(["setting", *runs], cells, title="settings that differ")
    for lines in data.lines[:1]:
        say("\n".join(["", *screen.whole(lines, runs[0], screen_width())]))
    if names := list(_panels(data)):
        say(f"\npanels in common: {', '.join(names)}")
        say(f"one of them: forge compare {' '.join(runs)} --panel {names[-1]}")


def _results(data: SideBySide) -> list[list[str]]:
    """Return a row of cells for each run: its progress and its result."""
    rows = []
    for head in data.heads:
        of = "" if head.of is None else f" of {head.of}"
        done = f"{head.done}{of} {head.unit}s"
        name = data.names.get(head.run, head.run)
        rows.append([name, head.kind, head.status, done, *_result(head.result)])
    return rows


def _result(result: Result | None) -> tuple[str, str, str]:
    """Return (result in words, its interval, what it was measured on); "-" for what is missing."""
    if result is None:
        return "-", "-", "-"
    metric = result.metric
    words = in_words(metric.name, result.value, metric.unit, metric.better)
    ends = [quantity(end, metric.unit) for end in (result.low, result.high) if end is not None]
    return words, " to ".join(ends) or "-", result.on or "-"


def _setting(value: object) -> str:
    return cell(value if isinstance(value, str | int | float | None) else str(value))


#: The longest pause between two events while following, seconds.
LONGEST = 5.0


def _cut(store: EventStore, text: str) -> tuple[State, list[Envelope]]:
    """Return (state, rows) at the place that RUN, RUN@57 or RUN@g3 names."""
    from dataclasses import replace

    from agent_forge.runs.history import repository
    from agent_forge.runs.history.repository import HistoryReference, cut
    from agent_forge.runs.lists import finding

    reference = HistoryReference.parse(text)
    run = finding.full_name(store, reference.run)
    rows = list(cut(list(repository.history(store, run)), replace(reference, run=run)))
    state = repository.fold(rows, showing=True)
    warn_skipped(state)
    return state, rows


@click.command("replay")
@click.argument("run")
@click.option("--to", "place", type=int, metavar="POSITION", help="After this event of its history.")
@click.option("--generation", type=int, metavar="G", help="After this generation.")
@click.option("--follow", is_flag=True, help="Show event after event, then those still to come.")
@click.option("--speed", type=float, metavar="X", help="With --follow: X times as fast as it went.")
@json_option
def replay_command(
    run: str,
    place: int | None,
    generation: int | None,
    follow: bool,
    speed: float | None,
    as_json: bool,
) -> None:
    """Show a run as it was: population, champion, diversity, pending tasks.

    Events are counted as `forge events` prints them, those before a fork included.

    \b
    Example:
      forge replay 20261121-3fa9c1 --generation 3
      forge replay 20261121-3fa9c1 --follow --speed 100
    """
    from agent_forge.cli import kind_views

    if place is not None and generation is not None:
        raise click.UsageError("give --to or --generation, not both.")
    if speed is not None and not (0 < speed < float("inf") and follow):
        raise click.UsageError("--speed is a factor above 0 and goes with --follow.")
    where = f"@{place}" if place is not None else "" if generation is None else f"@g{generation}"
    with closing(home().open_store()) as store:
        state, rows = _cut(store, run + where)
        if follow:
            _follow(store, state, rows, speed, where == "", as_json)
            return
        data = kinds.of(state.kind).view.snapshot(state)
        emit(data) if as_json else kind_views.of(state.kind).snapshot(data)


def _follow(
    store: EventStore,
    state: State,
    rows: list[Envelope],
    speed: float | None,
    live: bool,
    as_json: bool,
) -> None:
    """Print each event with the state after it; if `live`, then new events until the run has ended."""
    from agent_forge.cli import kind_views
    from agent_forge.cli.runs.inspect import print_event
    from agent_forge.runs.history.repository import appends, empty

    now, before, view = empty(state.stream), None, kind_views.of(state.kind)
    for group in appends(rows):
        _pause(before, group[-1], speed)
        before = group[-1]
        now.absorb(group, showing=True)
        for place, row in enumerate(group, start=now.place - len(group) + 1):
            print_event(row, place, as_json)
        line = None if as_json else view.after(now, group)
        if line:
            click.echo(line)
    if not live or now.ended:
        return
    for row in _coming(store, now):
        print_event(row, now.place, as_json)


def _coming(store: EventStore, state: State) -> Iterator[Envelope]:
    from agent_forge.runs.history import repository

    while not state.ended:
        rows = repository.news(store, state)
        for row in rows:
            state.absorb([row], showing=True)
            yield row
        if not rows:
            time.sleep(0.2)


def _pause(before: Envelope | None, row: Envelope, speed: float | None) -> None:
    if before is None or speed is None:
        return
    times = [datetime.fromisoformat(r.recorded_at) for r in (before, row)]
    time.sleep(min(LONGEST, max(0.0, (times[1] - times[0]).total_seconds() / speed)))


@click.command("diff")
@click.argument("a", metavar="RUN@A")
@click.argument("b", metavar="RUN@B")
@json_option
def diff_command(a: str, b: str, as_json: bool) -> None:
    """Show what is different between two places, of one run or of two.

    A place is RUN (its end), RUN@57 (after event 57) or RUN@g3 (after generation 3).

    \b
    Example:
      forge diff 20261121-3fa9c1@g2 20261121-3fa9c1@g5
    """
    from agent_forge.cli import kind_views
    from agent_forge.runs.errors import ConfigError

    (first, _), (other, _) = places(a, b)
    if first.kind != other.kind:
        names = name_of(first.run), name_of(other.run)
        raise ConfigError(
            f"{names[0]} is {kinds.of(first.kind).title}, {names[1]} {kinds.of(other.kind).title}: "
            f"`forge compare {' '.join(names)}` shows what such runs have in common."
        )
    data = kinds.of(first.kind).view.difference(first, other)
    emit(data) if as_json else kind_views.of(first.kind).differences(data)


def places(*texts: str) -> list[tuple[State, list[Envelope]]]:
    """Return (state, rows) of each place: RUN, RUN@57 or RUN@g3."""
    with closing(home().open_store()) as store:
        return [_cut(store, text) for text in texts]
