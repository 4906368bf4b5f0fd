"""MuGrokfast against AdamW: bits per byte at equal tokens, and grokking of modular addition.

    python -m benchmarks.phases.mugrokfast language --out RESULTS.jsonl
    python -m benchmarks.phases.mugrokfast grokking --out RESULTS.jsonl
    python -m benchmarks.phases.mugrokfast table --out RESULTS.jsonl

`language` trains the base of `forge cognate` from scratch: the same data, draws, schedule and number
of steps in every arm. `grokking` is a 2 × 2 ablation, Muon off and on × Grokfast off and on. Both
begin with a scan of learning rates on a seed that is not counted. Each finished run is one JSON
line; a second call skips what is there. Set OMP_NUM_THREADS=1; times are CPU seconds of the process.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.builtin import corpus as builtin_corpus
from agent_forge.evaluation.training_text import kept_text
from agent_forge.phases.cognate import figures, recipes, work
from agent_forge.phases.cognate.recipes import Submitted
from agent_forge.phases.cognate.settings import PRESETS, CognateConfig
from agent_forge.studies import training_plan
from agent_forge.studies.events import Observe
from agent_forge.weights import operations
from agent_forge.weights.recipes import Algorithm, Train
from agent_forge.weights.storage.inputs import Supply
from agent_forge.weights.training import complete
from agent_forge.weights.training.loop import Training, pinned
from benchmarks.phases import modular_addition

TINY = PRESETS["tiny"]

#: Seeds that count, and the seed of the scan of learning rates.
SEEDS = (0, 1, 2)
SCAN_SEED = 100
SCAN_RATES = (2e-3, 4e-3, 8e-3)
#: Steps of the scan: an eighth of the preset's 878, with the whole schedule within them.
SCAN_STEPS = 110
STEPS = TINY.base_tokens // (TINY.batch * TINY.context)

#: Arm → its optimiser; parameters that are left out have their defaults.
ARMS = {
    "adamw": Algorithm(name="adamw@1"),
    "muon+adamw": Algorithm(name="mugrokfast@1", params={"grokfast_lambda": 0, "tau": None}),
    "mugrokfast": Algorithm(name="mugrokfast@1", params={"grokfast_lambda": 0.3, "tau": 100}),
}
#: Arms that the scan is made with; `mugrokfast` has the rate of `muon+adamw`.
SCANNED = ("adamw", "muon+adamw")


class World:
    """Training streams and held-out windows of a seed, made as a cognate run makes them."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.config = CognateConfig.model_validate({"preset": "tiny", "seed": seed})
        given = Submitted(run="benchmark", owner="", config=self.config)
        fill = partial(work.fill, submitted=given, donor=None, changes={})
        self._text = kept_text.make(Supply(folder / "supply", None), fill)
        self.streams = self._text.streams
        self.held_out = self._text.held_out(TINY.context, figures.SLICE)
        self.start = operations.apply(recipes.fresh(self.config), {})

    def recipe(self, arm: str, steps: int, peak: float) -> Train:
        """Return the base's training with an arm's optimiser, number of steps and peak rate."""
        given = Train(
            objective=recipes.OBJECTIVE,
            start=recipes.fresh(self.config).id,
            data=TINY.base_mix,
            data_digests={domain: self._text.digests[domain] for domain in TINY.base_mix},
            batch=TINY.batch,
            context=TINY.context,
            optimiser=ARMS[arm],
            schedule=Algorithm(name="cosine@1", params={"peak": peak, "warmup": TINY.warmup}),
            clip=training_plan.CLIP,
            seed=self.config.seed,
            purpose=recipes.BASE,
            steps=steps,
            upto=steps,
        )
        return complete(given)


class Timed:
    """An optimiser whose steps are timed."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.seconds, self.clipped = inner, 0.0, 0

    def step(self, rate: float) -> None:
        """Update the parameters, and add the CPU seconds and the heads that were clipped."""
        before = time.process_time()
        self.inner.step(rate)
        self.seconds += time.process_time() - before
        self.clipped += getattr(self.inner, "clipped", 0)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the inner optimiser's state."""
        return self.inner.state()

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Give the inner optimiser a state."""
        self.inner.load(tensors)


def language_run(world: World, arm: str, steps: int, peak: float) -> dict[str, Any]:
    """Train from scratch; return bits per byte by domain and CPU seconds."""
    with pinned(1):
        recipe = world.recipe(arm, steps, peak)
        training = Training(recipe, world.start, None, world.streams, {}, "cpu")
        timed = training._optimiser = Timed(training._optimiser)
        began = time.process_time()
        made = training.run(0, steps)
        whole = time.process_time() - began
    task = Observe(recipe.id, figures.QUALITY, figures.SLICE)
    resident = ResidentModel.from_module(training.module.eval())
    found = work.quality(task, resident, made.weights, world.held_out).values
    return {
        "bits_per_byte": found,
        "mean": mean(found.values()),
        "last_loss": mean(made.losses[-20:]),
        "clipped_heads": timed.clipped,
        "cpu_step": whole / steps,
        "cpu_optimiser": timed.seconds / steps,
    }


class Results:
    """The file of results: one JSON object a line, appended when a run is finished."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def once(self, key: dict[str, Any], run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the row with this key; carry the run out and append the row if it is missing."""
        for row in self.rows:
            if all(row.get(name) == value for name, value in key.items()):
                return row
        began = time.perf_counter()
        found = run()
        load = os.getloadavg()[1]
        row = {**key, **found, "wall": time.perf_counter() - began, "load": load}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        return row


