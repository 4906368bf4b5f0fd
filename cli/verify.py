"""`forge verify`: checks a history, and that the weights follow from it.

It checks a run, the runs that its models came from (back to the first text), another stream, an archive
or a result's folder.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_forge.cli.options import Json, emit, home, json_option
from agent_forge.runs.system.plain_text import visible

if TYPE_CHECKING:
    from agent_forge.events import EventStore
    from agent_forge.runs.history.audit import Finding
    from agent_forge.runs.kinds.kind import Kind


@click.command("verify")
@click.argument("target", metavar="RUN|FILE|FOLDER|STREAM", required=False)
@click.option("--all", "everything", is_flag=True, help="Check every stream of the log.")
@click.option(
    "--rebuild",
    metavar="CANDIDATE|champion|all",
    help="Make weights again from nothing, compare digests. all: base and sources too.",
)
@click.option(
    "--recompute",
    is_flag=True,
    help="Measure again all that the run has measured; with --rebuild, of what that names.",
)
@click.option(
    "--tolerance", type=float, default=1e-6, show_default=True, help="Relative, for --recompute."
)
@click.option(
    "--origins",
    is_flag=True,
    help="Verify phases, and the runs that made the given models, too; and with the options above.",
)
@click.option("--head", metavar="HASH", help="A chain head noted elsewhere: a report, a card.")
@click.option("--no-record", is_flag=True, help="Leave the log as it is: the check is not recorded.")
@json_option
def verify_command(
    target: str | None,
    everything: bool,
    rebuild: str | None,
    recompute: bool,
    tolerance: float,
    origins: bool,
    head: str | None,
    no_record: bool,
    as_json: bool,
) -> None:
    """Check a run, an archive, a champion's folder, or another stream: users, queue, models.

    Exit code 1 if something is wrong, 3 if nothing is and something could not be checked. Without
    options: the hash chain, every event, every decision, the result, and cached weights. An archive
    needs no database. A folder is compared with its own recipe and with its run.

    A check of a run of this log is recorded beside the run's history, with its outcome and the user:
    the run's page says when the history was last found intact.

    \b
    Example:
      forge verify 20261121-3fa9c1 --rebuild champion
      forge verify 20261121-3fa9c1 --recompute
      forge verify 20261121-3fa9c1 --origins --recompute
      forge verify run.forge
      forge verify users
      forge verify --all
    """
    if (target is None) != everything:
        raise click.UsageError("name what to verify, or give --all for every stream of the log.")
    if target is None:
        _refuse_for_all(rebuild, recompute or origins, head)
        _verify_all(as_json, not no_record)
        return
    path = Path(target)
    if origins and path.is_file():
        raise click.UsageError("--origins is for a run of this log: an archive holds one run alone.")
    _check(path, rebuild, tolerance, head)
    report = _report(path, target, head)
    choice = _Again(rebuild, tolerance if recompute else None)
    if choice:
        _make_again(report, choice, origins)
    if origins:
        _origins(report, choice)
    if not (no_record or path.exists()) and "decisions" in report["checks"]:
        _record(report, choice.tolerance)
    _tell(report, as_json)


def _report(path: Path, target: str, head: str | None) -> Json:
    """Return the report of a folder, an archive, or a stream of the log, with its findings."""
    if path.is_dir():
        return folder(path)
    return archive(path) if path.is_file() else stream(target, head)


def _record(report: Json, tolerance: float | None = None) -> None:
    """Record the check of a run; only print a warning if the log cannot be written."""
    from agent_forge.events import EventsError
    from agent_forge.runs.errors import ForgeError
    from agent_forge.worker.tasks import verify_run

    try:
        with closing(home().open_store()) as store:
            verify_run.record(store, report, tolerance=tolerance)
    except (EventsError, ForgeError) as error:
        click.echo(f"warning: the check is not recorded: {visible(str(error))}", err=True)


def _refuse_for_all(rebuild: str | None, recompute: bool, head: str | None) -> None:
    if rebuild is not None or recompute or head is not None:
        raise click.UsageError(
            "--rebuild, --recompute, --origins and --head are for one run: leave out --all."
        )


def _check(path: Path, rebuild: str | None, tolerance: float, head: str | None) -> None:
    """Raise UsageError for a negative `tolerance`, an empty `rebuild` or an unusable `head`."""
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise click.UsageError("--tolerance is a number, 0 or more.")
    if rebuild == "":
        raise click.UsageError("--rebuild takes a candidate's id, champion or all.")
    if head is not None and path.exists():
        raise click.UsageError("--head is for a run: archives and folders hold their own.")
    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head):
        raise click.UsageError("--head is a hash: 64 hexadecimal digits.")


def _verify_all(as_json: bool, recorded: bool) -> None:
    """Verify every stream of the log and print lines and findings; exit with 1 or 3 as `_tell`."""
    with closing(home().open_store()) as store:
        names = store.names()
    reports = [_whole(name, recorded) for name in names]
    findings = list(dict.fromkeys(f for report in reports for f in report["findings"]))
    if as_json:
        streams = [{**r, "findings": [asdict(f) for f in r["findings"]]} for r in reports]
        emit({"ok": not _wrong(findings), "streams": streams})
    else:
        for name, report in zip(names, reports, strict=True):
            _print_stream(name, report)
        _conclude(findings)
    _exit(findings)


def _whole(name: str, recorded: bool) -> Json:
    """Return one stream's report without its state; an error of reading or folding is a finding.

    With `recorded`, the check of a run is recorded.
    """
    from agent_forge.events import EventsError, StoreUnavailableError
    from agent_forge.runs import kinds
    from agent_forge.runs.errors import ForgeError
    from agent_forge.runs.history.audit import Finding
    from agent_forge.runs.streams import run_of

    try:
        report = stream(name, None, exactly=True)
    except StoreUnavailableError:
        raise
    except (EventsError, ForgeError) as error:
        findings = [Finding("error", "events", f"the stream cannot be verified: {error}")]
        report = {"run": name, "events": 0, "head": None, "checks": [], "findings": findings}
    if recorded and kinds.is_run(name):
        _record({**report, "run": run_of(name)})
    for name_ in ("state", "rows"):
        report.pop(name_, None)
    return report


def _print_stream(name: str, report: Json) -> None:
    findings = report["findings"]
    word = "WRONG" if _wrong(findings) else "not checked" if _unchecked(findings) else "ok"
    click.echo(f"{word:11s}  {visible(name)}  {report['events']} events")
    _print_findings(findings)


@dataclass(frozen=True)
class _Again:
    """A choice of the models to make again, and of the tolerance of repeated measurements."""

    #: "all", "champion" or the beginning of an id; None: nothing is made again.
    rebuild: str | None
    #: None: nothing is measured again.
    tolerance: float | None

    def __bool__(self) -> bool:
        return self.rebuild is not None or self.tolerance is not None

    def of_origin(self, model: str) -> _Again:
        """Return the choice for an origin: `rebuild` None or "all", or else `model` or "champion"."""
        rebuild = self.rebuild if self.rebuild in (None, "all") else model or "champion"
        return _Again(rebuild, self.tolerance)


def _make_again(report: Json, choice: _Again, origins: bool) -> None:
    """Make and measure again what `choice` says; add findings. Raises UsageError, NotFoundError."""
    from agent_forge.runs import kinds

    if "decisions" not in report["checks"]:
        raise click.UsageError("--rebuild and --recompute are for a run.")
    if report["state"] is None:  # its findings say how it is damaged
        return
    if kinds.of(report["state"].kind).children is None:
        report["findings"] += _again(report, choice)
        report["checks"] += ["weights"] if choice.rebuild is not None else []
        report["checks"] += ["fitness"] if choice.tolerance is not None else []
    elif not origins:
        raise click.UsageError(
            f"run {report['run']} is a pipeline: its phases' runs make and measure. Add --origins."
        )


def _again(report: Json, choice: _Again, before: str = "") -> list[Finding]:
    """Return findings where results are not made again as recorded; `before` begins printed lines."""
    from agent_forge.runs import kinds
    from agent_forge.runs.home import Home
    from agent_forge.weights.storage.weight_cache import Artifacts
    from agent_forge.worker.tasks.verify_again import again

    def say(what: str) -> None:
        click.echo(f"{before}{what}", err=True)

    state, cache = report["state"], Artifacts.of(Home.default())
    if choice.rebuild is not None and state.started is not None:
        report["rebuilt"] = len(kinds.of(state.kind).verification.chosen(state, choice.rebuild))
    return list(again(report["rows"], cache, choice.rebuild, choice.tolerance, say))


def _origins(report: Json, choice: _Again) -> None:
    """Verify the runs that made the report's models; add findings. Raises UsageError for no run."""
    from agent_forge.runs import kinds
    from agent_forge.runs.errors import NotFoundError
    from agent_forge.runs.history.audit import Finding

    if "decisions" not in report["checks"]:
        raise click.UsageError("--origins is for a run.")
    report["checks"].append("origins")
    if report["state"] is None:
        words = "the run cannot be read, so the origins of its models were not looked for"
        report["findings"].append(Finding("unchecked", "origins", words))
        return
    done = set[tuple[str, _Again]]()

    def again(origin_report: Json, model: str) -> list[Finding]:
        run, origin_choice = origin_report["run"], choice.of_origin(model)
        if (run, origin_choice) in done or kinds.of(origin_report["state"].kind).children:
            return []
        done.add((run, origin_choice))
        try:
            return _again(origin_report, origin_choice, f"run {run}: ")
        except NotFoundError as error:
            return [Finding("unchecked", "weights", str(error))]

    check = lambda run: stream(run, None)  # noqa: E731
    names, findings = origins(report["run"], check, again if choice else None)
    report["origins"] = names
    report["findings"] += findings


