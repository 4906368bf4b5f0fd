"""Reuse of an ended run in the place of an equal one that would be begun. Pure.

Two runs are equal if they are of one kind and have the same settings, the same pinned inputs (weights,
companions, data and profile, as `started` has them) and the same version of the program. `identity` is
the digest of all that. Operations have versions of their own; they stand in tasks and recipes, which
an audit of the found run derives again with the program at hand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from events import Envelope, canonical_json
from runs import kinds
from runs.history.repository import Log
from runs.kinds.state import State
from runs.record import events, lineage
from runs.record.device_setting import with_device
from runs.record.events import Submitted

#: Type of an event → why the result of a run that has one can be taken for no other run's.
_UNFIT = {
    events.Forked.type: "it is a fork: other settings may have decided a part of it",
    events.TaskQuarantined.type: "a task of it was given up",
    events.DivergenceDetected.type: "a task of it gave two results",
}


#: Settings that may end a run by the clock: its result then depends on how busy the machine was.
_BY_THE_CLOCK = ("max_hours", "max_device_hours", "budget_hours")


def identity(state: State, version: str) -> str:
    """Return the digest of what equal runs have in common; `version` is that of the program."""
    settings = with_device(state.submitted.config.model_dump(mode="json"), state.device)
    whole = [state.kind, version, settings, kinds.of(state.kind).pins(state)]
    return hashlib.sha256(canonical_json(whole).encode()).hexdigest()


def unfit(rows: Sequence[Envelope]) -> str | None:
    """Return why a run's result can be taken for no other run's; None if it can."""
    ends = [place for place, row in enumerate(rows, start=1) if row.type == events.Completed.type]
    if not ends:
        return "it has not completed"
    reasons = (_UNFIT[row.type] for row in rows if row.type in _UNFIT)
    several = len({row.code_version for row in rows[: ends[0]]}) > 1
    return next(reasons, "several versions of the program have carried it" if several else None)


def alike(log: Log, submission: Submitted, kind: str) -> Iterator[list[Envelope]]:
    """Yield the histories of the runs of a kind with these settings whose results can be taken."""
    settings = lineage.entry(submission.type, submission.payload())
    for row in log.streams(f"{kind}/"):
        if row.type == submission.type and lineage.entry(row.type, row.data) == settings:
            rows = list(log.iterate(row.stream))
            if unfit(rows) is None:
                yield rows


def wrong(rows: Sequence[Envelope], state: State, reused: str) -> str | None:
    """Return why a run with these rows is not the one that `reused` was recorded of; None if it is."""
    if (why := unfit(rows)) is not None:
        return f"it cannot have been taken for an equal one: {why}"
    if any(getattr(state.submitted.config, name, None) is not None for name in _BY_THE_CLOCK):
        return "it cannot have been taken for an equal one: its settings limit it by the clock"
    if identity(state, rows[0].code_version) != reused:
        return "it is not equal to the run that it was taken for"
    return None
