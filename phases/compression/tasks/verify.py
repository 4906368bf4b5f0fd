"""The part of an audit that needs weights: encode and decode again and compare, check files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from phases.compression.events import CompressionState, Encoded, Packed
from phases.compression.tasks.execute import Context
from phases.compression.tasks.folders import FILE
from runs.errors import ForgeError
from runs.history.audit import Finding
from studies.making import model_files
from studies.making.making import Make
from weights.formats.coded_file import CodedFile
from weights.storage.output_folder import mark_of
from weights.storage.weight_cache import Artifacts

Say = Callable[[str], None]


def rebuild(
    state: CompressionState, cache: Artifacts, ids: Sequence[str], say: Say
) -> Iterator[Finding]:
    """Make encodings and models again from the given one; yield an error for each that differs."""
    try:
        context = Context.opened(state, cache)
    except ForgeError as error:
        yield Finding("unchecked", "weights", f"nothing can be made again: {error}")
        return
    for id_ in ids:
        yield from _again(context, state.made[id_], say)


def _again(context: Context, made: Any, say: Say) -> Iterator[Finding]:
    """Make one result again."""
    what = f"{made.recipe.operation} {made.recipe_id[:12]}"
    assert isinstance(made, Encoded | Packed)
    try:
        found = context.carry_out(Make(made.recipe))
    except ForgeError as error:
        yield Finding("error", "weights", f"{what}: {error}")
        return
    luck = {"seconds", "decoding_seconds"}
    if found.model_dump(exclude=luck) != made.model_dump(exclude=luck):
        yield Finding("error", "weights", f"{what}: made again it is not what the log says")
    else:
        say(f"{what} again: {made.bytes:,} bytes, digest {made.digest[:12]} as recorded")


def cached(state: CompressionState, cache: Artifacts) -> Iterator[Finding]:
    """Yield an error for each encoding and model whose cached files have another digest."""
    return model_files.cached((made.digest for made in state.made.values()), cache)


def document(folder: Path) -> dict[str, Any] | None:
    """Return the report of a compression's folder; None if it has none. Raises DataError."""
    return model_files.document(folder, (mark_of("compression"),))


def folder(
    place: Path, document: dict[str, Any], state: CompressionState | None
) -> Iterator[Finding]:
    """Decode the file of a folder; yield an error if it is not what folder and run say."""
    if state is None:
        yield Finding("unchecked", "files", f"run {document['run']} is not in this log")
    try:
        opened_file = CodedFile(place / FILE)
        for _ in opened_file.tensors():
            pass
    except ForgeError as error:
        yield Finding("error", "files", str(error))
        return
    found, said = opened_file.header.digest, str(document.get("digest"))
    what = f"{place / FILE} decodes to {found[:12]}"
    if found != said:
        yield Finding("error", "files", f"{what}, and the report beside it says {said[:12]}")
    if state is not None and state.completed and found != state.completed.chosen.digest:
        chosen = state.completed.chosen.digest
        yield Finding("error", "files", f"{what}, and the run chose {chosen[:12]}")
