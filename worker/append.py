"""Appending to the log: the actor's name, a run's facts at their version, the run list.

This module does not import torch.
"""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Sequence

from sqlalchemy.exc import SQLAlchemyError

from agent_forge.events import (
    Cause,
    ConcurrencyError,
    Envelope,
    EventsError,
    EventStore,
    New,
    failpoints,
)
from agent_forge.events.projection import catch_up
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists.projections import Runs
from agent_forge.runs.record.events import ENDED, Forked, Submitted
from agent_forge.runs.system.plain_text import check

log = logging.getLogger(__name__)


def actor() -> str:
    """Return the name of the user who acts: FORGE_USER, else the account's name, else `uid-N`."""
    try:
        return check(os.environ.get("FORGE_USER") or getpass.getuser(), "FORGE_USER, the user's name,")
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def project(store: EventStore) -> None:
    """Bring the run list up to date; if that fails, only log a warning: the run has not failed."""
    try:
        catch_up(store, Runs())
    except (EventsError, ForgeError, SQLAlchemyError) as error:
        log.warning("the run list is not up to date: %s", error)


#: Event types of every kind after which the run list is brought up to date; readers of the list
#: update it too.
_LISTED = ENDED | {Submitted.type, Forked.type}


def project_after(store: EventStore, rows: Sequence[Envelope]) -> None:
    """Bring the run list up to date if it shows one of these new rows of a run."""
    kind = kinds.kind_of(rows[0].stream) if rows else None
    if kind is not None and any(row.type in _LISTED | kind.listed for row in rows):
        project(store)


def append_facts(store: EventStore, state: State, new: list[New], context: Cause) -> None:
    """Append new events of a run at the version that they were decided at.

    If another process appended first, append nothing: the caller folds and decides again. Raises
    ForgeError if the log has the facts within the state's version but the state does not: the
    caller would decide them for ever.
    """
    failpoints.hit("facts-decided")
    try:
        done = store.append(state.stream, state.version, new, context)
    except ConcurrencyError:
        return  # fold and decide again
    if not done.fresh and done.rows[-1].version <= state.version:
        keys = ", ".join(row.key for row in done.rows)
        raise ForgeError(f"run {state.run} cannot go on: {keys} is recorded already.")
    failpoints.hit("facts-appended")
