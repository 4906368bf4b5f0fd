"""The devices of this machine, and the errors of their memory. Imports torch only for a GPU."""

from __future__ import annotations

import os
import sys

from runs.errors import ConfigError, UnavailableError


def check_device(device: str, elsewhere: bool = False) -> None:
    """Raise ConfigError if the device is not known, UnavailableError if this machine lacks it."""
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"device {device!r} is not known: use cpu or cuda:N.")
    if kind == "cuda" and not elsewhere:
        import torch

        index = int(device.partition(":")[2] or 0)
        if index >= torch.cuda.device_count():
            raise UnavailableError(
                f"device {device} is not there ({torch.cuda.device_count()} CUDA devices). "
                "Use --device cpu."
            )


def of_process(given: str) -> str:
    """Return a run's device as this process names it: a worker's process sees one GPU, as cuda:0."""
    own = os.environ.get("FORGE_DEVICE") or given
    return own if own.partition(":")[0] == given.partition(":")[0] else given


def out_of_memory(error: BaseException) -> bool:
    """Return True if the machine or a device had too little memory: no fault of the task.

    torch's own error counts only if this process has loaded torch; nothing loads it here.
    """
    torch = sys.modules.get("torch")
    own = () if torch is None else (torch.OutOfMemoryError,)
    return isinstance(error, (MemoryError, *own))
