"""Runs as users write them: an id, a name, or the beginning of an id. Imports no torch."""

from __future__ import annotations

import difflib
from typing import Any

from events import EventStore
from runs.errors import AmbiguousError, NotFoundError
from runs.history import repository
from runs.lists import queries


def whole_name(store: EventStore, run: str) -> str | None:
    """Return the id of the run of this whole id or name; None if there is none."""
    is_known = repository.stream_of(store, run) is not None
    return run if is_known else queries.named(store, run)


def full_name(store: EventStore, run: str) -> str:
    """Return the id of the run that an id, a name or the beginning of an id means.

    Raises NotFoundError, and AmbiguousError if several ids begin so.
    """
    named = whole_name(store, run)
    if named is not None:
        return named
    try:
        return repository.full_name(store, run)
    except AmbiguousError:
        raise
    except NotFoundError as error:
        raise NotFoundError(f"run {run!r} is not known; {_hint(store, run)}") from error


def _hint(store: EventStore, run: str) -> str:
    """Return names that may have been meant, or the newest ones."""
    names = [row["name"] for row in queries.page(store, 1000, parts=False)[0]]
    alike = difflib.get_close_matches(run, names, n=3)
    if alike:
        return f"did you mean {' or '.join(alike)}?"
    if not names:
        return "there are no runs here. List them with `forge runs`."
    return f"the newest runs are {', '.join(names[:5])}. List them with `forge runs`."


def load(store: EventStore, run: str, showing: bool = False) -> Any:
    """Return the state of the run that is meant; `showing` as for `repository.load`.

    Raises NotFoundError, AmbiguousError.
    """
    return repository.load(store, full_name(store, run), showing)


def load_of(kind: type[Any], store: EventStore, run: str, showing: bool = False) -> Any:
    """Return the state of the run that is meant, which must be of a kind's class of states.

    Raises ConfigError for a run of another kind, and what `load` raises.
    """
    return repository.load_of(kind, store, full_name(store, run), showing)
