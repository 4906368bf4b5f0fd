"""The devices of this machine."""

from __future__ import annotations

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
