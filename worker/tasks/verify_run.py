"""Verification of one run of the log: chain, events, decisions, result, phases, cached weights.

`python -m worker.tasks.verify_run RUN BY [CANDIDATE]` verifies a run in a process of its own, makes a
candidate again on demand, and records the outcome.

Chain heads that are stored outside of a run's own stream reveal a truncated log. The run list stores
each run's last event, a fork the event that it branched at, and a check of a run (`forge verify`) the
last event that it saw. SQLite stores the last position that it ever gave out. Model cards, reports and
archives carry a head.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress

from sqlalchemy import func, select, text

from agent_forge.events import Cause, Envelope, EventsError, EventStore, New
from agent_forge.events.envelope import Data, Plain
from agent_forge.events.projection import PROJECTIONS
from agent_forge.events.store import EVENTS
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError, TamperedError
from agent_forge.runs.history import children, repository
from agent_forge.runs.history.audit import Anchor, Finding, audit
from agent_forge.runs.home import Home
from agent_forge.runs.lists import checks
from agent_forge.runs.lists.checks import CheckFinding, RunChecked
from agent_forge.runs.lists.projections import RUNS
from agent_forge.runs.record.events import Forked
from agent_forge.runs.streams import run_of
from agent_forge.runs.system.plain_text import visible
from agent_forge.worker.append import actor
from agent_forge.worker.tasks.verify_streams import Evidence


def report(
    home: Home, store: EventStore, run: str, head: str | None = None, stream: str | None = None
) -> Plain:
    """Verify a run of this machine's log; return the report: findings, checks, state, rows.

    `head` is a chain head that the user has noted; `stream` is the run's stream if it is known.
    """
    heads = anchors(store, run)
    rows, broken = _history(store, run, stream)
    heads += [given(run, rows, head)] if head else []
    losses = list(lost(store))
    result = read(run, rows, audit(rows, heads))
    result["findings"] += _children(store, result)
    result["findings"] = [*broken, *losses, *result["findings"]]
    result["state"] = None if broken else result["state"]
    if result["state"] is not None and home.artifacts.exists():
        from agent_forge.weights.storage.weight_cache import Artifacts

        state = result["state"]
        result["findings"] += kinds.of(state.kind).verification.cached(state, Artifacts.of(home))
        result["checks"].append("artifacts")
    return result


def read(run: str, rows: list[Envelope], findings: list[Finding]) -> Plain:
    """Return a report with an audit's findings; its `state` is None if the history is unreadable."""
    wrong = [f for f in findings if f.level == "error" or f.check == "events"]
    readable = not any(f.check in ("chain", "events", "decisions") for f in wrong)
    return {
        "run": run,
        "events": len(rows),
        "head": rows[-1].hash if rows else None,
        "checks": ["chain", "events", "decisions", "result"],
        "findings": findings,
        "state": repository.fold(rows) if readable else None,
        "rows": rows,
    }


def _children(store: EventStore, result: Plain) -> list[Finding]:
    """Return the findings about the runs that are tasks of a run; add "children" to the checks."""
    state = result["state"]
    if state is None or kinds.of(state.kind).children is None:
        return []
    result["checks"].append("children")
    return list(children.check(store, state))


def _history(store: EventStore, run: str, stream: str | None) -> tuple[list[Envelope], list[Finding]]:
    """Return (the run's rows, findings); a finding and own rows only if a fork's past has changed.

    A stream whose rows all have impossible versions is no run's; its rows are returned too, so that the
    check of the chain reports them.
    """
    try:
        rows = list(repository.history(Evidence(store), run))
        return rows or store.everything(stream or repository.named_stream(store, run)), []
    except (TamperedError, EventsError) as error:
        run_stream = stream or repository.named_stream(store, run)
        rows = [row for row in store.everything(run_stream) if row.stream == run_stream]
        return rows, [Finding("error", "chain", str(error))]


def again(home: Home, result: Plain, candidate: str) -> None:
    """Make a candidate of a report's run again from nothing; add the findings to the report."""
    from agent_forge.weights.storage.weight_cache import Artifacts
    from agent_forge.worker.tasks import verify_again

    state = result["state"]
    if state is None or kinds.of(state.kind).children is not None:
        return
    if state.started is not None:
        result["rebuilt"] = len(kinds.of(state.kind).verification.chosen(state, candidate))
    result["checks"].append("weights")
    cache = Artifacts.of(home)
    say = lambda text: None  # noqa: E731
    result["findings"] += verify_again.again(result["rows"], cache, candidate, None, say)


