"""The part of an audit that needs weights: rebuild candidates, measure them again, check files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import TypeAdapter

from agent_forge.evaluation.kept_items import check_unchanged
from agent_forge.events.envelope import Plain
from agent_forge.evomerge.merging.builder import Weights
from agent_forge.evomerge.merging.plan import reads
from agent_forge.evomerge.merging.sketch import sketch
from agent_forge.evomerge.recipes.recipe import Recipe
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views.candidates import place
from agent_forge.evomerge.tasks.context import TOGETHER, MergeContext
from agent_forge.evomerge.tasks.execute import Context
from agent_forge.runs.errors import DataError, ForgeError, SourceChangedError
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.system import bounded_files
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.threads import set_threads

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
