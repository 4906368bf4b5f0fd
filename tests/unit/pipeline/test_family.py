"""The family of a result as a tree of text."""

from __future__ import annotations

from agent_forge.pipeline.report import tree
from agent_forge.runs.panels.panels import Edge, Graph, Node


def node(id_: str, ours: bool = True) -> Node:
    return Node(id=id_, name=f"m:{id_}", group="toy", column=0, ours=ours)


def test_a_model_stands_once_with_all_behind_it() -> None:
    """Two parents of one origin; what does not go on is no root, and hides none."""
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "lost")]
    graph = Graph(
        name="family",
        title="Family",
        says="",
        nodes=(*map(node, "abcd"), node("lost", ours=False)),
        edges=tuple(Edge(source=source, target=target) for source, target in edges),
    )
    whole = graph.model_copy(update={"edges": graph.edges[:-1]})
    assert (
        tree(graph)
        == tree(whole)
        == ["m:d (toy)", "├─ m:b (toy)", "│  └─ m:a (toy)", "└─ m:c (toy)", "   └─ m:a (toy)"]
    )
    again = whole.model_copy(update={"edges": (*whole.edges, Edge(source="b", target="c"))})
    assert tree(again)[-1] == "   └─ m:b (toy) …"
