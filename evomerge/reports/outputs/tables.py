"""Tables of a merging run, for notebooks and `forge export --parquet`.

Pure. The columns depend on
the run's domains and weights alone, so tables of one run always have the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from evaluation.data.outcomes import DomainOutcomes, Draw
from events import Envelope
from evomerge.reports import candidate_rows, generation_rows
from evomerge.run import budget
from evomerge.run import events as run_events
from evomerge.run.state import RunState
from runs.lists.tables import Kind, Row, Table


def generations(state: RunState, _rows: Sequence[Envelope] = ()) -> Table:
    """Return a table with one row a closed generation.

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
    """Return a table with one row a model: base, sources, baselines, and what each slot held."""
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
    """Return a table with one row an evaluation.

    A row has fitness, its parts (1 for the best source) and components, also domain by domain.
    `generation` is that of the draw; empty: the whole slice. A source's fitness is not recorded: it
    follows from the log, relative to the sources measured so far.
    """
    domains = _domains(state)
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


def _domains(state: RunState) -> list[str]:
    pools = state.started.pools if state.started else {}
    return sorted({domain for pool in pools.values() for domain in pool})


def items(state: RunState, _rows: Sequence[Envelope] = ()) -> Table:
    """Return a table with one row an item that a model was measured on.

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
