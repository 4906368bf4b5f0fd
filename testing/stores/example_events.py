"""Events that the contract of the log is tested with, and what tests say of their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_forge.events import Envelope, Event, New, Registry, chain

ROOT = Path(__file__).parents[2]

REGISTRY = Registry()


@REGISTRY.event
class Counted(Event):
    type = "counted"
    n: int


@REGISTRY.event
class Noted(Event):
    type = "noted"
    value: Any


class Unwritable(Event):
    """Event that raises while it is being written: a stand-in for any error at that point."""

    type = "unwritable"

    def payload(self) -> str:
        raise ValueError("cannot be written")


def new(key: str, n: int = 0) -> New:
    """Return a counted event under a key."""
    return New(Counted(n=n), key)


def keys(rows: list[Envelope] | tuple[Envelope, ...]) -> list[str]:
    """Return the keys of rows, in order."""
    return [row.key for row in rows]


def assert_chained(rows: list[Envelope]) -> None:
    """Assert that rows of one whole stream have no gaps and that their hashes form a chain."""
    head = chain.GENESIS
    for version, row in enumerate(rows, start=1):
        assert row.version == version
        assert row.prev_hash == head
        assert row.hash == chain.link(row._asdict())
        head = row.hash
