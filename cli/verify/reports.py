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
    from worker.tasks import verify_run, verify_streams

    home = Home.default()
    store = home.open_store()
    try:
        name = verify_streams.named(store, target)
        if name is None:
            run = run_of(target) if kinds.is_run(target) else target
            if exactly:
                return verify_run.report(home, store, run, head, target)
            return verify_run.report(home, store, finding.full_name(store, run), head)
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
    findings = audit_stream(rows, verify_streams.registry_of(name))
    if why := verify_streams.misfiled(store, name, rows):
        findings.append(Finding("error", "chain", why))
    return {
        "run": name,
        "events": len(rows),
        "head": rows[-1].hash if rows else None,
        "checks": ["chain", "events"],
        "findings": [*chain_heads.lost(store), *findings],
        "state": None,
    }


def archive(path: Path) -> dict[str, Any]:
    """Verify an archive, without a database; return the report."""
    from worker.exports import archive
    from worker.tasks import verify_run

    return verify_run.read(*archive.inspected(path))


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
        is_logged = repository.full_name(store, document["run"]) == document["run"]
    except NotFoundError:
        is_logged = False
    finally:
        store.close()
    if is_logged:
        report = stream(f"{kind.name}/{document['run']}", document["chain_head"])
    report["checks"] += ["weights", "files"] if is_logged else ["weights"]
    report["findings"] += kind.verify_folder(home, folder, document, report["state"], is_logged)
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
