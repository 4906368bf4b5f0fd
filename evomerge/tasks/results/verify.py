"""Candidates made again: for an audit, to check or build folders, and from a recipe file without a log.

Folders of models are compared with the log file by file, or built if missing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from agent_forge.evaluation.kept_items import check_unchanged
from agent_forge.events import Envelope
from agent_forge.events.envelope import Data, Plain
from agent_forge.events.store import CODE_VERSION
from agent_forge.evomerge.merging.builder import Builder, Weights
from agent_forge.evomerge.merging.dataflow import settings_for
from agent_forge.evomerge.merging.plan import reads
from agent_forge.evomerge.merging.safetensors_sink import mapped
from agent_forge.evomerge.merging.sketch import sketch
from agent_forge.evomerge.recipes.recipe import Recipe, Source
from agent_forge.evomerge.reports import report
from agent_forge.evomerge.run.state import RunState, fold
from agent_forge.evomerge.run.views.candidates import given_sources, place
from agent_forge.evomerge.tasks.context import TOGETHER, MergeContext
from agent_forge.evomerge.tasks.execute import Context
from agent_forge.evomerge.tasks.results import champion
from agent_forge.runs.errors import ConfigError, DataError, ForgeError, SourceChangedError, SourceError
from agent_forge.runs.event_types import ModelReference, SourceRecord
from agent_forge.runs.history import repository
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Names
from agent_forge.runs.panels import report_html
from agent_forge.runs.system import bounded_files
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import (
    Checkpoint,
    digest,
    holds,
    open_checkpoint,
    publish,
    untied,
)
from agent_forge.weights.folders.made_folders import DISK_BYTES, alone, evict, touch
from agent_forge.weights.folders.sources import resolve_source
from agent_forge.weights.storage.output_folder import MARK, check_target
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.threads import set_threads


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


#: The recipe file in a champion's folder.
RECIPE_FILE = "evomerge_recipe.json"

Say = Callable[[str], None]


def rebuild(
    state: RunState, cache: Artifacts, recipe_ids: Sequence[str], say: Say
) -> Iterator[Finding]:
    """Yield a finding for each recipe whose weights, built from the sources alone, differ.

    `cache` is empty but for the inputs of runs, and takes what comes out as recorded.
    """
    assert state.started
    set_threads(state.started.profile.threads)
    bench = MergeContext(state, cache)
    try:
        bench.check_sources()
        other = bench.other_profile()
    except ForgeError as error:
        yield Finding("unchecked", "weights", f"nothing can be rebuilt: {error}")
        return
    why = f" The profile differs ({'; '.join(other)})." if other else ""
    for group in _groups(bench, recipe_ids):
        builds = _build_group(bench, group)
        for id_ in group:
            yield from _compared(bench, id_, builds[id_], why, say)


def reopened(state: RunState, cache: Artifacts) -> tuple[Context, list[str]]:
    """Return (context to measure again in, differences of its profile from the run's).

    Raises SourceChangedError, DataError, UnavailableError.
    """
    assert state.started
    set_threads(state.started.profile.threads)
    context = Context(state, cache)
    context.check_sources()
    check_unchanged(context.items, state.started.data_digest)
    return context, context.other_profile()


def _groups(bench: MergeContext, recipe_ids: Sequence[str]) -> Iterator[list[str]]:
    """Yield groups of neighbouring recipes that read the same models, as many as memory allows."""
    size = sum(t.numel() * t.element_size() for t in bench.origin.values())
    group: list[str] = []
    for id_ in recipe_ids:
        if group and (_read(bench, id_) != _read(bench, group[0]) or len(group) * size >= TOGETHER):
            yield group
            group = []
        group.append(id_)
    if group:
        yield group


def _read(bench: MergeContext, id_: str) -> frozenset[str]:
    """Return the ids of the models that a candidate's recipe reads."""
    return frozenset(reads(bench.state.recipes[id_]))


def _build_group(bench: MergeContext, group: Sequence[str]) -> dict[str, Weights | SourceChangedError]:
    """Return {id: the built weights, or the error}; sources are read once for the whole group."""
    try:
        builds = bench.builder.build_many([bench.state.recipes[id_] for id_ in group])
    except SourceChangedError as error:
        return dict.fromkeys(group, error)
    return dict(zip(group, builds, strict=True))


def _compared(
    bench: MergeContext, id_: str, build: Weights | SourceChangedError, why: str, say: Say
) -> Iterator[Finding]:
    state = bench.state
    where = f"{id_[:12]} ({place(state, id_)})"
    if isinstance(build, SourceChangedError):
        yield Finding("error", "weights", f"{where}: {build}{why}")
        return
    rebuilt_digest, (expected, sketched) = digest(build), state.built[id_]
    base = bench.builder.origin(state.recipes[id_], bench.origin)
    if rebuilt_digest == expected and sketch(build, base) != sketched:
        yield Finding("error", "weights", f"{where}: its sketch is not the one that the log says{why}")
    elif rebuilt_digest == expected:
        say(f"rebuilt {where}: digest {rebuilt_digest[:12]} as recorded")
        bench.artifacts.put(rebuilt_digest, build)
    else:
        rebuilt = rebuilt_digest[:12]
        what = f"{where} rebuilt from its recipe has digest {rebuilt}, the log says {expected[:12]}."
        yield Finding("error", "weights", what + bench.exchanged(rebuilt_digest) + why)


def artifacts(state: RunState, cache: Artifacts) -> Iterator[Finding]:
    """Yield an error for each candidate whose weights in the cache have another digest."""
    for id_, (digest_, _) in state.built.items():
        if cache.check(digest_) is False:
            what = f"the cache holds foreign or damaged weights as {digest_[:12]}"
            yield Finding("error", "artifacts", f"{what}, candidate {id_[:12]}")


def read_recipe(folder: Path) -> dict[str, object]:
    """Return the content (dict) of the recipe file in a champion's folder. Raises DataError."""
    try:
        return read_document(folder / RECIPE_FILE)
    except DataError as error:
        raise DataError(f"{folder} is not a champion's folder: {error}") from error


def read_document(file: Path) -> Plain:
    """Return the content (dict) of a recipe file, its recipes validated. Raises DataError."""
    try:
        document = bounded_files.read_object(file, error=DataError)
        content = {name: str(document[name]) for name in ("run", "candidate", "digest", "chain_head")}
        content |= {key: dict(document.get(key) or {}) for key in ("sources", "places")}
        recipe = TypeAdapter[Recipe](Recipe).validate_json
        recipes = {id_: recipe(json.dumps(d)) for id_, d in document["recipes"].items()}
        return {**content, "recipes": recipes}
    except (ValueError, LookupError, TypeError, AttributeError, DataError) as error:
        raise DataError(f"{file} cannot be read as a recipe file ({error}).") from error


def exported(weights: Weights, document: Plain, state: RunState | None) -> Iterator[Finding]:
    """Yield findings: a folder's weights against its recipe file and, if here, its run."""
    for id_, recipe in document["recipes"].items():
        if recipe.id != id_:
            yield Finding("error", "artifacts", f"recipe {id_[:12]} was changed: it has another id")
    folder_digest, recipe_digest = digest(weights), document["digest"]
    if folder_digest != recipe_digest:
        digests = folder_digest[:12], recipe_digest[:12]
        what = "the folder's weights have digest {}, its recipe file says {}".format(*digests)
        yield Finding("error", "artifacts", what)
    if state is None:
        run = document["run"]
        what = f"run {run} is not in this log: the lineage was not compared"
        yield Finding("unchecked", "result", what)
        return
    recorded = state.built.get(document["candidate"])
    if recorded is None or recorded[0] != folder_digest:
        what = f"the log of run {state.run} has no candidate with these weights under this recipe"
        yield Finding("error", "artifacts", what)


def rebuild_folder(
    file: Path, out: Path, folders: Mapping[str, str], shard_bytes: int, named: Names | None = None
) -> str:
    """Write a recipe file's candidate to `out`, check its digest, and return the digest.

    `folders`: source name → path, Hub id, or a name that `named` finds in a log. Raises ConfigError,
    SourceChangedError, DataError, and the errors of `check_target`.
    """
    out = check_target(out)
    document = read_document(file)
    recipes = document["recipes"]
    if changed := [id_ for id_, recipe in recipes.items() if recipe.id != id_]:
        raise ConfigError(f"{file}: recipe {changed[0][:12]} was changed: it has another id.")
    names = document["sources"]
    if unknown := sorted(set(folders) - set(names.values())):
        listing = ", ".join(sorted(set(names.values())))
        raise ConfigError(f"--model {unknown[0]}: the recipe's models are {listing}.")
    sources: dict[str, tuple[Checkpoint, Weights]] = {}
    for id_, recipe in recipes.items():
        if isinstance(recipe, Source):
            name = names.get(id_, id_[:12])
            where = folders.get(name) or document["places"].get(id_) or name
            sources[id_] = _open(name, where, recipe.digest, named)
    stored = {id_: weights for id_, (_, weights) in sources.items()}
    if document["candidate"] not in recipes:
        raise ConfigError(f"{file}: the recipe of {document['candidate'][:12]} is missing.")
    base = sources[_origin(recipes, document["candidate"])][0]
    publish(out, lambda folder: _fill(folder, document, stored, base, file, shard_bytes))
    return document["digest"]


def _open(name: str, where: str, expected: str, named: Names | None) -> tuple[Checkpoint, Weights]:
    """Return (a source, its weights as stored or untied, whichever has the expected digest).

    Raises ConfigError if no model is there, SourceChangedError if neither has the digest.
    """
    try:
        checkpoint = open_checkpoint(Path(resolve_source(where, named=named).path))
    except ForgeError as error:
        raise ConfigError(f"{error} Say where {name} is: --model {name}=PATH.") from error
    tensors = checkpoint.tensors()
    for weights in (tensors, untied(tensors) if checkpoint.tied else None):
        if weights is not None and digest(weights) == expected:
            return checkpoint, weights
    raise SourceChangedError(
        f"model {name} at {where} is not the one of the recipe, whose digest is {expected[:12]}. "
        f"Say where that is: --model {name}=PATH."
    )


def _origin(recipes: Mapping[str, Any], id_: str) -> str:
    """Return the id of the source whose config a candidate gets.

    It is found by following the recipe's base, or else its first input, down to a source.
    """
    recipe = recipes[id_]
    while not isinstance(recipe, Source):
        id_ = recipe.base or recipe.inputs[0]
        recipe = recipes[id_]
    return id_


def _fill(
    folder: Path,
    document: Data,
    stored: Mapping[str, Weights],
    base: Checkpoint,
    file: Path,
    shard_bytes: int,
) -> None:
    """Write the candidate, built out of core, and the files beside it into an existing folder.

    Raises SourceChangedError if the weights do not have the digest that the file says.
    """
    recipes, scratch = document["recipes"], folder / ".ancestors"
    scratch.mkdir()
    candidate = recipes[document["candidate"]]
    rebuilt_digest = Builder(recipes, stored.get, scratch).write(candidate, folder, shard_bytes)
    shutil.rmtree(scratch)
    if rebuilt_digest != document["digest"]:
        raise SourceChangedError(
            f"{file}: what its recipe gives has digest {rebuilt_digest[:12]}, it says "
            f"{document['digest'][:12]}. The file does not say which machine and "
            "libraries built the model: others may give other weights, and so does a changed file."
        )
    weights = mapped(folder)
    companions.write(base.folder, folder)
    tied = not any("lm_head" in n or "embed_out" in n for n in weights)
    config = settings_for(weights, base, tied)
    (folder / companions.CONFIG).write_text(companions.as_text(config), "utf-8")
    shutil.copyfile(file, folder / MARK)
