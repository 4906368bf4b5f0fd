"""A gene: one number of a point in [0, 1]ⁿ, and the parameter's value that it stands for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gene:
    """One number of a cell: its parameter, the source it is for, its bounds and its usual value."""

    key: str
    source: int | None
    low: float
    high: float
    usual: float

    def value(self, x: float) -> float:
        """Return low + x (high - low), rounded to six decimals; x is clipped to [0, 1]."""
        x = min(1.0, max(0.0, x))
        return round(self.low + x * (self.high - self.low), 6)

    def place(self, value: float) -> float:
        """Return the place in [0, 1] of a parameter's value, clipped to [0, 1]."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))
