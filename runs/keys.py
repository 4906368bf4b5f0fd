"""Random numbers from keys: SHA-256 of their purpose, never a stream shared by several purposes."""

from __future__ import annotations

import hashlib
import json

import numpy as np


def key(*parts: str | int) -> int:
    """Return a 128-bit integer from the parts, e.g. (run seed, purpose, generation, slot)."""
    text = json.dumps(parts, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def seed(*parts: str | int) -> int:
    """Return a 63-bit integer from the parts: a seed that fits every integer column."""
    return key(*parts) >> 65


def generator(*parts: str | int) -> np.random.Generator:
    """Return a separate numpy generator for these parts (Philox, Salmon et al. 2011)."""
    return np.random.Generator(np.random.Philox(key=key(*parts)))
