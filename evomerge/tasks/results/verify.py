"""The part of an audit that needs weights: rebuild candidates, measure them again, check files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from evomerge.merging.builder import Weights
from evomerge.merging.plan import reads
from evomerge.recipes.recipe import Recipe, Source
from evomerge.run import events
from evomerge.run.state import RunState
from evomerge.run.tasks import Evaluate
from evomerge.run.views.candidates import find, place
from evomerge.tasks.context import TOGETHER, Bench
from evomerge.tasks.execute import carry_out
from runs.errors import DataError, ForgeError, SourceChangedError, UnavailableError
from runs.history.audit import Finding
from runs.system import bounded_files
from weights.folders.checkpoint import digest
from weights.storage.inputs import Supply
from weights.storage.weight_cache import Artifacts
from weights.threads import set_threads

#: The recipe file in a champion's folder.
RECIPE_FILE = "evomerge_recipe.json"

Say = Callable[[str], None]


def chosen(state: RunState, which: str) -> list[str]:
    """Return the recipe ids that "all", "champion" or the beginning of an id means.

    "all" means every built candidate but no source, in order of history.
    """
    if which == "all":
        return [id_ for id_ in state.built if not isinstance(state.recipes[id_], Source)]
    return [find(state, which)]


def rebuild(
    state: RunState,
    recipe_ids: Sequence[str],
    tolerance: float | None,
    say: Say,
    supply: Supply | None = None,
) -> Iterator[Finding]:
    """Build each recipe from the sources alone, without the cache; yield a finding if digests differ.

    With a tolerance, also measure each candidate again on every draw that it was measured on, and
    compare the numbers. `supply` gives models and data that are no longer at their old place.
    """
    set_threads()
    with tempfile.TemporaryDirectory() as empty:
        artifacts = Artifacts(Path(empty))
        artifacts.supply = supply or artifacts.supply
        bench = Bench(state, artifacts)
        try:
            bench.check_sources()
            other = bench.other_profile()
        except ForgeError as error:
            yield Finding("unchecked", "weights", f"nothing can be rebuilt: {error}")
            return
        why = f" The profile differs ({'; '.join(other)})." if other else ""
        for group in _groups(bench, recipe_ids):
            made = _built(bench, group)
            for id_ in group:
                yield from _compared(bench.state, id_, made[id_], why, say)
                if tolerance is not None:
                    yield from _measured_again(bench, id_, tolerance, say)


def _groups(bench: Bench, recipe_ids: Sequence[str]) -> Iterator[list[str]]:
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


def _read(bench: Bench, id_: str) -> frozenset[str]:
    """Return the ids of the models that a candidate's recipe reads."""
    return frozenset(reads(bench.state.recipes[id_]))


def _built(bench: Bench, group: Sequence[str]) -> dict[str, str | SourceChangedError]:
    """Return id → the digest of the built weights, or the error if they cannot be built.

    Sources are read once for the whole group.
    """
    try:
        made = bench.builder.build_many([bench.state.recipes[id_] for id_ in group])
    except SourceChangedError as error:
        return dict.fromkeys(group, error)
    return dict(zip(group, map(digest, made), strict=True))


def _compared(
    state: RunState, id_: str, found: str | SourceChangedError, why: str, say: Say
) -> Iterator[Finding]:
    where = f"{id_[:12]} ({place(state, id_)})"
    if isinstance(found, SourceChangedError):
        yield Finding("error", "weights", f"{where}: {found}{why}")
        return
    expected = state.built[id_][0]
    if found == expected:
        say(f"rebuilt {where}: digest {found[:12]} as recorded")
        return
    what = f"{where} rebuilt from its recipe has digest {found[:12]}, the log says {expected[:12]}."
    yield Finding("error", "weights", what + why)


