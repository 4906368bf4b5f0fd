"""Torch's settings of a process that computes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from agent_forge.weights.threads import KERNEL_CACHES, KERNELS

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