def _tell(report: Json, as_json: bool) -> None:
    """Print the report and its findings; exit with code 1 for an error, 3 for an unchecked one."""
    for name in ("state", "rows"):
        report.pop(name, None)
    findings = report["findings"]
    report["ok"] = not _wrong(findings)
    if as_json:
        emit({**report, "findings": [asdict(f) for f in findings]})
    else:
        _print(report, findings)
    _exit(findings)


def _wrong(findings: list[Finding]) -> int:
    return sum(f.level == "error" for f in findings)


def _unchecked(findings: list[Finding]) -> int:
    return sum(f.level == "unchecked" for f in findings)


def _exit(findings: list[Finding]) -> None:
    if _wrong(findings):
        sys.exit(1)
    if _unchecked(findings):
        sys.exit(3)


def _print(report: Json, findings: list[Finding]) -> None:
    kind = "run   " if "decisions" in report["checks"] or not report["events"] else "stream"
    click.echo(f"{kind}  {visible(str(report['run']))}")
    if report["events"]:
        click.echo(f"events  {report['events']}, head {visible(str(report['head']))}")
    for check in dict.fromkeys(report["checks"]):
        check_findings = [f for f in findings if f.check == check]
        word = (
            "WRONG" if _wrong(check_findings) else "not checked" if _unchecked(check_findings) else "ok"
        )
        click.echo(f"{check:10s} {word}")
    if report.get("origins"):
        click.echo(f"origins are runs {visible(', '.join(report['origins']))}")
    _print_findings(findings)
    _conclude(findings)


