"""Codec `uniform@1`: one step size, rounding with error feedback, indices through a range coder.

A weight is index · step. At high rates, evenly spaced levels with entropy coding are within 0.25 bits
of the best quantiser (Gish and Pierce 1968). At low rates a dead zone around zero, wider than the other
cells, comes near it (Sullivan 1996, for Laplacian sources). Error feedback (`feedback`) rounds for the
layer's outputs instead of its weights. The step is relative to the root mean square of the matrix or of
each row.

Row r of a matrix whose rows have steps of their own has the step base · 2^(e_r / 8) · 2^(c_r / 2). The
whole number e_r follows the row's root mean square. The class c_r follows how much the row matters: a
squared error in row r counts w_r times, and the step is proportional to w_r^(−power). The best power is
1/2 for small steps. At few bits it is smaller, because rows that matter little would otherwise be zero.
Rows of a class have similar indices and share a table of frequencies. Both vectors are range coded.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pydantic import Field

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.codecs import Coded
from agent_forge.weights.codecs.feedback.error_feedback import fed_back
from agent_forge.weights.codecs.matrices import check, part, whole
from agent_forge.weights.codecs.packing import range_coder
from agent_forge.weights.codecs.packing.range_coder import MOST_VALUE
from agent_forge.weights.recipes import Frozen

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


def stored(steps: RowSteps) -> tuple[dict[str, int], dict[str, torch.Tensor]]:
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


class UniformParams(Frozen):
    """The step, and how it is rounded to."""

    #: Distance of two levels, in root mean squares of the weights.
    step: float = Field(default=1.0, gt=1e-5, le=100.0)
    #: A step for each row, by its own root mean square; otherwise one for the matrix.
    rows: bool = False
    #: With `rows` and weights of rows (how much each matters): a row's step is proportional to
    #: weight^(−`power`).
    power: float = Field(default=0.25, ge=0.0, le=1.0)
    #: Part of a step from which a value is rounded up; 0.5 is to the nearest. A higher threshold makes
    #: more indices small, which saves bits. At equal bits, with a smaller step, outputs err less.
    threshold: float = Field(default=0.6, ge=0.5, le=0.9)
    #: Error feedback, where a gram is given.
    feedback: bool = True
    #: Feedback begins with the column whose inputs are largest.
    ordered: bool = True
    #: Share of the gram's mean diagonal that is added to its diagonal.
    damping: float = Field(default=0.01, gt=0.0, le=1.0)


class Uniform:
    """Entropy-coded uniform quantisation."""

    Params = UniformParams
    #: `encode` takes how much each row matters.
    weighs_rows = True

    def encode(
        self,
        matrix: torch.Tensor,
        gram: torch.Tensor | None,
        params: UniformParams,
        seed: int,
        rows: torch.Tensor | None = None,
    ) -> Coded:
        """Return the coded matrix. Raises ConfigError, NotFiniteError, UnavailableError."""
        check(matrix, gram)
        fitted = fit(matrix, params.step, params.rows, rows, params.power)
        steps = fitted.values()
        indices = torch.empty(matrix.shape, dtype=torch.int32)
        if gram is None or not params.feedback:
            indices = _indices(matrix, steps[:, None], params.threshold)
        else:

            def quantise(column: int, ahead: torch.Tensor) -> torch.Tensor:
                index = indices[:, column] = _indices(ahead[:, 0], steps, params.threshold)
                return index.float() * steps

            fed_back(matrix, gram, quantise, params.damping, ordered=params.ordered)
        header, parts = stored(fitted)
        lows: list[int] = []
        for number, members in enumerate(fitted.members(len(matrix))):
            low, words = range_coder.encode(indices[members].long())
            lows.append(low)
            parts |= {_prefix(number) + name: tensor for name, tensor in words.items()}
        return Coded((len(matrix), matrix.shape[1]), {**header, "low": lows}, parts)

    def decode(self, coded: Coded) -> torch.Tensor:
        """Return the decoded matrix, [rows, columns] float32. Raises SourceError, UnavailableError."""
        rows, columns = coded.shape
        fitted = decoded(coded)
        groups = fitted.members(rows)
        lows = coded.header.get("low")
        if not isinstance(lows, list) or len(lows) != len(groups):
            raise SourceError(f"the header's 'low' is {str(lows)[:40]}, for {len(groups)} classes")
        matrix = torch.empty((rows, columns))
        for number, (low, members) in enumerate(zip(lows, groups, strict=True)):
            count = len(members) * columns
            indices = vector(coded, _prefix(number), low, count)
            matrix[members] = indices.view(len(members), columns).float()
        matrix *= fitted.values().expand(rows)[:, None]
        if not torch.isfinite(matrix).all():
            raise SourceError("a weight is beyond float32")
        return matrix


def _prefix(number: int) -> str:
    """Return the prefix of the names of a class' parts: "" for the first, then "1_", "2_", …."""
    return f"{number}_" if number else ""


def _indices(values: torch.Tensor, steps: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return values / steps as int32, of the values' shape; fractions ≥ `threshold` round away from 0.

    Raises ConfigError if 32 bits do not hold them.
    """
    scaled = values / steps
    indices = scaled.sign() * (scaled.abs() + (1.0 - threshold)).floor()
    if not float(indices.abs().max()) < MOST_VALUE - 128:
        raise ConfigError("an index has more than 32 bits: choose a larger step")
    return indices.int()
