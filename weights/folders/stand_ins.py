"""Stand-ins: copies of a model with noise, to test work with before the real models exist."""

from __future__ import annotations

from pathlib import Path

import torch

from agent_forge.runs import keys
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, open_checkpoint, write_weights

#: Standard deviation of the noise, relative to each tensor's own.
NOISE = 1e-2


def write(donor: Path, folder: Path, name: str) -> Path:
    """Write a copy of the model `donor` with noise on its weights; return `folder`.

    Each `name` gives other weights, as another training would.
    """
    folder.mkdir(parents=True)
    companions.write(donor, folder)
    (folder / companions.CONFIG).write_bytes((donor / companions.CONFIG).read_bytes())
    tensors = open_checkpoint(donor).tensors()
    write_weights(folder, {n: _noisy(t, name, n) for n, t in tensors.items()}, SHARD_BYTES)
    return folder


def _noisy(tensor: torch.Tensor, *named: str) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return tensor
    drawn = keys.generator("stand-in", *named).standard_normal(tensor.shape, dtype="float32")
    return tensor + torch.from_numpy(drawn).to(tensor.dtype) * tensor.std() * NOISE
