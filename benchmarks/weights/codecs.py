"""Rate and distortion of codecs on a trained model.

    forge cognate --out models                      # or: --optimiser adamw
    python -m benchmarks.weights.codecs models [--only NAME …] [--step STEP …]

First all linear layers by one codec and setting, the other tensors as they are: bits a weight with
scales and tables, relative error of the weights, bits per byte on the selection slice (mean of the
domains) and its excess over the model's own, seconds to encode and decode. Grams are those of 32,768
tokens of the train slice. GGUF's types are quantised by the package `gguf`. Then whole files, the
embedding included: bytes of the file without tokenizer, ratio to float32, excess.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize

from benchmarks.common import machine
from evaluation.backends.local_backend import ResidentModel
from evaluation.data import items as data_items
from evaluation.data.packing import Packed, pack
from evaluation.data.slices import Slice
from evaluation.loading import load_tokenizer
from evaluation.perplexity import score_windows
from weights import codecs
from weights.codecs.feedback.calibration import grams, token_counts
from weights.folders.checkpoint import open_checkpoint
from weights.formats import coded_file
from weights.tensors import HEADS

CALIBRATION_TOKENS = 32_768
STEPS = (0.3, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
#: Steps of linear layers and of the embedding, of whole files.
FILES = (
    *((0.3, 0.25), (0.75, 0.5), (1.0, 0.5), (1.0, 0.75), (1.25, 0.75), (1.5, 0.75)),
    *((1.5, 1.0), (1.75, 1.0), (2.0, 1.0), (2.5, 1.25)),
)


class Bench:
    """A trained base, windows to measure it on, and the grams of its layers."""

    def __init__(self, folder: Path) -> None:
        base = folder / "base"
        self.checkpoint = open_checkpoint(base)
        self.weights = {name: t.clone() for name, t in self.checkpoint.tensors().items()}
        self.model = ResidentModel(base, "cpu", self.checkpoint.tied)
        self.model.load(self.weights)
        items = data_items.load(sorted((folder / "items").glob("*.jsonl")))
        texts = [item for item in items if isinstance(item, data_items.Text)]
        context = min(512, self.model.positions or 512)
        packed = pack(texts, load_tokenizer(str(base)), context)
        self.measured = packed["selection"]
        windows = _in_turn(packed["train"], CALIBRATION_TOKENS)
        self.grams = grams(self.model.module, windows)
        self.counts = token_counts(windows, self.model.vocabulary)
        self.linear = [n for n in self.weights if n in self.grams and n not in HEADS]
        self.bits = self.bits_per_byte(self.weights)

    def bits_per_byte(self, weights: Mapping[str, torch.Tensor]) -> float:
        """Return the mean over domains of bits per byte."""
        self.model.load(weights)
        rates = []
        for _, packed in sorted(self.measured.items()):
            nll = score_windows(self.model, packed.windows)[0]
            rates.append(math.fsum(nll) / math.log(2) / sum(packed.bytes))
        return math.fsum(rates) / len(rates)


def _in_turn(packed: Mapping[Slice | str, Packed], tokens: int) -> list[np.ndarray]:
    """Return windows of the domains in turn, up to a number of tokens."""
    columns = [packed[domain].windows for domain in sorted(packed)]
    found: list[np.ndarray] = []
    for row in range(max(map(len, columns))):
        for windows in columns:
            if row < len(windows) and sum(map(len, found)) < tokens:
                found.append(windows[row])
    return found


#: A matrix and its gram → bytes, the decoded matrix, seconds to encode and to decode.
Tried = Callable[[torch.Tensor, torch.Tensor], tuple[int, torch.Tensor, float, float]]


def _codec(name: str, params: Mapping[str, Any]) -> Tried:
    """Return a trial of one of our codecs."""

    def tried(matrix: torch.Tensor, gram: torch.Tensor):
        began = time.perf_counter()
        coded = codecs.encode(name, matrix, params, gram)
        encoded = time.perf_counter()
        found = codecs.decode(name, coded)
        return coded.bytes, found, encoded - began, time.perf_counter() - encoded

    return tried


def _gguf(name: str) -> Tried:
    """Return a trial of a type of the package `gguf`."""
    type_ = gguf.GGMLQuantizationType[name]

    def tried(matrix: torch.Tensor, _: torch.Tensor):
        began = time.perf_counter()
        raw = quantize(matrix.numpy(), type_)
        encoded = time.perf_counter()
        found = torch.from_numpy(np.ascontiguousarray(dequantize(raw, type_)))
        return raw.nbytes, found, encoded - began, time.perf_counter() - encoded

    return tried


def trials(steps: tuple[float, ...]) -> dict[str, Tried]:
    """Return name → trial."""
    found: dict[str, Tried] = {}
    for bits in (8, 4, 3, 2):
        found[f"rtn {bits} bit, groups of 64"] = _codec("rtn@1", {"bits": bits})
        if bits < 8:
            found[f"gptq {bits} bit, groups of 64"] = _codec("gptq@1", {"bits": bits})
    for step in steps:
        for said, params in (
            ("feedback", {}),
            ("feedback, nearest, in order of columns", {"threshold": 0.5, "ordered": False}),
            ("no feedback", {"feedback": False}),
        ):
            found[f"uniform, step {step:g}, {said}"] = _codec("uniform@1", {"step": step, **params})
    for scale in ("mean", "least-squares", "rms"):
        for feedback in (False, True):
            said = "feedback" if feedback else "no feedback"
            params = {"scale": scale, "feedback": feedback}
            found[f"ternary, {scale}, {said}"] = _codec("ternary@1", params)
    params = {"scale": "least-squares", "group": 64}
    found["ternary, least-squares, groups of 64, feedback"] = _codec("ternary@1", params)
    for name in ("Q8_0", "Q5_1", "Q4_0"):
        found[f"gguf {name}"] = _gguf(name)
    return found


def show_codecs(bench: Bench, tried: Mapping[str, Tried]) -> None:
    """Print the table of linear layers."""
    print("| linear layers | bits/weight | relative error | bits/byte | excess | encode | decode |")
    print("|---|---|---|---|---|---|---|")
    count = sum(bench.weights[name].numel() for name in bench.linear)
    norm = sum(_square(bench.weights[name]) for name in bench.linear)
    for name, trial in tried.items():
        weights, sums = dict(bench.weights), np.zeros(4)
        for tensor in bench.linear:
            matrix = bench.weights[tensor]
            size, weights[tensor], *seconds = trial(matrix, bench.grams[tensor])
            sums += (size, _square(weights[tensor] - matrix), *seconds)
        bits = bench.bits_per_byte(weights)
        print(
            f"| {name} | {sums[0] * 8 / count:.2f} | {(sums[1] / norm) ** 0.5:.4f} | {bits:.4f} | "
            f"{100 * (bits / bench.bits - 1):+.2f} % | {sums[2]:.2f} s | {sums[3]:.2f} s |",
            flush=True,
        )


def _square(values: torch.Tensor) -> float:
    return float(values.double().square().sum())


def show_files(bench: Bench) -> None:
    """Print the table of whole files."""
    count = sum(t.numel() for t in bench.weights.values())
    print("| step, linear | step, embedding | bytes | bits/parameter | times smaller | excess |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        file = Path(made) / "model.forge"
        for linear, embedding in FILES:
            coded_file.write(file, _coded(bench, linear, embedding), bench.checkpoint.config)
            size = file.stat().st_size
            decoded = dict(coded_file.CodedFile(file).tensors())
            bits = bench.bits_per_byte(decoded)
            print(
                f"| {linear:g} | {embedding:g} | {size:,} | {size * 8 / count:.2f} | "
                f"{4 * count / size:.1f} | {100 * (bits / bench.bits - 1):+.2f} % |",
                flush=True,
            )


def _coded(bench: Bench, linear: float, embedding: float):
    """Yield the tensors of a file: matrices by `uniform@1`, a step a row of the embedding."""
    for name, tensor in bench.weights.items():
        gram = bench.grams.get(name)
        if name in HEADS:
            params = {"step": embedding, "rows": True}  # feedback by the inputs of a tied head
            yield coded_file.code(name, tensor, "uniform@1", params, gram, rows=bench.counts)
        elif gram is not None:
            yield coded_file.code(name, tensor, "uniform@1", {"step": linear}, gram)
        else:
            yield coded_file.code(name, tensor, "plain@1", {"dtype": "float16"})


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", type=Path, help="what `forge cognate --out` has written")
    parser.add_argument("--only", nargs="*", help="parts of names of codecs; files: whole files")
    parser.add_argument("--step", nargs="*", type=float, default=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(options.models)
    print(f"{machine()}; {bench.bits:.4f} bits per byte before coding\n")
    only = options.only
    tried = {
        name: trial
        for name, trial in trials(tuple(options.step)).items()
        if not only or any(part in name for part in only)
    }
    if tried:
        show_codecs(bench, tried)
        print()
    if not only or "files" in only:
        show_files(bench)


if __name__ == "__main__":
    main()
