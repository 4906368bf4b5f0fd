"""Outlook of a merging run: progress and remaining time; and the places at which generations end.

A rehearsal (`forge evo --dry-run`) counts the run's tasks by carrying out its decisions with invented
answers, and its log gives their prices. The outlook is for people; no decision depends on it. The count
is an upper bound: plateaus, early stopping and an early end of the run make it smaller. The number of
chosen layers, the size of a front and whether one more generation fits a budget may depend on the
answers. Budgets in hours are ignored. All of this is pure.

Checkpoint files of the documents (docs/documents.md) are not written, because every event is a
checkpoint; the name of such a file says which run and which generation are meant.
"""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np

from agent_forge.evaluation.data.outcomes import DomainOutcomes, Draw, Outcomes
from agent_forge.evaluation.data.slices import Slice
from agent_forge.events import Envelope, EventStore
from agent_forge.evomerge.recipes.recipe import Recipe
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run import state as budget
from agent_forge.evomerge.run.events import DiversityMeasured, GenerationCompleted
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.tasks import Build, BuildBaseline, ChooseLayers, Evaluate, Task
from agent_forge.runs import keys
from agent_forge.runs.errors import ForgeError, NotFoundError
from agent_forge.runs.history import repository
from agent_forge.runs.history.repository import end_of_append
from agent_forge.runs.kinds.decide import decide
from agent_forge.runs.kinds.view import Outlook, UnderWay
from agent_forge.runs.lists import queries

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


_NAME = re.compile(r"(?:.*_)?gen(?:eration)?_(\d+)\.(?:pt|json)")
#: Runs that are looked at, the newest first.
_LOOKED_AT = 200


def generation_of(text: str) -> int | None:
    """Return the generation in a checkpoint's name; None if the text names no checkpoint."""
    match = _NAME.fullmatch(Path(text).name)
    return int(match.group(1)) if match else None


def meant(store: EventStore, text: str) -> tuple[str, int | None]:
    """Return (run, generation or None) that a checkpoint of the documents means.

    The run is the newest merging run with that output folder, else the newest of all. A run that has
    not ended goes on where it is, which gives the same result as from the checkpoint: the generation
    is None. Raises NotFoundError if the text names no checkpoint, or no run has come that far.
    """
    generation = generation_of(text)
    if generation is None:
        raise NotFoundError(f"{text} names no generation: give …generation_N.pt or …_gen_N.json.")
    rows, _ = queries.page(store, _LOOKED_AT, kind=RunState.kind)
    folder = Path(text).absolute().parent.parent
    far, matches = list[RunState](), list[RunState]()
    for row in rows:
        state = repository.load_of(RunState, store, row["run"])
        closes = state.forked is not None and state.generation == generation  # as a fork's first step
        if generation in state.generations or closes:
            far.append(state)
            output = state.submitted.output_dir if state.submitted else None
            if output is not None and Path(output).absolute() == folder:
                matches.append(state)
    if not far:
        raise NotFoundError(f"no run here has come to generation {generation}, as {text} says.")
    state = (matches or far)[0]
    return state.run, generation if state.ended else None


#: Tokens of an invented window.
_TOKENS = 100


@dataclass
class WorkTally:
    """The counted work: what a run would do at most."""

    #: Kind of task → how many.
    tasks: Counter[str] = field(default_factory=Counter)
    #: windows, questions, problems → how many are scored, those of the final report included.
    items: Counter[str] = field(default_factory=Counter)
    generations: int = 0
    #: Why the search ends.
    reason: str = ""


def rehearse(submitted: events.Submitted, started: events.Started) -> WorkTally:
    """Return the `WorkTally` of a run, from its submission and from what its start found."""
    off = {"convergence_patience": 0, "gate_perplexity": 0.0, "stop_error": 0.0}
    config = submitted.config.model_copy(update=off)
    state, tally = RunState(), WorkTally()
    state.take(submitted.model_copy(update={"config": config}))
    state.take(started)
    tally.tasks["start"] += 1
    while True:
        decision = decide(state)
        for new in decision.facts:
            state.take(new.event)
        tested = False
        for task in decision.tasks:
            tally.tasks[_kind_of(task)] += 1
            state.take(_answer(task, state, tally))
            tested |= (
                isinstance(task, Evaluate) and task.recipe_id == state.champion and task.slice == "test"
            )
        if tested or state.failed:
            break
    tally.generations = len(state.generations)
    tally.reason = state.converged.reason if state.converged else "failed"
    return tally


def _kind_of(task: Task) -> str:
    match task:
        case Build() | BuildBaseline():
            return "build"
        case ChooseLayers():
            return "layers"
        case Evaluate():
            return f"evaluate {task.slice}"
        case _:
            return task.key


def _answer(task: Task, state: RunState, tally: WorkTally):
    match task:
        case BuildBaseline():
            return events.BaselineBuilt(name=task.name, **_built(task.recipe))
        case Build():
            proposal = task.proposal
            place = {"generation": task.generation, "slot": proposal.slot}
            return events.candidate(proposal.kind, proposal.parents, **place, **_built(proposal.recipe))
        case ChooseLayers():
            assert state.started
            blocks, inputs = state.started.blocks, len(state.started.sources)
            return events.LayersChosen(
                generation=task.generation,
                slot=task.proposal.slot,
                proposal=task.proposal.recipe.id,
                measure="",
                seconds=0.0,
                scores=((0.0,) * inputs,) * blocks,
                layers=(0,) * blocks,
            )
        case Evaluate():
            return _evaluated(task, state, tally)
        case _:
            speed = events.Speed(tokens_per_second=1, spread=0, latency_seconds=1, peak_bytes=None)
            return events.Profiled(seconds=0.0, speed=speed)


def _built(recipe: Recipe) -> dict:
    values = keys.generator("rehearsal", recipe.id).standard_normal(8).astype("<f4")
    sketch = base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
    return {
        "recipe_id": recipe.id,
        "recipe": recipe,
        "digest": recipe.id,
        "sketch": sketch,
        "seconds": 0.0,
    }


def _evaluated(task: Evaluate, state: RunState, tally: WorkTally) -> events.Evaluated:
    assert state.started
    draws = state.draws(task.slice, task.generation)
    outcomes: Outcomes = {
        d: _outcomes(task.recipe_id, task.slice, d, draw) for d, draw in draws.items()
    }
    for draw in draws.values():
        tally.items["windows"] += len(draw.windows)
        tally.items["questions"] += len(draw.questions)
        tally.items["problems"] += len(draw.problems)
    measured = state.measure(task.recipe_id, outcomes)
    best, fitness = state.judge(task.recipe_id, task.slice, task.generation, measured)
    return events.Evaluated(
        recipe_id=task.recipe_id,
        slice=task.slice,
        generation=task.generation,
        outcomes=outcomes,
        components=measured,
        reference=best,
        fitness=fitness,
        seconds=0.0,
    )


def _outcomes(recipe_id: str, slice_: Slice, domain: str, draw: Draw) -> DomainOutcomes:
    rng = keys.generator("rehearsal", recipe_id, slice_, domain)
    windows, questions, problems = len(draw.windows), len(draw.questions), len(draw.problems)
    return DomainOutcomes(
        nll=tuple(float(x) for x in _TOKENS * rng.uniform(1.0, 1.2, windows)),
        tokens=(_TOKENS,) * windows,
        hits=(1,) * windows,
        bytes=(_TOKENS,) * windows,
        right=tuple(int(x) for x in rng.integers(0, 2, questions)),
        chance=(0.25,) * questions,
        solved=tuple(float(x) for x in rng.uniform(0, 1, problems)),
    )