def _print_findings(findings: list[Finding]) -> None:
    for f in findings:
        where = f" (event {f.place})" if f.place else ""
        click.echo(f"{f.level}: {f.check}: {visible(f.message)}{where}")


def _conclude(findings: list[Finding]) -> None:
    wrong = _wrong(findings)
    if wrong:
        click.echo(f"NOT verified: {wrong} finding{'s' if wrong > 1 else ''}.")
    elif _unchecked(findings):
        click.echo("nothing is wrong with what could be checked; see `unchecked` above.")
    else:
        click.echo("verified.")


#: A function that verifies a run of the log; it returns the report with the state.
Check = Callable[[str], Json]
#: A function that makes and measures again what a report's run gave under an id ("": its result); it
#: returns what it finds.
Again = Callable[[Json, str], "list[Finding]"]


def origins(run: str, check: Check, again: Again | None) -> tuple[list[str], list[Finding]]:
    """Verify every run that made a model of this one; return (ids of these runs, findings).

    `again` makes and measures again; None: nothing is.
    """
    from agent_forge.runs.home import Home

    with closing(Home.default().open_store()) as store:
        return _walk(store, run, check, again)


def _walk(
    store: EventStore, run: str, check: Check, again: Again | None
) -> tuple[list[str], list[Finding]]:
    from agent_forge.runs.history.audit import Finding

    names, findings, open_ = [], [], [(run, "")]
    reports: dict[str, Json] = {}
    while open_:
        name, model = open_.pop(0)
        if name != run and name not in reports:
            names.append(name)
            reports[name] = check(name)
            findings += [_of(name, finding) for finding in reports[name]["findings"]]
        if name != run and again is not None and reports[name]["state"] is not None:
            findings += [_of(name, finding) for finding in again(reports[name], model)]
        open_ += [
            child for child in _children(store, name) if child not in open_ and child[0] not in reports
        ]
        for digest, maker in _givers(store, name, model):
            if isinstance(maker, str):
                findings.append(Finding("error", "origins", maker))
            elif maker is None:
                words = f"no run of this log made {digest[:12]}, which run {name} was given"
                findings.append(Finding("note", "origins", words))
            elif maker not in open_:
                open_.append(maker)
    return names, list(dict.fromkeys(findings))


