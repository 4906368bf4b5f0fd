"""Integers of a few bits each as bytes, in little-endian bit order.

Bit b of value i is bit (i · bits + b) of the stream, and bit k of the stream is bit k mod 8 of byte
k // 8. The last byte's unused bits are zero. Trits (−1, 0, 1) are packed five a byte, 1.6 bits each.
"""

from __future__ import annotations

import numpy as np
import torch

from agent_forge.runs.errors import ConfigError, SourceError

#: The most bits that a value may have.
MOST = 32
#: Values that are expanded to bits at a time: a multiple of 8, so every part ends with a byte.
_PART = 1 << 18
#: numpy's name of a torch dtype that values can be unpacked to.
_DTYPES = {torch.uint8: np.uint8, torch.int32: np.int32, torch.int64: np.int64}
#: Trits of a byte: 3⁵ = 243 fits 256.
TRITS = 5
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


def packed_bytes(count: int, bits: int) -> int:
    """Return how many bytes `count` values of `bits` bits take."""
    return (count * bits + 7) // 8


def pack(values: torch.Tensor, bits: int) -> torch.Tensor:
    """Return integers in 0 … 2^bits − 1, of any shape and dtype, as packed uint8 [packed_bytes].

    Raises ConfigError for another value, or another width than 1 to 32 bits.
    """
    if not 1 <= bits <= MOST:
        raise ConfigError(f"values have 1 to {MOST} bits, not {bits}.")
    flat = values.reshape(-1).numpy()
    if flat.size and (int(flat.min()) < 0 or int(flat.max()) >> bits):
        raise ConfigError(
            f"values {flat.min()} to {flat.max()} do not fit into {bits} bits: 0 to {2**bits - 1}."
        )
    places = np.arange(bits, dtype=np.min_scalar_type(2**bits - 1))
    parts = [np.empty(0, np.uint8)]
    for start in range(0, flat.size, _PART):
        expanded = flat[start : start + _PART, None].astype(places.dtype) >> places & 1
        parts.append(np.packbits(expanded.astype(np.uint8).reshape(-1), bitorder="little"))
    return torch.from_numpy(np.concatenate(parts))


def unpack(
    packed: torch.Tensor, bits: int, count: int, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """Return the integers that `pack` packed, [count] of `dtype`.

    `dtype` is uint8, int32 or int64 and must hold `bits` bits. Raises SourceError if the bytes are too
    few or too many for `count` values, or if unused bits of the last byte are set.
    """
    if not 1 <= bits <= MOST:
        raise SourceError(f"values have 1 to {MOST} bits, not {bits}.")
    needed = packed_bytes(count, bits)
    if packed.dtype != torch.uint8 or packed.shape != (needed,):
        raise SourceError(
            f"{count} values of {bits} bits are {needed} bytes; found {list(packed.shape)} of "
            f"{packed.dtype}."
        )
    stream = packed.contiguous().numpy()
    unused = needed * 8 - count * bits
    if unused and stream[-1] >> (8 - unused):
        raise SourceError("the last byte of packed values has bits set beyond the last value.")
    weights = np.array([1 << place for place in range(bits)], _DTYPES[dtype])
    values = np.empty(count, weights.dtype)
    for start in range(0, count, _PART):
        stop = min(start + _PART, count)
        part = stream[start * bits // 8 : packed_bytes(stop, bits)]
        expanded = np.unpackbits(part, count=(stop - start) * bits, bitorder="little")
        values[start:stop] = expanded.reshape(-1, bits).astype(weights.dtype) @ weights
    return torch.from_numpy(values)


def pack_trits(trits: torch.Tensor) -> torch.Tensor:
    """Return values of {−1, 0, 1}, any shape, as a uint8 vector of five trits a byte.

    A byte is Σ (t_k + 1) 3^k. Trits 0 fill up the last byte. Raises ConfigError for another value.
    """
    flat = trits.reshape(-1).numpy()
    if flat.size and (flat.min() < -1 or flat.max() > 1):
        raise ConfigError(f"a trit is -1, 0 or 1; there are values {flat.min()} to {flat.max()}.")
    digits = np.ones(-(-flat.size // TRITS) * TRITS, np.uint8)
    digits[: flat.size] = (flat + 1).astype(np.uint8)
    return torch.from_numpy(digits.reshape(-1, TRITS) @ _POWERS)


def unpack_trits(packed: torch.Tensor, count: int) -> torch.Tensor:
    """Return the trits that `pack_trits` wrote, [count] int8. Raises SourceError for other bytes."""
    raw = packed.reshape(-1).numpy()
    if raw.dtype != np.uint8 or raw.size != -(-count // TRITS):
        raise SourceError(f"{raw.size:,} bytes are not {count:,} trits, five a byte")
    if raw.size and int(raw.max()) >= 3**TRITS:
        raise SourceError(
            f"byte {int(raw.argmax()):,} holds {int(raw.max())}: five trits are below 243"
        )
    trits = (raw[:, None] // _POWERS % 3).astype(np.int8).reshape(-1) - np.int8(1)
    if trits[count:].any():
        raise SourceError("the trits behind the last one are not zero")
    return torch.from_numpy(trits[:count].copy())
