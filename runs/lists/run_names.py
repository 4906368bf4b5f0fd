"""Names of runs: what a user calls a run, or its kind and day; unique in a log. Pure.

A name is a label: a user changes it at any time. What stands in streams, addresses and digests is the
run's id. A run without a name is called by kind and day (`cognate-1128`), or by its id if a user chose
the id; a phase by its pipeline (`mini-1128.5-learned`). If a name is taken, the next number
follows (`cognate-1128-2`).
"""

from __future__ import annotations

import re

from runs.errors import ConfigError
from runs.streams import NAME

#: A name with a number behind it: the second of its stem and later ones.
_NUMBERED = re.compile(r"(.+)-([2-9]|[1-9][0-9]{1,8})")
#: Ids of runs that nobody chose: a day or `key`, and random digits or a hash.
_MADE = re.compile(r"(20[0-9]{6}|key)-[0-9a-f]{6,12}")
#: Characters of a name that is made from a file's.
_STEM = 60


def check(name: str) -> str:
    """Return the name of a run. Raises ConfigError if no run may be called so."""
    if NAME.fullmatch(name) is None:
        raise ConfigError(
            f"a run cannot be called {name[:100]!r}: give 1 to 100 letters (a to z, A to Z), digits or "
            "_.+-, the first a letter, a digit or _."
        )
    return name


def split(name: str) -> tuple[str, int]:
    """Return stem and number of a name: (mini-1128, 2) of mini-1128-2, and (mini, 1) of mini."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, 1)


def numbered(stem: str, number: int) -> str:
    """Return the name with this stem and number."""
    return stem if number == 1 else f"{stem}-{number}"


def dated(text: str, submitted_at: str) -> str:
    """Return a name of a kind's or a file's name and a day: mini-1128 of mini and 2026-11-28T…

    Characters that a name cannot have become dashes.
    """
    plain = re.sub(r"[^A-Za-z0-9_.+]+", "-", text[:_STEM]).strip("-.+") or "run"
    return f"{plain}-{submitted_at[5:7]}{submitted_at[8:10]}"


def is_made(run: str) -> bool:
    """Return True if an id was made by the program (`worker.commands.submit`), not chosen."""
    return _MADE.fullmatch(run) is not None


def of_part(parent: str, parent_name: str, run: str) -> str | None:
    """Return the name of a run that another one asked for; None if its id does not say so."""
    return parent_name + run[len(parent) :] if run.startswith(f"{parent}.") else None
