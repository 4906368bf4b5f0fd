"""The profile of this machine: what can change the last bit of a number that is computed here."""

from __future__ import annotations

import platform

import numpy as np
import torch
import transformers

from evaluation import autotune
from evaluation.backends.backend import BATCH_TOKENS
from runs.event_types import Profile


def machine_profile(device: str, dtype: str = "", attention: str = "") -> Profile:
    """Return the profile of a device: all facts that can change the last bit of a number there."""
    machine = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    if autotune.has_bfloat16(torch.device("cpu")):  # emulated bfloat16 rounds sums differently
        machine += " bf16"
    if device.startswith("cuda"):
        machine += f" {torch.cuda.get_device_name(torch.device(device))}"
    return Profile(
        device=device,
        dtype=dtype,
        threads=torch.get_num_threads(),
        batch_tokens=BATCH_TOKENS,
        attention=attention,
        machine=machine,
        torch=str(torch.__version__),
        transformers=transformers.__version__,
        numpy=np.__version__,
    )
