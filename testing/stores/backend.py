"""A backend of the log under test: its new logs, and processes that open them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from agent_forge.events import EventStore
from testing.stores.example_events import ROOT

#: What a child process runs before its own part: the opener, an event, and a start signal, so that
#: all children begin together however long their imports took.
_CHILD = """
import sys
from agent_forge.events import ConcurrencyError, Event, New
exec(sys.argv[1])
place, name = sys.argv[2:4]

class Counted(Event):
    type = "counted"
    n: int

print("ready", flush=True)
sys.stdin.readline()
store = open_log(place)
"""


class Backend:
    """Base of every part of the contract: new logs, opened here or in a process."""

    #: Source text that defines `open_log(place: str) -> EventStore`. Text, because child processes
    #: run it too.
    opener: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def new_place(cls) -> Callable[[], str]:
        """Return a function that names places without a log; child processes can open them too."""
        raise NotImplementedError

    @classmethod
    def open(cls, place: str) -> EventStore:
        scope: dict[str, Any] = {}
        exec(cls.opener, scope)
        return scope["open_log"](place)

    @pytest.fixture
    def place(self, new_place: Callable[[], str]) -> str:
        return new_place()

    @pytest.fixture
    def store(self, place: str) -> Iterator[EventStore]:
        store = self.open(place)
        yield store
        store.close()

    @classmethod
    def child(cls, part: str, place: str, name: str = "child", fail: str = "") -> subprocess.Popen[str]:
        """Start a process that waits for a line on its input, opens the log and does its part."""
        return subprocess.Popen(
            [sys.executable, "-c", _CHILD + part, cls.opener, place, name],
            cwd=ROOT,
            env={**os.environ, "FORGE_FAILPOINTS": fail},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
