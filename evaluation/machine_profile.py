"""The profile of this machine: what can change the last bit of a number that is computed here."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence

import numpy as np
import torch
import transformers

from evaluation import autotune
from evaluation.backends.backend import BATCH_TOKENS
from runs.errors import UnavailableError
from runs.event_types import Profile

#: Flags of x86 processors for which the libraries of matrix products have code of its own.
FURTHER_FLAGS = {"avx512_fp16": "fp16", "amx_tile": "amx"}
#: Lines of /proc/cpuinfo that name who made a processor, on x86 and on ARM.
_MAKER = re.compile(r"^(?:vendor_id|CPU implementer)\s*:\s*(\S+)", re.MULTILINE)


def processor() -> str:
    """Return what decides which code a library takes for a matrix product on this processor.

    Its architecture, maker and instruction sets: MKL adds in another order on another maker's
    processor, even where both have the same instructions.
    """
    try:
        content = autotune.PROCESSORS.read_text("utf-8", "replace")
    except OSError:  # not Linux
        content = ""
    flags = set(content.split())
    parts = [
        platform.machine(),
        *_MAKER.findall(content)[:1],
        torch.backends.cpu.get_cpu_capability(),
    ]
    parts += [name for flag, name in FURTHER_FLAGS.items() if flag in flags]
    if autotune.has_bfloat16(torch.device("cpu")):  # emulated bfloat16 rounds sums differently
        parts.append("bf16")
    return " ".join(parts)


def unsuited(differences: Sequence[str], more: str = "") -> UnavailableError:
    """Return the error of a process that computes other numbers than a run is pinned to.

    `more`: what else can be set beside the number of threads.
    """
    return UnavailableError(
        "this process does not match the profile that the run is pinned to: "
        f"{'; '.join(differences)}. Resume it where it was started (FORGE_THREADS sets the number of "
        f"threads{more})."
    )


def machine_profile(device: str, dtype: str = "", attention: str = "") -> Profile:
    """Return the profile of a device: all facts that can change the last bit of a number there."""
    machine = processor()
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
