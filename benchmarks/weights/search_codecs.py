"""SeedLM's speed, and what the codecs that search lose on Gaussian weights and on a trained model.

    python -m benchmarks.weights.search_codecs speed [--blocks 20000 --turns 5]
    python -m benchmarks.weights.search_codecs gaussian
    python -m benchmarks.weights.search_codecs model --folder FOLDER [--steps 878]

`speed`: blocks that one core encodes per second of process CPU time, in turns. `gaussian`: the
relative error ‖decoded − weights‖ / ‖weights‖ at 512 × 512. `model`: the base of `forge cognate` tiny,
trained as `benchmarks.phases.mugrokfast` trains it and kept in FOLDER; every linear layer's matrix is
coded and decoded, the rest stays float32; bits per byte of held-out windows, mean of the domains. Gram
matrices are of 32,768 tokens of the training text. "rounding" is the plainest codec: a float16 scale
for each row, the best of 24 clips, and rounding to 2^bits levels. Set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.phases.cognate import figures, work
from agent_forge.phases.cognate.settings import PRESETS
from agent_forge.runs import keys
from agent_forge.studies.events import Observe
from agent_forge.weights import codecs, randomness
from agent_forge.weights.codecs.search import seeds
from agent_forge.weights.training.loop import Training, pinned
from agent_forge.weights.training.models import modules
from benchmarks.phases.mugrokfast import STEPS, World

TINY = PRESETS["tiny"]

#: Peak learning rate of Muon on this model, by the scan of `benchmarks.phases.mugrokfast`.
PEAK = 8e-3
#: Tokens of the Gram matrices.
TOKENS = 32_768
#: Name → (codec, its settings, if it takes the Gram matrix).
VQ = {"vector": 4, "bits": 7}
ARMS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "rounding 6": ("rounding", {"bits": 6}, False),
    "Hyper 2,048 × 2": ("hyper@1", {"points": 2048, "classes": 2}, False),
    "rounding 5": ("rounding", {"bits": 5}, False),
    "Hyper 512 × 2": ("hyper@1", {"points": 512, "classes": 2}, False),
    "rounding 4": ("rounding", {"bits": 4}, False),
    "Hyper 128 × 2": ("hyper@1", {"points": 128, "classes": 2}, False),
    "Hyper 256 × 1": ("hyper@1", {"points": 256, "classes": 1}, False),
    "Hyper 128 × 2, irrational": (
        "hyper@1",
        {"points": 128, "classes": 2, "direction": "irrational"},
        False,
    ),
    "SeedLM 4": ("seedlm@1", {"bits": 4}, False),
    "chain": ("chain@1", {}, True),
    "rounding 3": ("rounding", {"bits": 3}, False),
    "SeedLM 3": ("seedlm@1", {"bits": 3}, False),
    "VPTQ v 4, residual, weighted, feedback": (
        "vptq@1",
        {"vector": 4, "bits": 6, "residual_bits": 6},
        True,
    ),
    "rounding 2": ("rounding", {"bits": 2}, False),
    "VPTQ v 4": ("vptq@1", {**VQ, "weighted": False, "feedback": False}, True),
    "VPTQ v 4, weighted": ("vptq@1", {**VQ, "feedback": False}, True),
    "VPTQ v 4, feedback": ("vptq@1", {**VQ, "weighted": False}, True),
    "VPTQ v 4, weighted, feedback": ("vptq@1", VQ, True),
    "VPTQ v 4, weighted, feedback, 3 % outliers": ("vptq@1", {**VQ, "outliers": 0.03}, True),
}


def rounded(matrix: torch.Tensor, bits: int) -> tuple[torch.Tensor, int]:
    """Return the matrix rounded to 2^bits levels by rows, and the bytes that it takes."""
    top = 2 ** (bits - 1)
    largest = matrix.abs().amax(1, keepdim=True)
    best, lowest = torch.zeros_like(matrix), torch.full((matrix.shape[0], 1), torch.inf)
    for clip in torch.linspace(0.2, 1.0, 24):
        scale = (largest * clip / (top - 0.5)).half().float()
        levels = torch.nan_to_num(matrix / scale).sub(0.5).round().clamp(-top, top - 1)
        decoded = (levels + 0.5) * scale
        error = (decoded - matrix).square().sum(1, keepdim=True)
        best = torch.where(error < lowest, decoded, best)
        lowest = torch.minimum(error, lowest)
    return best, (matrix.numel() * bits + 7) // 8 + 2 * matrix.shape[0]


def coded(
    codec: str, matrix: torch.Tensor, params: dict[str, Any], gram: torch.Tensor | None
) -> tuple[torch.Tensor, int]:
    """Return what a codec decodes of a matrix, and the bytes that it takes."""
    if codec == "rounding":
        return rounded(matrix, **params)
    made = codecs.encode(codec, matrix, params, gram)
    return codecs.decode(codec, made), made.bytes


def speed(blocks: int, turns: int) -> Iterator[str]:
    """Yield lines of a table: blocks per second of process CPU time, of one thread."""
    yield "| C, P | blocks/s, best turn | median | all turns | tables, s |"
    yield "|---|---|---|---|---|"
    for size, count in ((8, 3), (12, 4)):
        began = time.process_time()
        table = seeds.bases(size, count, 16)
        ready = time.process_time() - began
        values = randomness.gaussian(blocks * size, "speed").reshape(blocks, size)
        seeds.search(table, values[:100])
        spent = []
        for _ in range(turns):
            began = time.process_time()
            seeds.search(table, values)
            spent.append(time.process_time() - began)
        rates = [f"{blocks / s:,.0f}" for s in (min(spent), median(spent), mean(spent))]
        yield f"| {size}, {count} | {' | '.join(rates)} | {ready:.2f} |"


def gaussian() -> Iterator[str]:
    """Yield lines of a table: bits and relative error of Gaussian weights."""
    values = randomness.gaussian(512 * 512, "benchmark").reshape(512, 512)
    matrix = torch.from_numpy(values).float() * 0.02
    yield "| codec | bits a weight | relative error |"
    yield "|---|---|---|"
    for name, (codec, params, _) in ARMS.items():
        if codec == "vptq@1" and (params.get("feedback", True) or params.get("weighted", True)):
            continue  # both need a layer's inputs
        decoded, size = coded(codec, matrix, params, None)
        error = (decoded - matrix).norm() / matrix.norm()
        yield f"| {name} | {size * 8 / matrix.numel():.3f} | {error:.4f} |"


class Trained:
    """The trained model, its held-out windows and the Gram matrices of its linear layers."""

    def __init__(self, folder: Path, steps: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._world = World(0, folder)
        file = folder / f"tiny-{steps}.safetensors"
        if not file.exists():
            with pinned(1):
                recipe = self._world.recipe("muon+adamw", steps, PEAK)
                training = Training(recipe, self._world.start, None, self._world.streams, {}, "cpu")
                save_file(dict(training.run(0, steps).weights), file)
        self.weights = load_file(file)
        self._module: Any = modules.build(self._world.start, "cpu", "sdpa").eval()
        self._resident = ResidentModel.from_module(self._module)
        self._task = Observe("0" * 64, figures.QUALITY, figures.SLICE)
        self.linears = {
            f"{name}.weight": layer
            for name, layer in self._module.named_modules()
            if isinstance(layer, torch.nn.Linear) and name != "lm_head"
        }

    def bits_per_byte(self, weights: dict[str, torch.Tensor]) -> float:
        """Return the mean of the domains on held-out windows."""
        found = work.quality(self._task, self._resident, weights, self._world.held_out)
        return mean(found.values.values())

    def grams(self) -> dict[str, torch.Tensor]:
        """Return the mean of x xᵀ of every linear layer's inputs, float64."""
        self._resident.load(self.weights)
        sums: dict[str, torch.Tensor] = {}
        hooks = []
        for name, layer in self.linears.items():

            def add(_: Any, inputs: tuple[torch.Tensor, ...], name: str = name) -> None:
                rows = inputs[0].reshape(-1, inputs[0].shape[-1]).double()
                sums[name] = sums.get(name, 0) + rows.T @ rows / TOKENS

            hooks.append(layer.register_forward_pre_hook(add))
        with torch.no_grad():
            for rows in self._windows().split(16):
                self._module(rows)
        for hook in hooks:
            hook.remove()
        return sums

    def _windows(self) -> torch.Tensor:
        """Return [windows, context] tokens of the training streams, drawn by key, by the base's mix."""
        count = TOKENS // TINY.context
        rows = []
        for domain, share in TINY.base_mix.items():
            stream = self._world.streams[domain]
            rng = keys.generator("benchmark", "grams", domain)
            for start in rng.integers(0, len(stream) - TINY.context, round(share * count)):
                rows.append(torch.from_numpy(stream[start : start + TINY.context].astype("int64")))
        return torch.stack(rows)


