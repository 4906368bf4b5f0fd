"""`forge replay`, `diff`: a run as it was, and two places beside each other. No torch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from cli.options import emit, home, json_option, name_of, warn_skipped

#: The longest pause between two events while following, seconds.
LONGEST = 5.0


def _cut(store: Any, text: str) -> tuple[Any, list[Any]]:
    """Return the state and the rows that RUN, RUN@57 or RUN@g3 names."""
    from dataclasses import replace

    from runs.history import repository
    from runs.history.places import Reference, cut
    from runs.lists import finding

    reference = Reference.parse(text)
    run = finding.full_name(store, reference.run)
    rows = list(cut(list(repository.history(store, run)), replace(reference, run=run)))
    state = repository.fold(rows, showing=True)
    warn_skipped(state)
    return state, rows


@click.command("replay")
@click.argument("run")
@click.option(
    "--to", "place", type=int, metavar="POSITION", help="After this event of its history."
)
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
    from cli import kind_views
    from runs import kinds

    if place is not None and generation is not None:
        raise click.UsageError("give --to or --generation, not both.")
    if speed is not None and not (0 < speed < float("inf") and follow):
        raise click.UsageError("--speed is a factor above 0 and goes with --follow.")
    where = f"@{place}" if place is not None else "" if generation is None else f"@g{generation}"
    store = home().open_store()
    try:
        state, rows = _cut(store, run + where)
        if follow:
            _follow(store, state, rows, speed, where == "", as_json)
            return
        data = kinds.of(state.kind).snapshot(state)
        emit(data) if as_json else kind_views.of(state.kind).snapshot(data)
    finally:
        store.close()


def _follow(
    store: Any, state: Any, rows: list[Any], speed: float | None, live: bool, as_json: bool
) -> None:
    """Print event after event with the state after it; then new events, until the run has ended."""
    from cli import kind_views
    from cli.runs.inspect import print_event
    from runs.history.places import appends
    from runs.history.repository import empty

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


def _coming(store: Any, state: Any) -> Iterator[Any]:
    from runs.history import repository

    while not state.ended:
        rows = repository.news(store, state)
        for row in rows:
            state.absorb([row], showing=True)
            yield row
        if not rows:
            time.sleep(0.2)


def _pause(before: Any, row: Any, speed: float | None) -> None:
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
    from cli import kind_views
    from runs import kinds
    from runs.errors import ConfigError

    (first, _), (other, _) = places(a, b)
    if first.kind != other.kind:
        names = name_of(first.run), name_of(other.run)
        raise ConfigError(
            f"{names[0]} is {kinds.of(first.kind).title}, {names[1]} {kinds.of(other.kind).title}: "
            f"`forge compare {' '.join(names)}` shows what such runs have in common."
        )
    data = kinds.of(first.kind).difference(first, other)
    emit(data) if as_json else kind_views.of(first.kind).differences(data)


def places(*texts: str) -> list[tuple[Any, list[Any]]]:
    """Return state and rows of each place: RUN, RUN@57 or RUN@g3."""
    store = home().open_store()
    try:
        return [_cut(store, text) for text in texts]
    finally:
        store.close()
