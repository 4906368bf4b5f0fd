"""Codec `uniform@1`: one step size, rounding with error feedback, indices through a range coder.

A weight is index · step. At high rates, evenly spaced levels with entropy coding are within 0.25 bits
of the best quantiser (Gish and Pierce 1968). At low rates a dead zone around zero, wider than the other
cells, comes near it (Sullivan 1996, for Laplacian sources). Error feedback (`feedback`) rounds for the
layer's outputs instead of its weights. The step is relative to the root mean square of the matrix or of
each row. A row's step also depends on how much the row matters (`row_steps`).
"""

from __future__ import annotations

import torch
from pydantic import Field

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.codecs import Coded
from agent_forge.weights.codecs.feedback.error_feedback import fed_back
from agent_forge.weights.codecs.matrices import check
from agent_forge.weights.codecs.packing import range_coder, row_steps
from agent_forge.weights.codecs.packing.range_coder import MOST_VALUE
from agent_forge.weights.recipes import Frozen


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
        fitted = row_steps.fit(matrix, params.step, params.rows, rows, params.power)
        steps = fitted.values()
        indices = torch.empty(matrix.shape, dtype=torch.int32)
        if gram is None or not params.feedback:
            indices = _indices(matrix, steps[:, None], params.threshold)
        else:

            def quantise(column: int, ahead: torch.Tensor) -> torch.Tensor:
                index = indices[:, column] = _indices(ahead[:, 0], steps, params.threshold)
                return index.float() * steps

            fed_back(matrix, gram, quantise, params.damping, ordered=params.ordered)
        header, parts = row_steps.coded(fitted)
        lows: list[int] = []
        for number, members in enumerate(fitted.members(len(matrix))):
            low, coded = range_coder.encode(indices[members].long())
            lows.append(low)
            parts |= {_prefix(number) + name: tensor for name, tensor in coded.items()}
        return Coded((len(matrix), matrix.shape[1]), {**header, "low": lows}, parts)

    def decode(self, coded: Coded) -> torch.Tensor:
        """Return the decoded matrix, [rows, columns] float32. Raises SourceError, UnavailableError."""
        rows, columns = coded.shape
        fitted = row_steps.decoded(coded)
        groups = fitted.members(rows)
        lows = coded.header.get("low")
        if not isinstance(lows, list) or len(lows) != len(groups):
            raise SourceError(f"the header's 'low' is {str(lows)[:40]}, for {len(groups)} classes")
        matrix = torch.empty((rows, columns))
        for number, (low, members) in enumerate(zip(lows, groups, strict=True)):
            count = len(members) * columns
            indices = row_steps.vector(coded, _prefix(number), low, count)
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
