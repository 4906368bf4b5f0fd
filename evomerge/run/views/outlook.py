"""Outlook of a merging run: progress and remaining time; and the places at which generations end.

A rehearsal counts the run's tasks, and its log gives their prices. The outlook is for people; no
decision depends on it. The count is an upper bound: early stopping and an early end of the run make
it smaller.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from agent_forge.evaluation.data.slices import Slice
from agent_forge.events import Envelope
from agent_forge.evomerge.run import state as budget
from agent_forge.evomerge.run.events import DiversityMeasured, GenerationCompleted
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views.dry_run import WorkTally
from agent_forge.runs.errors import ForgeError, NotFoundError
from agent_forge.runs.history.repository import end_of_append
from agent_forge.runs.kinds.view import Outlook, UnderWay

SLICES: tuple[Slice, ...] = ("search", "selection", "test")


def outlook(state: RunState, tally: WorkTally | None, under_way: UnderWay = ()) -> Outlook:
    """Return the run's `Outlook`: tasks done, all tasks, share done, seconds left.

    `tally`: the run's rehearsal. `under_way`: tasks that devices work on, with seconds since the start.
    """
    done = counted(state)
    if state.completed:
        return Outlook(done.total(), done.total(), 1.0, 0.0)
    if tally is None or state.started is None:
        return Outlook(done.total(), None, _by_generations(state), None)
    left = _left(state, tally, done)
    of = done.total() + left.total()
    prices = _prices(state)
    if any(kind not in prices for kind in left):
        return Outlook(done.total(), of, done.total() / of, None, bound=True)
    ahead = math.fsum(count * prices[kind] for kind, count in left.items())
    begun = math.fsum(min(seconds, prices.get(_kind(task), 0.0)) for task, seconds in under_way)
    ahead -= min(ahead, begun)
    spent = state.spent.device + begun
    share = spent / (spent + ahead) if spent + ahead else 1.0
    return Outlook(done.total(), of, share, ahead / max(1, len(under_way)), bound=True)


def counted(state: RunState) -> Counter[str]:
    """Return {kind: number of done tasks}; the rehearsal names the kinds alike."""
    done = Counter({"start": int(state.started is not None), "layers": len(state.layers)})
    done["profile"] = int(state.profiled is not None)
    done["build"] = len(state.candidates) + len(state.baselines)
    done.update(f"evaluate {slice_}" for _, slice_, _ in state.evaluations)
    return +done


def _left(state: RunState, tally: WorkTally, done: Mapping[str, int]) -> Counter[str]:
    """Return {kind: number of open tasks}; after the search only tests are left."""
    counts = Counter({kind: n for kind, n in tally.tasks.items() if n > done.get(kind, 0)})
    if state.converged:
        counts = Counter({k: n for k, n in counts.items() if k == "evaluate test"})
    return +Counter({kind: count - done.get(kind, 0) for kind, count in counts.items()})


def _prices(state: RunState) -> dict[str, float]:
    """Return {kind: seconds of a task by the log}; kinds without a price are missing."""
    prices = {"start": 0.0, "profile": 0.0}
    if state.candidates:
        prices["build"] = fmean(built.seconds for built in state.candidates.values())
        if state.generations and not state.layers:  # generation 0 had no task of this kind
            prices["layers"] = 0.0
    if state.layers:
        prices["layers"] = fmean(chosen.seconds for chosen in state.layers.values())
    events = list(state.evaluations.values())
    items = sum(budget.items(event.outcomes) for event in events)
    if items:
        each = math.fsum(event.seconds for event in events) / items
        prices |= {f"evaluate {s}": each * _size(state, s) for s in SLICES}
    return prices


def _size(state: RunState, slice_: Slice) -> int:
    """Return the number of items of an evaluation on a slice."""
    draws = state.draws(slice_, 0 if slice_ == "search" else None)
    return sum(len(d.windows) + len(d.questions) + len(d.problems) for d in draws.values())


def _kind(task: str) -> str:
    kind, _, rest = task.partition("/")
    kinds = {"baseline": "build", "evaluate": f"evaluate {rest.partition('/')[0]}"}
    return kinds.get(kind, kind)


def _by_generations(state: RunState) -> float | None:
    """Return the share done, 0 to 1: of generations, or of `budget_hours` if that is larger."""
    if state.submitted is None or state.started is None:
        return 0.0
    config = state.submitted.config
    share = len(state.generations) / (config.generations + 1)
    if config.budget_hours is not None:
        share = max(share, state.spent.wall / (budget.SECONDS * config.budget_hours))
    return min(1.0, share)


def rehearsable(state: RunState, most: int = 2000) -> bool:
    """Return True if a started run wants at most `most` candidates: its rehearsal takes seconds."""
    if state.submitted is None or state.started is None:
        return False
    config = state.submitted.config
    return (config.generations + 1) * config.search.population_size <= most


def rehearsed(state: RunState) -> WorkTally | None:
    """Return the run's rehearsal, a `WorkTally`; None if this version cannot decide the run."""
    from agent_forge.evomerge.run.views.dry_run import rehearse

    assert state.submitted
    assert state.started
    try:
        return rehearse(state.submitted, state.started)
    except ForgeError:
        return None


def before_close(rows: Sequence[Envelope], generation: int) -> int:
    """Return the index in `rows` of the first row that closes a generation. Raises NotFoundError."""
    for index, row in enumerate(rows):
        if row.type == DiversityMeasured.type and row.key.split("/")[2:3] == [str(generation)]:
            return index
    raise NotFoundError(_no_generation(rows, generation))


def after_close(rows: Sequence[Envelope], generation: int) -> int:
    """Return the index in `rows` after those that close a generation. Raises NotFoundError."""
    return end_of_append(rows, before_close(rows, generation))


def _no_generation(rows: Sequence[Envelope], generation: int) -> str:
    closed = sum(row.type == GenerationCompleted.type for row in rows)
    if not closed:
        return f"generation {generation} is not complete: no generation is yet."
    return f"generation {generation} is not complete: generations 0 to {closed - 1} are."
