"""When to stop. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def converged(champions: Sequence[float | None], threshold: float, patience: int) -> bool:
    """Whether the champion improved by less than `threshold` (relative) over `patience` generations.

    `champions` are its selection-slice scores after each generation, generation 0 first. A patience
    of 0 never converges.
    """
    if patience == 0 or len(champions) <= patience:
        return False
    before, now = champions[-patience - 1], champions[-1]
    if before is None or now is None:
        return before is now
    return now - before < threshold * abs(before)
