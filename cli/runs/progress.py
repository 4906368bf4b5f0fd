"""`forge watch`, and progress on stderr: a live view on a terminal, else a line for each unit."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from agent_forge.cli import kind_views, live
from agent_forge.cli.options import emit, home, json_option, load_run, name_of, names_of
from agent_forge.runs import kinds
from agent_forge.runs.kinds.view import Curve
from agent_forge.runs.panels.tables import renamed
from agent_forge.runs.system import pace
from agent_forge.runs.system.durations import duration
from agent_forge.worker.queue.reporting import activity
from agent_forge.worker.queue.reporting.activity import Rehearsals

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from agent_forge.events import Envelope
    from agent_forge.runs.kinds.state import State

#: Event of another user → words after it: what to do about it.
_SAID = {
    "paused": ": it waits until `forge resume {run}`",
    "resumed": "",
    "cancelled": "",
    "retried": "",
}

#: First words of warnings about probes; the other warnings were printed before the run began.
_MEASURED = ("probed: ", "not probed: ")

#: Pictures a second on a terminal; seconds between two looks at who works on the run.
REFRESH, LOOK = 2, 1.0
#: Seconds without a line after which a line says what a run does: with a look, below ten.
WAIT = 8.5
#: Seconds until the first such line: imports may have taken some before, without a word.
FIRST = 2.0


class Waiting:
    """Lines on stderr; one that says what is done, whenever there was none for `WAIT` seconds."""

    def __init__(self, words: Callable[[], str], ahead: float = 0.0) -> None:
        """Store `words`, which returns what is done now or ''; a first line comes `ahead` s early."""
        self._words, self._over = words, threading.Event()
        self._printed = time.monotonic() - ahead

    def __enter__(self) -> Waiting:
        threading.Thread(target=self._wait, name="waiting", daemon=True).start()
        return self

    def __exit__(self, *details: object) -> None:
        self._over.set()

    def say(self, line: str) -> None:
        """Print a line to stderr, and note the time."""
        self._printed = time.monotonic()
        print(line, file=sys.stderr, flush=True)

    def _wait(self) -> None:
        while not self._over.wait(LOOK):
            if time.monotonic() - self._printed >= WAIT and (words := self._words()):
                self.say(f"  {words}")


def lasting(work: str) -> Waiting:
    """Return a context whose lines say, after `FIRST` s and every `WAIT` s, how long `work` lasts."""
    began = time.monotonic()
    return Waiting(lambda: f"{work} for {duration(time.monotonic() - began)}", WAIT - FIRST)


class _Followed:
    """A followed run: its view, its times, latest news, its curve."""

    def __init__(self, state: State) -> None:
        self.view = kind_views.of(state.kind)
        self.began = self.newest = ""
        self.news: deque[str] = deque(maxlen=live.NEWS)
        self._curve = Curve(kinds.of(state.kind).view, state.registry)
        self.name = names_of([state.run]).get(state.run, state.run)

    def time(self, row: Envelope) -> None:
        """Keep the times of the first event, and of the newest but `exported` or `described` ones."""
        self.began = self.began or row.recorded_at
        if row.type not in ("exported", "described"):  # the run may have ended before
            self.newest = row.recorded_at

    def take(self, state: State, rows: Sequence[Envelope]) -> None:
        """Add lines about new rows to the news, and their values to the curve."""
        from agent_forge.runs.kinds import wording

        names = wording.names(state)
        for row in rows[-live.NEWS :]:
            words = wording.summary_line(state.kind, row.type, json.loads(row.data), names)
            self.news.append(f"{row.recorded_at[11:19]} {row.type} {words}")
        self._curve.take(rows)

    def frame(self, state: State, hands: Sequence[live.Hand], rehearsal: object) -> live.Frame:
        """Return the Frame of the run that a terminal draws, with the run's name."""
        times, news = (self.began, self.newest), tuple(self.news)
        frame = self.view.frame(state, *times, hands, news, self._curve.values, rehearsal)
        return replace(frame, run=self.name)


