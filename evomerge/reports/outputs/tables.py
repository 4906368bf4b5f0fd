"""Tables of a merging run for notebooks and `forge export --parquet`, and a run to read in Python.

The columns depend on the run's domains and weights alone, so tables of one run always have the same
columns. A `Run` reads the log and nothing else:

    from evomerge import Run

    run = Run("20261121-3fa9c1")
    run.frame("evaluations")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import override

from agent_forge.evaluation.data.outcomes import DomainOutcomes, Draw
from agent_forge.events import Envelope
from agent_forge.evomerge.recipes.recipe import closure, parents
from agent_forge.evomerge.reports import candidate_rows, generation_rows, report
from agent_forge.evomerge.reports.pictures.family_svg import FamilyNode, family
from agent_forge.evomerge.run import events as run_events
from agent_forge.evomerge.run import state as budget
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views.candidates import describe, find, place
from agent_forge.runs import kinds
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.lists.recorded_run import RecordedRun
from agent_forge.runs.lists.tables import Kind, Row, Table


def generations(state: RunState, _rows: Sequence[Envelope] = ()) -> Table:
    """Return a `Table` with one row for each closed generation.

    Best and mean are on the generation's own draw, the champion on the selection slice.
    Evaluations, items and seconds are what the run had spent when the generation was closed.
    """
    columns: dict[str, Kind] = {
        "generation": "int",
        "best": "float",
        "mean": "float",
        "champion": "float",
        "champion_id": "text",
        "diversity": "float",
        "level": "text",
        "evaluations": "int",
        "items": "int",
        "device_seconds": "float",
        "wall_seconds": "float",
    }
    return Table(columns, generation_rows.rows(state, generation_rows.SPENT))


def candidates(state: RunState, _rows: Sequence[Envelope] = ()) -> Table:
    """Return a `Table` with one row for each model: base, sources, baselines, and each slot's."""
    columns: dict[str, Kind] = {
        "recipe_id": "text",
        "kind": "text",
        "name": "text",
        "generation": "int",
        "slot": "int",
        "pipeline": "text",
        "technique": "text",
        "parents": "texts",
        "digest": "text",
        "rank": "int",
        "search": "float",
        "selection": "float",
        "champion": "bool",
        "recipe": "text",
    }
    models = (*candidate_rows.given(state), *candidate_rows.slots(state))
    return Table(columns, [candidate_rows.row(model, tuple(columns)) for model in models])


#: Components that are a number, in the order of their columns.
_COMPONENTS = (
    "perplexity",
    "next_token_accuracy",
    "choice_accuracy",
    "solved",
    "accuracy",
    "bits_per_byte",
    "flops",
    "bytes",
)


def evaluations(state: RunState, _rows: Sequence[Envelope] = ()) -> Table:
    """Return a `Table` with one row for each evaluation of a model.

    A row has fitness, its parts (1 for the best source) and components, also domain by domain.
    `generation` is that of the draw; empty: the whole slice. A source's fitness is not recorded: it
    follows from the log, relative to the sources measured so far.
    """
    pools = state.started.pools if state.started else {}
    domains = sorted({domain for pool in pools.values() for domain in pool})
    weights = state.submitted.config.fitness_weights.parts if state.submitted else {}
    columns: dict[str, Kind] = {
        "recipe_id": "text",
        "slice": "text",
        "generation": "int",
        "fitness": "float",
        "quality": "float",
    }
    columns |= {f"part/{name}": "float" for name in weights}
    columns |= dict.fromkeys(_COMPONENTS, "float")
    columns |= {f"perplexity/{d}": "float" for d in domains}
    columns |= {f"accuracy/{d}": "float" for d in domains}
    columns |= {"items": "int", "stopped": "text", "why_none": "text", "seconds": "float"}

    def rows() -> Iterator[Row]:
        for event in state.evaluations.values():
            yield dict.fromkeys(columns) | _evaluation(state, event)

    return Table(columns, list(rows()))


def _evaluation(state: RunState, event: run_events.Evaluated) -> Row:
    fitness = state.fitness((event.recipe_id, event.slice, event.generation))
    row: Row = {
        "recipe_id": event.recipe_id,
        "slice": event.slice,
        "generation": event.generation,
        "items": budget.items(event.outcomes),
        "stopped": event.stopped,
        "why_none": event.why_none,
        "seconds": event.seconds,
    }
    if fitness is not None:
        row |= {"fitness": fitness.scalar, "quality": fitness.quality}
        row |= {f"part/{name}": value for name, value in fitness.normalised.items()}
    if event.components is not None:
        measured = event.components
        row |= {name: getattr(measured, name) for name in _COMPONENTS}
        row |= {f"perplexity/{d}": value for d, value in measured.domains.items()}
        row |= {f"accuracy/{d}": value for d, value in measured.accuracies.items()}
    return row


