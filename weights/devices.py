"""The devices of this machine, and the errors of their memory. Imports torch only for a GPU."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from agent_forge.runs.errors import ConfigError, UnavailableError
from agent_forge.runs.record.device_setting import AUTO, CPU

_KNOWN = re.compile(r"auto|cpu|cuda(?::(\d+))?")


def gpus() -> int:
    """Return the number of GPUs that this process can compute on."""
    import torch

    return torch.cuda.device_count()


def check_device(device: str, elsewhere: bool = False) -> None:
    """Raise ConfigError if the device is not known, UnavailableError if this machine lacks it.

    With `elsewhere` another machine computes, and its devices are not known here.
    """
    match = _KNOWN.fullmatch(device)
    if match is None:
        raise ConfigError(f"device {device!r} is not known: use auto, cpu or cuda:N.")
    if not device.startswith("cuda") or elsewhere:
        return
    if int(match[1] or 0) >= (count := gpus()):
        raise UnavailableError(
            f"device {device} is not here: this process sees {count or 'no'} "
            f"GPU{'' if count == 1 else 's'}. Use auto or cpu."
        )


def resolve(device: str, processes: int = 1) -> str:
    """Return the device that a setting means in this process: auto is a GPU if there is one.

    A worker's process has one device, which it names in FORGE_DEVICE. `processes` need a GPU each.
    """
    if device != AUTO:
        return device
    return os.environ.get("FORGE_DEVICE") or ("cuda:0" if gpus() >= processes else CPU)


def of_process(device: str) -> str:
    """Return a run's device as this process names it: a worker's process sees one GPU, as cuda:0."""
    local_device = os.environ.get("FORGE_DEVICE") or device
    return local_device if local_device.partition(":")[0] == device.partition(":")[0] else device


def of_run(state: Any) -> str:
    """Return the device that this process does a run's work on.

    Before the start auto is resolved here; after it the run's device is the one that `started` pins.
    Raises UnavailableError if that device is not here.
    """
    processes = getattr(state.submitted.config, "processes", 1)
    device = of_process(resolve(state.device, processes))
    check_device(device)
    return device


def out_of_memory(error: BaseException) -> bool:
    """Return True if the machine or a device had too little memory: no fault of the task.

    torch's own error counts only if this process has loaded torch; nothing loads it here.
    """
    torch = sys.modules.get("torch")
    torch_errors = () if torch is None else (torch.OutOfMemoryError,)
    return isinstance(error, (MemoryError, *torch_errors))
