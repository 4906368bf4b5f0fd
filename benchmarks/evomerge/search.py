"""Comparison of searches for merges with the same number of items: every strategy, seed by seed.

    python -m benchmarks.evomerge.search --out found --seeds 10                    # invented landscapes
    python -m benchmarks.evomerge.search --out found --seeds 10 --models FOLDER …  # of `forge cognate`
    python -m benchmarks.evomerge.search --out found --report

Worlds: three invented landscapes whose best sum of task vectors is known (`landscapes.py`), and
trained specialists. Strategies: those of this program; random search and a grid of static
merges with the same judging; mergekit-evolve's search reimplemented, with its README's method and
with its plainest (`incumbent.py`).

All spend the same number of items (sources, search and selection; the incumbent measures no
sources). They are scored by the quality of the champion that they would return, on the test slice,
relative to the best source (1). For landscapes the report gives the share of the possible gain: 0
is the best source, 1 the best sum of task vectors.

Curves are written to OUT as JSON, a file per world; the report is a table and a picture of them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from agent_forge.evomerge.recipes.recipe import SPECIES, Source
from agent_forge.evomerge.search.genes.genome import Space
from agent_forge.runs import keys
from benchmarks.evomerge import incumbent
from benchmarks.evomerge.laboratory import Curve, Laboratory
from benchmarks.evomerge.landscapes import Landscape
from benchmarks.evomerge.trained import Specialists

LANDSCAPES = ("smooth", "choices", "crossed")
OURS = ("auto", "elite-loser", "tournament", "cma-es", "nsga2")
#: This program's strategies with options that are worth a comparison of their own, by `--who`.
VARIANTS: dict[str, dict[str, object]] = {
    f"{name}, {detail}": {"strategy": name, "genome_detail": detail}
    for name in ("tournament", "cma-es", "nsga2")
    for detail in ("whole", "parts", "full")
}
VARIANTS |= {
    f"tournament, full, {kind}": {"strategy": "tournament", "genome_detail": "full", "niching": kind}
    for kind in ("attraction", "sharing", "both")
}
#: Shares of the budget at which the report gives the champion's quality.
SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
INCUMBENTS = ("mergekit-evolve dare_ties", "mergekit-evolve task_arithmetic")
#: 97.5 % quantiles of Student's t by degrees of freedom, enough for 10 to 30 seeds.
T = {9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093, 29: 2.045}


def random_search(lab: Laboratory, seed: int, budget: int) -> Curve:
    """Search by uniform random points, every species in turn.

    The best of each eight points is judged on the selection slice.
    """
    return _sampled(lab, budget, lambda number: _point(lab, seed, number), seed)


def grid(lab: Laboratory, seed: int, budget: int) -> Curve:
    """Try every species once with each equal weight of all sources, from 0.1 to 1.5."""
    weights = [0.5, 0.3, 0.7, 1.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.1, 1.2, 1.5]
    wanted = [(s, w) for w in weights for s in ("task_arithmetic", "ties", "dare_linear", "slerp")]

    def make(number: int):
        if number >= len(wanted):
            return None
        space = Space(lab.world.family, wanted[number][0], "whole", 1)
        return space.recipe(space.uniform([wanted[number][1]] * 3), seed)

    return _sampled(lab, budget, make, seed)


def _point(lab: Laboratory, seed: int, number: int):
    rng = keys.generator("random search", seed, number)
    space = Space(lab.world.family, SPECIES[number % 4], "parts", 1)
    return space.recipe([float(x) for x in rng.uniform(0.25, 0.75, space.dimension)], seed)


def _sampled(lab: Laboratory, budget: int, make: Callable[[int], Any], seed: int) -> Curve:
    """Score eight recipes at a time on a new draw, and the best of them on the selection slice.

    Ends when the budget is spent or `make` gives None.
    """
    state, curve, best, number = lab.state(seed), Curve(), -math.inf, 0
    spent = lab.opening(state)
    while True:
        scores = []
        for _ in range(8):
            recipe = make(number)
            if recipe is None:
                return curve
            score, items = lab.score(recipe, state, "search", number // 8)
            spent, number = spent + items, number + 1
            scores.append((score, recipe))
        top = max(scores, key=lambda pair: pair[0])[1]
        score, items = lab.score(top, state, "selection", None)
        spent += items
        if spent > budget:
            return curve
        if score > best:
            best = score
            curve.append((spent, top.id))


def run(lab: Laboratory, who: str, seed: int, budget: int) -> Curve:
    """Run one search."""
    if who in OURS or who in VARIANTS:
        return lab.search(seed, budget, **VARIANTS.get(who, {"strategy": who}))
    if who in INCUMBENTS:
        return incumbent.search(lab, seed, budget, who.split()[1])
    return {"random": random_search, "grid": grid}[who](lab, seed, budget)


def measure(make: Callable[[int], Laboratory], evaluations: int, seeds: int, who: list[str], out: Path):
    """Run every search on one world; results that are in OUT already are kept."""
    lab = make(0)
    file = out / f"{lab.world.name}.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"runs": {}}
    sizes = [int(str(lab.world.settings[f"search_{k}"])) for k in ("windows", "questions")]
    draw = sum(
        min(sizes[0], p.windows) + min(sizes[1], p.questions)
        for p in lab.world.pools["search"].values()
    )
    budget = evaluations * draw
    found |= {"budget": budget, "draw": draw}
    for seed in range(seeds):
        lab = make(seed)
        for name in who:
            if seed < len(found["runs"].setdefault(name, [])):
                continue
            began = time.perf_counter()
            curve = run(lab, name, seed, budget)
            told = [(items, lab.test(lab.known[id_], lab.known).quality) for items, id_ in curve]
            found["runs"][name].append(told)
            print(
                lab.world.name,
                seed,
                f"{name:34s} {at(told, budget):.4f}",
                f"{time.perf_counter() - began:.1f} s",
                flush=True,
            )
        if isinstance(lab.world, Specialists):
            found["ceiling"] = lab.ceiling()
        optimum = getattr(lab.world, "optimum", None)
        if optimum is not None:
            lab.known[optimum.id] = optimum
            found.setdefault("optimum", {})[str(seed)] = lab.test(optimum, lab.known).quality
        file.write_text(json.dumps(found))


def at(told: list[tuple[int, float]], items: float, nothing: float = 1.0) -> float:
    """Return the champion's quality after `items` items; `nothing` while there is no champion."""
    known = [quality for spent, quality in told if spent <= items]
    return known[-1] if known else nothing


