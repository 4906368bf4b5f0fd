"""Speed of the training loop against a bare torch loop.

    python -m benchmarks.phases.training [--preset tiny] [--precision float32] [--device cpu]

Tokens/s of `weights.training.loop` over those of a bare torch loop with the same model, precision,
batch and optimiser, in turns of one process; the goal is 0.97. A second bare loop has torch's flags
pinned as trainings have them: what it is slower than the first is the price of bits that come again.
The same by processor seconds, which other programs disturb less than they disturb the clock. Then the
share of the wall time that snapshots cost if a segment takes a minute: copies, synced files, the next
segment's start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from agent_forge.phases.cognate import recipes
from agent_forge.phases.cognate.settings import PRESETS, CognateConfig, Preset
from agent_forge.runs import keys
from agent_forge.weights import operations
from agent_forge.weights.recipes import Algorithm, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import complete
from agent_forge.weights.training.loop import Training, pinned, segment
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.snapshots import Snapshots
from agent_forge.weights.training.windows import stream_digest
from benchmarks.common import machine

PEAK = 1e-3
#: Seconds of a segment.
SEGMENT = 60.0


def recipe(preset: Preset, tokens: np.ndarray, precision: Any, steps: int) -> Train:
    """Return a training of the preset's model on one stream, with clipping and the watch on."""
    return complete(
        Train(
            objective="lm@1",
            start=recipes.fresh(CognateConfig.model_validate({"preset": preset.name})).id,
            data={"text": 1.0},
            data_digests={"text": stream_digest(tokens)},
            batch=preset.batch,
            context=preset.context,
            optimiser=Algorithm(name="adamw@1"),
            schedule=Algorithm(name="constant@1", params={"peak": PEAK}),
            precision=precision,
            clip=1.0,
            divergence=9.0,
            purpose="benchmark",
            steps=steps,
            upto=steps,
        )
    )


class Bare:
    """Loop that does what has to be done and nothing else: no report, no check, no pinned flag."""

    def __init__(
        self, start: Tensors, tokens: np.ndarray, preset: Preset, precision: str, device: str
    ) -> None:
        """Build the module and torch's fused AdamW; the text lies on the device."""
        self._module = modules.build(start, device).train()
        self._tokens = torch.from_numpy(tokens).long().to(device)
        self._device = device
        self._shape = (preset.batch, preset.context)
        self._bf16 = precision == "bfloat16"
        self._places = torch.Generator().manual_seed(0)
        self._optimizer = torch.optim.AdamW(
            self._module.parameters(), lr=PEAK, betas=(0.9, 0.95), weight_decay=0.1, fused=True
        )

    def run(self, steps: int) -> None:
        """Do some steps."""
        batch, context = self._shape
        kind = torch.device(self._device).type
        autocast = torch.autocast(kind, torch.bfloat16) if self._bf16 else nullcontext()
        parameters = list(self._module.parameters())
        last = len(self._tokens) - context - 1
        for _ in range(steps):
            at = torch.randint(last, (batch, 1), generator=self._places)
            rows = self._tokens[(at + torch.arange(context + 1)).to(self._device)]
            with autocast:
                logits = self._module(input_ids=rows[:, :-1]).logits
                loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)


class Ours:
    """The same model in the training loop, without the snapshot that ends a segment."""

    def __init__(self, training: Train, start: Tensors, tokens: np.ndarray, device: str) -> None:
        """Build the training."""
        self._step = 0
        with pinned():
            self._training = Training(training, start, None, {"text": tokens}, {}, device)

    def run(self, steps: int) -> None:
        """Do some steps."""
        with pinned():
            self._step += len(self._training.advance(self._step, self._step + steps))


class PinnedBare(Bare):
    """The bare loop with torch's flags pinned as in a training."""

    def run(self, steps: int) -> None:
        """Do some steps."""
        with pinned():
            super().run(steps)


def compare(loops: Sequence[Bare | Ours], rounds: int, steps: int) -> np.ndarray:
    """Return [rounds, loops, (wall, processor)] seconds; who begins a round goes round."""
    found = np.zeros((rounds + 1, len(loops), 2))
    for number in range(rounds + 1):
        for turn in range(len(loops)):
            place = (number + turn) % len(loops)
            wall, processor = time.perf_counter(), time.process_time()
            loops[place].run(steps)
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            taken = time.perf_counter() - wall, time.process_time() - processor
            found[number, place] = taken
    return found[1:]  # the first round warms up


def snapshot_seconds(
    training: Train, start: Tensors, tokens: np.ndarray, folder: Path, device: str
) -> float:
    """Return the seconds around a segment's steps: copies, synced files, reading, a new module."""
    streams = {"text": tokens}
    store = Snapshots(folder)
    made = segment(training, start, None, streams, 0, 2, device=device)
    found = []
    for _ in range(3):
        began = time.perf_counter()
        store.write(training, made)
        read = store.nearest(training)
        assert read is not None
        begun = Tensors(start.config, read.weights)
        again = segment(
            training, begun, read.optimiser, streams, read.step, read.step + 1, device=device
        )
        found.append(time.perf_counter() - began - again.seconds)
    return statistics.median(found)


def main() -> None:
    """Print the ratio of each round, their median, and the share of snapshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="tiny")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=20, help="Steps of a turn.")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    preset = PRESETS[given.preset]
    drawn = keys.generator("benchmark-training").integers(0, preset.vocabulary, 1_000_000)
    tokens = drawn.astype(np.int32)
    initial = recipes.fresh(CognateConfig.model_validate({"preset": preset.name}))
    start = operations.apply(initial, {})
    training = recipe(preset, tokens, given.precision, (given.rounds + 1) * given.steps)
    where = machine() if given.device == "cpu" else torch.cuda.get_device_name(given.device)
    print(f"{preset.name}, {given.precision}, {where}, load {os.getloadavg()[0]:.1f}")
    common = (start, tokens, preset, training.precision, given.device)
    loops = (Ours(training, start, tokens, given.device), Bare(*common), PinnedBare(*common))
    seconds = compare(loops, given.rounds, given.steps)
    turn = given.steps * preset.batch * preset.context
    for which, unit in enumerate(("wall", "processor")):
        taken = seconds[:, 0, which]
        print(f"{unit} seconds, {given.rounds} turns each: best {turn / taken.min():,.0f} tokens/s")
        for place, name in ((1, "bare"), (2, "bare, flags pinned")):
            plain = seconds[:, place, which]
            print(
                f"  {name} {turn / plain.min():,.0f}, ratio {plain.min() / taken.min():.3f}; median of "
                f"the rounds' ratios {np.median(plain / taken):.3f}; all turns "
                f"{plain.sum() / taken.sum():.3f}"
            )
    with tempfile.TemporaryDirectory() as folder:
        around = snapshot_seconds(training, start, tokens, Path(folder), given.device)
    share = around / (SEGMENT + around)
    print(f"a segment's start and snapshot {around:.2f} s: {share:.2%} of a minute's segment")
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
