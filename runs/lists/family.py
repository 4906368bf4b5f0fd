"""Family of a model: its ancestors in its own run and in the earlier runs of the log that led to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agent_forge.events import EventStore
from agent_forge.runs import kinds
from agent_forge.runs.errors import AmbiguousError, NotFoundError
from agent_forge.runs.history.repository import load
from agent_forge.runs.kinds.origin import AncestorRecipe
from agent_forge.runs.lists import finding, model_registry
from agent_forge.runs.lists.finding import full_name
from agent_forge.runs.panels.panels import Edge, Graph, Node

#: The lane of what no run of the log has made.
GIVEN = "given"


class AncestorsInRun(NamedTuple):
    """A model of one run, and what it was made from in that run, the model first."""

    run: str
    ancestors: list[AncestorRecipe]
    #: BLAKE3 of the model's weights; empty for the model that was asked about.
    digest: str = ""


def family(store: EventStore, run: str, model: str = "") -> list[AncestorsInRun]:
    """Return a list of a model's AncestorsInRun, that of `run` first. Raises NotFoundError."""
    return _family(store, run, model, set())


def of_registered(store: EventStore, model: str) -> list[AncestorsInRun]:
    """Return a registered model's family; empty if no run made the model. Raises NotFoundError."""
    row = model_registry.find(store, model)
    if row["run"] is None:
        return []
    state = load(store, row["run"], showing=True)
    model_id = kinds.of(state.kind).models.recipe_id(state, row["digest"])
    return [] if model_id is None else family(store, row["run"], model_id)


def named(store: EventStore, text: str) -> list[AncestorsInRun]:
    """Return the family of what RUN (its result), RUN:MODEL, RUN/MODEL or a registered model means.

    A registered model is named by its id or name. Raises NotFoundError.
    """
    pair = finding.find(store, text)
    if pair is not None:
        return family(store, *pair)
    try:
        return of_registered(store, text)
    except AmbiguousError:
        raise
    except NotFoundError:
        return family(store, full_name(store, text))  # by the beginning of its name


def _family(
    store: EventStore, run: str, model: str, pairs: set[tuple[str, str]], digest: str = ""
) -> list[AncestorsInRun]:
    state = load(store, run, showing=True)
    kind = kinds.of(state.kind)
    ancestors = finding.looked_up(lambda name: kind.models.ancestry(state, name), model)
    result = [AncestorsInRun(run, ancestors, digest)]
    for ancestor in ancestors:
        pair = maker(store, run, ancestor.given) if ancestor.given else None
        if pair is not None and pair not in pairs:
            pairs.add(pair)
            result += _family(store, *pair, pairs, ancestor.given or "")
    return result


def by_run(generations: Sequence[AncestorsInRun]) -> dict[str, list[AncestorRecipe]]:
    """Return run → the models of the family that it made or was given, each once. Pure."""
    runs: dict[str, dict[str, AncestorRecipe]] = {}
    for generation in generations:
        models = runs.setdefault(generation.run, {})
        for ancestor in generation.ancestors:
            models.setdefault(ancestor.recipe_id, ancestor)
    return {run: list(models.values()) for run, models in runs.items()}


def tree(generations: Sequence[AncestorsInRun], lanes: Mapping[str, str]) -> Graph | None:
    """Return a graph of the models with a lane for each run; None without models.

    `lanes`: run → its name in the picture. Pure.
    """
    if not generations:
        return None
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    by_digest = {member.digest: member for member in generations if member.digest}
    for generation in generations:
        model = generation.ancestors[0]
        nodes[_id(generation)] = Node(
            id=_id(generation),
            name=model.place,
            group="model",
            says=model.words,
            ours=True,
            lane=lanes.get(generation.run, generation.run),
            run=generation.run,
        )
        behind = {a.recipe_id for a in generation.ancestors[1:]}
        for other in generations:
            if other.run == generation.run and other.ancestors[0].recipe_id in behind:
                edges.append(Edge(source=_id(other), target=_id(generation)))
        for ancestor in generation.ancestors:
            if ancestor.given and ancestor.given in by_digest:
                edges.append(Edge(source=_id(by_digest[ancestor.given]), target=_id(generation)))
            elif ancestor.given:
                leaf = Node(id=ancestor.given, name=ancestor.words, group=GIVEN, ours=True, lane=GIVEN)
                nodes.setdefault(leaf.id, leaf)
                edges.append(Edge(source=leaf.id, target=_id(generation)))
    columns = _columns(nodes, edges)
    return Graph(
        name="family",
        title="Family",
        says=f"{len(generations)} models, each in the lane of the run that made it.",
        along="column",
        nodes=tuple(n.model_copy(update={"column": columns[n.id]}) for n in nodes.values()),
        edges=tuple(edges),
    )


def _id(generation: AncestorsInRun) -> str:
    return f"{generation.run}:{generation.ancestors[0].recipe_id[:12]}"


def _columns(nodes: Mapping[str, Node], edges: Sequence[Edge]) -> dict[str, int]:
    """Return node id → column, after the columns of its sources; no column has two lanes."""
    depth = dict.fromkeys(nodes, 0)
    for _ in nodes:  # as often as the longest way has edges
        for edge in edges:
            depth[edge.target] = max(depth[edge.target], depth[edge.source] + 1)
    first: dict[str, int] = {}
    for node in nodes.values():
        first[node.lane] = min(depth[node.id], first.get(node.lane, len(nodes)))
    keys = {n.id: (first[n.lane], n.lane != GIVEN, n.lane, depth[n.id]) for n in nodes.values()}
    places = sorted(set(keys.values()))
    return {id_: places.index(key) for id_, key in keys.items()}


def maker(store: EventStore, run: str, digest: str) -> tuple[str, str] | None:
    """Return (run, recipe id) of the other run that made these weights; None if it is not known."""
    name = said(store, digest)
    if name in (None, run):
        return None
    state = load(store, name, showing=True)
    recipe_id = kinds.of(state.kind).models.recipe_id(state, digest)
    return None if recipe_id is None else (name, recipe_id)


def said(store: EventStore, digest: str) -> str | None:
    """Return the name of the run that made these weights, by the registry; None if it is not known."""
    try:
        return model_registry.find(store, model_registry.id_of(digest))["run"]
    except NotFoundError:
        return None
