"""Ended runs that take the place of a child that would be equal: `forge pipeline run --reuse`.

What the child would pin is found out by doing its first task here, and recording nothing of it. That
is done only if a completed run has the same settings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from events import Envelope, EventStore
from events.store import CODE_VERSION
from runs import kinds
from runs.history import reuse
from runs.history.audit import audit
from runs.history.repository import fold
from runs.kinds.state import State
from runs.kinds.tasks import Start
from runs.record.events import Submitted
from weights.storage.weight_cache import Artifacts

log = logging.getLogger(__name__)


def equal(store: EventStore, cache: Artifacts, submission: Submitted, kind: str) -> Iterator[Any]:
    """Yield (state, identity) of the runs equal to the one that `submission` would begin, oldest first."""
    histories = reuse.alike(store, submission, kind)
    alike = [rows for rows in histories if rows[0].code_version == CODE_VERSION]
    own_state = _begun(cache, submission, kind) if alike else None
    if own_state is None:
        return
    identity = reuse.identity(own_state, CODE_VERSION)
    for rows in alike:
        state = fold(rows)
        if reuse.wrong(rows, state, identity) is None and _sound(rows):
            yield state, identity


def _begun(cache: Artifacts, submission: Submitted, kind: str) -> State | None:
    """Return the state after the first task of a run that is not recorded; None if it fails."""
    state = kinds.of(kind).state()
    state.take(submission)
    try:
        state.take(kinds.of(kind).context(state, cache).carry_out(Start()))
    except Exception as error:
        log.debug("nothing is reused for run %s", submission.run, exc_info=error)
        return None  # the run itself meets the error again, and says whose fault it is
    return state


def _sound(rows: list[Envelope]) -> bool:
    """Return True if the program at hand would have decided the history as it is."""
    return all(finding.level == "note" for finding in audit(rows))
