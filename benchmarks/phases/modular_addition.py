"""Grokking of addition modulo 59: steps from scratch to 95 % of pairs that were never trained on.

Half of the 3481 pairs are trained on, all of them in every step. The model is one attention block
without norms and biases. It fits its pairs after some hundred steps and generalises much later
(Power et al. 2022, arXiv 2201.02177), which is the delay that Grokfast is to shorten.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.nn import functional as F

from agent_forge.runs import keys
from agent_forge.weights.training.optimisers.grokfast import Grokfast
from agent_forge.weights.training.optimisers.mugrokfast import MuGrokfast, MuGrokfastSettings

P = 59
WIDTH, HEADS, MLP = 64, 4, 256
SEEDS = (0, 1, 2, 3, 4)
#: Steps after which a run ends without having generalised, and steps between measurements.
CAP = 2600
EVERY = 10
#: Grokfast's λ and α of the paper's algorithmic tasks.
LAMBDA, ALPHA = 2.0, 0.98
BETAS = (0.9, 0.98)
#: Muon off or on → learning rates to scan; weight decays to scan with each.
SCAN_RATES = {False: (1e-3, 3e-3), True: (3e-3, 1e-2)}
SCAN_DECAYS = (0.3, 1.0)


class Model(torch.nn.Module):
    """A block of attention and ReLU MLP that reads a, b and = and answers at the last place."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(P + 1, WIDTH)
        self.places = torch.nn.Embedding(3, WIDTH)
        self.query, self.key, self.value, self.out = (_linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down, self.head = _linear(WIDTH, MLP), _linear(MLP, WIDTH), _linear(WIDTH, P)
        for name, parameter in self.named_parameters():
            drawn = keys.generator("modular-addition", seed, name).standard_normal(parameter.shape)
            scale = parameter.shape[1] ** -0.5
            parameter.data.copy_(torch.from_numpy(drawn * scale).float())

    def get_output_embeddings(self) -> torch.nn.Module:
        """Return the output head, which Muon leaves to AdamW."""
        return self.head

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        """Return logits [pairs, 59] of [pairs, 2] int64."""
        ends = torch.full((len(pairs), 1), P)
        x = self.tokens(torch.cat([pairs, ends], 1)) + self.places.weight
        last = x[:, -1:]
        split = [
            y.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for y in (self.query(last), self.key(x), self.value(x))
        ]
        mixed = F.scaled_dot_product_attention(*split).transpose(1, 2).flatten(1)
        hidden = last[:, 0] + self.out(mixed)
        return self.head(hidden + self.down(torch.relu(self.up(hidden))))


def _linear(inputs: int, outputs: int) -> torch.nn.Linear:
    return torch.nn.Linear(inputs, outputs, bias=False)


class FilteredAdamW:
    """AdamW over all parameters behind Grokfast."""

    def __init__(self, model: Model, strength: float, decay: float) -> None:
        self.named = list(model.named_parameters())
        self.filter = Grokfast(ALPHA, strength)
        self.inner = torch.optim.AdamW(model.parameters(), betas=BETAS, weight_decay=decay, fused=True)

    def step(self, rate: float) -> None:
        """Update the parameters in place at the learning rate `rate`."""
        self.filter.apply(self.named)
        self.inner.param_groups[0]["lr"] = rate
        self.inner.step()


def run(muon: bool, strength: float, seed: int, rate: float, decay: float) -> dict[str, Any]:
    """Train until 95 % of the held-out pairs are right, or for CAP steps.

    Returns `steps_95` (None if the cap came first), `fits` (the step at which 99 % of the training
    pairs were right), the held-out `accuracy` at the end, and CPU seconds a step. The rate is
    constant after ten steps of warm-up.
    """
    model = Model(seed)
    if muon:
        settings = MuGrokfastSettings(
            grokfast_lambda=strength, grokfast_alpha=ALPHA, tau=None, weight_decay=decay, betas=BETAS
        )
        optimiser: Any = MuGrokfast(model, settings)
    else:
        optimiser = FilteredAdamW(model, strength, decay)
    order = torch.from_numpy(keys.generator("modular-addition", seed, "pairs").permutation(P * P))
    pairs = torch.stack([order // P, order % P], 1)
    answers = pairs.sum(1) % P
    half = len(pairs) // 2
    steps_95, fits, accuracy = None, None, 0.0
    began = time.process_time()
    step = 0
    for step in range(1, CAP + 1):
        logits = model(pairs[:half])
        F.cross_entropy(logits, answers[:half]).backward()
        optimiser.step(rate * min(1.0, step / 10))
        model.zero_grad(set_to_none=True)
        if step % EVERY == 0:
            if fits is None and _right(logits, answers[:half]) >= 0.99:
                fits = step
            with torch.no_grad():
                accuracy = _right(model(pairs[half:]), answers[half:])
            if accuracy >= 0.95:
                steps_95 = step
                break
    spent = (time.process_time() - began) / step
    return {"steps_95": steps_95, "fits": fits, "accuracy": accuracy, "cpu_step": spent}


def _right(logits: torch.Tensor, answers: torch.Tensor) -> float:
    """Return the share of right answers."""
    return float((logits.argmax(1) == answers).float().mean())
