"""Cost estimate of a run on this machine before it is started: `forge evo --dry-run`.

A rehearsal of the run's decisions counts its tasks. A probe of about a minute at most gives their
prices: it does the start, builds one merge of generation 0, loads a model, and scores a few items of
every kind. Nothing is recorded.
"""

from __future__ import annotations

import math
import tempfile
import time
from pathlib import Path

from agent_forge.evaluation.data.outcomes import Draw, Draws
from agent_forge.evaluation.evaluate import evaluate
from agent_forge.evaluation.measures.perplexity import WINDOWS
from agent_forge.events.envelope import Plain
from agent_forge.evomerge.merging.builder import not_finite
from agent_forge.evomerge.merging.sketch import sketch
from agent_forge.evomerge.recipes.recipe import Merge
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.rules.decide import baselines
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.run.views.outlook import WorkTally, rehearse
from agent_forge.evomerge.tasks.context import MergeContext
from agent_forge.runs.kinds.forecast import Amount, Forecast
from agent_forge.runs.system.durations import least, size, timed
from agent_forge.weights.folders import stand_ins
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.threads import set_threads

#: Items of a kind that the probe scores per domain.
PROBED = 12
#: Generations that are rehearsed at most for a run with `budget_hours`.
MOST_REHEARSED = 40
#: A number of blocks, to find out if a search changes it.
BLOCKS = 100


def estimate(submitted: events.Submitted) -> Plain:
    """Return a dict: counts, seconds by kind of work, tokens, bytes. Raises a start's errors."""
    set_threads()
    state = RunState()
    state.take(submitted)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        bench = MergeContext(state, Artifacts(Path(folder)))
        started = bench.started()
        opening = time.perf_counter() - began
        state.take(started)
        most = max(submitted.config.search.population_size, len(baselines(state)))
        prices = _prices(bench, started, most)
        tally = _tally(submitted, started, prices, opening)
    seconds = _seconds(tally, prices, opening, started)
    weights = sum(t.numel() * t.element_size() for t in bench.origin.values())
    count = submitted.config.search.kept + 1
    total, config = sum(seconds.values()), submitted.config
    limits = {"max_hours": config.max_hours, "max_device_hours": config.max_device_hours}
    budget = config.budget_hours
    return {
        "budget_too_small": budget is not None and tally.generations == 1 and total > 3600 * budget,
        "ended_before_by": [n for n, h in limits.items() if h is not None and total > 3600 * h],
        "generations": tally.generations,
        "ends_by": tally.reason,
        "tasks": dict(tally.tasks),
        "items": dict(tally.items),
        "tokens": tally.items["windows"] * started.context,
        "seconds": seconds,
        "total_seconds": total,
        "disk_bytes": {
            "a_model": weights,
            "kept_at_the_end": count * weights,
            "at_most": tally.tasks["build"] * weights,
        },
        "memory_bytes": int(started.cost.bytes),
        "warnings": list(started.warnings),
    }


def forecast(submitted: events.Submitted, folder: Path) -> Forecast:
    """Return the estimate as a `Forecast`: seconds, disk, memory, and a model of the champion's shape.

    If paths through the blocks are searched, the champion's shape is not known, and no model is there.
    """
    costs = estimate(submitted)
    tasks = ", ".join(f"{count:,} {kind}" for kind, count in sorted(costs["tasks"].items()))
    disk = costs["disk_bytes"]
    deep = submitted.config.search.longest_path(BLOCKS) != BLOCKS
    donor = Path((submitted.base or submitted.sources[0]).path)
    return Forecast(
        Amount(
            costs["total_seconds"],
            f"counted by carrying out its decisions: {tasks}; priced by a probe here",
        ),
        Amount(
            disk["kept_at_the_end"] + disk["a_model"],
            f"counted: models of {size(disk['a_model'])}, the elite's and the result's; on the way the "
            "cache comes on top",
        ),
        Amount(
            costs["memory_bytes"],
            "counted: weights, cache and activations of one candidate; sources and candidates that are "
            "built together come on top",
        ),
        {} if deep else {"champion": stand_ins.write(donor, folder / "champion", "champion")},
    )


