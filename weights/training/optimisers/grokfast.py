"""Grokfast-EMA: amplification of the slow part of gradients.

Lee et al. 2024, "Grokfast: Accelerated Grokking by Amplifying Slow Gradients", arXiv 2405.20233,
its algorithm with an exponential moving average:

    μ ← α μ + (1 − α) g        the slow part of the gradient
    ĝ = g + λ μ                the gradient for the optimiser

A gradient that never changes grows by the factor 1 + λ. As in the authors' code, μ starts as the
first gradient, not as zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch


class Grokfast:
    """Filter of gradients, with one moving average a parameter. With λ = 0 it does nothing."""

    def __init__(self, alpha: float, strength: float) -> None:
        """Set α, the decay of the average, in [0, 1), and λ ≥ 0, the weight of the slow part."""
        self.alpha, self.strength = alpha, strength
        #: Parameter's name → μ, of the gradient's shape and dtype.
        self.means: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def apply(self, parameters: Iterable[tuple[str, torch.nn.Parameter]]) -> None:
        """Update the averages; add λ · average to each parameter's `.grad`, in place, if λ > 0."""
        if self.strength == 0:
            return
        for name, parameter in parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            mean = self.means.get(name)
            if mean is None:
                mean = self.means[name] = gradient.clone()
            mean.mul_(self.alpha).add_(gradient, alpha=1 - self.alpha)
            gradient.add_(mean, alpha=self.strength)

    def load(self, means: Mapping[str, torch.Tensor]) -> None:
        """Replace the moving averages by copies of `means` (parameter's name → μ)."""
        self.means = {name: mean.clone() for name, mean in means.items()}
