"""Trainings with passes in bfloat16 beside float32: tokens a second, and bits per byte over seeds.

    python -m benchmarks.phases.precision speed [--presets tiny,small,25m] [--rounds 3] [--threads 1]
    python -m benchmarks.phases.precision quality --home FOLDER [--preset small] [--seeds 0,1,2]
        [--base-tokens 200000] [--specialist-tokens 50000] [--set KEY=VALUE …]

`speed`: the training loop with both precisions, in turns of one process, by processor seconds, which
other programs disturb less than the clock. `of product` is the share of what a plain matrix product of
the precision reaches here, 6 floating-point operations a parameter and token.

`quality`: each seed trains a base and specialists with `forge cognate`, once with each precision: the
same text, draws, schedule and steps. Bits per byte are the mean over domains of held-out windows of the
selection slice. A second call goes on from what FOLDER has.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

import agent_forge as forge
from agent_forge.phases.cognate import recipes
from agent_forge.phases.cognate.settings import PRESETS, CognateConfig
from agent_forge.runs import keys
from agent_forge.weights import operations
from benchmarks.common import machine, options
from benchmarks.phases.training import Ours, compare, recipe

PRECISIONS = ("float32", "bfloat16")
#: Steps of a turn, by preset; others: 1.
STEPS = {"tiny": 10, "small": 3}


def product(dtype: torch.dtype, size: int) -> float:
    """Return the operations that [1024, size] · [size, 4 size] does in a processor second."""
    left, right = torch.ones(1024, size, dtype=dtype), torch.ones(size, 4 * size, dtype=dtype)
    rates = []
    for _ in range(5):
        began, count = time.process_time(), 0
        while time.process_time() - began < 0.4:
            torch.mm(left, right)
            count += 1
        rates.append(2 * 1024 * size * 4 * size * count / (time.process_time() - began))
    return max(rates)


def speed(given: argparse.Namespace) -> None:
    """Print tokens a processor second of both precisions for each preset, their ratio and shares."""
    torch.set_num_threads(given.threads)
    print(f"{machine()}; tokens a processor second, median of {given.rounds} turns")
    print("| preset | parameters | float32 | of product | bfloat16 | of product | ratio of the turns |")
    print("|---|---|---|---|---|---|---|")
    for name in given.presets.split(","):
        preset = PRESETS[name]
        drawn = keys.generator("benchmark-precision").integers(0, preset.vocabulary, 1_000_000)
        tokens = drawn.astype(np.int32)
        start = operations.apply(recipes.fresh(CognateConfig.model_validate({"preset": name})), {})
        steps = STEPS.get(name, 1)
        count = (given.rounds + 1) * steps
        loops = [Ours(recipe(preset, tokens, p, count), start, tokens, "cpu") for p in PRECISIONS]
        seconds = compare(loops, given.rounds, steps)[:, :, 1]
        rates = steps * preset.batch * preset.context / seconds
        shares = [
            6 * preset.parameters * np.median(rates[:, place]) / product(dtype, preset.hidden)
            for place, dtype in enumerate((torch.float32, torch.bfloat16))
        ]
        ratios = ", ".join(f"{ratio:.2f}" for ratio in rates[:, 1] / rates[:, 0])
        cells = [f"{np.median(rates[:, place]):,.0f} | {shares[place]:.2f}" for place in (0, 1)]
        print(f"| {name} | {preset.parameters:,} | {' | '.join(cells)} | {ratios} |", flush=True)


def quality(given: argparse.Namespace) -> None:
    """Train with both precisions for every seed; print bits per byte and their differences."""
    settings: dict[str, Any] = {
        "preset": given.preset,
        "base_tokens": given.base_tokens,
        "specialist_tokens": given.specialist_tokens,
        **{key: json.loads(value) for key, _, value in (text.partition("=") for text in given.set)},
    }
    print(machine())
    print("| seed | model | float32 | bfloat16 | difference |")
    print("|---|---|---|---|---|", flush=True)
    changes: list[float] = []
    for seed in map(int, given.seeds.split(",")):
        losses: dict[str, list[float]] = {}
        for precision in PRECISIONS:
            config = {**settings, "seed": seed, "precision": precision}
            ended = forge.run("cognate", config, home=given.home)
            report: Any = forge.Run(ended.run, given.home).report()
            for role, by_domain in report["bits_per_byte"].items():
                losses.setdefault(role, []).append(fmean(by_domain.values()))
        for role, (before, after) in sorted(losses.items()):
            changes.append(after / before - 1)
            print(f"| {seed} | {role} | {before:.4f} | {after:.4f} | {changes[-1]:+.2%} |", flush=True)
    print(f"mean {fmean(changes):+.2%}, standard deviation {stdev(changes):.2%}")


def main() -> None:
    """Print one of the two tables."""
    parser = options(__doc__)
    commands = parser.add_subparsers(required=True)
    fast = commands.add_parser("speed")
    fast.add_argument("--presets", default="tiny,small,25m")
    fast.add_argument("--rounds", type=int, default=3)
    fast.add_argument("--threads", type=int, default=1)
    fast.set_defaults(table=speed)
    good = commands.add_parser("quality")
    good.add_argument("--home", type=Path, required=True)
    good.add_argument("--preset", default="small")
    good.add_argument("--seeds", default="0,1,2")
    good.add_argument("--base-tokens", type=int, default=200_000)
    good.add_argument("--specialist-tokens", type=int, default=50_000)
    good.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    good.set_defaults(table=quality)
    given = parser.parse_args()
    given.table(given)


if __name__ == "__main__":
    main()