def _tally(
    submitted: events.Submitted, started: events.Started, prices: dict[str, float], opening: float
) -> WorkTally:
    """Return the `WorkTally`; with `budget_hours`, of the generations that there is time for.

    Beyond MOST_REHEARSED generations the counts grow by those of a generation.
    """
    config = submitted.config
    if config.budget_hours is None:
        return rehearse(submitted, started)

    def first(generations: int) -> WorkTally:
        shorter = config.model_copy(update={"generations": generations})
        return rehearse(submitted.model_copy(update={"config": shorter}), started)

    def seconds(tally: WorkTally) -> float:
        return math.fsum(_seconds(tally, prices, opening, started).values())

    low, high = first(1), first(3)
    each = (seconds(high) - seconds(low)) / 2
    left = 3600 * config.budget_hours - seconds(low)
    reach = 1 + math.floor(left / each) if each > 0 else config.generations
    reach = max(0, min(config.generations, reach))
    rehearsal = first(min(reach, MOST_REHEARSED))
    for more, kinds in (("tasks", low.tasks), ("items", low.items)):
        ahead, total = getattr(high, more), getattr(rehearsal, more)
        for kind in ahead:
            beyond = max(0, reach - MOST_REHEARSED) * (ahead[kind] - kinds[kind]) / 2
            total[kind] += round(beyond)
    rehearsal.generations = reach + 1
    rehearsal.reason = "hours" if reach < config.generations else rehearsal.reason
    return rehearsal


def _prices(bench: MergeContext, started: events.Started, most: int) -> dict[str, float]:
    """Return {kind: seconds} of a build, a load and items, measured; hold `most` models if it may."""
    sources = tuple(s.recipe_id for s in started.sources)
    recipe = Merge(method="ties", inputs=sources, base=started.base.recipe_id)

    def build() -> None:
        weights = bench.builder.build(recipe)
        digest(weights)
        sketch(weights, bench.origin)

    def load() -> None:
        not_finite(bench.origin)
        bench.resident.load(bench.origin)

    # The first builds also compile and read files: they are not timed. Memory is that of the run's.
    bench.builder.build_many([recipe] * min(bench.together, most))
    prices = {"build": timed(build), "load": least(load)}
    for kind in ("windows", "questions", "problems"):
        draws = {d: _some(pool, kind) for d, pool in started.pools["search"].items()}
        count = sum(len(getattr(draw, kind)) for draw in draws.values())
        prices[kind] = _scoring_seconds(bench, draws) / count if count else 0.0
    return prices


def _some(pool: object, kind: str) -> Draw:
    chosen = tuple(range(min(PROBED, getattr(pool, kind))))
    return Draw.model_validate({"windows": (), "questions": (), kind: chosen})


def _scoring_seconds(bench: MergeContext, draws: Draws) -> float:
    """Return the seconds for scoring these items, the best of two runs if the first is short."""

    def score() -> None:
        evaluate(bench.resident, bench.packed["search"], draws, bench.judge)

    return least(score)


def _seconds(
    tally: WorkTally, prices: dict[str, float], opening: float, started: events.Started
) -> dict[str, float]:
    train = sum(min(WINDOWS, pool.windows) for pool in started.pools["train"].values())
    swaps = 1 + started.blocks * len(started.sources)
    loads = sum(count for task, count in tally.tasks.items() if task.startswith("evaluate "))
    return {
        "starting": opening,
        "building": tally.tasks["build"] * prices["build"],
        "loading": loads * prices["load"],
        "choosing layers": tally.tasks["layers"] * swaps * train * prices["windows"],
        **{f"scoring {kind}": tally.items[kind] * prices[kind] for kind in sorted(tally.items)},
    }
