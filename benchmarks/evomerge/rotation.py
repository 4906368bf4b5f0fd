"""Comparison of a new draw of search items in each generation with one fixed draw, seed by seed.

    python -m benchmarks.evomerge.rotation --models FOLDER --seeds 10    # of `forge cognate --out`

Both arms are ordinary runs with the same seed, models, slices and number of items, so their cost is
the same. In the second arm the draw of generation 0 is used in every generation. Reported for each
arm: how far the champion's score on the search items of its generation, and on the selection slice,
is above its score on the test slice (the winner's curse), and the test score itself. Then the mean
difference between the arms with its standard error. The slices are cut short, so that overfitting
to them is possible.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_forge.evaluation.data.outcomes import Draws
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evomerge.config import parse
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.submission import planned
from agent_forge.runs.home import Home
from agent_forge.weights.folders.sources import resolve
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit
from agent_forge.worker.tasks import runner
from benchmarks.common import machine, shortened

#: Characters of text of each domain and slice.
KEPT = {"train": 6_000, "search": 24_000, "selection": 4_000, "test": 40_000}
SETTINGS = {"search_windows": 4, "search_questions": 0, "convergence_patience": 0}


@contextmanager
def fixed() -> Iterator[None]:
    """Give every generation the draw of the first."""
    usual = RunState.draws

    def draws(self: RunState, slice_: Slice, generation: int | None) -> Draws:
        return usual(self, slice_, None if generation is None else 0)

    RunState.draws = draws
    try:
        yield
    finally:
        RunState.draws = usual


def run(models: Path, data: Path, seed: int, generations: int) -> tuple[float, float, float]:
    """Run a search; return (search − test, selection − test, test) of its champion."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        store = home.open_store()
        config = parse({**SETTINGS, "seed": seed, "generations": generations})
        names = sorted(p.parent.name for p in models.glob("*/config.json") if p.parent.name != "base")
        sources = tuple(resolve(str(models / name)) for name in names)
        base = resolve(str(models / "base"))
        submit.submit(store, planned(config, sources, base, (str(data),)), "r")
        state = runner.finish(runner.WorkerProcess(store, Artifacts(home.artifacts)), "r")
        store.close()
    assert state.completed
    last = state.champions[-1]
    search = state.fitness((last.recipe_id, "search", last.generation))
    assert search
    test = state.completed.test.scalar
    return search.scalar - test, last.score - test, test


def main() -> None:
    """Print both arms and their difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--generations", type=int, default=8)
    given = parser.parse_args()
    print(machine(), flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = shortened(given.models / "items", Path(folder) / "items", KEPT)
        for seed in range(given.seeds):
            rotating = run(given.models, data, seed, given.generations)
            with fixed():
                still = run(given.models, data, seed, given.generations)
            rows.append([*rotating, *still])
            print(seed, *(f"{value:+.4f}" for value in rows[-1]), flush=True)
    for place, what in enumerate(("search - test", "selection - test", "test")):
        pairs = [(row[place], row[place + 3]) for row in rows]
        differences = [a - b for a, b in pairs]
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        means = [statistics.mean(arm) for arm in zip(*pairs, strict=True)]
        print(
            f"{what:18s} rotating {means[0]:+.4f}  fixed {means[1]:+.4f}  "
            f"difference {statistics.mean(differences):+.4f} ± {error:.4f}"
        )


if __name__ == "__main__":
    main()
