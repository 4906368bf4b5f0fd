"""Operation `mixture`: a model plus experts and further models, each multiplied by a factor.

    W = of + Σ α · (model − of) + Σ β · U diag(s ∘ (z − 1)) Vᵀ

An expert is its vectors z, which scale the singular values of `of` (`weights.svf`); models are added
by task arithmetic (arXiv 2212.04089).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from agent_forge.runs.errors import ConfigError
from agent_forge.weights import svf
from agent_forge.weights.operations.dtypes import in_dtype
from agent_forge.weights.recipes import Frozen
from agent_forge.weights.tensors import Tensors


class MixtureFactors(Frozen):
    """The factors of the models "model-0000", … and of the experts "expert-0000", …, in order."""

    models: tuple[float, ...] = ()
    experts: tuple[float, ...] = ()


def role(kind: str, number: int) -> str:
    """Return the role of the "model" or "expert" of this number, from 0: "expert-0000"."""
    return f"{kind}-{number:04}"


class Mixture:
    """Mixture in float32; a tensor without an addition stays as it is, to the last bit."""

    Params = MixtureFactors

    def apply(self, inputs: Mapping[str, Tensors], params: MixtureFactors, seed: int) -> Tensors:
        """Return `of` + Σ factor · change, float32 where changed. Raises ConfigError, SourceError."""
        models = [role("model", number) for number in range(len(params.models))]
        experts = [role("expert", number) for number in range(len(params.experts))]
        roles = {"of", *models, *experts, *(["svd"] if experts else [])}
        if set(inputs) != roles:
            raise ConfigError(f"mixture reads {sorted(roles)}, not {sorted(inputs)}")
        base = inputs["of"]
        parts = [svf.of_model(base.weights, inputs[model_role].weights) for model_role in models]
        parts += _of_experts(inputs, experts)
        weights = svf.added(base.weights, parts, (*params.models, *params.experts))
        return Tensors(base.config, weights)


class RoundedMixture(Mixture):
    """Mixture in float32, each tensor rounded once to the dtype that it has in `of`."""

    @override
    def apply(self, inputs: Mapping[str, Tensors], params: MixtureFactors, seed: int) -> Tensors:
        """Return the mixture in the dtypes of `of`.

        Raises ConfigError for other roles, SourceError for other shapes, NotFiniteError for a number
        beyond the range of its dtype.
        """
        mixed, base = super().apply(inputs, params, seed), inputs["of"].weights
        weights = {n: in_dtype(n, t, base[n].dtype) for n, t in mixed.weights.items()}
        return Tensors(mixed.config, weights)


def _of_experts(inputs: Mapping[str, Tensors], roles: Sequence[str]) -> list[svf.Changes]:
    """Return each expert's changes (tensor name → what is added at factor 1), in the order of roles."""
    if not roles:
        return []
    factored = inputs["svd"].weights
    return [svf.of_vectors(factored, inputs[expert_role].weights) for expert_role in roles]
