"""Operations `svf-decompose`, singular values of matrices, and `svf-ones`, with which experts begin."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

from pydantic import Field

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.system.durations import timed
from agent_forge.weights import svf
from agent_forge.weights.operations.dtypes import Parameterless
from agent_forge.weights.recipes import Parameters
from agent_forge.weights.tensors import Tensors

Part = Literal["attention", "mlp"]


class Decomposition(Parameters):
    """The parts of the blocks whose matrices are decomposed."""

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


class SvfOnes:
    """Vectors of ones for every matrix of the decomposition `svd`, float32 [rank] by its name.

    They change nothing.
    """

    Params = Parameterless

    def apply(self, inputs: Mapping[str, Tensors], params: Parameterless, seed: int) -> Tensors:
        """Return a model of matrix name → ones, float32 [rank]. Raises ConfigError for other roles."""
        if sorted(inputs) != ["svd"]:
            raise ConfigError(f"svf-ones reads the input svd, not {sorted(inputs)}")
        return Tensors(inputs["svd"].config, svf.ones(inputs["svd"].weights))