def model(folder: Path, steps: int) -> Iterator[str]:
    """Yield lines of a table: what each arm loses on the trained model."""
    trained = Trained(folder, steps)
    plain = trained.bits_per_byte(trained.weights)
    grams = trained.grams()
    names = sorted(trained.linears)
    count = sum(trained.weights[name].numel() for name in names)
    yield f"{steps} steps, {len(names)} matrices of {count:,} weights, {plain:.4f} bits a byte"
    yield ""
    yield "| codec | bits a weight | relative error | bits a byte | more | CPU s |"
    yield "|---|---|---|---|---|---|"
    for name, (codec, params, informed) in ARMS.items():
        began, size, off, norm = time.process_time(), 0, 0.0, 0.0
        weights = dict(trained.weights)
        for layer in names:
            matrix = trained.weights[layer].float()
            gram = grams[layer] if informed else None
            weights[layer], taken = coded(codec, matrix, params, gram)
            size += taken
            off += float((weights[layer] - matrix).square().sum())
            norm += float(matrix.square().sum())
        spent = time.process_time() - began
        found = trained.bits_per_byte(weights)
        row = {"arm": name, "bits": size * 8 / count, "error": (off / norm) ** 0.5}
        row |= {"bits_per_byte": found, "seconds": spent}
        with (folder / "model.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        yield (
            f"| {name} | {row['bits']:.3f} | {row['error']:.4f} | {found:.4f} | "
            f"{100 * (found / plain - 1):+.2f} % | {spent:.1f} |"
        )


def main() -> None:
    """Print a part's table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=("speed", "gaussian", "model"))
    parser.add_argument("--blocks", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("search-codecs"))
    parser.add_argument("--steps", type=int, default=STEPS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.part == "speed":
        lines = speed(asked.blocks, asked.turns)
    elif asked.part == "gaussian":
        lines = gaussian()
    else:
        lines = model(asked.folder, asked.steps)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
