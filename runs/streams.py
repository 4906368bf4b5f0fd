"""Names of runs and of their streams.

Imports no domain, because lists of runs are read without one.
"""

from __future__ import annotations

import re

from runs.errors import ConfigError

#: The beginning of the names of merging runs' streams.
PREFIX = "evomerge/"

#: The names that a run may have: safe as a folder's name, in an address and on a terminal.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")


def stream(run: str) -> str:
    """Return the name of a run's stream."""
    return PREFIX + run


def check_name(run: str) -> str:
    """Return the run's name. Raises ConfigError if a run may not have the name."""
    if NAME.fullmatch(run) is None:
        raise ConfigError(
            f"run name {run[:100]!r} cannot be used: give 1 to 100 letters (a to z, A to Z), digits or "
            "_.+-, the first a letter, a digit or _."
        )
    return run
