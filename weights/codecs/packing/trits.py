"""Trits (−1, 0, 1) packed five a byte, 1.6 bits each, without loss."""

from __future__ import annotations

import numpy as np
import torch

from agent_forge.runs.errors import ConfigError, SourceError

#: Trits of a byte: 3⁵ = 243 fits 256.
PER_BYTE = 5
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


def pack(trits: torch.Tensor) -> torch.Tensor:
    """Return values of {−1, 0, 1}, any shape, as a uint8 vector of five trits a byte.

    A byte is Σ (t_k + 1) 3^k. Trits 0 fill up the last byte. Raises ConfigError for another value.
    """
    flat = trits.reshape(-1).numpy()
    if flat.size and (flat.min() < -1 or flat.max() > 1):
        raise ConfigError(f"a trit is -1, 0 or 1; there are values {flat.min()} to {flat.max()}.")
    digits = np.ones(-(-flat.size // PER_BYTE) * PER_BYTE, np.uint8)
    digits[: flat.size] = (flat + 1).astype(np.uint8)
    return torch.from_numpy(digits.reshape(-1, PER_BYTE) @ _POWERS)


def unpack(packed: torch.Tensor, count: int) -> torch.Tensor:
    """Return the trits that `pack` wrote, [count] int8. Raises SourceError for other bytes."""
    raw = packed.reshape(-1).numpy()
    if raw.dtype != np.uint8 or raw.size != -(-count // PER_BYTE):
        raise SourceError(f"{raw.size:,} bytes are not {count:,} trits, five a byte")
    if raw.size and int(raw.max()) >= 3**PER_BYTE:
        raise SourceError(
            f"byte {int(raw.argmax()):,} holds {int(raw.max())}: five trits are below 243"
        )
    trits = (raw[:, None] // _POWERS % 3).astype(np.int8).reshape(-1) - np.int8(1)
    if trits[count:].any():
        raise SourceError("the trits behind the last one are not zero")
    return torch.from_numpy(trits[:count].copy())
