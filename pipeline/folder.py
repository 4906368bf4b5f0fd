"""Folder of a pipeline's result: the last phase's result in a folder of its own, and the report.

OUT/PHASE            the folder that the phase's kind writes
OUT/pipeline.json    phases, gates, figures. It marks the folder as a pipeline's, so that an
                     interrupted writing can start again
OUT/report.md, .html the report for people
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from agent_forge.events.envelope import Plain
from agent_forge.events.store import CODE_VERSION
from agent_forge.pipeline import plan
from agent_forge.pipeline.events import PipelineState
from agent_forge.pipeline.report import gathered, markdown
from agent_forge.pipeline.view import report as reported
from agent_forge.runs import kinds
from agent_forge.runs.errors import DataError, UnavailableError
from agent_forge.runs.event_types import MadeModel
from agent_forge.runs.history import repository
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.state import State
from agent_forge.runs.panels import report_html
from agent_forge.runs.system import bounded_files
from agent_forge.weights.storage.output_folder import check_target, mark_of

#: The report, which marks the folder.
REPORT = mark_of("pipeline")

#: Bytes of the largest report that is read.
MOST_BYTES = 4 << 20
#: Name of the report for people.
MARKDOWN = "report.md"


def write(home: Home, state: PipelineState, out: Path, report: dict[str, object]) -> dict[str, object]:
    """Write the folder; return the report with `folder`. Raises the errors of `check_target`.

    If a model passed the last phase unchanged, that model's folder is copied. A phase that gives no
    models adds no folder.
    """
    out = check_target(out)
    out.mkdir(parents=True, exist_ok=True)
    whole = {**report, "chain_head": state.head, "written_by": CODE_VERSION}
    (out / REPORT).write_text(json.dumps(whole, indent=2) + "\n", "utf-8")
    put(out, documents(home, state.run, state.head))
    number = len(state.numbers)
    ended = state.ended_phase(number)
    assert ended
    if number in state.passed:
        for run, model in plan.outgoing(state, number).values():
            _copy(home, run, model, out / ended.name)
    elif ended.models:
        child = _child(home, ended.child)
        kinds.of(child.kind).write_result(home, child, out / ended.name)
    return {**report, "folder": str(out)}


def documents(home: Home, run: str, head: str | None = None) -> dict[str, bytes]:
    """Return file name → content of the Markdown and HTML reports, up to the event with hash `head`."""
    with closing(home.open_store()) as store:
        rows = list(repository.history(store, run))
        ends = [place for place, row in enumerate(rows, start=1) if row.hash == head]
        rows = rows[: ends[0]] if ends else rows
        state = repository.fold(rows)
        text = markdown(state, rows, gathered(store, state))
    page = report_html.page(text, f"Pipeline {run}")
    return {MARKDOWN: text.encode(), report_html.NAME: page}


def put(place: Path, files: Mapping[str, bytes]) -> None:
    """Write files, name → content, into a folder. Raises UnavailableError."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (place / name).write_bytes(content)
    except OSError as error:
        why = error.strerror or error
        raise UnavailableError(f"{place} cannot be written: {why}. Choose another folder.") from error


def _child(home: Home, run: str) -> State:
    with closing(home.open_store()) as store:
        return repository.load(store, run)


def _copy(home: Home, run: str, model: MadeModel, out: Path) -> None:
    """Copy the folder of a phase's model to `out`; make it first if this machine lacks it."""
    child = _child(home, run)
    model_folder = home.folder / "models" / model.digest
    folder = kinds.of(child.kind).storage.materialise(
        home, child, child.head, model.recipe_id, [model_folder]
    )
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(folder, out)


def document(folder: Path) -> dict[str, object] | None:
    """Return the report in a folder; None if there is none. Raises DataError for other JSON."""
    file = folder / REPORT
    if not file.is_file():
        return None
    try:
        report = json.loads(bounded_files.read_text(file, MOST_BYTES, DataError))
        return {**report, "run": str(report["run"]), "chain_head": str(report["chain_head"])}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is no report of a pipeline: {error}") from error


def verify(
    home: Home, folder: Path, document: dict[str, object], state: PipelineState | None
) -> Iterator[Finding]:
    """Yield a finding for each part of a folder's report or result that differs from the run."""
    if state is None:
        yield Finding("unchecked", "files", f"run {document['run']} is not in this log")
        return
    for name, value in json.loads(json.dumps(reported(state))).items():
        if document.get(name) != value:
            yield Finding("error", "files", f"{REPORT} has another {name} than the run")
    yield from _report(home, folder, document, state)
    yield from _result(home, folder, state)


def _report(home: Home, folder: Path, document: Plain, state: PipelineState) -> Iterator[Finding]:
    """Yield a finding for each report for people that differs from what the log gives.

    Reports of other versions of the program are not compared: their words may differ.
    """
    if document.get("written_by") != CODE_VERSION:
        by = document.get("written_by") or "an earlier version"
        yield Finding("unchecked", "files", f"{MARKDOWN} was written by {by}")
        return
    contents = documents(home, state.run, document["chain_head"])
    for name, content in contents.items():
        file = folder / name
        file_bytes = file.read_bytes() if file.is_file() else b""
        by = report_html.renderer(file_bytes) if name == report_html.NAME else None
        if by not in (None, report_html.RENDERER):
            yield Finding("unchecked", "files", f"{name} was rendered by {by}")
        elif file_bytes != content:
            yield Finding("error", "files", f"{name} is not what the log says")


def _result(home: Home, folder: Path, state: PipelineState) -> Iterator[Finding]:
    """Yield a finding if the result's folder lacks what the last phase gave."""
    from agent_forge.weights.folders.checkpoint import holds

    number = len(state.numbers)
    ended = state.ended_phase(number)
    if ended is None:
        return
    place = folder / ended.name
    if number in state.passed:
        for _, model in plan.outgoing(state, number).values():
            if not holds(place, model.digest):
                yield Finding("error", "files", f"{place} has not the weights {model.digest[:12]}")
        return
    child = _child(home, ended.child)
    kind = kinds.of(child.kind)
    folder_document = kind.verification.document(place) if ended.models else None
    if folder_document is not None:
        yield from kind.verification.folder(home, place, folder_document, child, True)
    elif ended.models:
        yield Finding("error", "files", f"{place} is no result of phase {ended.name}")
