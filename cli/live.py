"""A run on a terminal while it lives: curves, population, who is at what, what happened last.

`snapshot` takes what is shown out of the state, in the thread that folds it; `draw` makes a picture of
a snapshot that fits into so many columns and lines, in whatever thread. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cli.options import number, short
from evomerge.run.wording import task as doing
from worker.queue.active_tasks import Hand

#: From low to high; the second for terminals that have no such letters.
LEVELS, PLAIN_LEVELS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
#: Lines for what is under way, and for what happened last, at most.
HANDS, NEWS = 6, 6
#: Columns beside a curve: its name, its last value and what is said behind it.
BESIDE = 50

_LEVEL_STYLES = {"healthy": "green", "low": "yellow", "critical": "red"}
_STATUS_STYLES = {"completed": "green", "failed": "red", "cancelled": "red", "paused": "yellow"}


@dataclass(frozen=True)
class Snapshot:
    """What is shown of a run."""

    run: str
    status: str
    generation: int
    of: int
    #: When it was submitted, and, of one that has ended, when it did.
    began: datetime
    ended: datetime | None
    #: Curve → value of every closed generation.
    curves: dict[str, tuple[float | None, ...]]
    diversity: tuple[float, ...]
    level: str
    #: The champion's id, and what it is in a few words.
    champion: str | None
    what: str
    population: tuple[dict[str, Any], ...]
    hands: tuple[Hand, ...]
    news: tuple[str, ...]


def snapshot(
    state: Any, began: str, newest: str, hands: Sequence[Hand] = (), news: Sequence[str] = ()
) -> Snapshot:
    """What is shown of a state; `began` and `newest`: when its first and last event were recorded."""
    from evomerge.recipes.recipe import label
    from evomerge.reports import candidate_rows, generation_rows

    rows = generation_rows.rows(state)
    curves = {name: tuple(row[name] for row in rows) for name in ("best", "mean", "champion")}
    recipe = state.recipes[state.champion] if state.champion else None
    return Snapshot(
        run=state.run,
        status=state.status,
        generation=max((g for g, _ in state.candidates), default=0),
        of=state.submitted.config.generations,
        began=datetime.fromisoformat(began),
        ended=datetime.fromisoformat(newest) if state.ended else None,
        curves=curves,
        diversity=tuple(row["diversity"] for row in rows),
        level=rows[-1]["level"] if rows else "",
        champion=state.champion,
        what=label(recipe, state.recipes) if recipe else "",
        population=tuple(candidate_rows.newest(state)),
        hands=tuple(hands),
        news=tuple(news),
    )


def spark(values: Sequence[float | None], low: float, high: float, levels: str = LEVELS) -> str:
    """A curve of one letter a value; a space where there is none."""
    step = (high - low) / (len(levels) - 1)
    return "".join(
        " " if v is None else levels[min(len(levels) - 1, round((v - low) / step) if step else 0)]
        for v in values
    )


def draw(shown: Snapshot, width: int, height: int, now: datetime, plain: bool = False) -> Any:
    """The picture: at most `height` lines of `width` columns."""
    from rich.console import Group

    parts = [_head(shown, now), *_curves(shown, width, LEVELS if not plain else PLAIN_LEVELS)]
    room = height - len(parts)
    under_way = _listed("now", [_hand(hand) for hand in shown.hands[:HANDS]], room - 1)
    room -= len(under_way)
    news = _listed("last", list(shown.news[-NEWS:]), min(room, max(0, room - 6)))
    table = _population(shown, room - len(news))
    return Group(*[*parts, *table, *under_way, *news][:height])


def _line(*parts: Any) -> Any:
    """A line that is cut where the terminal ends; texts, or (text, style)."""
    from rich.text import Text

    words = [(clean(p), "") if isinstance(p, str) else (clean(p[0]), p[1]) for p in parts]
    return Text.assemble(*words, no_wrap=True, overflow="ellipsis")


def clean(text: str) -> str:
    """Without what would move the cursor: names and reasons are other people's."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _head(shown: Snapshot, now: datetime) -> Any:
    seconds = max(0, int(((shown.ended or now) - shown.began).total_seconds()))
    hours, rest = divmod(seconds, 3600)
    return _line(
        ("run ", "bold"), (shown.run, "bold"), "  ",
        (shown.status, _STATUS_STYLES.get(shown.status, "cyan")),
        f"  generation {shown.generation} of {shown.of}",
        f"  {hours}:{rest // 60:02d}:{rest % 60:02d}",
    )  # fmt: skip


def _curves(shown: Snapshot, width: int, levels: str) -> list[Any]:
    """Fitness on one scale, and diversity from 0."""
    if not shown.diversity:
        return []
    columns = max(4, width - BESIDE)
    seen = {name: values[-columns:] for name, values in shown.curves.items()}
    numbers = [v for values in seen.values() for v in values if v is not None]
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    behind = {"champion": f"{short(shown.champion)} {shown.what}" if shown.champion else ""}
    lines = [
        _line(
            f"{name:9s} ", (spark(values, low, high, levels), "cyan"),
            f" {number(values[-1])}  ", (behind.get(name, ""), "bold"),
        )
        for name, values in seen.items()
    ]  # fmt: skip
    spread = shown.diversity[-columns:]
    curve = spark(spread, 0.0, max(spread), levels)
    style = _LEVEL_STYLES.get(shown.level, "")
    told = f" {number(spread[-1], '.2f')}    "
    return [*lines, _line("diversity ", (curve, "cyan"), told, (shown.level, style))]


def _population(shown: Snapshot, room: int) -> list[Any]:
    """The slots with a heading, as many as there is room for: the best, in the order of slots."""
    if room < 3 or not shown.population:
        return []
    rows = list(shown.population)
    many = len(rows) > room - 1
    if many:
        scored = sorted(rows, key=lambda r: r["search"] is None or -r["search"])
        best = {row["slot"] for row in scored[: room - 2]}
        rows = [row for row in rows if row["slot"] in best]
    lines = [_line((f"{'slot':>4}  {'search':>8}  {'selection':>9}  {'kind':8}  pipeline", "bold"))]
    for row in rows:
        champion = row["recipe_id"] == shown.champion
        text = (
            f"{row['slot']:4d}  {number(row['search']):>8}  {number(row['selection']):>9}  "
            f"{row['kind']:8}  {row['pipeline']}{'  champion' if champion else ''}"
        )
        lines.append(_line((text, "green" if champion else "")))
    if many:
        lines.append(_line((f"      {len(shown.population) - len(rows)} more", "dim")))
    return lines


def _hand(hand: Hand) -> str:
    since = "" if hand.seconds is None else f"  {hand.seconds:.0f} s"
    return f"{doing(hand.task) or hand.task}  {hand.who}{since}"


def _listed(title: str, texts: list[str], room: int) -> list[Any]:
    """Some lines, the newest where there is no room for all, with a title before the first."""
    shown = texts[-room:] if room > 0 else []
    return [
        _line((f"{title if first == 0 else '':5s}", "bold"), text)
        for first, text in enumerate(shown)
    ]


def utc() -> datetime:
    """Now."""
    return datetime.now(UTC)
