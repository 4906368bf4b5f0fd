"""Results of a compression: the file of coded weights, and folders with decoded ones.

OUT/model.forge        the file that `forge decompress` and `agent_forge.load_coded` read
OUT/README.md          the card: the curve, what was chosen, how to use it
OUT/compression.json   the report, written last
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from phases.compression import panels
from phases.compression.events import CompressionState, Encoded, Packed
from phases.compression.work import Context
from runs.errors import ForgeError, SourceError
from runs.history.audit import Finding
from runs.home import Home
from studies.making import model_files
from studies.making.making import Make
from weights.folders import companions
from weights.folders.checkpoint import SHARD_BYTES, publish, write_weights
from weights.folders.holding import holds
from weights.formats.coded_file import CodedFile
from weights.recipes import Transform
from weights.storage.output_folder import check_target, mark_of
from weights.storage.weight_cache import Artifacts

#: Name of the file of coded weights.
FILE = "model.forge"

Say = Callable[[str], None]


def write(home: Home, state: CompressionState, out: Path) -> dict[str, Any]:
    """Write file, card and report, whole or not at all; return the report.

    Raises the errors of `check_target`.
    """
    out = check_target(out)
    context, chosen = Context.opened(state, Artifacts.of(home)), state.completed.chosen
    report = panels.report(context.run)

    def fill(folder: Path) -> None:
        recipe = _recipe(state, chosen.recipe_id)
        place = context.model_of(recipe).place
        written = context.write(recipe, folder / FILE, companions.contents(place))
        if written.digest != chosen.digest:
            raise SourceError(
                f"the file decodes to {written.digest[:12]}, and the log says {chosen.digest[:12]}."
            )
        (folder / "README.md").write_text(panels.card(context.run), "utf-8")
        whole = {**report, "run": state.run, "chain_head": state.head, "digest": chosen.digest}
        (folder / mark_of("compression")).write_text(json.dumps(whole, indent=2) + "\n", "utf-8")

    publish(out, fill)
    return {**report, "run": state.run, "folder": str(out)}


def _recipe(state: CompressionState, recipe_id: str) -> Transform:
    event = state.made[recipe_id]
    assert isinstance(event, Packed)
    return event.recipe


def settle(home: Home, state: CompressionState, recipe_id: str, folders: Sequence[Path]) -> str:
    """Return a folder with a decoded model; write it into the last of `folders` if need be.

    Raises ForgeError.
    """
    digest = state.made[recipe_id].digest

    def written(place: Path) -> None:
        cache = Artifacts.of(home)
        # What the cache has needs no decoding, and so no look at the machine.
        context = Context(state, cache) if cache.files(digest) else Context.opened(state, cache)
        _publish(context, place, _recipe(state, recipe_id))

    return model_files.settled(folders, lambda place: _holds(place, digest), written)


def _publish(context: Context, place: Path, recipe: Transform) -> None:
    """Write a decoded model as an ordinary folder."""
    weights, opened = context.weights(recipe), context.model_of(recipe)

    def fill(folder: Path) -> None:
        write_weights(folder, weights, SHARD_BYTES)
        config = companions.as_text(companions.cleaned(dict(opened.model.config)))
        (folder / companions.CONFIG).write_text(config, "utf-8")
        companions.write(opened.place, folder)

    publish(place, fill)


def _holds(folder: Path, digest: str) -> bool:
    """Return True if a folder has the weights; what is beside them is written with them."""
    try:
        return holds(folder, digest)
    except (SourceError, OSError):
        return False


def files(state: CompressionState, cache: Artifacts) -> list[tuple[str, Path]]:
    """Return (name in an archive, file) of the chosen weights, made again if the cache lacks them."""
    chosen = state.completed.chosen
    recipe = _recipe(state, chosen.recipe_id)
    again = {chosen.digest: lambda: Context.opened(state, cache).weights(recipe)}
    return model_files.files(cache, again)


# ---- the part of an audit that needs weights -----------------------------------------------------


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


def _again(context: Context, event: Any, say: Say) -> Iterator[Finding]:
    """Make one result again."""
    what = f"{event.recipe.operation} {event.recipe_id[:12]}"
    assert isinstance(event, Encoded | Packed)
    try:
        repeat = context.carry_out(Make(event.recipe))
    except ForgeError as error:
        yield Finding("error", "weights", f"{what}: {error}")
        return
    luck = {"seconds", "decoding_seconds"}
    if repeat.model_dump(exclude=luck) != event.model_dump(exclude=luck):
        yield Finding("error", "weights", f"{what}: made again it is not what the log says")
    else:
        say(f"{what} again: {event.bytes:,} bytes, digest {event.digest[:12]} as recorded")


def check(
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
    file_digest, stated_digest = opened_file.header.digest, str(document.get("digest"))
    what = f"{place / FILE} decodes to {file_digest[:12]}"
    if file_digest != stated_digest:
        yield Finding(
            "error", "files", f"{what}, and the report beside it says {stated_digest[:12]}"
        )
    if state is not None and state.completed and file_digest != state.completed.chosen.digest:
        chosen = state.completed.chosen.digest
        yield Finding("error", "files", f"{what}, and the run chose {chosen[:12]}")
