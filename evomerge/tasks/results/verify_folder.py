"""Folders of a merging run's models: compared with the log file by file, or built if missing.

`forge verify FOLDER` uses the comparison.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_forge.events import Envelope
from agent_forge.events.envelope import Plain
from agent_forge.events.store import CODE_VERSION
from agent_forge.evomerge.merging.builder import Weights
from agent_forge.evomerge.reports import report
from agent_forge.evomerge.run.state import RunState, fold
from agent_forge.evomerge.run.views.candidates import given_sources
from agent_forge.evomerge.tasks.results import champion
from agent_forge.runs.errors import ForgeError, SourceError
from agent_forge.runs.event_types import ModelReference, SourceRecord
from agent_forge.runs.history import repository
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.home import Home
from agent_forge.runs.panels import report_html
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import holds, open_checkpoint
from agent_forge.weights.folders.made_folders import DISK_BYTES, alone, evict, touch
from agent_forge.weights.storage.weight_cache import Artifacts


def check(home: Home, folder: Path, document: Plain, weights: Weights) -> Iterator[Finding]:
    """Yield findings on a folder's files that differ from those that its run would have written.

    `document` is the folder's recipe file, `weights` are the folder's weights. Pictures are not
    compared; a folder of an earlier version has no report.html.
    """
    with closing(home.open_store()) as store:
        rows = every = list(repository.history(store, document["run"]))
    heads = [row.hash for row in rows]
    if document["chain_head"] not in heads:
        return  # the comparison of chain heads reports this
    rows = rows[: heads.index(document["chain_head"]) + 1]
    state = fold(rows)
    if not state.completed or state.champion != document["candidate"]:
        return  # the comparison of candidates reports this
    data = report.report(state, rows)
    expected = champion.report_files(data)
    if (page := _content(folder / report_html.NAME)) is not None:
        expected[report_html.NAME] = champion.report_page(data, report_html.embedded(page))
    try:
        expected |= documents(home, state, document["candidate"], weights, document["chain_head"])
    except ForgeError as error:
        what = f"config and tokenizer cannot be compared: {error}"
        yield Finding("unchecked", "files", what)
    for name, content in sorted(expected.items()):
        if (actual_content := _content(folder / name)) == _plain(name, content):
            continue
        if why := _incomparable(name, actual_content, state, every):
            yield Finding("unchecked", "files", f"{name} of the folder cannot be compared: {why}")
            continue
        what = "is missing" if actual_content is None else "is not what the run wrote"
        yield Finding("error", "files", f"{name} of the folder {what}")
    for name in sorted(set(companions.found(folder)) - set(expected)):
        if companions.CONFIG in expected:
            yield Finding("error", "files", f"{name} of the folder was not written by the run")


def taken_over(folder: Path, files: dict[str, bytes]) -> bool:
    """Return True if a folder's config, tokenizer and templates are those in `files`."""
    names = {name for name in files if name in (companions.CONFIG, *companions.COMPANIONS)}
    try:
        if set(companions.found(folder)) != names:
            return False
    except SourceError:
        return False
    return all(_content(folder / name) == _plain(name, files[name]) for name in names)


def _incomparable(name: str, content: Any, state: RunState, rows: Sequence[Envelope]) -> str:
    """Return the reason why an unchanged file may differ from ours; '' if it must be equal.

    Other versions of this program, of transformers or of the renderer of Markdown may write a file
    differently. The pinned files are copied as they are. `content` is the file's content.
    """
    from transformers import __version__ as library

    assert state.started
    if name in state.started.base.files:
        return ""
    for row in rows:
        if row.code_version != CODE_VERSION:
            return f"the run is of {row.code_version}, and this is {CODE_VERSION}."
    then = state.started.profile.transformers
    if name == champion.GENERATION and then != library:
        return f"the run had transformers {then}, and here is {library}."
    if name == report_html.NAME:
        renderer = report_html.renderer(content)
        if renderer not in (None, report_html.RENDERER):
            return f"it was rendered by {renderer}, and here is {report_html.RENDERER}."
    return ""


def documents(
    home: Home, state: RunState, recipe_id: str, weights: Weights, chain_head: str
) -> dict[str, bytes]:
    """Return {name: content} of a candidate's files beside its weights, as the run writes them.

    Raises ForgeError if the run pinned no copy of the base.
    """
    assert state.started
    assert state.submitted
    if not state.started.base.model:
        raise ForgeError("the run is of a version that did not pin them.")
    reference = state.submitted.base or state.submitted.sources[0]
    place = Artifacts.of(home).supply.model(reference, state.started.base)
    return champion.documents(state, recipe_id, open_checkpoint(place), weights, chain_head)


def _content(file: Path) -> Any:
    return _plain(file.name, file.read_bytes()) if file.is_file() else None


def _plain(name: str, content: bytes) -> object:
    """Return the content to compare: of generation settings all but `transformers_version`."""
    if name != champion.GENERATION:
        return content
    try:
        settings = json.loads(content)
    except ValueError:
        return content
    return {k: v for k, v in settings.items() if k != "transformers_version"}


def materialise(home: Home, state: RunState, head: str, recipe_id: str, folders: Sequence[Path]) -> str:
    """Return the path of a folder with a run's model, built into the last of `folders` if need be.

    `head` is the head of the run's chain. Raise ForgeError.
    """
    target, digest = folders[-1], state.built[recipe_id][0]
    for folder in folders:
        if _fits(home, state, head, recipe_id, digest, folder):
            if folder == target:
                touch(target)
            return str(folder.resolve())
    sources = given_sources(state, recipe_id)
    if sources and sources[0][1].model:
        return str(_own_copy(home, *sources[0]))
    target.parent.mkdir(parents=True, exist_ok=True)
    with alone(target.parent / f".{target.name[:16]}.lock"):
        if not _fits(home, state, head, recipe_id, digest, target):  # another may have built it
            champion.write(state, Artifacts.of(home), recipe_id, target, head)
    evict(target.parent, DISK_BYTES, lambda place: shutil.rmtree(place, ignore_errors=True))
    return str(target)


def _fits(home: Home, state: RunState, head: str, recipe_id: str, digest: str, folder: Path) -> bool:
    """Return True if a folder has the weights and the run's config and tokenizer.

    A source must have the files that the run pinned, a merge the files that the run writes. A model
    of a run that pinned no files is checked by its weights alone.
    """
    if not holds(folder, digest):
        return False
    assert state.started
    if not state.started.base.model:
        return True
    if sources := given_sources(state, recipe_id):
        return _digests(folder) in [record.files for _, record in sources]
    weights = open_checkpoint(folder).tensors()
    return taken_over(folder, documents(home, state, recipe_id, weights, head))


def _digests(folder: Path) -> dict[str, str] | None:
    """Return {name: digest} of a folder's companion files; None if they cannot be read."""
    try:
        return companions.digests(folder)
    except (SourceError, OSError):
        return None


def _own_copy(home: Home, reference: ModelReference, pinned: SourceRecord) -> Path:
    """Return the path of this machine's copy of a source, as the run pinned it. Raise ForgeError."""
    supply = Artifacts.of(home).supply
    place = supply.model(reference, pinned)
    if holds(place, pinned.digest):
        return place
    supply.forget(place)  # the copy is damaged: the next call makes or fetches another
    return supply.model(reference, pinned)
