"""`forge replay`, `diff`, `compare`: a run as it was, and two beside each other. No torch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from cli.options import emit, json_option, number, say, short, table, warn_skipped

#: The longest pause between two events while following, seconds.
LONGEST = 5.0


def _cut(store: Any, text: str) -> tuple[Any, list[Any]]:
    """The state and the rows that RUN, RUN@57 or RUN@g3 names."""
    from dataclasses import replace

    from runs.history import repository
    from runs.history.places import Reference, cut

    reference = Reference.parse(text)
    run = repository.full_name(store, reference.run)
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
    from runs import kinds
    from runs.home import Home

    if place is not None and generation is not None:
        raise click.UsageError("give --to or --generation, not both.")
    if speed is not None and not (0 < speed < float("inf") and follow):
        raise click.UsageError("--speed is a factor above 0 and goes with --follow.")
    where = f"@{place}" if place is not None else "" if generation is None else f"@g{generation}"
    store = Home.default().open_store()
    try:
        state, rows = _cut(store, run + where)
        view = kinds.of(state.kind).snapshot
        if follow:
            _follow(store, state, rows, speed, where == "", as_json)
        elif as_json:
            emit(view(state))
        else:
            _show(view(state))
    finally:
        store.close()


def _follow(
    store: Any, state: Any, rows: list[Any], speed: float | None, live: bool, as_json: bool
) -> None:
    """Event after event with the state after it; then what comes, until the run has ended."""
    from cli.inspect import print_event
    from runs.history.places import appends
    from runs.history.repository import empty

    now, before = empty(state.stream), None
    for group in appends(rows):
        _pause(before, group[-1], speed)
        before = group[-1]
        now.absorb(group, showing=True)
        for place, row in enumerate(group, start=now.place - len(group) + 1):
            print_event(row, place, as_json)
        if not as_json and getattr(now, "generation", 0) and group[-1].type != group[0].type:
            click.echo(_line(now))
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


def _line(state: Any) -> str:
    """A generation in a line."""
    done = state.generations[state.generation - 1]
    scores = [s for s in done.scores if s is not None]
    best = number(max(scores) if scores else None)
    found = state.diversities[done.generation]
    return (
        f"       generation {done.generation}: best {best}, champion {short(state.champion)}, "
        f"diversity {found.diversity:.2f} ({found.level})"
    )


def _show(data: dict[str, Any]) -> None:
    """A view for people."""
    click.echo(f"run         {data['run']}  {data['status']}  after event {data['place']}")
    if "population" not in data:
        click.echo(f"done        {data['done']}" + (f" of {data['of']}" if data["of"] else ""))
        click.echo(f"pending     {', '.join(data['pending'])}")
        return
    if data["forked_from"]:
        click.echo(f"forked from {data['forked_from']}")
    click.echo(f"generation  {data['generation']}")
    best = data["champion"]
    if best:
        click.echo(
            f"champion    {short(best['recipe_id'])}  selection score {best['score']:.4f}, since "
            f"generation {best['since']}: {best['what']}"
        )
    if data["diversity"] is not None:
        click.echo(f"diversity   {data['diversity']:.2f} ({data['level']})")
    cells = [
        [f"{r['generation']}/{r['slot']}", short(r["recipe_id"]), r["kind"], r["pipeline"],
         str(r["rank"] or "-"), number(r["search"]), number(r["selection"])]
        for r in data["population"]
    ]  # fmt: skip
    table(["slot", "candidate", "kind", "pipeline", "rank", "search", "selection"], cells)
    pending = data["pending"]
    click.echo(f"pending     {len(pending)}" + (f": {', '.join(pending[:6])}" if pending else ""))
    if len(pending) > 6:
        click.echo(f"            and {len(pending) - 6} more (--json lists them)")


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
    data = _of(a, b, "difference")
    emit(data) if as_json else _differences(data)


@click.command("compare")
@click.argument("run1")
@click.argument("run2")
@json_option
def compare_command(run1: str, run2: str, as_json: bool) -> None:
    """Two runs side by side: settings, champion by generation, test score.

    \b
    Example:
      forge compare 20261121-3fa9c1 20261122-77aa01
    """
    data = _of(run1, run2, "comparison")
    if as_json:
        emit(data)
        return
    _differences(data)
    if "generations" not in data:
        return
    cells = [
        [str(g["generation"]), number(g["a"]), number(g["b"]),
         number(g["diversity_a"], ".2f"), number(g["diversity_b"], ".2f")]
        for g in data["generations"]
    ]  # fmt: skip
    table(["generation", "champion a", "champion b", "diversity a", "diversity b"], cells)
    click.echo(f"test score  a {number(data['test'][0])}  b {number(data['test'][1])}")
    if data["comparable"]:
        click.echo(f"NOT comparable: {data['comparable']}.")


def _of(a: str, b: str, what: str) -> dict[str, Any]:
    """Two runs of one kind, beside each other. Raises ConfigError for two kinds."""
    from runs import kinds
    from runs.errors import ConfigError

    one, other = _both(a, b)
    if one.kind != other.kind:
        raise ConfigError("runs of two kinds cannot be compared.")
    return getattr(kinds.of(one.kind), what)(one, other)


def _both(a: str, b: str) -> tuple[Any, Any]:
    from runs.home import Home

    store = Home.default().open_store()
    try:
        return _cut(store, a)[0], _cut(store, b)[0]
    finally:
        store.close()


def _differences(data: dict[str, Any]) -> None:
    if "candidates" not in data:
        for name, (mine, theirs) in data["settings"].items():
            say(f"setting {name}: {mine} | {theirs}")
        click.echo(f"lineage: {'the same' if data['same_lineage'] else 'different'}")
        return
    for which in "ab":
        side = data[which]
        done = "none" if side["generation"] is None else side["generation"]
        click.echo(
            f"{which}  {side['run']}  after event {side['place']}  {side['status']}  "
            f"last complete generation {done}"
        )
    for name, (mine, theirs) in data["settings"].items():
        say(f"setting {name}: {mine} | {theirs}")
    for names in data["sources"]:
        say(f"sources: {', '.join(names)}")
    found = data["candidates"]
    click.echo(
        f"candidates: {found['both']} in both, {len(found['only_a'])} only in a, "
        f"{len(found['only_b'])} only in b"
    )
    if data["weights"]:
        click.echo(f"OTHER WEIGHTS under the same recipe: {', '.join(map(short, data['weights']))}")
    measured = data["evaluations"]
    click.echo(f"evaluations: {measured['only_a']} only in a, {measured['only_b']} only in b")
    for what in measured["different"]:
        click.echo(f"OTHER OUTCOMES of the same evaluation: {what}")
    for which, best in zip("ab", data["champion"], strict=True):
        told = f"{short(best['recipe_id'])} {best['score']:.4f}" if best else "none yet"
        click.echo(f"champion {which}: {told}")
    click.echo(f"lineage: {'the same' if data['same_lineage'] else 'different'}")