def _children(store: EventStore, run: str) -> list[tuple[str, str]]:
    """Return (run, "") of each completed run that is a task of a run; empty if it cannot be read."""
    from agent_forge.events import EventsError
    from agent_forge.runs.errors import ForgeError
    from agent_forge.runs.history.repository import load
    from agent_forge.runs.kinds.children import completed_children

    try:
        state = load(store, run, showing=True)
        return [(ended.child, "") for _, ended in completed_children(state)]
    except (ForgeError, EventsError):  # its own report says how it is damaged
        return []


def _of(run: str, finding: Finding) -> Finding:
    return replace(finding, check="origins", message=f"run {run}: {finding.check}: {finding.message}")


def _givers(store: EventStore, run: str, model: str) -> list[tuple[str, str | tuple[str, str] | None]]:
    """Return (digest of a given model, (run, id) that made it, None, or an error text) for each."""
    from agent_forge.events import EventsError
    from agent_forge.runs import kinds
    from agent_forge.runs.errors import ForgeError
    from agent_forge.runs.history.repository import load
    from agent_forge.runs.lists import family

    try:
        state = load(store, run, showing=True)
        ancestors = kinds.of(state.kind).models.ancestry(state, model)
    except (ForgeError, EventsError) as error:
        return [("", f"run {run}: what its models were made from cannot be read: {error}")]
    givers: list[tuple[str, str | tuple[str, str] | None]] = []
    for ancestor in ancestors:
        if not ancestor.given:
            continue
        registry_run = family.said(store, ancestor.given)
        try:
            maker = family.maker(store, run, ancestor.given)
        except (ForgeError, EventsError):  # its log is damaged: verifying it says how
            maker = (str(registry_run), "")
        if maker is None and registry_run not in (None, run):
            short_id = ancestor.given[:12]
            words = f"the registry says that run {registry_run} made {short_id}, and its log does not"
            givers.append((ancestor.given, words))
        else:
            givers.append((ancestor.given, maker))
    return givers


def stream(target: str, head: str | None, exactly: bool = False) -> Json:
    """Verify a run or another stream of this machine's log; return the report.

    `exactly`: the target is a stream's whole name, never the beginning of one.
    """
    from agent_forge.runs import kinds
    from agent_forge.runs.home import Home
    from agent_forge.runs.lists import finding
    from agent_forge.runs.streams import run_of
    from agent_forge.worker.tasks import verify_run, verify_streams

    home = Home.default()
    with closing(home.open_store()) as store:
        name = verify_streams.named(store, target)
        if name is None:
            run = run_of(target) if kinds.is_run(target) else target
            if exactly:
                return verify_run.report(home, store, run, head, target)
            return verify_run.report(home, store, finding.full_name(store, run), head)
        return _other(store, name, head)


def _other(store: EventStore, name: str, head: str | None) -> Json:
    """Verify a stream that belongs to no run: users, queue, models; return the report."""
    from agent_forge.runs.history.audit import Finding, audit_stream
    from agent_forge.worker.tasks import verify_run, verify_streams

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
        "findings": [*verify_run.lost(store), *findings],
        "state": None,
    }


def archive(path: Path) -> Json:
    """Verify an archive, without a database; return the report."""
    from agent_forge.worker.exports import archive
    from agent_forge.worker.tasks import verify_run

    return verify_run.read(*archive.inspected(path))


def folder(folder: Path) -> Json:
    """Verify a champion's folder, and its run if this machine's log has it; return the report."""
    from agent_forge.runs.errors import NotFoundError
    from agent_forge.runs.history import repository
    from agent_forge.runs.home import Home

    kind, document = _document(folder)
    report: Json = {
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
    report["findings"] += kind.verification.folder(home, folder, document, report["state"], is_logged)
    return report


def _document(folder: Path) -> tuple[Kind, Json]:
    """Return (kind of run that wrote a folder, the JSON that marks the folder). Raises DataError."""
    from agent_forge.runs import kinds
    from agent_forge.runs.errors import DataError

    for name in kinds.table():
        kind = kinds.of(name)
        document = kind.verification.document(folder)
        if document is not None:
            return kind, document
    raise DataError(f"{folder} is not a champion's folder, nor the result of another kind of run.")
