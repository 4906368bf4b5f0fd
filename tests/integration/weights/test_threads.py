"""Torch's settings of a process that computes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from agent_forge.weights.threads import HEAP, KERNEL_CACHES, KERNELS

WORK = """
import sys, torch
from agent_forge.weights.threads import KERNELS, set_threads
set_threads(1)
row, kernel = torch.ones(2, 1, KERNELS + 50), torch.ones(1, 1, 3)
for time in range(2):
    print("round", time, flush=True)
    for length in range(3, KERNELS + 50):
        torch.nn.functional.conv1d(row[:, :, :length], kernel)
"""


def _made_again(**chosen: str) -> int:
    """Return how many kernels a new process generates twice, of more than the caches hold."""
    env = {name: value for name, value in os.environ.items() if name not in KERNEL_CACHES}
    env |= {"ONEDNN_VERBOSE": "profile_create", **chosen}
    told = subprocess.run([sys.executable, "-c", WORK], env=env, check=True, capture_output=True)
    return told.stdout.decode().split("round 1")[1].count("create:cache_miss")


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_kernels_of_as_many_shapes_as_texts_have_do_not_stay_in_memory():
    assert _made_again() > KERNELS
    # Who has the memory for more says so, and nothing is made twice.
    assert not _made_again(**dict.fromkeys(KERNEL_CACHES, "1024"))


FILL = """
import resource, torch
from agent_forge.weights.threads import set_threads
set_threads(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(1 << 26)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
LARGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not LARGE.exists() or "[never]" in LARGE.read_text(), reason="no large pages on this machine"
)
def test_a_large_tensor_takes_large_pages():
    """256 MiB are 65,536 small pages, and each was a fault that clears it."""
    process = subprocess.run([sys.executable, "-c", FILL], check=True, capture_output=True)
    assert int(process.stdout) < 1 << 15


PASSES = """
import resource, torch
from agent_forge.weights.threads import keep_freed_memory, set_threads
set_threads(1)
keep_freed_memory(True)
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    activations = [torch.ones(5 << 18) for _ in range(25)]
    activations.append(torch.ones(5 << 22))
    del activations
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries manage their own heaps")
def test_a_pass_takes_the_memory_of_the_pass_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the system clears 225 MB of fresh pages for each, unless the user has asked for that."""

    def faults() -> int:
        process = subprocess.run([sys.executable, "-c", PASSES], check=True, capture_output=True)
        return int(process.stdout)

    again = faults()
    for name in HEAP:
        monkeypatch.setenv(name, "131072")
    assert 20 * again < faults()


BEFORE_A_TRAINING = """
import torch
from agent_forge.runs.system.process_limits import give_back, memory
from agent_forge.weights.threads import keep_freed_memory, set_threads
set_threads(1)
before = memory()
for keep in (True, False):
    keep_freed_memory(keep)
    give_back()
    torch.ones(25 << 20)  # 100 MiB, which are freed at once
    print(memory() - before >> 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries manage their own heaps")
def test_a_training_gives_back_what_passes_would_keep() -> None:
    """A process reads models and trains in turns; `segment` calls both functions before it trains."""
    command = [sys.executable, "-c", BEFORE_A_TRAINING]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    held, left = map(int, process.stdout.split())
    assert held > 90
    assert left < 50
