"""The neural memory of a block as a module: projections, convolution, rates; and the blocks' norm."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .configuration_titans_mag import TitansMagConfig
from .neural_memory import Rates, begin, read
from .state_titans_mag import BlockState

#: First values of a memory's learned rates, as logits: gate, step size, momentum, forgetting.
RATES = (0.0, 0.0, 0.0, -6.0)


class TitansMagRMSNorm(nn.RMSNorm):
    """RMSNorm, computed in float32."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, normalised over its last dimension, in its shape and dtype."""
        assert self.eps is not None
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale).to(x.dtype) * self.weight


class NeuralMemory(nn.Module):
    """Neural memory of a block: projections, convolution, rates. `neural_memory` has its rule."""

    def __init__(self, config: TitansMagConfig) -> None:
        """Make the parameters; the network begins as zeros if it is linear."""
        super().__init__()
        self.config = config
        self.heads, width = config.num_attention_heads, config.hidden_size
        self.size = width // self.heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.convolution = nn.Conv1d(3 * width, 3 * width, config.convolution, bias=False)
        self.convolution.weight = nn.Parameter(torch.empty(3 * width, 1, config.convolution))
        self.rates = nn.Linear(width, len(RATES) * self.heads)
        self.norm = TitansMagRMSNorm(self.size, eps=config.rms_norm_eps)
        if config.memory == "two-layer":
            hidden = self.heads * config.memory_width
            self.initial_first = nn.Parameter(torch.empty(hidden, self.size))
            self.initial_second = nn.Parameter(torch.empty(self.heads * self.size, config.memory_width))

    def forward(
        self, x: torch.Tensor, real: torch.Tensor | None, state: BlockState | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (memory's answer [batch, heads, tokens, size], gate [batch, heads, tokens, 1]).

        `x` is [batch, tokens, width]. It updates `state`. It moves padding from the left to the right,
        so that chunks begin with a text's first token.
        """
        first = state is None or state.memory is None
        shift, lengths = None, None
        if real is not None and first:
            shift = (real.cumsum(1) == 0).sum(1)
            lengths = real.shape[1] - shift
            x, real = _moved(x, shift), _moved(real[..., None], shift)[..., 0]
        projected = torch.cat([self.q_proj(x), self.k_proj(x), self.v_proj(x)], dim=-1)
        logits = self.rates(x).float().unflatten(-1, (len(RATES), self.heads))
        with torch.autocast(x.device.type, enabled=False):
            answer = self._read(projected.float(), logits, real, lengths, state)
        gate = torch.sigmoid(logits[..., 0, :]).transpose(1, 2)[..., None]
        if shift is not None:
            answer, gate = (
                _moved(tensor.transpose(1, 2), -shift).transpose(1, 2) for tensor in (answer, gate)
            )
        return self.norm(answer).to(x.dtype), gate.to(x.dtype)

    def _read(
        self,
        projected: torch.Tensor,
        logits: torch.Tensor,
        real: torch.Tensor | None,
        lengths: torch.Tensor | None,
        state: BlockState | None,
    ) -> torch.Tensor:
        """Return the memory's answers, [batch, heads, tokens, size] float32; update `state`."""
        rows = projected.shape[0]
        if real is not None:
            projected = projected * real[..., None]
        mixed = self._convolved(projected, lengths, state)
        query, key, value = (
            projection.unflatten(-1, (self.heads, self.size)).transpose(1, 2)
            for projection in mixed.chunk(3, -1)
        )
        query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
        step, momentum, forgetting = logits.permute(2, 0, 3, 1)[1:]
        size = self.config.memory_step * torch.sigmoid(step)
        momentum, keep = F.logsigmoid(momentum), F.logsigmoid(-forgetting)
        rates = Rates(size, momentum, keep)
        if real is not None:
            here = real[:, None].float()
            rates = Rates(size * here, momentum * here, keep * here, here)
        before = state.memory if state is not None and state.memory is not None else None
        before = before or begin(self._initial(query), rows)
        chunk, bound = self.config.memory_chunk, self.config.memory_bound
        answer, after = read(before, query, key, value, rates, chunk, bound, lengths)
        if state is not None:
            state.memory = after
        return answer

    def _initial(self, like: torch.Tensor) -> list[torch.Tensor]:
        """Return the network's matrices before the first token, [heads, out, in] float32 each."""
        if self.config.memory == "linear":
            return [torch.zeros(self.heads, self.size, self.size, device=like.device)]
        first = self.initial_first.float().unflatten(0, (self.heads, self.config.memory_width))
        return [first, self.initial_second.float().unflatten(0, (self.heads, self.size))]

    def _convolved(
        self, x: torch.Tensor, lengths: torch.Tensor | None, state: BlockState | None
    ) -> torch.Tensor:
        """Return SiLU of the causal convolution by channel, in the shape of `x`; update `state`."""
        back = self.config.convolution - 1
        before = state.tail if state is not None else None
        if before is None:
            before = x.new_zeros(x.shape[0], back, x.shape[2])
        whole = torch.cat([before, x], dim=1)
        if state is not None:
            # Rows whose padding follows end earlier: their last inputs lie before it.
            at = torch.arange(back, device=x.device)[None] + (
                x.shape[1] if lengths is None else lengths[:, None]
            )
            at = at.expand(x.shape[0], back)[..., None].expand(-1, -1, x.shape[2])
            state.tail = whole.gather(1, at)
        weight = self.convolution.weight.float()
        mixed = F.conv1d(whole.transpose(1, 2), weight, groups=weight.shape[0])
        return F.silu(mixed.transpose(1, 2))


def _moved(x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Return rows [batch, tokens, …] moved to the left by `shift` [batch], with zeros at the end."""
    at = torch.arange(x.shape[1], device=x.device)[None] + shift[:, None]
    inside = (at >= 0) & (at < x.shape[1])
    at = at.clamp(0, x.shape[1] - 1)
    more = (...,) + (None,) * (x.dim() - 2)
    return x.gather(1, at[more].expand_as(x)) * inside[more]
