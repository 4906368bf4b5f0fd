"""A run of any kind on a terminal while it lives: how far it is, who is at what, what happened last.

`frame` copies the values to show from the state, in the thread that folds it; `draw` makes a picture of
a frame that fits into the terminal, in any thread. A kind may draw more (`cli.kind_views`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cli import panels
from runs import kinds
from runs.kinds import wording
from runs.panels.head import Panels
from worker.queue.active_tasks import Hand

#: Lines for what is under way, and for what happened last, at most.
HANDS, NEWS = 6, 6
#: What of a run's head the live view says below its first line.
_TOLD = ("result", "lead", "facts", "left")

_STATUS_STYLES = {"completed": "green", "failed": "red", "cancelled": "red", "paused": "yellow"}


@dataclass(frozen=True)
class Frame:
    """Values of a run of any kind that the live view shows."""

    run: str
    kind: str
    status: str
    #: The number of the unit under way, and of all units; None if they cannot be counted.
    at: int
    of: int | None
    #: When it was submitted, and, of one that has ended, when it did.
    began: datetime
    ended: datetime | None
    hands: tuple[Hand, ...]
    news: tuple[str, ...]
    #: What is shown of the run; None for a kind that draws itself.
    seen: Panels | None = field(default=None, kw_only=True)


def frame(
    state: Any, began: str, newest: str, hands: Sequence[Hand] = (), news: Sequence[str] = ()
) -> Frame:
    """Return what is shown of a state; `began` and `newest`: when its first and last event came."""
    done, of = kinds.of(state.kind).progress(state)
    return Frame(
        run=state.run,
        kind=state.kind,
        status=state.status,
        at=done,
        of=of,
        began=datetime.fromisoformat(began),
        ended=datetime.fromisoformat(newest) if state.ended else None,
        hands=tuple(hands),
        news=tuple(news),
    )


def draw(shown: Frame, width: int, height: int, now: datetime, plain: bool = False) -> Any:
    """Return the picture: at most `height` lines of `width` columns."""
    from rich.console import Group

    first = [head(shown, now), *_told(shown)]
    under_way, news = tails(shown, height - len(first))
    room = height - len(first) - len(under_way) - len(news)
    body = _body(shown, width, room, plain)
    return Group(*[*first, *body, *under_way, *news][:height])


def _told(shown: Frame) -> list[Any]:
    """Return result, facts and time left as lines; who is at what stands below the panels."""
    if shown.seen is None:
        return []
    told = panels.head_lines(shown.seen.head)
    return [line((f"{w:7s}", "bold"), text) for w, text in told if w in _TOLD]


def _body(shown: Frame, width: int, room: int, plain: bool) -> list[Any]:
    """Return the panels that fit into `room` lines; each gets an equal part of what is left."""
    lines: list[Any] = []
    every = shown.seen.panels if shown.seen else ()
    for number, panel in enumerate(every):
        part = (room - len(lines)) // (len(every) - number)
        lines += [line(*parts) for parts in panels.drawn(panel, width, part, plain)]
    return lines


def tails(shown: Frame, room: int) -> tuple[list[Any], list[Any]]:
    """Return the lines of what is under way and of what happened last, for `room` lines."""
    under_way = listed("now", [_hand(shown, hand) for hand in shown.hands[:HANDS]], room - 1)
    room -= len(under_way)
    return under_way, listed("last", list(shown.news[-NEWS:]), min(room, max(0, room - 6)))


def line(*parts: Any) -> Any:
    """Return a line that is cut where the terminal ends; texts, or (text, style)."""
    from rich.text import Text

    words = [(clean(p), "") if isinstance(p, str) else (clean(p[0]), p[1]) for p in parts]
    return Text.assemble(*words, no_wrap=True, overflow="ellipsis")


def clean(text: str) -> str:
    """Return the text without what would move the cursor: names and reasons are other people's."""
    return "".join(c if c.isprintable() else "?" for c in text)


def head(shown: Frame, now: datetime) -> Any:
    """Return the first line: run, status, how far, how long."""
    seconds = max(0, int(((shown.ended or now) - shown.began).total_seconds()))
    hours, rest = divmod(seconds, 3600)
    of = "" if shown.of is None else f" of {shown.of}"
    return line(
        ("run ", "bold"),
        (shown.run, "bold"),
        "  ",
        (shown.status, _STATUS_STYLES.get(shown.status, "cyan")),
        f"  {kinds.of(shown.kind).unit} {shown.at}{of}",
        f"  {hours}:{rest // 60:02d}:{rest % 60:02d}",
    )


def _hand(shown: Frame, hand: Hand) -> str:
    since = "" if hand.seconds is None else f"  {hand.seconds:.0f} s"
    return f"{wording.task(shown.kind, hand.task) or hand.task}  {hand.who}{since}"


def listed(title: str, texts: list[str], room: int) -> list[Any]:
    """Return some lines, the newest if there is no room for all; a title before the first."""
    shown = texts[-room:] if room > 0 else []
    return [
        line((f"{title if first == 0 else '':5s}", "bold"), text)
        for first, text in enumerate(shown)
    ]


def utc() -> datetime:
    """Return now."""
    return datetime.now(UTC)
