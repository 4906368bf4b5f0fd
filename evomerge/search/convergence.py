"""The stopping rule of a search, a pure function."""

from __future__ import annotations

from collections.abc import Sequence


def converged(champions: Sequence[float | None], threshold: float, patience: int) -> bool:
    """Return True if the champion's relative gain over `patience` generations is below `threshold`.

    `champions` are the champion's selection-slice scores after each generation, generation 0 first;
    None: no score. If one of the two compared scores is None, return True only if both are. A
    patience of 0 never converges.
    """
    if patience == 0 or len(champions) <= patience:
        return False
    before, now = champions[-patience - 1], champions[-1]
    if before is None or now is None:
        return before is now
    return now - before < threshold * abs(before)
