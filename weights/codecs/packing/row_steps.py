"""Steps of the rows of a matrix: by their root mean squares, and by how much they matter.

Row r has the step base · 2^(e_r / 8) · 2^(c_r / 2). The whole number e_r follows the row's root mean
square. The class c_r follows how much the row matters: a squared error in row r counts w_r times, and
the step is proportional to w_r^(−power). The best power is 1/2 for small steps. At few bits it is
smaller, because rows that matter little would otherwise be zero. Rows of a class have similar indices
and share a table of frequencies. Both vectors are range coded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.codecs import Coded
from agent_forge.weights.codecs.matrices import part, whole
from agent_forge.weights.codecs.packing import range_coder
from agent_forge.weights.codecs.packing.range_coder import MOST_VALUE

#: Parts of a range-coded vector.
CODED = {"table": torch.uint8, "words": torch.uint8, "escaped": torch.int32}
#: Steps of e, and of c, in a factor of two.
EIGHTH, HALF = 8, 2
#: Most classes, and largest e.
MOST_CLASSES, MOST_EXPONENT = 64, 2400


@dataclass(frozen=True)
class RowSteps:
    """Steps of a matrix: a base, and exponents e and c by which each row multiplies it, or None."""

    #: float32 [1].
    base: torch.Tensor
    #: e and c, int64 [rows], from 0 on.
    exponents: torch.Tensor | None = None
    classes: torch.Tensor | None = None

    def values(self) -> torch.Tensor:
        """Return the steps, float32 [rows], or [1] for one step; computed in float64, rounded once."""
        if self.exponents is None:
            return self.base
        eighths = self.exponents.clone()
        if self.classes is not None:
            eighths += self.classes * (EIGHTH // HALF)
        factors = torch.tensor(range_coder.EIGHTHS, dtype=torch.float64) / 256.0
        steps = self.base.double() * factors[eighths % EIGHTH]
        return torch.ldexp(steps, eighths // EIGHTH).float()

    def members(self, rows: int) -> list[torch.Tensor]:
        """Return the row numbers of each class, int64, in order; one tensor of all without classes."""
        if self.classes is None:
            return [torch.arange(rows)]
        return [torch.nonzero(self.classes == c).flatten() for c in range(int(self.classes.max()) + 1)]


def fit(
    matrix: torch.Tensor, step: float, by_row: bool, weights: torch.Tensor | None, power: float
) -> RowSteps:
    """Return the RowSteps (base, e, c) of a matrix, `step` root mean squares long.

    `weights`: how much each row matters, [rows] float64; None: all alike. Rows of zeros have the
    smallest step. Raises ConfigError for other weights, or if float32 has no such step.
    """
    squares = matrix.double().square().mean(1)
    if not by_row:
        rms = float(squares.mean().sqrt())
        return RowSteps(_usable(rms * step if rms else 1.0))
    roots = squares.sqrt() * step
    above = roots[roots > 0]
    least = float(above.min()) if len(above) else 1.0
    ratios = torch.where(roots > 0, roots / least, torch.ones_like(roots))
    exponents = (ratios.log2() * EIGHTH).round().long()
    if weights is None:
        return RowSteps(_usable(least), exponents)
    if weights.shape != squares.shape or weights.dtype != torch.float64:
        raise ConfigError(f"{len(squares)} rows have as many float64 weights")
    if not bool(((weights > 0) & torch.isfinite(weights)).all()):
        raise ConfigError("how much a row matters is a number above zero")
    largest = weights.max()
    mean = largest.log2() + (weights / largest).mean().log2()
    halves = ((weights.log2() - mean) * (-power * HALF)).round().long()
    halves = halves.clamp(-MOST_CLASSES // 2, MOST_CLASSES // 2 - 1)
    first = int(halves.min())
    return RowSteps(_usable(least * 2.0 ** (first / HALF)), exponents, halves - first)


def _usable(base: float) -> torch.Tensor:
    step = torch.tensor([base], dtype=torch.float32)
    if not 0.0 < float(step) < float("inf"):
        raise ConfigError("the weights are so small or so large that float32 has no such step")
    return step


def coded(steps: RowSteps) -> tuple[dict[str, int], dict[str, torch.Tensor]]:
    """Return (header, parts) that store the steps; `decoded` reads them."""
    header, parts = {}, {"step": steps.base}
    for name, vector in (("rows", steps.exponents), ("classes", steps.classes)):
        if vector is not None:
            header[f"{name}_low"], tensors = range_coder.encode(vector)
            parts |= {f"{name}_{key}": value for key, value in tensors.items()}
    return header, parts


def decoded(coded: Coded) -> RowSteps:
    """Return the RowSteps (base, e, c) that a coded matrix stores. Raises SourceError."""
    rows = coded.shape[0]
    base, vectors = part(coded, "step", torch.float32, (1,)), {}
    if not 0.0 < float(base) < float("inf"):
        raise SourceError(f"the step is {float(base)}")
    for name, most in (("rows", MOST_EXPONENT), ("classes", MOST_CLASSES - 1)):
        if f"{name}_low" in coded.header:
            vectors[name] = vector(coded, f"{name}_", coded.header[f"{name}_low"], rows)
            if int(vectors[name].min()) < 0 or int(vectors[name].max()) > most:
                raise SourceError(f"the rows' {name} are not from 0 to {most}")
    if "classes" in vectors and "rows" not in vectors:
        raise SourceError("there are classes of rows without steps of rows")
    return RowSteps(base, vectors.get("rows"), vectors.get("classes"))


def vector(coded: Coded, prefix: str, low: int, count: int) -> torch.Tensor:
    """Return the whole numbers in the parts with a prefix, [count] int64. Raises SourceError."""
    parts = {
        name: part(coded, prefix + name, dtype)
        for name, dtype in CODED.items()
        if name != "escaped" or prefix + name in coded.parts
    }
    checked = Coded(coded.shape, {"low": low})
    return range_coder.decode(whole(checked, "low", -MOST_VALUE, MOST_VALUE), parts, count)
