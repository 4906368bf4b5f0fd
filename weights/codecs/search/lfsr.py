"""Linear feedback shift registers (SeedLM, arXiv 2410.10714, section 3.1, appendices A.1 to A.3).

One step of a register of K bits: the exclusive or of the bits at the taps enters at the left (bit
K − 1) while the state shifts to the right. The taps of table 6 (appendix A.1) make every register
run through all 2^K − 1 states other than 0. For K = 16 they are bits 0, 1, 3 and 12: the recurrence
b(n + 16) = b(n) + b(n + 1) + b(n + 3) + b(n + 12) mod 2, whose polynomial x^16 + x^12 + x^3 + x + 1
is primitive.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

#: Bits of a register → its taps, by table 6 of the paper; 8 bits are for tests.
TAPS: dict[int, tuple[int, ...]] = {3: (0, 1), 8: (0, 2, 3, 4), 16: (0, 1, 3, 12)}


def states(bits: int, seed: int, count: int) -> list[int]:
    """Return the `count` states after `seed`, the first one step after it (algorithm 1)."""
    sequence, state = [], seed
    for _ in range(count):
        entering = 0
        for tap in TAPS[bits]:
            entering ^= state >> tap
        state = (state >> 1) | ((entering & 1) << (bits - 1))
        sequence.append(state)
    return sequence


@cache
def cycle(bits: int) -> NDArray[np.int64]:
    """Return [2^bits − 1] all states, in order, the first being the successor of state 1."""
    order = np.array(states(bits, 1, (1 << bits) - 1), dtype=np.int64)
    order.flags.writeable = False
    return order


@cache
def places(bits: int) -> NDArray[np.int64]:
    """Return [2^bits] the place in `cycle` of the state that follows each seed; −1 for seed 0."""
    order = cycle(bits)
    positions = np.full(1 << bits, -1, dtype=np.int64)
    positions[np.roll(order, 1)] = np.arange(order.size)
    positions.flags.writeable = False
    return positions
