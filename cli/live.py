"""Live view of a run of any kind on a terminal: progress, tasks under way, latest news.

`frame` copies the values to show from the state, in the thread that folds it; `draw` makes a picture of
a frame that fits into the terminal, in any thread. A kind may draw more (`cli.kind_views`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agent_forge.cli import panels
from agent_forge.cli.options import wrapped
from agent_forge.runs import kinds
from agent_forge.runs.panels.head import Live, Panels
from agent_forge.worker.queue.device_table import Hand
from agent_forge.worker.queue.reporting import activity

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from agent_forge.runs.kinds.state import State

#: Largest numbers of lines for tasks under way and for the latest news.
HANDS, NEWS = 6, 6
#: Parts of a run's head that the live view shows below its progress.
_TOLD = ("result", "lead", "facts")
#: Allowed widths of the progress bar, in columns.
BAR = range(5, 31)

_STATUS_STYLES = {"completed": "green", "failed": "red", "cancelled": "red", "paused": "yellow"}


@dataclass(frozen=True)
class Frame:
    """The values of a run of any kind that the live view shows."""

    run: str
    kind: str
    status: str
    #: The number of the unit under way, and of all units; None if they cannot be counted.
    at: int
    of: int | None
    #: Times at which the run was submitted, and at which it ended, None before.
    began: datetime
    ended: datetime | None
    #: Tasks under way in words, and where.
    hands: tuple[str, ...]
    news: tuple[str, ...]
    #: Current activity and progress; None for a run that has ended.
    now: Live | None = field(default=None, kw_only=True)
    #: Head and panels of the run; None for a kind that draws itself.
    seen: Panels | None = field(default=None, kw_only=True)


def frame(
    state: State,
    began: str,
    newest: str,
    hands: Sequence[Hand] = (),
    news: Sequence[str] = (),
    rehearsal: object = None,
) -> Frame:
    """Return the Frame of a state; `began` and `newest`: times of the first and the last event.

    `rehearsal` is the kind's count of the run's tasks, if there is one yet.
    """
    done, of = kinds.of(state.kind).view.progress(state)
    return Frame(
        run=state.run,
        kind=state.kind,
        status=state.status,
        at=done,
        of=of,
        began=datetime.fromisoformat(began),
        ended=datetime.fromisoformat(newest) if state.ended else None,
        hands=tuple(_hand(state, hand) for hand in hands),
        news=tuple(news),
        now=activity.live(activity.WatchedRun(state, None, hands, rehearsal), ()),
    )


def draw(shown: Frame, width: int, height: int, now: datetime, plain: bool = False) -> Group:
    """Return the picture of a frame: at most `height` lines of `width` columns."""
    from rich.console import Group

    first = [*top(shown, width, now, plain), *_told(shown, width)]
    under_way, news = tails(shown, height - len(first))
    room = height - len(first) - len(under_way) - len(news)
    body = _body(shown, width, room, plain)
    return Group(*[*first, *body, *under_way, *news][:height])


def top(shown: Frame, width: int, now: datetime, plain: bool) -> list[Text]:
    """Return the first lines: name of the run, and its progress with a bar."""
    lines = [head(shown, now)]
    if shown.now is None or not shown.now.progress:
        return lines
    room = min(BAR.stop - 1, width - len(shown.now.progress) - 2)
    if shown.now.inside is None or room < BAR.start:
        return [*lines, *map(line, wrapped(shown.now.progress, width))]
    full = math.floor(room * min(1.0, shown.now.inside))
    done, left = ("#", ".") if plain else ("█", "░")
    return [*lines, line((done * full + left * (room - full), "cyan"), f"  {shown.now.progress}")]


def _told(shown: Frame, width: int) -> list[Text]:
    """Return lines with the run's result, lead and facts; empty for a kind that draws itself."""
    if shown.seen is None:
        return []
    words = [pair for pair in panels.head_lines(shown.seen.head) if pair[0] in _TOLD]
    return [line(text) for text in panels.told(words, width)]


def _body(shown: Frame, width: int, room: int, plain: bool) -> list[Text]:
    """Return the lines of the panels that fit into `room`, then lines that name the other panels."""
    if shown.seen is None:
        return []
    drawn, footer = panels.fitting(shown.seen.panels, shown.run, width, room, plain)
    lines = []
    for title, *texts in drawn:
        name, colon, says = title.partition(": ")
        lines += [line((name, "bold"), colon, says), *map(line, texts)]
    return [*lines, *map(line, footer)][: max(0, room)]


def tails(shown: Frame, room: int) -> tuple[list[Text], list[Text]]:
    """Return (lines of tasks under way, lines of the latest news), for `room` lines in all."""
    under_way = listed("now", list(shown.hands[:HANDS]), room - 1)
    room -= len(under_way)
    return under_way, listed("last", list(shown.news[-NEWS:]), min(room, max(0, room - 6)))


def line(*parts: str | tuple[str, str]) -> Text:
    """Return a rich Text of texts, or (text, style) pairs: one line, cut where the terminal ends."""
    from rich.text import Text

    words = [(clean(p), "") if isinstance(p, str) else (clean(p[0]), p[1]) for p in parts]
    return Text.assemble(*words, no_wrap=True, overflow="ellipsis")


def clean(text: str) -> str:
    """Return the text with "?" for each unprintable character, which could change the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def head(shown: Frame, now: datetime) -> Text:
    """Return the first line: name, status, units done, time taken."""
    seconds = max(0, int(((shown.ended or now) - shown.began).total_seconds()))
    hours, rest = divmod(seconds, 3600)
    of = "" if shown.of is None else f" of {shown.of}"
    return line(
        ("run ", "bold"),
        (shown.run, "bold"),
        "  ",
        (shown.status, _STATUS_STYLES.get(shown.status, "cyan")),
        f"  {kinds.of(shown.kind).unit} {shown.at}{of}",
        f"  {'for' if shown.ended is None else 'in'} {hours}:{rest // 60:02d}:{rest % 60:02d}",
    )


def _hand(state: State, hand: Hand) -> str:
    since = "" if hand.seconds is None else f"  {hand.seconds:.0f} s"
    return f"{activity.in_words(state, hand)}  {hand.who}{since}"


def listed(title: str, texts: list[str], room: int) -> list[Text]:
    """Return texts as lines, the newest if `room` is too small; the title stands before the first."""
    shown = texts[-room:] if room > 0 else []
    return [
        line((f"{title if first == 0 else '':5s}", "bold"), text) for first, text in enumerate(shown)
    ]


def utc() -> datetime:
    """Return the time now, in UTC."""
    return datetime.now(UTC)
