"""Memory and speed of forward passes in bfloat16 by how many generated kernels oneDNN and torch keep.

python -m benchmarks.evaluation.kernels [--kept 1024 512 256 64] [--lengths 60] [--rounds 3]

A small model reads batches of as many lengths, again and again. Printed are the memory that the process
has more after it than before (heap and anonymous mappings, freed memory given back) and the seconds of
the first and of the later rounds, each beside that of oneDNN's own 1,024.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from agent_forge.runs.system.process_limits import sleep_by_default
from agent_forge.weights.threads import KERNEL_CACHES

OWN = 1024
WORK = """
import ctypes, gc, json, re, sys, time, torch
from transformers import LlamaConfig, LlamaForCausalLM

def held():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/smaps_rollup") as file:
        return int(re.search(r"Anonymous: *(\\d+)", file.read())[1]) / 1024

torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=2048, hidden_size=128, intermediate_size=256, num_hidden_layers=6,
    num_attention_heads=4, num_key_value_heads=2)).to(torch.bfloat16).eval()
batches = [torch.randint(0, 2048, (8, 4 + 2 * i)) for i in range(int(sys.argv[2]))]
before, seconds = held(), []
with torch.inference_mode():
    for _ in range(int(sys.argv[3])):
        began = time.monotonic()
        for batch in batches:
            model(batch)
        seconds.append(time.monotonic() - began)
print(json.dumps({"memory": held() - before, "first": seconds[0], "later": sum(seconds[1:])}))
"""


def _measure(kept: int, given: argparse.Namespace) -> dict[str, float]:
    """Return MiB and seconds of a new process that keeps this many kernels."""
    env = os.environ | dict.fromkeys(KERNEL_CACHES, str(kept))
    command = [sys.executable, "-c", WORK, *map(str, (given.threads, given.lengths, given.rounds))]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    """Measure each number of kernels in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kept", type=int, nargs="+", default=[OWN, 512, 256, 64])
    parser.add_argument("--lengths", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    sleep_by_default()
    found = {kept: _measure(kept, given) for kept in dict.fromkeys((OWN, *given.kept))}
    own = found[OWN]
    for kept, one in found.items():
        ratios = ", ".join(f"{name} {one[name] / own[name]:.2f}" for name in ("first", "later"))
        print(f"{kept:5} kept: {one['memory']:5.0f} MiB more; seconds beside {OWN}: {ratios}")


if __name__ == "__main__":
    main()
