"""Records of verifications: an event with an actor, beside the run's own history."""

from __future__ import annotations

import re
import uuid

from agent_forge.events import Cause, EventStore, New
from agent_forge.events.envelope import Data
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.lists import checks
from agent_forge.runs.lists.checks import CheckFinding, RunChecked
from agent_forge.runs.system.plain_text import visible
from agent_forge.worker.append import actor

#: Findings that are recorded, and letters of each message.
MOST, LETTERS = 20, 500
#: Findings are recorded in this order of their levels.
_LEVELS = ("error", "unchecked", "note")


def record(
    store: EventStore, report: Data, by: str | None = None, tolerance: float | None = None
) -> RunChecked:
    """Record the outcome of a verification; return the recorded event.

    `report` is that of `worker.tasks.verify_run`; `tolerance` is that of repeated measurements. Raises
    EventsError.
    """
    findings = sorted(report["findings"], key=_rank)
    levels = [finding.level for finding in findings]
    rows = report.get("rows") or []
    last, head = (rows[-1].version, rows[-1].hash) if rows else (0, None)
    event = RunChecked(
        run=report["run"],
        events=report["events"],
        version=last if isinstance(last, int) and last > 0 else 0,
        head=head if re.fullmatch(r"[0-9a-f]{64}", str(head)) else None,
        checks=tuple(dict.fromkeys(report["checks"])),
        rebuilt=report.get("rebuilt"),
        tolerance=tolerance,
        errors=levels.count("error"),
        unchecked=levels.count("unchecked"),
        findings=tuple(map(_plain, findings[:MOST])),
    )
    stream = checks.stream_of(event.run)
    new = New(event, f"{stream}/{uuid.uuid4().hex}")
    store.append(stream, None, [new], Cause(actor=by or actor()))
    return event


def _rank(finding: Finding) -> tuple[int, bool]:
    """Return a sort key (level, False for findings about the history): errors come first."""
    return _LEVELS.index(finding.level), finding.check not in checks.OF_HISTORY


def _plain(finding: Finding) -> CheckFinding:
    """Return the finding as a `CheckFinding`, its message cut and control characters escaped."""
    message = visible(str(finding.message))[:LETTERS]
    return CheckFinding(level=finding.level, check=finding.check, message=message, place=finding.place)