def items(state: RunState, _rows: Sequence[Envelope] = ()) -> Table:
    """Return a `Table` with one row for each item of each evaluation of a model.

    `value` is −log p of a window (nats), 1 or 0 for a question, 0 to 1 for a problem; `item` is the
    item's place among those of its kind and domain in the slice.
    """
    columns: dict[str, Kind] = {
        "recipe_id": "text",
        "slice": "text",
        "generation": "int",
        "domain": "text",
        "kind": "text",
        "item": "int",
        "value": "float",
        "tokens": "int",
        "hits": "int",
        "bytes": "int",
        "chance": "float",
    }
    return Table(columns, _items(state))


def _items(state: RunState) -> Iterator[Row]:
    for event in state.evaluations.values():
        if not event.outcomes:
            continue
        draws = event.scored or state.draws(event.slice, event.generation)
        for domain, outcome in event.outcomes.items():
            key = {
                "recipe_id": event.recipe_id,
                "slice": event.slice,
                "generation": event.generation,
                "domain": domain,
            }
            yield from (key | row for row in _outcomes(outcome, draws[domain]))


def _outcomes(outcome: DomainOutcomes, draw: Draw) -> Iterator[Row]:
    nothing = dict.fromkeys(("tokens", "hits", "bytes", "chance"))
    sizes = outcome.bytes or (None,) * len(outcome.nll)
    windows = zip(draw.windows, outcome.nll, outcome.tokens, outcome.hits, sizes, strict=True)
    for item, nll, tokens, hits, size in windows:
        more = {"tokens": tokens, "hits": hits, "bytes": size, "chance": None}
        yield {"kind": "window", "item": item, "value": nll, **more}
    for item, right, chance in zip(draw.questions, outcome.right, outcome.chance, strict=True):
        yield {"kind": "question", "item": item, "value": float(right), **nothing, "chance": chance}
    for item, solved in zip(draw.problems, outcome.solved, strict=True):
        yield {"kind": "problem", "item": item, "value": solved, **nothing}


#: Name → the function that makes the table from a state and its rows.
OWN: dict[str, Callable[[RunState, Sequence[Envelope]], Table]] = {
    "generations": generations,
    "candidates": candidates,
    "evaluations": evaluations,
    "items": items,
}


class Run(RecordedRun):
    """A merging run in the log, read-only.

    It stays as it was when it was read; `refresh` reads the run again. Tables are generations,
    candidates, evaluations, items (`evomerge.reports.outputs.tables`) and events.
    """

    state: RunState

    @override
    def _read(self, name: str) -> None:
        super()._read(name)
        if not isinstance(self.state, RunState):
            title = kinds.of(self.state.kind).title
            raise NotFoundError(
                f"run {self.state.run} is {title}: agent_forge.Run reads runs of any kind."
            )

    def plot(self) -> object:
        """Return a matplotlib Figure of fitness and diversity by generation.

        Once the run is completed, the champion's leads are beside them.
        """
        from agent_forge.evomerge.reports import generation_rows
        from agent_forge.evomerge.reports.pictures import plot

        rivals = report.rivals(self.state) if self.state.completed else []
        return plot.figure(generation_rows.rows(self.state), rivals)

    @override
    def lineage(self, candidate: str = "champion") -> FamilyTree:
        """Return a candidate's `FamilyTree`: the models that it was made from, down to the sources.

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
class FamilyTree:
    """A candidate's family, shown as a tree of text, in a notebook as a picture."""

    nodes: tuple[FamilyNode, ...]
    #: (parent, child), by recipe id.
    edges: tuple[tuple[str, str], ...]

    @property
    def candidate(self) -> FamilyNode:
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
        return family(self.nodes, self.edges)


def trace(state: RunState, recipe_id: str) -> FamilyTree:
    """Return the `FamilyTree` of a recipe; nodes are the recipe, then its ancestors, nearest first."""
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
        FamilyNode(id_, place(state, id_), describe(state, id_, everybody[id_]), depth[id_])
        for id_ in ids
    )
    return FamilyTree(nodes, edges)