def _measured_again(bench: Bench, id_: str, tolerance: float, say: Say) -> Iterator[Finding]:
    state = bench.state
    try:
        bench.packed  # noqa: B018 - the data may be gone
    except (DataError, UnavailableError) as error:
        yield Finding("unchecked", "fitness", f"nothing can be measured: {error}")
        return
    for (recipe_id, slice_, generation), recorded in state.evaluations.items():
        if recipe_id != id_:
            continue
        drawn = "the whole" if generation is None else f"generation {generation}'s draw of the"
        where = f"{id_[:12]} on {drawn} {slice_} slice"
        try:
            event = carry_out(Evaluate(recipe_id, slice_, generation), bench)
        except UnavailableError as error:
            yield Finding("unchecked", "fitness", f"{where} cannot be measured: {error}")
            continue
        assert isinstance(event, events.Evaluated)
        before, after = recorded.model_dump(mode="json"), event.model_dump(mode="json")
        sized = any(seen["bytes"] for seen in before["outcomes"].values())
        off = difference(_numbers(before, sized), _numbers(after, sized))
        if off is None or off > tolerance:
            told = "has other items" if off is None else f"is off by {off:.2g} relative"
            what = f"{where}: measured again it {told} (tolerance {tolerance:g})"
            yield Finding("error", "fitness", what)
        else:
            say(f"measured {where} again: largest relative difference {off:.2g}")


def _numbers(event: dict[str, Any], sized: bool) -> list[float]:
    """Return every number that was measured, in a fixed order.

    Without `sized`, leave out bytes and bits per byte: runs of an older schema did not record them.
    """

    def walk(value: Any) -> Iterator[float]:
        if isinstance(value, dict):
            for key in sorted(value):
                yield from walk(value[key])
        elif isinstance(value, list):
            for item in value:
                yield from walk(item)
        elif isinstance(value, int | float):
            yield float(value)

    outcomes, measured = event["outcomes"], event["components"]
    if not sized:
        outcomes = {domain: {**seen, "bytes": []} for domain, seen in outcomes.items()}
        measured = measured and {**measured, "bits_per_byte": None}
    return list(walk([outcomes, measured]))


def difference(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return the largest |a − b| / max(|a|, |b|); None if `a` and `b` differ in length."""
    if len(a) != len(b):
        return None
    pairs = ((abs(x - y), max(abs(x), abs(y))) for x, y in zip(a, b, strict=True))
    return max((d / m for d, m in pairs if m), default=0.0)


def artifacts(state: RunState, cache: Artifacts) -> Iterator[Finding]:
    """Yield an error for each of the run's candidates whose cached files have another digest."""
    for id_, (digest_, _) in state.built.items():
        if cache.check(digest_) is False:
            what = f"the cache holds foreign or damaged weights as {digest_[:12]}"
            yield Finding("error", "artifacts", f"{what}, candidate {id_[:12]}")


def read_recipe(folder: Path) -> dict[str, Any]:
    """Return the recipe file of a champion's folder. Raises DataError."""
    try:
        return read_document(folder / RECIPE_FILE)
    except DataError as error:
        raise DataError(f"{folder} is not a champion's folder: {error}") from error


def read_document(file: Path) -> dict[str, Any]:
    """Return the content of a recipe file, its recipes validated. Raises DataError."""
    try:
        document = bounded_files.read_object(file, error=DataError)
        told = {name: str(document[name]) for name in ("run", "candidate", "digest", "chain_head")}
        told |= {key: dict(document.get(key) or {}) for key in ("sources", "places")}
        return {**told, "recipes": _recipes(document["recipes"])}
    except (ValueError, LookupError, TypeError, AttributeError, DataError) as error:
        raise DataError(f"{file} cannot be read as a recipe file ({error}).") from error


def _recipes(documents: dict[str, Any]) -> dict[str, Recipe]:
    adapter: TypeAdapter[Recipe] = TypeAdapter(Recipe)
    return {id_: adapter.validate_json(json.dumps(d)) for id_, d in documents.items()}


def exported(
    weights: Weights, document: dict[str, Any], state: RunState | None
) -> Iterator[Finding]:
    """Compare a folder's weights with its recipe file and, if this log has the run, with the run."""
    for id_, recipe in document["recipes"].items():
        if recipe.id != id_:
            yield Finding("error", "artifacts", f"recipe {id_[:12]} was changed: it has another id")
    found, said = digest(weights), document["digest"]
    if found != said:
        what = f"the folder's weights have digest {found[:12]}, its recipe file says {said[:12]}"
        yield Finding("error", "artifacts", what)
    if state is None:
        run = document["run"]
        what = f"run {run} is not in this log: the lineage was not compared"
        yield Finding("unchecked", "result", what)
        return
    recorded = state.built.get(document["candidate"])
    if recorded is None or recorded[0] != found:
        what = f"the log of run {state.run} has no candidate with these weights under this recipe"
        yield Finding("error", "artifacts", what)