def language(results: Results) -> None:
    """Carry out the scan, then every arm and seed, seed by seed."""
    worlds: dict[int, World] = {}
    folder = results.path.with_suffix(".text")

    def run(arm: str, seed: int, steps: int, peak: float) -> dict[str, Any]:
        if seed not in worlds:
            worlds.clear()
            worlds[seed] = World(seed, folder)
        return language_run(worlds[seed], arm, steps, peak)

    def row(arm: str, seed: int, steps: int, peak: float) -> dict[str, Any]:
        key = {"part": "language", "arm": arm, "seed": seed, "steps": steps, "rate": peak}
        return results.once(key, lambda: run(arm, seed, steps, peak))

    best = {}
    for arm in SCANNED:
        scan = [row(arm, SCAN_SEED, SCAN_STEPS, peak) for peak in SCAN_RATES]
        best[arm] = min(scan, key=lambda found: found["mean"])["rate"]
    best["mugrokfast"] = best["muon+adamw"]
    for seed in SEEDS:
        for arm in ARMS:
            row(arm, seed, STEPS, best[arm])


def grokking(results: Results) -> None:
    """Carry out the scan without Grokfast, then the four arms, seed by seed."""

    def row(muon: bool, strength: float, seed: int, rate: float, decay: float) -> dict[str, Any]:
        key = {"part": "grokking", "muon": muon, "lambda": strength, "seed": seed}
        key |= {"rate": rate, "decay": decay, "cap": modular_addition.CAP}
        run = modular_addition.run
        return results.once(key, lambda: run(muon, strength, seed, rate, decay))

    best = {}
    for muon, rates in modular_addition.SCAN_RATES.items():
        scan = [
            row(muon, 0.0, SCAN_SEED, rate, decay)
            for rate in rates
            for decay in modular_addition.SCAN_DECAYS
        ]
        chosen = min(scan, key=lambda found: (found["steps_95"] or math.inf, -found["accuracy"]))
        best[muon] = chosen["rate"], chosen["decay"]
    for seed in modular_addition.SEEDS:
        for muon in (False, True):
            for strength in (0.0, modular_addition.LAMBDA):
                row(muon, strength, seed, *best[muon])


def table(results: Results) -> Iterator[str]:
    """Yield the results as lines of Markdown tables."""
    domains = sorted(builtin_corpus.DOMAINS)
    rows = [r for r in results.rows if r["part"] == "language"]
    yield f"| arm | seed | steps | rate | {' | '.join(domains)} | mean | optimiser | step |"
    yield "|---" * (len(domains) + 7) + "|"
    for r in rows:
        cells = [r["arm"], r["seed"], r["steps"], r["rate"]]
        cells += [f"{r['bits_per_byte'][d]:.4f}" for d in domains] + [f"{r['mean']:.4f}"]
        cells += [f"{r['cpu_optimiser']:.4f}", f"{r['cpu_step']:.3f}"]
        yield "| " + " | ".join(map(str, cells)) + " |"
    yield ""
    yield "| Muon | λ | rate, decay | steps to 95 % by seed | median | fits at (median) |"
    yield "|---|---|---|---|---|---|"
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for r in results.rows:
        if r["part"] == "grokking":
            scan = r["seed"] == SCAN_SEED
            key = (scan, r["muon"], r["lambda"], r["rate"], r["decay"])
            found.setdefault(key, []).append(r)
    for (scan, muon, strength, rate, decay), runs in sorted(found.items()):
        steps = [r["steps_95"] or math.inf for r in runs]
        cells = ", ".join(f"{r['seed']}: {r['steps_95'] or '> ' + str(r['cap'])}" for r in runs)
        fits = median(r["fits"] or math.inf for r in runs)
        name = "on" if muon else "off"
        end = f"{median(steps):.0f} | {fits:.0f} |" if not scan else f"scan | {fits:.0f} |"
        yield f"| {name} | {strength} | {rate}, {decay} | {cells} | {end}"


def main() -> None:
    """Run one part, or print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=("language", "grokking", "table"))
    parser.add_argument("--out", type=Path, required=True, help="results, JSON lines")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    results = Results(asked.out)
    if asked.part == "table":
        print("\n".join(table(results)))
    else:
        {"language": language, "grokking": grokking}[asked.part](results)


if __name__ == "__main__":
    main()
