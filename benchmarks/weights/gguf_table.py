"""Bytes against loss of a model's GGUF files, and of files of our codecs.

    forge export MODEL --format gguf --type Q8_0,Q4_K_M --imatrix DATA --out FOLDER --json > files.json
    python -m benchmarks.weights.gguf_table MODEL --data DATA --gguf files.json [--codec uniform-1 …]
    python -m benchmarks.weights.gguf_table MODEL --data DATA --gguf files.json --read

The first command writes the GGUF files and measures them in llama.cpp; the second measures the model
itself, and files of our codecs (`forge compress`'s menu, embedding included), on the same documents in
torch, and prints one table. Grams are those of the text of the importance matrix, so that both sides
have seen the same text.

With `--read` every GGUF file is read back: its weights are measured in torch, and once more in
llama.cpp, written as F32. What llama.cpp computes otherwise beside quantised matrices (activations
rounded to 8 bits) is then apart from what the file holds.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.packing import in_turn
from agent_forge.evaluation.loading import load_items, load_tokenizer
from agent_forge.evaluation.measures import perplexity
from agent_forge.phases.compression.settings import MENU, Coding
from agent_forge.weights.codecs.feedback.calibration import grams, token_counts
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.folders.gguf_source import conversion
from agent_forge.weights.formats import coded_file, gguf_file
from agent_forge.weights.formats.libllama import Library
from agent_forge.weights.tensors import HEADS
from agent_forge.worker.exports import gguf_export as measures
from benchmarks.common import machine

#: Settings near 4, 3, 2.5 and 2 bits a weight: a Gaussian's entropy is 2.05 − log2(step) bits.
CODECS = ("uniform-0.25", "uniform-0.55", "uniform-0.7", "uniform-1")


class Bench:
    """A model, the documents that it is measured on, and the grams of its layers."""

    def __init__(self, folder: Path, data: tuple[str, ...]) -> None:
        self.checkpoint = open_checkpoint(folder)
        self.weights = {name: t.float() for name, t in self.checkpoint.tensors().items()}
        self.model = ResidentModel(folder, "cpu", self.checkpoint.tied)
        self.tokenizer = tokenizer = load_tokenizer(str(folder))
        items = load_items(data, needed=(measures.IMPORTANCE, measures.LOSS))
        split = measures.split_of(self.checkpoint, tokenizer, items, measures.LOSS)
        self.split = measures.first_documents(split)
        split = measures.split_of(self.checkpoint, tokenizer, items, measures.IMPORTANCE)
        self.windows = in_turn(split.values(), measures.IMPORTANCE_TOKENS)
        self.grams: Mapping[str, torch.Tensor] = {}

    def bits(self, weights: Mapping[str, torch.Tensor]) -> float:
        """Return bits per byte, the mean over domains."""
        self.model.load(weights)
        rates = [
            sum(perplexity.score(self.model, queue)) / sum(one.bytes for one in queue)
            for queue in self.split.values()
        ]
        return sum(rates) / len(rates) / math.log(2)

    def read_back(self, file: Path) -> tuple[float, float]:
        """Return bits per byte of a GGUF file's weights: in torch, and in llama.cpp as F32."""
        with tempfile.TemporaryDirectory() as place, Library(torch.get_num_threads()) as library:
            opened = open_checkpoint(conversion.folder(file, Path(place), str(file)))
            ours = self.bits({name: t.float() for name, t in opened.tensors().items()})
            exact = Path(place) / "exact.gguf"
            tokens = gguf_file.tokens_of(self.tokenizer, opened.config["vocab_size"])
            gguf_file.write(opened, tokens, exact, "F32", file.stem)
            return ours, measures.bits_per_byte(library, exact, self.split, lambda text: None)

    def coded(self, setting: Coding) -> Iterator[Any]:
        """Yield the tensors of a file: matrices by a setting's codec, vectors in float16."""
        if not self.grams:
            self.model.load(self.weights)
            self.grams = grams(self.model.module, self.windows)
        counts = token_counts(self.windows, self.model.vocabulary)
        for name, tensor in self.weights.items():
            gram = self.grams.get(name)
            if name in HEADS or name in HEADS.values():
                params = {**setting.params, **setting.embedding}
                yield coded_file.code(name, tensor, setting.codec, params, gram, rows=counts)
            elif gram is not None:
                yield coded_file.code(name, tensor, setting.codec, setting.params, gram)
            else:
                yield coded_file.code(name, tensor, "plain@1", {"dtype": "float16"})


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute in one thread: on a busy machine two wait for each other in every step of a codec."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def rows(bench: Bench, codecs: list[str], gguf: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for the model, for each GGUF file, and for each setting of our codecs."""
    yield {"name": "the model", "bytes": bench.checkpoint.bytes, "bits": bench.bits(bench.weights)}
    for file in gguf.get("files", []):
        yield {"name": f"GGUF {file['type']}", "bytes": file["bytes"], "bits": file["bits_per_byte"]}
    for name in codecs:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.forge"
            with one_thread():
                coded_file.write(file, bench.coded(MENU[name]), bench.checkpoint.config)
            size = file.stat().st_size
            decoded = dict(coded_file.CodedFile(file).tensors())
            yield {
                "name": f"ours, {name}",
                "bytes": size,
                "bits": bench.bits(decoded),
                "seconds": time.monotonic() - began,
            }


def print_read(bench: Bench, gguf: Mapping[str, Any]) -> None:
    """Print what each GGUF file's weights give here and in llama.cpp."""
    print("| file | bits per byte in llama.cpp | read back, here | | as F32 in llama.cpp | |")
    print("|---|---:|---:|---:|---:|---:|")
    for file in gguf["files"]:
        ours, exact = bench.read_back(Path(file["file"]))
        theirs = file["bits_per_byte"]
        print(
            f"| {file['type']} | {theirs:.5f} | {ours:.5f} | {100 * (theirs / ours - 1):+.3f} % | "
            f"{exact:.5f} | {100 * (exact / ours - 1):+.3f} % |",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path, help="a Hugging Face folder")
    parser.add_argument("--data", action="append", required=True)
    parser.add_argument("--gguf", type=Path, help="what `forge export … --json` printed")
    parser.add_argument("--codec", nargs="*", default=CODECS, choices=sorted(MENU))
    parser.add_argument("--read", action="store_true", help="measure what the GGUF files hold")
    options = parser.parse_args()
    bench = Bench(options.model, tuple(options.data))
    gguf = {} if options.gguf is None else json.loads(options.gguf.read_text())
    tokens = sum(len(w) - 1 for queue in bench.split.values() for d in queue for w in d.windows)
    print(f"{machine()}; {tokens:,} tokens measured, {sum(map(len, bench.windows)):,} calibrated\n")
    if options.read:
        print_read(bench, gguf)
        return
    print("| file | bytes | bits a weight | bits per byte | excess | seconds |")
    print("|---|---:|---:|---:|---:|---:|")
    whole = 0.0
    for row in rows(bench, list(options.codec), gguf):
        whole = whole or row["bits"]
        seconds = f"{row['seconds']:.0f}" if "seconds" in row else ""
        rate = 8 * row["bytes"] / bench.checkpoint.parameters
        print(
            f"| {row['name']} | {row['bytes']:,} | {rate:.2f} | "
            f"{row['bits']:.4f} | {100 * (row['bits'] / whole - 1):+.2f} % | {seconds} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
