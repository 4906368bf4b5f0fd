"""Speed of forward passes by how long waiting threads spin, alone and beside busy processes.

python -m benchmarks.evaluation.waiting [--spins 0 1000 10000 100000] [--busy 0 4]

A thread that waits looks `spins` times, then it sleeps (GOMP_SPINCOUNT; 0: it sleeps at once). OpenMP's
own default is the first. They take turns in one run, so that all see the same machine. Printed are
tokens a second, and their ratios to OpenMP's default in each round.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

from agent_forge.runs.system.process_limits import DECIDES

BUSY = "while True: pass"
WORK = """
import os, sys, time, torch
torch.set_num_threads(int(sys.argv[1]))
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=2048, hidden_size=192, intermediate_size=512, num_hidden_layers=6,
    num_attention_heads=6, num_key_value_heads=6)).eval()
batch = torch.randint(0, 2048, (8, 128))
done, until = 0, None
with torch.inference_mode():
    for _ in range(3):
        model(batch)
    began = time.monotonic()
    while time.monotonic() - began < float(sys.argv[2]):
        model(batch)
        done += batch.numel()
print(done / (time.monotonic() - began))
"""


def _speed(spins: int | None, threads: int, seconds: float) -> float:
    """Return the tokens a second of a new process whose waiting threads look so often."""
    env = {name: value for name, value in os.environ.items() if name not in DECIDES}
    if spins is not None:
        env["GOMP_SPINCOUNT"] = str(spins)
    command = [sys.executable, "-c", WORK, str(threads), str(seconds)]
    return float(subprocess.run(command, env=env, check=True, capture_output=True).stdout)


def _compare(busy: int, given: argparse.Namespace) -> None:
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    ways = [None, *given.spins]
    try:
        rounds = [
            [_speed(spins, given.threads, given.seconds) for spins in ways] for _ in range(given.rounds)
        ]
    finally:
        for other in others:
            other.kill()
            other.wait()
    print(f"{busy} busy processes beside:")
    for place, spins in enumerate(ways):
        median = statistics.median(speeds[place] for speeds in rounds)
        ratios = ", ".join(f"{speeds[place] / speeds[0]:.2f}" for speeds in rounds)
        name = "default" if spins is None else f"{spins:,}"
        print(f"  {name:>10} spins: {median:9,.0f} tokens/s; ratios {ratios}", flush=True)


def main() -> None:
    """Measure alone and beside busy processes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--busy", type=int, nargs="*", default=[0, 4], help="busy processes beside")
    add("--spins", type=int, nargs="*", default=[0, 1_000, 10_000, 100_000])
    add("--threads", type=int, default=len(os.sched_getaffinity(0)))
    add("--seconds", type=float, default=5.0)
    add("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}, {given.threads} threads")
    for busy in given.busy:
        _compare(busy, given)


if __name__ == "__main__":
    main()
