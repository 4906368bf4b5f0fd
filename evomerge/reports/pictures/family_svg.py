"""Family tree of a candidate: nodes and edges, and their picture as SVG. Pure.

The SVG is written without a library; the same family gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from agent_forge.events.envelope import Plain
from agent_forge.evomerge.recipes.recipe import closure, label, parents
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views.candidates import describe

#: Width and height of a box, and the space between two, in pixels.
BOX, ROW, GAP, DROP = 210, 44, 18, 40
#: Letters that fit into a box.
LETTERS = 29


@dataclass(frozen=True)
class FamilyNode:
    """One model of a family."""

    recipe_id: str
    #: "candidate 3/5", "baseline mean", "given".
    place: str
    #: The model in a few words.
    what: str
    #: The number of steps from the candidate, at most.
    depth: int


def family(nodes: Sequence[FamilyNode], edges: Sequence[tuple[str, str]]) -> str:
    """Return the family tree as an SVG document.

    The oldest models are at the top, the candidate at the bottom; a line leads from every parent to
    its child.
    """
    deepest = max(node.depth for node in nodes)
    rows = [[node for node in nodes if node.depth == depth] for depth in range(deepest, -1, -1)]
    width = max(len(row) for row in rows) * (BOX + GAP) + GAP
    height = len(rows) * (ROW + DROP) - DROP + 2 * GAP
    at: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = (width - len(row) * (BOX + GAP) + GAP) / 2
        for column, node in enumerate(row):
            at[node.recipe_id] = (left + column * (BOX + GAP), GAP + number * (ROW + DROP))
    lines = [_line(at[parent], at[child]) for parent, child in edges]
    boxes = [_box(node, *at[node.recipe_id]) for node in nodes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
        + "".join((*lines, *boxes))
        + "</svg>"
    )


def _line(above: tuple[float, float], below: tuple[float, float]) -> str:
    x1, y1 = above[0] + BOX / 2, above[1] + ROW
    x2, y2 = below[0] + BOX / 2, below[1]
    middle = (y1 + y2) / 2
    curve = f"M{x1:g} {y1:g}C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"
    return f'<path d="{curve}" fill="none" stroke="#999"/>'


def _box(node: FamilyNode, x: float, y: float) -> str:
    colour = "#dcebff" if node.depth == 0 else "#eeeeee" if node.place == "given" else "#ffffff"
    label = f"{node.recipe_id[:12]}  {node.place}"
    return (
        f"<g><title>{escape(node.what)}</title>"
        f'<rect x="{x:g}" y="{y:g}" width="{BOX}" height="{ROW}" rx="4" fill="{colour}" '
        f'stroke="#666"/>{_text(label, x, y + 17, "#000")}{_text(node.what, x, y + 34, "#444")}</g>'
    )


def _text(text: str, x: float, y: float, colour: str) -> str:
    shown = text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
    return f'<text x="{x + 8:g}" y="{y:g}" fill="{colour}">{escape(shown)}</text>'


def lineage(state: RunState, recipe_id: str) -> Plain:
    """Return {candidate, nodes, edges}: what the candidate was made from, and its siblings.

    Siblings are other models made from the same ones. A node's `ancestor` is False for them.
    """
    ancestors = closure(recipe_id, state.recipes)
    shown = dict.fromkeys(ancestors)
    for id_, recipe in state.recipes.items():
        if id_ not in shown and set(parents(recipe)) and set(parents(recipe)) <= set(ancestors):
            shown[id_] = None
    places = _places(state)
    nodes = [_node(state, id_, id_ in ancestors, places) for id_ in shown]
    edges = [
        {"from": parent, "to": id_}
        for id_ in shown
        for parent in dict.fromkeys(parents(state.recipes[id_]))
        if parent in shown
    ]
    return {"candidate": recipe_id, "nodes": nodes, "edges": edges}


def _places(state: RunState) -> dict[str, tuple[int, int]]:
    places: dict[str, tuple[int, int]] = {}
    for place, candidate in sorted(state.candidates.items()):
        places.setdefault(candidate.recipe_id, place)
    return places


def _node(
    state: RunState, id_: str, ancestor: bool, places: dict[str, tuple[int, int]]
) -> dict[str, object]:
    assert state.started
    recipe = state.recipes[id_]
    generation, slot = places.get(id_, (None, None))
    fitness = state.fitness((id_, "selection", None))
    if fitness is None and generation is not None:
        fitness = state.fitness((id_, "search", generation))
    names = {s.recipe_id: s.name for s in (state.started.base, *state.started.sources)}
    baseline = next((name for name, baseline_id in state.baselines.items() if baseline_id == id_), None)
    kind = "source" if id_ in names else "baseline" if baseline else None
    if id_ == state.started.base.recipe_id and not state.is_source(id_):
        kind = "base"
    candidate = (
        state.candidates[generation, slot] if generation is not None and slot is not None else None
    )
    return {
        "id": id_,
        "kind": kind or (candidate.type if candidate else recipe.kind),
        "name": names.get(id_) or baseline or label(recipe, state.recipes),
        "what": describe(state, id_, recipe),
        "generation": generation,
        "slot": slot,
        "score": fitness.scalar if fitness else None,
        "parents": list(dict.fromkeys(parents(recipe))),
        "ancestor": ancestor,
        "champion": id_ == state.champion,
    }