def interval(values: list[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % interval."""
    t = T.get(len(values) - 1, 2.0)
    return statistics.mean(values), t * statistics.stdev(values) / math.sqrt(len(values))


def reached(
    runs: list[list[tuple[int, float]]], goal: float, budget: int, nothing: float
) -> float | None:
    """Return the share of the budget from which the mean over seeds stays at the goal or above.

    None if there is no such share.
    """
    steps = sorted({items for told in runs for items, _ in told})
    means = [(s, statistics.mean(at(told, s, nothing) for told in runs)) for s in steps]
    below = [s for s, mean in means if mean < goal]
    later = [s for s, mean in means if mean >= goal and (not below or s > below[-1])]
    return later[0] / budget if later else None


def report(out: Path) -> None:
    """Print tables and verdicts, and draw the picture."""
    for file in sorted(out.glob("*.json")):
        found = relative(json.loads(file.read_text()))
        budget, runs = found["budget"], found["runs"]
        print(f"\n## {file.stem}: {budget:,} items, {budget // found['draw']} draws\n")
        nothing = 0.0 if "optimum" in found else 1.0
        print("| | " + " | ".join(f"{share:.3g}" for share in SHARES) + " |")
        print("|---|" + "---|" * len(SHARES))
        for name, told in sorted(
            runs.items(), key=lambda p: -interval([at(t, budget, nothing) for t in p[1]])[0]
        ):
            cells = [interval([at(t, share * budget, nothing) for t in told]) for share in SHARES]
            print(f"| {name} | " + " | ".join(f"{m:.4f} ± {h:.4f}" for m, h in cells) + " |")
        print()
        if "ceiling" in found:
            print(f"Each domain by the source that is best at it: {found['ceiling']:.4f}.")
        for name in INCUMBENTS:
            if not {name, "auto"} <= set(runs):
                continue
            goal = statistics.mean(at(t, budget, nothing) for t in runs[name])
            share = reached(runs["auto"], goal, budget, nothing)
            pairs = list(zip(runs["auto"], runs[name], strict=False))  # by seed
            mean, half = interval([at(a, budget, nothing) - at(b, budget, nothing) for a, b in pairs])
            said = "never" if share is None else f"after {share:.3f} of the budget"
            print(
                f"auto reaches the final {goal:.4f} of {name} {said}; at the end it is ahead by "
                f"{mean:+.4f} ± {half:.4f}."
            )
    picture(out)


def relative(found: dict[str, Any]) -> dict[str, Any]:
    """Rescale qualities to the share of the possible gain over the best source.

    Only if the optimum is known.
    """
    best = found.get("optimum")
    if best is None:
        return found
    for name, runs in found["runs"].items():
        found["runs"][name] = [
            [(items, (quality - 1) / (best[str(seed)] - 1)) for items, quality in told]
            for seed, told in enumerate(runs)
        ]
    return found


def picture(out: Path) -> None:
    """Draw mean and 95 % interval against items, with a panel per world."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    files = sorted(out.glob("*.json"))
    figure, panels = plt.subplots(1, len(files), figsize=(4.6 * len(files), 4.2), squeeze=False)
    who = [*OURS, *INCUMBENTS, "random", "grid"]
    colours = {name: f"C{place}" for place, name in enumerate(who)}
    for panel, file in zip(panels[0], files, strict=True):
        found = relative(json.loads(file.read_text()))
        nothing = 0.0 if "optimum" in found else 1.0
        places = np.geomspace(found["budget"] / 20, found["budget"], 60)
        for name, told in found["runs"].items():
            if name not in (*OURS, *INCUMBENTS, "random", "grid"):
                continue  # they are in the tables
            rows = np.array([[at(t, p, nothing) for p in places] for t in told])
            mean = rows.mean(axis=0)
            half = T.get(len(rows) - 1, 2.0) * rows.std(axis=0, ddof=1) / math.sqrt(len(rows))
            style = "--" if name in INCUMBENTS else ":" if name in ("random", "grid") else "-"
            panel.plot(places, mean, style, color=colours[name], label=name, lw=1.6)
            panel.fill_between(places, mean - half, mean + half, color=colours[name], alpha=0.1, lw=0)
        panel.set(title=file.stem, xscale="log", xlabel="items measured")
        panel.xaxis.set_minor_formatter("")
        ours = "share of the known gain" if nothing == 0 else "quality on test (best source = 1)"
        panel.set_ylabel(ours)
    panels[0][-1].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(out / "search.png", dpi=130)


def main() -> None:
    """Measure all worlds, or report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=Path, nargs="*", default=[])
    parser.add_argument("--worlds", nargs="*", default=list(LANDSCAPES))
    parser.add_argument("--who", nargs="*", default=[*INCUMBENTS, *OURS, "random", "grid"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=None, help="draws of the budget")
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.report:
        report(given.out)
        return
    if given.models:
        for folder in given.models:
            world = Specialists(folder)
            lab = Laboratory(world)
            for record in (world.started.base, *world.started.sources):
                lab.known[record.recipe_id] = Source(digest=record.digest)
            measure(lambda _, lab=lab: lab, given.evaluations or 200, given.seeds, given.who, given.out)
        return
    for name in given.worlds:
        measure(
            lambda seed, name=name: Laboratory(Landscape(name, seed)),
            given.evaluations or 400,
            given.seeds,
            given.who,
            given.out,
        )


if __name__ == "__main__":
    main()
