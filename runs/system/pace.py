"""Pace of the task that this process does: how much of it is done, at what rate, and the time left.

For people who wait; nothing is decided by it. A loop notes what it has done, another thread says it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from agent_forge.runs.system.durations import duration


@dataclass
class Pace:
    """Work in units of one sort."""

    unit: str
    done: int
    of: int
    #: What was done when this process began with it, and the seconds of the clock then.
    first: int
    began: float = field(default_factory=time.monotonic)

    def words(self) -> str:
        """Return the pace in words: "12 of 64 pieces, 1.1 a second, 47.2 s left"."""
        seconds, done = time.monotonic() - self.began, self.done - self.first
        words = f"{self.done:,} of {self.of:,} {self.unit}"
        if done <= 0 or seconds <= 0:
            return words
        rate = done / seconds
        left = "" if self.done == self.of else f", {duration((self.of - self.done) / rate)} left"
        often = f"{rate:,.2g} a second" if rate >= 1 else f"{1 / rate:,.2g} s each"
        return f"{words}, {often}{left}"


_current: Pace | None = None
#: The unit that `counted_as` chose, or None.
_unit: str | None = None


def note(unit: str, done: int, of: int) -> None:
    """Note that `done` of `of` units of the task under way are done."""
    global _current
    pace, unit = _current, _unit or unit
    if pace is None or (pace.unit, pace.of) != (unit, of) or done < pace.done:
        _current = Pace(unit, done, of, done)
    else:
        pace.done = done


def forget() -> None:
    """Forget the pace: the task has ended."""
    global _current
    _current = None


@contextmanager
def counted_as(unit: str) -> Generator[None]:
    """Call all units that are noted in a `with` block `unit`, and forget them after it."""
    global _unit
    before, _unit = _unit, unit
    try:
        yield
    finally:
        _unit = before
        forget()


@contextmanager
def repeated(act: Callable[[], None], seconds: float, name: str) -> Generator[None]:
    """Call `act` every `seconds`, by a thread called `name`, during a `with` block."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(seconds):
            act()

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def words() -> str:
    """Return the pace of the task under way in words; empty if none is known."""
    pace = _current
    return "" if pace is None else pace.words()
