"""A run in Python, for notebooks: tables, a plot, a family tree.

Reads the log and nothing else.

from evomerge import Run

run = Run("20261121-3fa9c1")
run.frame("evaluations")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from evomerge.recipes.recipe import closure, parents
from evomerge.reports import report
from evomerge.run.state import RunState
from evomerge.run.views.candidates import describe, find, place
from runs import kinds
from runs.errors import NotFoundError
from runs.lists.recorded_run import RecordedRun


class Run(RecordedRun):
    """A merging run in the log, read-only.

    It stays as it was when it was read; `refresh` reads the run again. Tables are generations,
    candidates, evaluations, items (`evomerge.reports.outputs.tables`) and events.
    """

    state: RunState

    def _read(self, name: str) -> None:
        super()._read(name)
        if not isinstance(self.state, RunState):
            title = kinds.of(self.state.kind).title
            raise NotFoundError(
                f"run {self.state.run} is {title}: agent_forge.Run reads runs of any kind."
            )

    def plot(self) -> Any:
        """Return a matplotlib Figure of fitness and diversity by generation.

        Once the run is completed, the champion's leads are beside them.
        """
        from evomerge.reports import generation_rows
        from evomerge.reports.pictures import plot

        rivals = report.rivals(self.state) if self.state.completed else []
        return plot.figure(generation_rows.rows(self.state), rivals)

    def lineage(self, candidate: str = "champion") -> Lineage:
        """Return the models that a candidate was made from, down to the sources.

        `candidate` is a recipe id, the beginning of an id, or "champion". Raises NotFoundError.
        """
        return trace(self.state, find(self.state, candidate))

    def __repr__(self) -> str:
        state = self.state
        parts = [f"Run {self.name!r}: {state.status}"]
        if state.champion is not None:
            score = state.champions[-1].score
            parts.append(f"champion {state.champion[:12]} with {score:.4f}")
        closed = len(state.generations)
        parts.append(f"{closed} generation{'' if closed == 1 else 's'}")
        return f"<{', '.join(parts)}>"


@dataclass(frozen=True)
class Node:
    """One model of a family."""

    recipe_id: str
    #: "candidate 3/5", "baseline mean", "given".
    place: str
    #: The model in a few words.
    what: str
    #: The number of steps from the candidate, at most.
    depth: int


@dataclass(frozen=True)
class Lineage:
    """A candidate's family, shown as a tree of text, in a notebook as a picture."""

    nodes: tuple[Node, ...]
    #: (parent, child), by recipe id.
    edges: tuple[tuple[str, str], ...]

    @property
    def candidate(self) -> Node:
        """The model whose family is shown."""
        return self.nodes[0]

    def __repr__(self) -> str:
        """Return a tree of text; a model with parents is drawn once, later by its id alone."""
        nodes = {node.recipe_id: node for node in self.nodes}
        lines: list[str] = []
        drawn_ids: set[str] = set()

        def tell(id_: str, first: str, rest: str) -> None:
            node = nodes[id_]
            again = id_ in drawn_ids
            drawn_ids.add(id_)
            above = [parent for parent, child in self.edges if child == id_]
            head = f"{first}{id_[:12]}"
            lines.append(f"{head}  …" if again and above else f"{head}  {node.place}: {node.what}")
            for number, parent in enumerate([] if again else above, start=1):
                last = number == len(above)
                tell(parent, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))

        tell(self.candidate.recipe_id, "", "")
        return "\n".join(lines)

    def _repr_svg_(self) -> str:
        """Return the family as SVG: the oldest models at the top, the candidate at the bottom."""
        from evomerge.reports.pictures.family_svg import family

        return family(self.nodes, self.edges)


def trace(state: RunState, recipe_id: str) -> Lineage:
    """Return the family of a recipe: first the recipe, then its ancestors, the nearest first."""
    everybody = closure(recipe_id, state.recipes)
    edges = tuple(
        (parent, child)
        for child, recipe in everybody.items()
        for parent in dict.fromkeys(parents(recipe))
    )
    depth = {recipe_id: 0}
    for child in reversed(everybody):  # children before their parents
        for parent, other in edges:
            if other == child:
                depth[parent] = max(depth.get(parent, 0), depth[child] + 1)
    ids = sorted(everybody, key=lambda id_: (depth[id_], list(everybody).index(id_)))
    nodes = tuple(
        Node(id_, place(state, id_), describe(state, id_, everybody[id_]), depth[id_])
        for id_ in ids
    )
    return Lineage(nodes, edges)
