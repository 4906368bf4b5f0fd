"""Devices of this machine: which a setting means, if it is here, and errors of their memory."""

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
    """Return a setting's device, "cpu" or "cuda:N": auto is a GPU if there is one for each process.

    A worker gives its process one device, named in FORGE_DEVICE; auto is then that device.
    """
    if device != AUTO:
        return device
    return os.environ.get("FORGE_DEVICE") or ("cuda:0" if gpus() >= processes else CPU)


def of_process(device: str) -> str:
    """Return a run's device by its name in this process: a worker's process sees its GPU as cuda:0."""
    local_device = os.environ.get("FORGE_DEVICE") or device
    return local_device if local_device.partition(":")[0] == device.partition(":")[0] else device


def of_run(state: Any) -> str:
    """Return the name of the device, as "cuda:0", that this process does a run's work on.

    Before the start this function resolves auto; the event `started` then fixes the run's device.
    Raises UnavailableError if that device is not here.
    """
    processes = getattr(state.submitted.config, "processes", 1)
    device = of_process(resolve(state.device, processes))
    check_device(device)
    return device


def out_of_memory(error: BaseException) -> bool:
    """Return True if an error means too little memory of machine or device, not a fault of the task.

    Torch's error counts only if this process has loaded torch; this function does not load it.
    """
    torch = sys.modules.get("torch")
    torch_errors = () if torch is None else (torch.OutOfMemoryError,)
    return isinstance(error, (MemoryError, *torch_errors))
