"""MuGrokfast: Grokfast before Muon and AdamW, QK-Clip after them.

One step, in this order:

1. Grokfast-EMA filters every gradient (`grokfast.py`; λ = 0 leaves it out).
2. Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks") moves hidden
   matrices, through `torch.optim.Muon`: momentum, Nesterov, five Newton-Schulz steps in bfloat16.
   AdamW moves the rest: embeddings, heads, norms, biases, as `adamw.py` does.
3. QK-Clip bounds the attention logits (`qk_clip.py`; τ = None leaves it out).

With λ = 0 and τ = None the step is Muon + AdamW, bit for bit. Muon's step does not depend on the
size of a gradient, and AdamW's not on a constant factor. So λ changes directions more than lengths. A
caller that clips the norm of gradients does so before the filter.

Bits are the same within one kind of processor only: the bfloat16 products of the Newton-Schulz steps
depend on its instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.recipes import Parameters
from agent_forge.weights.training.optimisers.grokfast import Grokfast
from agent_forge.weights.training.optimisers.qk_clip import QKClip

#: Tensors that torch's two optimisers keep of a parameter between steps.
MUON_SLOTS = ("momentum_buffer",)
ADAMW_SLOTS = ("step", "exp_avg", "exp_avg_sq")
GROKFAST_SLOT = "grokfast"

NamedParameters = list[tuple[str, torch.nn.Parameter]]


class OptimiserStateError(ConfigError):
    """Tensors that are not the state of this optimiser over this model."""


class MuGrokfastSettings(Parameters):
    """Settings of MuGrokfast; the learning rate is given with each step."""

    #: λ, the weight of the slow part of gradients; 0 is no Grokfast.
    grokfast_lambda: float = Field(default=0.3, ge=0, allow_inf_nan=False)
    #: α, the decay of the gradients' moving average.
    grokfast_alpha: float = Field(default=0.98, ge=0, lt=1)
    #: τ, the bound on attention logits; None is no QK-Clip, and costs nothing.
    tau: float | None = Field(default=100.0, gt=0, allow_inf_nan=False)
    #: Muon: momentum, Nesterov's form of it, Newton-Schulz steps.
    momentum: float = Field(default=0.95, ge=0, lt=1)
    nesterov: bool = True
    newton_schulz_steps: int = Field(default=5, ge=1, lt=100)
    #: Muon's learning rate for a matrix [a, b]: `match_rms_adamw` is 0.2 √max(a, b) times the
    #: rate (Liu et al. 2025, arXiv 2502.16982, §2.2), which gives updates of AdamW's usual size,
    #: so that one rate serves both; `original` is √max(1, a / b) times the rate.
    adjust_rate: Literal["match_rms_adamw", "original"] = "match_rms_adamw"
    #: Decoupled weight decay of matrices; norms and biases have none.
    weight_decay: float = Field(default=0.1, ge=0)
    betas: tuple[float, float] = (0.9, 0.95)


class OptimiserPreset(Parameters):
    """Settings of one phase with its peak learning rate."""

    #: Peak learning rate; None where the source documents name none.
    lr: float | None = None
    settings: MuGrokfastSettings = MuGrokfastSettings()


#: Phase → preset of the source documents. Two of their settings are not the optimiser's: phase 3's
#: KL 0.1 is a weight of the objective, and phase 5's STE mode is not needed, because straight-through
#: gradients already reach the full-precision master weights.
PRESETS: Mapping[int, OptimiserPreset] = {
    1: OptimiserPreset(lr=1e-3, settings=MuGrokfastSettings(grokfast_lambda=0.3)),
    3: OptimiserPreset(lr=5e-4),
    5: OptimiserPreset(settings=MuGrokfastSettings(grokfast_lambda=2.0)),
}


def split(model: torch.nn.Module) -> tuple[NamedParameters, NamedParameters]:
    """Return (Muon's parameters, AdamW's), as (name, parameter) in the model's order, tied ones once.

    Muon gets the hidden matrices: two-dimensional `weight`s of modules other than embeddings and
    the output head. Frozen parameters are in neither list; all others are in exactly one.
    """
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None  # pyright: ignore
    hidden, outer = set(), set()
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.nn.Parameter) and weight.dim() == 2:
            ends = module is head or isinstance(module, torch.nn.Embedding)
            (outer if ends else hidden).add(id(weight))
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    muon = [(n, p) for n, p in named if id(p) in hidden - outer]
    return muon, [(n, p) for n, p in named if id(p) not in hidden - outer]


class MuGrokfast:
    """The optimiser over all trainable parameters of a model."""

    Settings = MuGrokfastSettings

    def __init__(self, model: torch.nn.Module, settings: MuGrokfastSettings) -> None:
        """Prepare to train `model` in place. Raises AttentionError if QK-Clip does not fit it."""
        self.settings = settings
        muon, adamw = split(model)
        self._parameters = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self._grokfast = Grokfast(settings.grokfast_alpha, settings.grokfast_lambda)
        self._clip = None if settings.tau is None else QKClip(model, settings.tau)
        #: Number of heads that QK-Clip scaled in the last step.
        self.clipped = 0
        #: (torch's optimiser, its parameters, the tensors that it keeps of each).
        self._inner: list[tuple[torch.optim.Optimizer, NamedParameters, tuple[str, ...]]] = []
        if muon:
            self._inner.append((_muon(muon, settings), muon, MUON_SLOTS))
        if adamw:
            self._inner.append((_adamw(adamw, settings), adamw, ADAMW_SLOTS))

    def step(self, rate: float) -> None:
        """Update the parameters in place from their `.grad`, at the learning rate `rate`.

        It filters the gradients in place; the caller zeroes them. Raises AttentionError if QK-Clip is
        on and no forward pass in training mode came before the step.
        """
        self._grokfast.apply(self._parameters)
        for optimiser, _, _ in self._inner:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()
        if self._clip is not None:
            self.clipped = self._clip.apply()

    def state(self) -> dict[str, torch.Tensor]:
        """Return PARAMETER/SLOT → each tensor that lives longer than a step, which steps change."""
        tensors = {f"{n}/{GROKFAST_SLOT}": m.detach() for n, m in self._grokfast.means.items()}
        for optimiser, parameters, slots in self._inner:
            for name, parameter in parameters:
                parameter_state = optimiser.state.get(parameter, {})
                tensors |= {
                    f"{name}/{slot}": parameter_state[slot].detach()
                    for slot in slots
                    if slot in parameter_state
                }
        return tensors

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Replace the state by copies of `tensors`, a result of `state`, on any device.

        Raises OptimiserStateError, and changes nothing, if a name or a shape does not fit, or if some
        of a parameter's tensors are missing.
        """
        self._check(tensors)
        self._grokfast.load(
            {
                name: tensors[f"{name}/{GROKFAST_SLOT}"].to(p.device)
                for name, p in self._parameters
                if f"{name}/{GROKFAST_SLOT}" in tensors
            }
        )
        for optimiser, parameters, slots in self._inner:
            optimiser.state.clear()
            for name, parameter in parameters:
                if f"{name}/{slots[0]}" in tensors:
                    optimiser.state[parameter] = {
                        slot: tensors[f"{name}/{slot}"].to(parameter.device, copy=True)
                        for slot in slots
                    }

    def _check(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Raise OptimiserStateError unless `load` can take these tensors."""
        expected: dict[str, torch.Size] = {}
        if self.settings.grokfast_lambda:
            expected = {f"{n}/{GROKFAST_SLOT}": p.shape for n, p in self._parameters}
        for _, parameters, slots in self._inner:
            for name, parameter in parameters:
                names = [f"{name}/{slot}" for slot in slots]
                if 0 < sum(n in tensors for n in names) < len(names):
                    raise OptimiserStateError(f"the state of {name} is not whole")
                shapes = [torch.Size() if s == "step" else parameter.shape for s in slots]
                expected |= dict(zip(names, shapes, strict=True))
        for name, tensor in tensors.items():
            if name not in expected:
                raise OptimiserStateError(f"{name} is no tensor of this optimiser's state")
            if tensor.shape != expected[name]:
                raise OptimiserStateError(
                    f"{name} is {list(tensor.shape)}, the model asks for {list(expected[name])}"
                )


def _muon(parameters: NamedParameters, settings: MuGrokfastSettings) -> torch.optim.Optimizer:
    """Return torch's Muon over hidden matrices; the caller sets its rate before each step."""
    return torch.optim.Muon(
        [p for _, p in parameters],
        weight_decay=settings.weight_decay,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        ns_steps=settings.newton_schulz_steps,
        adjust_lr_fn=settings.adjust_rate,
    )


def _adamw(parameters: NamedParameters, settings: MuGrokfastSettings) -> torch.optim.Optimizer:
    """Return torch's AdamW with weight decay for matrices, and without it for norms and biases."""
    groups: list[dict[str, object]] = [
        {"params": [p for _, p in parameters if p.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [p for _, p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], betas=settings.betas, fused=True)
