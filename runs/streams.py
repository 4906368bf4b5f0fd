"""Names of runs and of their streams: a run's stream is KIND/RUN.

Imports no kind, because lists of runs are read without one.
"""

from __future__ import annotations

import re

from agent_forge.runs.errors import ConfigError

#: The names that a run may have: safe as a folder's name, in an address and on a terminal.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")


def stream(kind: str, run: str) -> str:
    """Return the name of the stream of a run of this kind."""
    return f"{kind}/{run}"


def run_of(stream: str) -> str:
    """Return the name of the run that a run's stream belongs to."""
    return stream.partition("/")[2]


def check_name(run: str) -> str:
    """Return the name as it is. Raises ConfigError if no run can have it."""
    if NAME.fullmatch(run) is None:
        raise ConfigError(
            f"run name {run[:100]!r} cannot be used: give 1 to 100 letters (a to z, A to Z), digits or "
            "_.+-, the first a letter, a digit or _."
        )
    return run
