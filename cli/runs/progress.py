"""Progress of a run, on stderr: a live view on a terminal, a line a unit otherwise."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from cli import kind_views, live
from runs import kinds
from runs.lists.curve import Curve

#: What others did to the run, and what to do about it.
_SAID = {
    "paused": ": it waits until `forge resume {run}`",
    "resumed": "",
    "cancelled": "",
    "retried": "",
}

#: How the lines begin that say what was probed: the others were said before the run was recorded.
_MEASURED = ("probed: ", "not probed: ")

#: How often a terminal is drawn, a second; seconds between two looks at who is at work.
REFRESH, LOOK = 2, 1.0


class Progress:
    """Follows a run's rows.

    `hands` says who is at work; without it, the run is carried here and its next task is shown.
    """

    def __init__(self, hands: Callable[[], Sequence[live.Hand]] | None = None) -> None:
        dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
        self._terminal = sys.stderr.isatty() and not dumb
        self._live: Any = None
        self._kind_view: kind_views.View | None = None
        self._shown: Any = None
        self._hands = hands
        self._known: Sequence[live.Hand] = ()
        self._looked = float("-inf")
        self._began = self._newest = ""
        self._news: deque[str] = deque(maxlen=live.NEWS)
        self._curve: Curve | None = None

    def __enter__(self) -> Progress:
        if self._terminal:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._live = Live(
                console=console,
                refresh_per_second=REFRESH,
                get_renderable=lambda: self._draw(console),
            )
            self._live.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        if self._live is not None:
            self._live.__exit__(*details)

    def watch(self, state: Any, rows: list[Any]) -> None:
        """Show new rows; `state` is the state after them."""
        for row in rows:
            self._began = self._began or row.recorded_at
            if row.type != "exported":  # the run had ended before
                self._newest = row.recorded_at
            told = None if self._live is not None else self._view(state).unit(state, row)
            if told:
                print(told, file=sys.stderr, flush=True)
            if row.type == "started":
                for told in json.loads(row.data)["warnings"]:
                    if told.startswith(_MEASURED):
                        print(told, file=sys.stderr, flush=True)
            if row.type in _SAID:
                print(
                    f"{row.type} by {row.actor}{_SAID[row.type].format(run=state.run)}",
                    file=sys.stderr,
                    flush=True,
                )
        if self._live is not None and state.submitted is not None:
            self._take(state, rows)

    def _take(self, state: Any, rows: list[Any]) -> None:
        """Keep what is to be drawn; the drawing is another thread's."""
        from runs.kinds.wording import gist

        for row in rows[-live.NEWS :]:
            told = gist(state.kind, row.type, json.loads(row.data))
            self._news.append(f"{row.recorded_at[11:19]} {row.type} {told}")
        if self._curve is None:
            self._curve = Curve(kinds.of(state.kind), state.registry)
        self._curve.take(rows)
        known, self._known = self._known, self._at_work(state)
        if rows or known != self._known:
            news = tuple(self._news)
            view = self._view(state)
            times = self._began, self._newest
            self._shown = view.frame(state, *times, self._known, news, self._curve.values)

    def _at_work(self, state: Any) -> Sequence[live.Hand]:
        if state.ended:
            return ()
        if self._hands is None:
            from runs.kinds import wording
            from runs.kinds.decide import pending

            due = [task for task in pending(state) if wording.task(state.kind, task)]
            return [live.Hand("here", task) for task in due[:1]]
        if time.monotonic() - self._looked < LOOK:
            return self._known
        self._looked = time.monotonic()
        return self._hands()

    def _view(self, state: Any) -> kind_views.View:
        if self._kind_view is None:
            self._kind_view = kind_views.of(state.kind)
        return self._kind_view

    def _draw(self, console: Any) -> Any:
        if self._shown is None or self._kind_view is None:
            return ""
        size, plain = console.size, console.options.ascii_only
        return self._kind_view.draw(self._shown, size.width, size.height - 1, plain)