def main(run: str, by: str, candidate: str = "") -> int:
    """Verify a run and record the outcome, good or bad; return 0, or the exit code of an error."""
    home = Home.default()
    try:
        with closing(home.open_store()) as store:
            result = report(home, store, run)
            if candidate:
                again(home, result, candidate)
            record(store, result, by)
    except (ForgeError, EventsError) as error:
        sys.stderr.write(" ".join(visible(str(error)).split()) + "\n")
        return getattr(error, "exit_code", 1)
    return 0


#: Findings that are recorded, and letters of each message.
MOST, LETTERS = 20, 500
#: Findings are recorded in this order of their levels, those about the history first.
_LEVELS = ("error", "unchecked", "note")


def record(
    store: EventStore, report: Data, by: str | None = None, tolerance: float | None = None
) -> RunChecked:
    """Record the outcome of a verification; return the recorded event.

    `tolerance` is that of repeated measurements. Raises EventsError.
    """
    findings: list[Finding] = report["findings"]
    findings = sorted(
        findings, key=lambda f: (_LEVELS.index(f.level), f.check not in checks.OF_HISTORY)
    )
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


def _plain(finding: Finding) -> CheckFinding:
    """Return the finding as a `CheckFinding`, its message cut and control characters escaped."""
    message = visible(str(finding.message))[:LETTERS]
    return CheckFinding(level=finding.level, check=finding.check, message=message, place=finding.place)


def anchors(store: EventStore, run: str) -> list[Anchor]:
    """Return a list of Anchors: chain heads of a run's own stream that are stored elsewhere.

    Read them before the run's rows: the log only grows, so the rows must reach each anchor.
    """
    return [*_listed(store, run), *_forked(store, run), *_checked(store, run)]


def given(run: str, rows: Sequence[Envelope], head: str) -> Anchor:
    """Return the anchor of a chain head that the user gives.

    If no row of the run's own stream has this head, the anchor is one place beyond the end.
    """
    run_rows = [row for row in rows if run_of(row.stream) == run]
    place = next((row.version for row in run_rows if row.hash == head), len(run_rows) + 1)
    return Anchor(place, head, "the head that was given")


def _listed(store: EventStore, run: str) -> Iterator[Anchor]:
    with store.database.reading() as connection:
        if not connection.dialect.has_table(connection, RUNS.name):
            return
        query = select(RUNS.c.version, RUNS.c.head).where(RUNS.c.run == run)
        for version, head in connection.execute(query):
            yield Anchor(version, head, "the run list")


def _forked(store: EventStore, run: str) -> Iterator[Anchor]:
    query = select(EVENTS.c.data).where(
        EVENTS.c.type == Forked.type,
        text("version = 1"),
        EVENTS.c.data.contains(f'"parent":"{run}"', autoescape=True),
    )
    for (data,) in store.database.rows(query):
        with suppress(ValueError, LookupError, TypeError):  # damaged: verifying the fork reports it
            fork = json.loads(data)
            yield Anchor(int(fork["version"]), fork["head"], f"its fork {fork['run']}")


def _checked(store: EventStore, run: str) -> Iterator[Anchor]:
    """Yield the anchor of the newest check that found the run's history intact, if there is one."""
    for check in reversed(list(checks.of_run(store, run))):
        if check.event.outcome != "broken" and check.event.head:
            where = f"the check of {check.at[:16].replace('T', ' ')}"
            yield Anchor(check.event.version, check.event.head, where)
            return


def lost(store: EventStore) -> Iterator[Finding]:
    """Yield a finding if the log as a whole has lost events from its end."""
    with store.database.reading() as connection:
        ever, projected_position = store.database.last_position(connection), 0
        if connection.dialect.has_table(connection, PROJECTIONS.name):
            projected_position = (
                connection.execute(select(func.max(PROJECTIONS.c.position))).scalar() or 0
            )
        last = connection.execute(select(func.max(EVENTS.c.position))).scalar() or 0
    if last < max(ever or 0, projected_position):
        yield Finding(
            "error",
            "chain",
            f"the log's last event has position {last}, but there was one at "
            f"{max(ever or 0, projected_position)}: "
            "events are gone from its end, of this run or of others",
        )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
