"""Names of runs and of their streams. Imports no domain: lists are read without it."""

from __future__ import annotations

import re

from runs.errors import ConfigError

#: Streams of merging runs are named so.
PREFIX = "evomerge/"

#: What a run may be called: a name that is safe as a folder's, in an address and on a terminal.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")


def stream(run: str) -> str:
    """The stream of a run."""
    return PREFIX + run


def check_name(run: str) -> str:
    """Return the run's name. Raises ConfigError if a run may not be called so."""
    if NAME.fullmatch(run) is None:
        raise ConfigError(
            f"run name {run[:100]!r} cannot be used: give 1 to 100 letters (a to z, A to Z), digits or "
            "_.+-, the first a letter, a digit or _."
        )
    return run
