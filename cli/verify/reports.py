"""Reports of `forge verify`: of a run, another stream, an archive or a result's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


def stream(target: str, head: str | None, exactly: bool = False) -> dict[str, Any]:
    """Verify a run, or another stream, of this machine's log; return the report.

    `exactly`: the target is a stream's whole name, never the beginning of one.
    """
    from runs import kinds
    from runs.home import Home
    from runs.lists import finding
    from runs.streams import run_of
    from worker.tasks import verify_streams

    home = Home.default()
    store = home.open_store()
    try:
        name = verify_streams.named(store, target)
        if name is None:
            run = run_of(target) if kinds.is_run(target) else target
            if exactly:
                return _run(home, store, run, head, target)
            return _run(home, store, finding.full_name(store, run), head)
        return _other(store, name, head)
    finally:
        store.close()


def _other(store: Any, name: str, head: str | None) -> dict[str, Any]:
    """Verify a stream that belongs to no run: users, queue, models. Return the report."""
    from runs.history.audit import Finding, audit_stream
    from worker.exports import chain_heads
    from worker.tasks import verify_streams

    if head is not None:
        raise click.UsageError("--head is for a run.")
    rows = store.everything(name)
    found = audit_stream(rows, verify_streams.OTHERS.get(name))
    if why := verify_streams.misfiled(store, name, rows):
        found.append(Finding("error", "chain", why))
    return {
        "run": name,
        "events": len(rows),
        "head": rows[-1].hash if rows else None,
        "checks": ["chain", "events"],
        "findings": [*chain_heads.lost(store), *found],
        "state": None,
    }


def _run(
    home: Any, store: Any, run: str, head: str | None, stream: str | None = None
) -> dict[str, Any]:
    """Verify a run of this machine's log; `stream` is its stream if that is known already."""
    from worker.exports import chain_heads

    noted = chain_heads.anchors(store, run)
    rows, broken = _history(store, run, stream)
    noted += [chain_heads.given(run, rows, head)] if head else []
    lost = list(chain_heads.lost(store))
    report = _audit(run, rows, noted)
    report["findings"] += _children(store, report)
    report["findings"] = [*broken, *lost, *report["findings"]]
    report["state"] = None if broken else report["state"]
    if report["state"] is not None and home.artifacts.exists():
        from runs import kinds
        from weights.storage.weight_cache import Artifacts

        state = report["state"]
        report["findings"] += kinds.of(state.kind).cached(state, Artifacts.of(home))
        report["checks"].append("artifacts")
    return report


def _children(store: Any, report: dict[str, Any]) -> list[Any]:
    """Return what is wrong with the runs that are tasks of a run; note that they were looked at."""
    from runs import kinds
    from runs.history import children

    state = report["state"]
    if state is None or not kinds.of(state.kind).delegates:
        return []
    report["checks"].append("children")
    return list(children.check(store, state))


def _history(store: Any, run: str, stream: str | None) -> tuple[list[Any], list[Any]]:
    """Return the run's rows; if the past of a fork has changed, its own rows and a finding.

    A stream that holds nothing but rows of impossible versions is no run's; its rows are given all
    the same, for the chain to say so.
    """
    from events import EventsError
    from runs.errors import TamperedError
    from runs.history import repository
    from runs.history.audit import Finding
    from worker.tasks.verify_streams import Evidence

    try:
        rows = list(repository.history(Evidence(store), run))
        return rows or store.everything(stream or repository.named_stream(store, run)), []
    except (TamperedError, EventsError) as error:
        own = stream or repository.named_stream(store, run)
        rows = [row for row in store.everything(own) if row.stream == own]
        return rows, [Finding("error", "chain", str(error))]


def archive(path: Path) -> dict[str, Any]:
    """Verify an archive, without a database; return the report."""
    from worker.exports import archive

    run, rows, findings = archive.inspected(path)
    return _report(run, rows, findings)


def _audit(run: str, rows: list[Any], noted: list[Any]) -> dict[str, Any]:
    from runs.history.audit import audit

    return _report(run, rows, audit(rows, noted))


def _report(run: str, rows: list[Any], findings: list[Any]) -> dict[str, Any]:
    from runs.history.repository import fold

    wrong = [f for f in findings if f.level == "error" or f.check == "events"]
    readable = not any(f.check in ("chain", "events", "decisions") for f in wrong)
    return {
        "run": run,
        "events": len(rows),
        "head": rows[-1].hash if rows else None,
        "checks": ["chain", "events", "decisions", "result"],
        "findings": findings,
        "state": fold(rows) if readable else None,
        "rows": rows,
    }


def folder(folder: Path) -> dict[str, Any]:
    """Verify a champion's folder, and its run if this machine's log has it; return the report."""
    from runs.errors import NotFoundError
    from runs.history import repository
    from runs.home import Home

    kind, document = _document(folder)
    report: dict[str, Any] = {
        "run": document["run"],
        "events": 0,
        "head": document["chain_head"],
        "checks": [],
        "findings": [],
        "state": None,
    }
    home = Home.default()
    store = home.open_store()
    try:
        known = repository.full_name(store, document["run"]) == document["run"]
    except NotFoundError:
        known = False
    finally:
        store.close()
    if known:
        report = stream(f"{kind.name}/{document['run']}", document["chain_head"])
    report["checks"] += ["weights", "files"] if known else ["weights"]
    report["findings"] += kind.verify_folder(home, folder, document, report["state"], known)
    return report


def _document(folder: Path) -> tuple[Any, dict[str, Any]]:
    """Return the kind of run that wrote a folder, and what the folder says of it.

    Raises DataError.
    """
    from runs import kinds
    from runs.errors import DataError

    for name in kinds.table():
        kind = kinds.of(name)
        document = kind.document(folder)
        if document is not None:
            return kind, document
    raise DataError(f"{folder} is not a champion's folder, nor the result of another kind of run.")
