"""The family of a pipeline's result as a tree of text: each model below what was made of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runs.panels.panels import Graph, Node
from runs.system.plain_text import visible


def tree(graph: Graph) -> list[str]:
    """Return lines from the newest model that goes on back to what the pipeline began with.

    A model that several others were made of stands once with all behind it, and then with `…`.
    """
    nodes = {node.id: node for node in graph.nodes}
    behind = {id_: [e.source for e in graph.edges if e.target == id_] for id_ in nodes}
    used = {edge.source for edge in graph.edges if nodes[edge.target].ours}
    ends = [n.id for n in graph.nodes if n.ours and n.id not in used]
    return [line for end in ends for line in _lines(end, nodes, behind, set(), "", "")]


def _lines(
    id_: str,
    nodes: dict[str, Node],
    behind: dict[str, list[str]],
    shown_ids: set[str],
    first: str,
    rest: str,
) -> Iterator[str]:
    """Yield a node and what is behind it; `first` stands before its line, `rest` before the others."""
    node = nodes[id_]
    again = id_ in shown_ids and bool(behind[id_])
    name = visible(" ".join(node.name.split()))
    yield f"{first}{name} ({node.group}){' …' if again else ''}"
    shown_ids.add(id_)
    if again:
        return
    sources: Sequence[str] = behind[id_]
    for number, source in enumerate(sources, start=1):
        last = number == len(sources)
        branch, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _lines(source, nodes, behind, shown_ids, rest + branch, rest + below)
