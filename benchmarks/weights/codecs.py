"""Rate and distortion of codecs on a trained model.

    forge cognate --out models                      # or: --optimiser adamw
    python -m benchmarks.weights.codecs models [--only NAME …] [--step STEP …]

First all linear layers by one codec and setting, the other tensors as they are: bits a weight with
scales and tables, relative error of the weights, bits per byte on the selection slice (mean of the
domains) and its excess over the model's own with the interval of a paired bootstrap over documents,
seconds to encode and decode. Grams are those of 32,768 tokens of the train slice. Quantisers of other
libraries are in the same table (`library_codecs`). Then each codec without entropy coding beside the
entropy-coded one at no more bits, with the interval of the difference. Then whole files, the embedding
included: bytes of the file without tokenizer, ratio to float32, excess.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.quants import QuantError

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.packing import ItemPack, pack
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.loading import load_tokenizer, texts_of
from agent_forge.evaluation.measures import perplexity
from agent_forge.phases.compression.settings import MENU
from agent_forge.runs.event_types import Figure
from agent_forge.studies.comparison import draws, figure, mean, resampled
from agent_forge.studies.events import Observe, Observed, answered
from agent_forge.weights import codecs
from agent_forge.weights.codecs.feedback.calibration import grams, token_counts
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.formats import coded_file
from agent_forge.weights.tensors import HEADS
from benchmarks.common import machine
from benchmarks.weights import library_codecs
from benchmarks.weights.library_codecs import Tried

CALIBRATION_TOKENS = 32_768
#: Settings of a compression's menu whose codecs search.
SEARCHED = ("seedlm-4", "seedlm-3", "vptq-2", "hyper-6", "hyper-4", "chain")
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
        self.context, self.tokenizer = context, load_tokenizer(str(base))
        self.texts = texts_of(items, "selection")
        packed = pack(texts, self.tokenizer, context)
        windows = _in_turn(packed["train"], CALIBRATION_TOKENS)
        self.grams = grams(self.model.module, windows)
        self.counts = token_counts(windows, self.model.vocabulary)
        self.linear = [n for n in self.weights if n in self.grams and n not in HEADS]
        self.own = self.observed(self.weights)
        self.bits = mean(self.own)
        counts = {domain: len(some) for domain, some in self.own.items.items()}
        self.drawn, self.documents = draws(counts, "codecs", 0), sum(counts.values())

    def observed(self, weights: Mapping[str, torch.Tensor]) -> Observed:
        """Return −log p of each document of the selection slice."""
        self.model.load(weights)
        given = self.texts, self.tokenizer, self.context, "coded"
        task = Observe("0" * 64, "rolling-bits-per-byte@1", "selection")
        return answered(task, *perplexity.scored(self.model, *given), time.monotonic())

    def excess(self, found: Observed) -> Figure:
        """Return bits per byte over the model's own, less one."""
        before, after = resampled(self.own, self.drawn), resampled(found, self.drawn)
        return figure(mean(found) / self.bits - 1, after / before - 1, self.documents)

    def less(self, one: Observed, other: Observed) -> Figure:
        """Return how many bits per byte the first model needs less than the other."""
        rates = resampled(other, self.drawn) - resampled(one, self.drawn)
        return figure(mean(other) - mean(one), rates, self.documents)


def _in_turn(packed: Mapping[Slice | str, ItemPack], tokens: int) -> list[np.ndarray]:
    """Return windows of the domains in turn, up to a number of tokens."""
    columns = [packed[domain].windows for domain in sorted(packed)]
    found: list[np.ndarray] = []
    for row in range(max(map(len, columns))):
        for windows in columns:
            if row < len(windows) and sum(map(len, found)) < tokens:
                found.append(windows[row])
    return found


def _codec(name: str, params: Mapping[str, Any]) -> Tried:
    """Return a trial of one of our codecs."""

    def tried(matrix: torch.Tensor, gram: torch.Tensor):
        began = time.perf_counter()
        coded = codecs.encode(name, matrix, params, gram)
        encoded = time.perf_counter()
        found = codecs.decode(name, coded)
        return coded.bytes, found, encoded - began, time.perf_counter() - encoded

    return tried


