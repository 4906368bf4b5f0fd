"""Gain of the merge loops that exist beside a general loop: merges with and without each of them.

    python -m benchmarks.weights.loops [--turns 21]

For each loop, the embedding and two blocks of a 25M model are merged by two processes in turn: by
this program, and by a copy of it in which the general loop does the same work. Timed are the passes
over the tensors (`inner_loops.merged`): printed are medians of the processor time of one thread, and
the median of the turns' ratios. Both must make the same bits. A loop is worth its code if a pass
takes over 1.3 times as long without it (docs/decisions/0008).
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agent_forge.evomerge.merging.builder import Builder
from agent_forge.evomerge.merging.kernels import inner_loops
from agent_forge.evomerge.recipes.recipe import Merge, Source
from benchmarks.common import machine, weights

ROOT = Path(__file__).resolve().parents[2]
KERNELS = "evomerge/merging/kernels/numba"
TENSORS = ("model.embed_tokens.", "model.layers.0.", "model.layers.1.")

#: Name of a merge → (method, inputs, parameters). All but linear are on a base.
MERGES: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "linear": ("linear", 3, {}),
    "ties": ("ties", 3, {}),
    "dare_ties": ("dare", 3, {"vote": True}),
    "dare": ("dare", 3, {}),
    "dfs": ("dfs", 4, {}),
}


@dataclass(frozen=True)
class Loop:
    """A loop beside a general one, and what puts the general one in its place."""

    name: str
    file: str
    #: Text of the file that chooses the loop, and what takes its place.
    chosen: str
    instead: str
    #: (name of a merge, dtype) in which the loop is used.
    merges: tuple[tuple[str, str], ...]


LOOPS = (
    Loop(
        "_vote_of_four",
        "sign_election.py",
        "if weights.size > 4:",
        "if weights.size > 0:",
        (("ties", "bfloat16"), ("ties", "float32"), ("dare_ties", "bfloat16")),
    ),
    Loop(
        "_deviations_of_four",
        "feature_selection.py",
        "_deviations_of_four(a, b, c, d, mean, lanes, distance)\n        return",
        "for j in range(count):\n"
        "            distance[j] = _deviation(x[top + j, start:end], mean)\n        return",
        (("dfs", "bfloat16"), ("dfs", "float32")),
    ),
    Loop(
        "_mean_of_four",
        "feature_selection.py",
        "_mean_of_four(a, b, c, d, mean)\n        _dev",
        "fill(mean, _ZERO)\n        for j in range(count):\n"
        "            add_to(mean, x[top + j, start:end])\n"
        "        scale_by(mean, np.float32(1.0 / count))\n        _dev",
        (("dfs", "bfloat16"), ("dfs", "float32")),
    ),
    Loop(
        "_pull_three",
        "feature_selection.py",
        "if count == 4:\n        b, c, d",
        "if count == 0:\n        b, c, d",
        (("dfs", "bfloat16"), ("dfs", "float32")),
    ),
    Loop(
        "_sum_of_three",
        "vectors.py",
        "if factors.size == 3:",
        "if factors.size == 0:",
        (("linear", "float16"), ("dare", "bfloat16"), ("dare", "float32")),
    ),
    Loop(
        "three_inputs.py",
        "passes.py",
        "and len(outs) == 1 and",
        "and len(outs) == 0 and",
        (("linear", "bfloat16"), ("linear", "float32")),
    ),
)


def without(loop: Loop, folder: Path) -> Path:
    """Copy the program into a folder, with the general loop in the place of one; return the folder."""
    for package in ("evomerge", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    path = folder / KERNELS / loop.file
    text = path.read_text("utf-8")
    assert text.count(loop.chosen) == 1, f"{loop.file} no longer has {loop.chosen!r} once"
    path.write_text(text.replace(loop.chosen, loop.instead), "utf-8")
    return folder


def serve(name: str, dtype: str) -> None:
    """Merge once and print a digest and the elements; then merge for each line of the input.

    Printed for each are the seconds of processor time of its passes.
    """
    passed, passes = [0.0], inner_loops.merged

    def timed(*arguments: Any) -> list[int]:
        began = time.process_time()
        told = passes(*arguments)
        passed[0] += time.process_time() - began
        return told

    inner_loops.merged = timed
    torch.set_num_threads(1)
    method, count, params = MERGES[name]
    models = [
        {n: t.to(getattr(torch, dtype)) for n, t in model.items() if n.startswith(TENSORS)}
        for model in weights(count + 1)
    ]
    sources = [Source(digest=str(number)) for number in range(len(models))]
    ids = [source.id for source in sources]
    stored = dict(zip(ids, models, strict=True))
    builder = Builder(dict(zip(ids, sources, strict=True)), stored.get)
    base = None if name == "linear" else ids[0]
    recipe = Merge(method=method, inputs=tuple(ids[1:]), base=base, params=params, seed=1)
    made = hashlib.sha256()
    for tensor in builder.build(recipe).values():
        made.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    print(made.hexdigest(), sum(tensor.numel() for tensor in models[0].values()), flush=True)
    for _ in sys.stdin:
        passed[0] = 0.0
        builder.build(recipe)
        print(passed[0], flush=True)


@contextmanager
def merging(where: Path, name: str, dtype: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that merges by the program in a folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.weights.loops", "--serve", name, dtype],
        cwd=where,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def turn(process: subprocess.Popen[str]) -> float:
    """Let a process merge once; return its seconds."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def compared(loop: Loop, folder: Path, name: str, dtype: str, turns: int) -> None:
    """Print a row: a merge with and without a loop."""
    with ExitStack() as stack:
        both = [stack.enter_context(merging(at, name, dtype)) for at in (ROOT, folder)]
        told = [process.stdout.readline().split() for process in both if process.stdout]
        assert told[0] == told[1], f"{loop.name}, {name}, {dtype}: other bits without the loop"
        pairs = [(turn(both[0]), turn(both[1])) for _ in range(turns)]
    elements = int(told[0][1])
    here, general = (statistics.median(times) / elements * 1e9 for times in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    count = MERGES[name][1]
    print(
        f"| `{loop.name}` | {name} of {count}, {dtype} | {here:.2f} | {general:.2f} | {ratio:.2f} |",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(*given.serve)
        return
    print(f"{machine()}, one used\n")
    print("| loop | pass | with, ns an element | without | ratio |\n|---|---|---|---|---|")
    for loop in LOOPS:
        with tempfile.TemporaryDirectory() as name:
            folder = without(loop, Path(name))
            for merge, dtype in loop.merges:
                compared(loop, folder, merge, dtype, given.turns)


if __name__ == "__main__":
    main()
