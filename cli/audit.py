"""`forge verify`: is the history what it says, and do the weights follow from it?"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from cli.options import emit, json_option


@click.command("verify")
@click.argument("target", metavar="RUN|FILE|FOLDER")
@click.option(
    "--rebuild", metavar="CANDIDATE|champion|all", help="Rebuild weights, compare digests."
)
@click.option("--recompute", is_flag=True, help="Measure fitness again too (of the champion, if "
              "--rebuild names nobody).")  # fmt: skip
@click.option("--tolerance", type=float, default=1e-6, show_default=True,
              help="Relative, for --recompute.")  # fmt: skip
@click.option("--head", metavar="HASH", help="A chain head noted elsewhere: a report, a card.")
@json_option
def verify_command(
    target: str,
    rebuild: str | None,
    recompute: bool,
    tolerance: float,
    head: str | None,
    as_json: bool,
) -> None:
    """Check a run, an archive or a champion's folder. Exit code 1 where something is wrong, 3 where
    nothing is and something could not be checked.

    Without options: the hash chain, every event, every decision, the result, and cached weights. An
    archive needs no database. A folder is compared with its own recipe and with its run.

    \b
    Example:
      forge verify 20261121-3fa9c1 --rebuild champion
      forge verify run.forge
      forge verify champion
    """
    path = Path(target)
    _check(path, rebuild, tolerance, head)
    if path.is_dir():
        report = _folder(path)
    elif path.is_file():
        report = _archive(path)
    else:
        report = _run(target, head)
    if (rebuild or recompute) and report["state"] is not None:
        wanted = rebuild or "champion"
        _rebuild(report, wanted, tolerance if recompute else None)
    _tell(report, as_json)


def _check(path: Path, rebuild: str | None, tolerance: float, head: str | None) -> None:
    """Refuse options that would be passed over in silence."""
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise click.UsageError("--tolerance is a number, 0 or more.")
    if rebuild == "":
        raise click.UsageError("--rebuild takes a candidate's id, champion or all.")
    if head is not None and path.exists():
        raise click.UsageError("--head is for a run: archives and folders hold their own.")
    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head):
        raise click.UsageError("--head is a hash: 64 hexadecimal digits.")


def _run(target: str, head: str | None) -> dict[str, Any]:
    """A run of this machine's log."""
    from evomerge import log
    from evomerge.home import Home
    from worker import anchors

    home = Home.default()
    store = home.open_store()
    try:
        run = log.full_name(store, target)
        noted = anchors.anchors(store, run)
        rows, broken = _history(store, run)
        noted += [anchors.given(run, rows, head)] if head else []
        lost = list(anchors.lost(store))
    finally:
        store.close()
    report = _audit(run, rows, noted)
    report["findings"] = [*broken, *lost, *report["findings"]]
    report["state"] = None if broken else report["state"]
    if report["state"] is not None and home.artifacts.exists():
        from worker import audit
        from worker.artifacts import Artifacts

        report["findings"] += audit.artifacts(report["state"], Artifacts.of(home))
        report["checks"].append("artifacts")
    return report


def _history(store: Any, run: str) -> tuple[list[Any], list[Any]]:
    """The run's rows; where the past of a fork is not what it was, its own rows and a finding."""
    from evomerge import log
    from evomerge.audit import Finding
    from evomerge.errors import TamperedError

    try:
        return list(log.history(store, run)), []
    except TamperedError as error:
        return list(store.iterate(log.stream(run))), [Finding("error", "chain", str(error))]


def _archive(path: Path) -> dict[str, Any]:
    """An archive, without a database."""
    from worker import archive

    run, rows = archive.rows(path)
    return _audit(run, rows, [])


def _audit(run: str, rows: list[Any], noted: list[Any]) -> dict[str, Any]:
    from evomerge.audit import audit
    from evomerge.state import fold

    findings = audit(rows, noted)
    wrong = [f for f in findings if f.level == "error" or f.check == "events"]
    readable = not any(f.check in ("chain", "events", "decisions") for f in wrong)
    return {
        "run": run,
        "events": len(rows),
        "head": rows[-1].hash if rows else None,
        "checks": ["chain", "events", "decisions", "result"],
        "findings": findings,
        "state": fold(rows) if readable else None,
    }


def _folder(folder: Path) -> dict[str, Any]:
    """A champion's folder, with its run where that is known here."""
    from evomerge import log
    from evomerge.errors import NotFoundError
    from evomerge.home import Home
    from worker import audit

    document = audit.read_recipe(folder)
    report: dict[str, Any] = {
        "run": document["run"],
        "events": 0,
        "head": document["chain_head"],
        "checks": [],
        "findings": [],
        "state": None,
    }
    store = Home.default().open_store()
    try:
        known = log.full_name(store, document["run"]) == document["run"]
    except NotFoundError:
        known = False
    finally:
        store.close()
    if known:
        report = _run(document["run"], document["chain_head"])
    report["checks"].append("weights")
    report["findings"] += audit.exported(folder, document, report["state"])
    return report


def _rebuild(report: dict[str, Any], which: str, tolerance: float | None) -> None:
    from evomerge.home import Home
    from worker import audit
    from worker.artifacts import Artifacts

    state = report["state"]
    ids = audit.chosen(state, which)
    supply = Artifacts.of(Home.default()).supply

    def say(what: str) -> None:
        click.echo(what, err=True)

    report["findings"] += audit.rebuild(state, ids, tolerance, say, supply)
    report["checks"] += ["weights"] if tolerance is None else ["weights", "fitness"]
    report["rebuilt"] = len(ids)


def _tell(report: dict[str, Any], as_json: bool) -> None:
    """The findings, and the exit code."""
    del report["state"]
    findings = report["findings"]
    wrong = sum(f.level == "error" for f in findings)
    report["ok"] = not wrong
    if as_json:
        emit({**report, "findings": [asdict(f) for f in findings]})
    else:
        _print(report, findings, wrong)
    if wrong:
        sys.exit(1)
    if findings:
        sys.exit(3)


def _print(report: dict[str, Any], findings: list[Any], wrong: int) -> None:
    click.echo(f"run     {report['run']}")
    if report["events"]:
        click.echo(f"events  {report['events']}, head {report['head']}")
    for check in dict.fromkeys(report["checks"]):
        own = [f for f in findings if f.check == check]
        bad = any(f.level == "error" for f in own)
        click.echo(f"{check:10s} {'WRONG' if bad else 'not checked' if own else 'ok'}")
    for f in findings:
        where = f" (event {f.place})" if f.place else ""
        click.echo(f"{f.level}: {f.check}: {f.message}{where}")
    if wrong:
        click.echo(f"NOT verified: {wrong} finding{'s' if wrong > 1 else ''}.")
    elif findings:
        click.echo("nothing is wrong with what could be checked; see `unchecked` above.")
    else:
        click.echo("verified.")
