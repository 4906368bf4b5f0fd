"""Processor time of an evaluation in bfloat16, with and without each of its savings.

python -m benchmarks.evaluation.savings [--rounds 5]

A model of 25M parameters with random weights scores windows of 512 tokens and, for each of three
domains, nine questions of four choices, as a candidate of a search does. Each row leaves out one
saving: large pages for large tensors; memory that is used again; logits in chunks, with the place of a
maximum only where it is needed; the last position by its index; and continuations of all lengths in
one pass, the only one that changes bits. Printed are the least processor seconds of the rounds, on one
thread, and their ratio to those with all savings.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_forge.weights.threads import LARGE_PAGES
from benchmarks.common import folders

ROWS = {
    "all savings": "",
    "small pages": "pages",
    "fresh memory for each pass": "heap",
    "all logits at once, each maximum's place": "logits",
    "the last position by a slice": "slice",
    "a pass for each length of a continuation": "lengths",
}


def measure(folder: Path, left_out: str, rounds: int) -> dict[str, float]:
    """Return {"windows", "questions": least processor seconds} of this process, without a saving."""
    import numpy as np
    import torch

    from agent_forge.evaluation.backends import inductor, local_backend
    from agent_forge.weights.folders.checkpoint import open_checkpoint
    from agent_forge.weights.threads import HEAP, set_threads

    if left_out == "heap":
        os.environ.update(dict.fromkeys(HEAP, ""))  # as if a user had set it, and without effect here
    set_threads(1)
    if left_out == "logits":
        local_backend.scored = inductor.scored
    if left_out == "slice":
        local_backend._last = lambda module, length: 1
    model = local_backend.ResidentModel(folder, "cpu", tied=True)
    model.dtype = torch.bfloat16
    model.together = left_out != "lengths"
    model.load(open_checkpoint(folder).tensors())
    draws = np.random.default_rng(0)
    windows = [draws.integers(0, model.vocabulary, 512) for _ in range(16)]
    questions = [
        [
            (prompt, draws.integers(0, model.vocabulary, length))
            for prompt in (draws.integers(0, model.vocabulary, n) for n in range(16, 52, 4))
            for length in draws.integers(1, 28, 4)
        ]
        for _ in range(3)
    ]
    least: dict[str, float] = {"windows": math.inf, "questions": math.inf}
    for _ in range(rounds):
        for name, work in (
            ("windows", lambda: model.losses(windows)),
            ("questions", lambda: [model.continuations(pairs) for pairs in questions]),
        ):
            began = time.process_time()
            work()
            least[name] = min(least[name], time.process_time() - began)
    return least


def main() -> None:
    """Measure each row in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--row", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(measure(Path(options.row[0]), options.row[1], options.rounds)))
        return
    with TemporaryDirectory() as scratch:
        folders(Path(scratch))
        seconds = {}
        for name, left_out in ROWS.items():
            env = os.environ | {LARGE_PAGES: "0" if left_out == "pages" else "1"}
            command = [sys.executable, "-m", "benchmarks.evaluation.savings"]
            command += ["--rounds", str(options.rounds), "--row", f"{scratch}/base", left_out]
            done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
            seconds[name] = json.loads(done.stdout.splitlines()[-1])
    whole = seconds["all savings"]
    for name, row in seconds.items():
        parts = ", ".join(f"{what} {s:.2f} s ({s / whole[what]:.2f})" for what, s in row.items())
        print(f"{name}: {parts}")


if __name__ == "__main__":
    main()