class ProgressFollower:
    """A display of a run and of the runs that are tasks of it; the terminal shows the newest.

    The view of a run that has ended is erased: what follows has the whole result.

    `hands` returns who works on the run; without it, this process does, and the next task is shown.
    """

    def __init__(self, hands: Callable[[], Sequence[live.Hand]] | None = None) -> None:
        dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
        self._terminal = sys.stderr.isatty() and not dumb
        self._live: Live | None = None
        #: Run → its record; the run whose lines were printed last.
        self._runs: dict[str, _Followed] = {}
        self._last = ""
        self._shown: tuple[_Followed, live.Frame] | None = None
        self._hands = hands
        self._known: Sequence[live.Hand] = ()
        self._looked = float("-inf")
        self._rehearsals = Rehearsals()
        #: What is done now, in words, and since when.
        self._doing: tuple[str, float] = "", 0.0
        self._waiting = Waiting(self._words)

    def __enter__(self) -> ProgressFollower:
        if not self._terminal:
            self._waiting.__enter__()
        else:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._live = Live(
                console=console, refresh_per_second=REFRESH, get_renderable=lambda: self._draw(console)
            )
            self._live.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._waiting.__exit__()
        self._rehearsals.close()
        if self._live is not None:
            self._live.transient = self._shown is not None and self._shown[1].ended is not None
            self._live.__exit__(*details)

    def watch(self, state: State, rows: list[Envelope]) -> None:
        """Show new rows of a run; `state` is the state after them."""
        followed = self._runs.get(state.run)
        if followed is None:
            followed = self._runs[state.run] = _Followed(state)
        for row in rows:
            followed.time(row)
            line = None if self._live is not None else followed.view.unit(state, row)
            if line:
                self._say_run(state)
                self._waiting.say(line + self._how_far(state))
            self._say(state, row)
        if state.submitted is not None and self._live is None:
            hand = next(iter(self._at_work(state)), None)
            words = "" if hand is None else activity.in_words(state, hand)
            if rows or words != self._doing[0]:
                self._doing = words, time.monotonic()
        elif state.submitted is not None:
            self._take(followed, state, rows)

    def _words(self) -> str:
        """Return what the run does, and how far that is; empty if nothing is done here."""
        words, since = self._doing
        if not words or self._hands is not None:
            return words
        return f"{words}: {pace.words() or f'for {duration(time.monotonic() - since)}'}"

    def _say_run(self, state: State) -> None:
        """Print the run's name if it changes among several, and what its lines mean."""
        if state.run == self._last:
            return
        if len(self._runs) > 1:
            self._waiting.say(f"run {self._runs[state.run].name}:")
        if legend := self._runs[state.run].view.legend:
            self._waiting.say(legend)
        self._last = state.run

    def _how_far(self, state: State) -> str:
        """Return progress and time left as text in parentheses; empty if ended or unknown."""
        if state.ended:
            return ""
        outlook = kinds.of(state.kind).view.outlook(state, self._rehearsals.of(state))
        return "" if outlook.eta_s is None else f"  ({activity.progress(state, outlook)})"

    def _say(self, state: State, row: Envelope) -> None:
        """Print what was probed at the start, and what users asked for."""
        lines = []
        if row.type == "started":
            warnings = json.loads(row.data)["warnings"]
            lines = [line for line in warnings if line.startswith(_MEASURED)]
        if row.type in _SAID:
            name = self._runs[state.run].name
            lines.append(f"{row.type} by {row.actor}{_SAID[row.type].format(run=name)}")
        for line in lines:
            self._waiting.say(line)

    def _take(self, followed: _Followed, state: State, rows: list[Envelope]) -> None:
        """Keep the values to draw; another thread draws them."""
        followed.take(state, rows)
        earlier_work, self._known = self._known, self._at_work(state)
        if rows or earlier_work != self._known:
            rehearsal = self._rehearsals.of(state)
            self._shown = followed, followed.frame(state, self._known, rehearsal)

    def _at_work(self, state: State) -> Sequence[live.Hand]:
        if state.ended:
            return ()
        if self._hands is None:
            from agent_forge.runs.kinds import wording
            from agent_forge.runs.kinds.decide import pending

            due = [task for task in pending(state) if wording.task(state.kind, task)]
            return [live.Hand("here", task) for task in due[:1]]
        if time.monotonic() - self._looked < LOOK:
            return self._known
        self._looked = time.monotonic()
        return self._hands()

    def _draw(self, console: Console) -> RenderableType:
        if self._shown is None:
            return ""
        followed, frame = self._shown
        if self._hands is None and frame.hands and (how_far := pace.words()):
            frame = replace(frame, hands=(f"{frame.hands[0]}: {how_far}", *frame.hands[1:]))
        size, plain = console.size, console.options.ascii_only
        return followed.view.draw(frame, size.width, size.height - 1, plain)


#: Seconds between two looks at the run.
WATCH = 0.3


@click.command("watch")
@click.argument("run")
@json_option
def watch_command(run: str, as_json: bool) -> None:
    """Follow a run that another process carries, until it has ended. Ctrl-C only stops watching.

    On a terminal: curves, the population, who is at what; at the end what `forge show` has. Otherwise
    a line a generation.

    \b
    Example:
      forge watch 20261121-3fa9c1
    """
    from agent_forge.cli import kind_views
    from agent_forge.cli.runs import inspect
    from agent_forge.runs import kinds
    from agent_forge.runs.history.run_cache import RunCache
    from agent_forge.runs.lists import finding
    from agent_forge.worker.queue.device_table import WorkFinder

    with closing(home().open_store()) as store:
        name = finding.full_name(store, run)
        runs = RunCache(store, 1)
        with ProgressFollower(WorkFinder(store, name)) as progress:
            while True:
                state, rows = runs.refresh(name)
                progress.watch(state, rows)
                if state.ended:
                    break
                time.sleep(0 if rows else WATCH)
    if sys.stdout.isatty() and state.started is not None and not as_json:
        shown, log = load_run(name)
        kind_views.of(shown.kind).show(shown, lambda: inspect.overview(shown, log))
    reason = state.failed.reason if state.failed else None
    result = kinds.of(state.kind).models.result(state)
    champion = result and result.recipe_id
    report = {"run": name, "status": state.status, "champion": champion, "reason": reason}
    called = name_of(name)
    why = f": {renamed(reason, name, called)}" if reason else ""
    sentence = f"run {called} {state.status}{why}"
    emit(report) if as_json else click.echo(sentence)
    if not state.completed:
        sys.exit(1)
