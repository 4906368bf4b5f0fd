"""Operation `svf-decompose`: the singular value decomposition of a model's matrices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.system.durations import timed
from agent_forge.weights import svf
from agent_forge.weights.tensors import Tensors

Part = Literal["attention", "mlp"]


class Decomposition(BaseModel):
    """The parts of the blocks whose matrices are decomposed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parts: tuple[Part, ...] = Field(default=("mlp",), min_length=1)


class SvfDecompose:
    """Decomposition of the matrices of `of` in float64, with fixed signs (`weights.svf`).

    It is stored, because another library may return other vectors for near-equal singular values.
    """

    Params = Decomposition

    def apply(self, inputs: Mapping[str, Tensors], params: Decomposition, seed: int) -> Tensors:
        """Return a model of every NAME/u, /s and /vt, float64. Raises ConfigError, NotFiniteError."""
        if sorted(inputs) != ["of"]:
            raise ConfigError(f"svf-decompose reads the input of, not {sorted(inputs)}")
        return Tensors(inputs["of"].config, svf.decomposed(inputs["of"].weights, params.parts))

    def seconds(self, inputs: Mapping[str, Tensors], params: Decomposition, seed: int) -> float:
        """Return about how many seconds `apply` takes here: a matrix of each shape is timed."""
        weights = inputs["of"].weights
        matrices = [weights[name] for name in svf.names(weights, params.parts)]
        one_of_each = {matrix.shape: matrix for matrix in matrices}.items()
        seconds = {shape: timed(partial(svf.factors, matrix)) for shape, matrix in one_of_each}
        return sum(seconds[matrix.shape] for matrix in matrices)
