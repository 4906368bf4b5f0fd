"""Names of streams. Imports nothing: lists are read without the domain."""

from __future__ import annotations

#: Streams of merging runs are named so.
PREFIX = "evomerge/"


def stream(run: str) -> str:
    """The stream of a run."""
    return PREFIX + run
