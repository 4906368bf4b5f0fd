"""Packing of small whole numbers into bytes: fixed numbers of bits, and five trits a byte. Exact."""

from __future__ import annotations

import numpy as np
import torch

from runs.errors import SourceError

#: Widest code, bits.
MOST_BITS = 16
#: Codes that are packed at a time: a multiple of 8, so that each chunk ends at a byte.
CHUNK = 1 << 20
#: Trits of a byte: 3⁵ = 243 fits 256, 1.6 bits a trit.
TRITS = 5
_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


def packed_bytes(count: int, bits: int) -> int:
    """Return how many bytes `count` codes of `bits` bits take."""
    return -(-count * bits // 8)


def pack_bits(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return codes as a uint8 vector, without gaps: code i has the bits from i · `bits` on.

    `codes` are whole numbers in [0, 2^bits), of any shape and integer dtype. Bits are little-endian
    in codes and bytes; the last byte is filled up with zeros. Raises ValueError for other codes.
    """
    flat = codes.reshape(-1).numpy()
    if not 1 <= bits <= MOST_BITS:
        raise ValueError(f"codes have 1 to {MOST_BITS} bits, not {bits}")
    if flat.size and (int(flat.min()) < 0 or int(flat.max()) >> bits):
        raise ValueError(f"a code does not fit {bits} bits")
    places = np.arange(bits, dtype=np.uint16)
    chunks = [
        np.packbits(
            (flat[i : i + CHUNK].astype(np.uint16)[:, None] >> places & 1).astype(np.uint8),
            bitorder="little",
        )
        for i in range(0, flat.size, CHUNK)
    ]
    return torch.from_numpy(np.concatenate(chunks or [np.zeros(0, np.uint8)]))


def unpack_bits(packed: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """Return the `count` codes that `pack_bits` wrote: uint8 up to 8 bits, int32 above.

    Raises SourceError for bytes that are not those of `count` codes.
    """
    raw = packed.reshape(-1).numpy()
    if raw.dtype != np.uint8 or raw.size != packed_bytes(count, bits):
        raise SourceError(
            f"{raw.size:,} bytes are not {count:,} codes of {bits} bits, which are "
            f"{packed_bytes(count, bits):,} bytes"
        )
    if (rest := raw.size * 8 - count * bits) and int(raw[-1]) >> (8 - rest):
        raise SourceError("the bits behind the last code are not zero")
    dtype = np.uint8 if bits <= 8 else np.int32
    codes = np.empty(count, dtype)
    weights = (1 << np.arange(bits)).astype(dtype)
    for i in range(0, count, CHUNK):
        n = min(CHUNK, count - i)
        first = i * bits // 8
        flags = np.unpackbits(raw[first : first + packed_bytes(n, bits)], bitorder="little")
        codes[i : i + n] = flags[: n * bits].reshape(n, bits).astype(dtype) @ weights
    return torch.from_numpy(codes)


def pack_trits(trits: torch.Tensor) -> torch.Tensor:
    """Return values of {−1, 0, 1}, any shape, as a uint8 vector of five trits a byte.

    A byte is Σ (t_k + 1) 3^k; the last byte is filled up with trits 0. Raises ValueError.
    """
    flat = trits.reshape(-1).numpy()
    if flat.size and (flat.min() < -1 or flat.max() > 1):
        raise ValueError("a trit is -1, 0 or 1")
    digits = np.ones(-(-flat.size // TRITS) * TRITS, np.uint8)
    digits[: flat.size] = (flat + 1).astype(np.uint8)
    return torch.from_numpy(digits.reshape(-1, TRITS) @ _POWERS)


def unpack_trits(packed: torch.Tensor, count: int) -> torch.Tensor:
    """Return the `count` trits that `pack_trits` wrote, int8.

    Raises SourceError for bytes that are not those of `count` trits.
    """
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
