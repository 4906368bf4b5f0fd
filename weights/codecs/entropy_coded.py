"""Codec `uniform@1`: one step size, rounding with error feedback, indices through a range coder.

A weight is index · step. Evenly spaced levels of all lengths with entropy coding are within 0.25 bits
of the best quantiser at high rates (Gish and Pierce 1968); at low ones a dead zone around zero, wider
than the other cells, comes near it (Sullivan 1996, for Laplacian sources). Error feedback
(`feedback`) rounds for the layer's outputs instead of its weights. The step is relative to the
root mean square of the matrix, or of each row; a row's step is a power of 2^(1/8), and range coded.
"""

from __future__ import annotations

import torch
from pydantic import BaseModel, ConfigDict, Field

from runs.errors import ConfigError, SourceError
from weights.codecs import Coded, range_coder
from weights.codecs.feedback import fed_back
from weights.codecs.inputs import check, part, whole
from weights.codecs.range_coder import MOST_VALUE

#: Names of the range coder's parts: of the indices, and with ROWS before them of the rows' steps.
CODED, ROWS = {"table": torch.uint8, "words": torch.uint8, "escaped": torch.int32}, "rows_"
#: Steps of a factor two between rows' steps.
EIGHTH = 8


class UniformParams(BaseModel):
    """The step, and how it is rounded to."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    #: Distance of two levels, in root mean squares of the weights.
    step: float = Field(default=1.0, gt=1e-5, le=100.0)
    #: A step for each row, by its own root mean square; otherwise one for the matrix.
    rows: bool = False
    #: Where between two indices the larger one begins: 0.5 is the nearest; above, there are more small
    #: ones, which take fewer bits. At equal bits, with a smaller step, the layers' outputs err less.
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

    def encode(
        self, matrix: torch.Tensor, gram: torch.Tensor | None, params: UniformParams, seed: int
    ) -> Coded:
        """Return the coded matrix. Raises ConfigError, NotFiniteError, UnavailableError."""
        check(matrix, gram)
        base, exponents = _steps(matrix, params)
        steps = _row_steps(base, exponents)
        indices = torch.empty(matrix.shape, dtype=torch.int32)
        if gram is None or not params.feedback:
            indices = _indices(matrix, steps[:, None], params.threshold)
        else:

            def quantise(column: int, ahead: torch.Tensor) -> torch.Tensor:
                index = indices[:, column] = _indices(ahead[:, 0], steps, params.threshold)
                return index.float() * steps

            fed_back(matrix, gram, quantise, params.damping, ordered=params.ordered)
        low, parts = range_coder.encode(indices.long())
        header = {"low": low}
        if exponents is not None:
            header["rows_low"], coded = range_coder.encode(exponents.long())
            parts |= {ROWS + name: found for name, found in coded.items()}
        return Coded((len(matrix), matrix.shape[1]), header, {**parts, "step": base})

    def decode(self, coded: Coded) -> torch.Tensor:
        """Return [rows, columns] float32. Raises SourceError, UnavailableError."""
        rows, columns = coded.shape
        base, exponents = part(coded, "step", torch.float32, (1,)), None
        if not 0.0 < float(base) < float("inf"):
            raise SourceError(f"the step is {float(base)}")
        if "rows_low" in coded.header:
            exponents = _values(coded, ROWS, rows).int()
            if int(exponents.min()) < 0 or int(exponents.max()) > 2000:
                raise SourceError("a row's step is beyond float32")
        indices = _values(coded, "", rows * columns).view(rows, columns)
        found = indices.float() * _row_steps(base, exponents).expand(rows)[:, None]
        if not torch.isfinite(found).all():
            raise SourceError("a weight is beyond float32")
        return found


def _steps(matrix: torch.Tensor, params: UniformParams) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the step, float32 [1], of all rows or of the row with the smallest; rows' exponents.

    A row of zeros has the smallest step. Raises ConfigError if there is no such step in float32.
    """
    squares = matrix.double().square().mean(1)
    if not params.rows:
        rms = squares.mean().sqrt()
        base = torch.where(rms > 0, rms * params.step, torch.ones(())).float().view(1)
        return _usable(base), None
    roots = squares.sqrt() * params.step
    above = roots[roots > 0]
    least = float(above.min()) if len(above) else 1.0
    ratios = torch.where(roots > 0, roots / least, torch.ones_like(roots))
    base = torch.tensor([least], dtype=torch.float32)
    return _usable(base), (ratios.log2() * EIGHTH).round().int()


def _usable(base: torch.Tensor) -> torch.Tensor:
    if not 0.0 < float(base) < float("inf"):
        raise ConfigError("the weights are so small or so large that float32 has no such step")
    return base


def _row_steps(base: torch.Tensor, exponents: torch.Tensor | None) -> torch.Tensor:
    """Return the steps, float32 [1] or [rows]: base · 2^(exponent / 8), rounded once."""
    if exponents is None:
        return base
    eighths = torch.tensor(range_coder.EIGHTHS, dtype=torch.float64) / 256.0
    within, octaves = exponents % EIGHTH, exponents // EIGHTH
    return torch.ldexp(base.double() * eighths[within.long()], octaves).float()


def _indices(values: torch.Tensor, steps: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the indices, int32: sizes rounded up from `threshold` on, signs kept.

    Raises ConfigError if 32 bits do not hold them.
    """
    scaled = values / steps
    indices = scaled.sign() * (scaled.abs() + (1.0 - threshold)).floor()
    if not float(indices.abs().max()) < MOST_VALUE - 128:
        raise ConfigError("an index has more than 32 bits: choose a larger step")
    return indices.int()


def _values(coded: Coded, prefix: str, count: int) -> torch.Tensor:
    """Return what the range coder's parts with a prefix hold. Raises SourceError."""
    parts = {
        name: part(coded, prefix + name, dtype)
        for name, dtype in CODED.items()
        if name != "escaped" or prefix + name in coded.parts
    }
    low = whole(coded, f"{prefix}low", -MOST_VALUE, MOST_VALUE)
    return range_coder.decode(low, parts, count)