def trials(steps: tuple[float, ...]) -> dict[str, Tried | str]:
    """Return name → trial, or why there is none."""
    found: dict[str, Tried | str] = {}
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
    for name in SEARCHED:
        found[name] = _codec(MENU[name].codec, MENU[name].params)
    return found | library_codecs.trials()


@dataclass(frozen=True)
class Row:
    """A codec that was measured: bits a weight, and −log p of each document."""

    name: str
    bits: float
    found: Observed


def show_codecs(bench: Bench, tried: Mapping[str, Tried | str]) -> list[Row]:
    """Print the table of linear layers; return its rows."""
    print(
        "| linear layers | bits/weight | relative error | bits/byte | excess | encode | decode |\n"
        "|---|---:|---:|---:|---:|---:|---:|"
    )
    count = sum(bench.weights[name].numel() for name in bench.linear)
    norm = sum(_square(bench.weights[name]) for name in bench.linear)
    rows = []
    for name, trial in tried.items():
        if isinstance(trial, str):
            print(f"| {name} | {trial} | | | | | |")
            continue
        weights, sums = dict(bench.weights), np.zeros(4)
        try:
            for tensor in bench.linear:
                matrix = bench.weights[tensor]
                size, weights[tensor], *seconds = trial(matrix, bench.grams[tensor])
                sums += (size, _square(weights[tensor] - matrix), *seconds)
        except QuantError as error:  # of GGUF, for rows of another length than its blocks'
            print(f"| {name} | not of this model: {error} | | | | | |")
            continue
        rows.append(Row(name, sums[0] * 8 / count, bench.observed(weights)))
        print(
            f"| {name} | {rows[-1].bits:.2f} | {(sums[1] / norm) ** 0.5:.4f} | "
            f"{mean(rows[-1].found):.4f} | {_percent(bench.excess(rows[-1].found))} | "
            f"{sums[2]:.2f} s | {sums[3]:.2f} s |",
            flush=True,
        )
    return rows


def _percent(one: Figure) -> str:
    low, high = one.low or 0.0, one.high or 0.0
    return f"{100 * one.value:+.2f} % ({100 * low:+.2f} to {100 * high:+.2f})"


def show_ahead(bench: Bench, rows: list[Row]) -> None:
    """Print each other codec beside the entropy-coded one at no more bits a weight."""
    own = [row for row in rows if row.name.startswith("uniform") and row.name.endswith(", feedback")]
    print("| codec | bits/weight | entropy-coded | bits/weight | bits per byte less |")
    print("|---|---:|---|---:|---:|")
    for row in rows:
        below = [one for one in own if one.bits <= row.bits]
        if row.name.startswith("uniform") or not below:
            continue
        best = max(below, key=lambda one: one.bits)
        less = bench.less(best.found, row.found)
        print(
            f"| {row.name} | {row.bits:.2f} | {best.name.split(',')[1].strip()} | {best.bits:.2f} | "
            f"{less.value:.4f} ({less.low:.4f} to {less.high:.4f}) |"
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
            excess = bench.excess(bench.observed(decoded))
            print(
                f"| {linear:g} | {embedding:g} | {size:,} | {size * 8 / count:.2f} | "
                f"{4 * count / size:.1f} | {_percent(excess)} |",
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
    parser.add_argument("--only", nargs="*", help="regular expressions for codecs; files: whole files")
    parser.add_argument("--step", nargs="*", type=float, default=STEPS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(options.models)
    said = f"{bench.bits:.4f} bits per byte before coding, {bench.documents} documents"
    print(f"{machine()}; {said}\n")
    only = options.only
    tried = {
        name: trial
        for name, trial in trials(tuple(options.step)).items()
        if not only or any(re.search(part, name) for part in only)
    }
    if tried:
        rows = show_codecs(bench, tried)
        print()
        show_ahead(bench, rows)
        print()
    if not only or "files" in only:
        show_files(bench)


if __name__ == "__main__":
    main()
