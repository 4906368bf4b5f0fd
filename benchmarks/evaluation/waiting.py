"""Speed of forward passes with sleeping and with spinning threads, alone and beside busy processes.

python -m benchmarks.evaluation.waiting --busy 4

Rounds of spinning and sleeping take turns in one run, so that both see the same machine. Printed are
ratios (sleeping over spinning, tokens a second) and what they were made from.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

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


def _speed(sleep: bool, threads: int, seconds: float) -> float:
    """Return the tokens a second of a new process whose waiting threads sleep or spin."""
    env = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    if not sleep:
        del env["OMP_WAIT_POLICY"]  # torch's own default
    command = [sys.executable, "-c", WORK, str(threads), str(seconds)]
    return float(subprocess.run(command, env=env, check=True, capture_output=True).stdout)


def _compare(busy: int, given: argparse.Namespace) -> None:
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        pairs = [
            [_speed(sleep, given.threads, given.seconds) for sleep in (False, True)]
            for _ in range(given.rounds)
        ]
    finally:
        for other in others:
            other.kill()
            other.wait()
    spinning, sleeping = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratios = ", ".join(f"{slept / spun:.2f}" for spun, slept in pairs)
    print(
        f"{busy} busy processes beside: spinning {spinning:,.0f}, sleeping {sleeping:,.0f} tokens/s; "
        f"ratios {ratios}"
    )


def main() -> None:
    """Measure alone and beside busy processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busy", type=int, nargs="*", default=[0, 4], help="busy processes beside")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f}, {given.threads} threads")
    for busy in given.busy:
        _compare(busy, given)


if __name__ == "__main__":
    main()
