"""A block of a titans_mag model: attention over a window beside a memory, and an MLP."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_titans_mag import TitansMagConfig
from .memory_titans_mag import NeuralMemory, TitansMagRMSNorm
from .state_titans_mag import BlockState

Rotary = tuple[torch.Tensor, torch.Tensor]


@dataclass
class Sight:
    """Positions and visible tokens of a pass, which all blocks share."""

    rotary: Rotary
    #: True where a token sees another, [batch or 1, 1, tokens, window's tokens + tokens].
    mask: torch.Tensor
    #: 1 for real tokens, [batch, tokens]; None if all are.
    real: torch.Tensor | None


def rotary(positions: torch.Tensor, size: int, theta: float) -> Rotary:
    """Return (cosines, sines), [batch, tokens, size] float32 each, of positions [batch, tokens]."""
    powers = torch.arange(0, size, 2, device=positions.device, dtype=torch.float32) / size
    angles = positions[..., None].float() * theta**-powers
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def apply_rotary_pos_emb(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (query, key), [batch, heads, tokens, size] each, rotated by their positions."""

    def rotated(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1)
        return (x * cos[:, None] + turned * sin[:, None]).to(x.dtype)

    return rotated(query), rotated(key)


class TitansMagAttention(nn.Module):
    """Attention over a window and persistent tokens, with the block's memory."""

    def __init__(self, config: TitansMagConfig) -> None:
        """Make the parameters."""
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.heads, self.shared = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = width // self.heads
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, self.shared * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, self.shared * self.head_dim, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.memory = None if config.memory == "none" else NeuralMemory(config)
        if config.persistent_tokens:
            self.persistent = nn.Parameter(torch.empty(config.persistent_tokens, width))
        if config.gate == "product" and self.memory is not None:
            self.norm = TitansMagRMSNorm(self.head_dim, eps=config.rms_norm_eps)

    def forward(
        self,
        x: torch.Tensor,
        position_embeddings: Rotary,
        attention_mask: torch.Tensor,
        real: torch.Tensor | None,
        state: BlockState | None,
    ) -> torch.Tensor:
        """Return the block's change of the stream, [batch, tokens, width]; update `state`."""
        persistent_pair = self._persistent(x)
        query, key, value = (self._heads(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        plain, (query, key) = query, apply_rotary_pos_emb(query, key, *position_embeddings)
        if state is not None:
            key, value = self._windowed(key, value, state)
        output = self._attended(query, plain, key, value, persistent_pair, attention_mask)
        if self.memory is not None:
            memory, gate = self.memory(x, real, state)
            if self.config.gate == "sum":
                output = output + gate * memory
            else:
                output = self.norm(output) * F.silu(memory)
        return self.o_proj(output.transpose(1, 2).flatten(2))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """Return [batch, tokens, width] split into heads, [batch, heads, tokens, size]."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def _persistent(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return (keys, values) of the persistent tokens for each row; None if there are none."""
        if not self.config.persistent_tokens:
            return None
        tokens = self.persistent[None].to(x.dtype)
        key, value = self._heads(self.k_proj(tokens)), self._heads(self.v_proj(tokens))
        return key.expand(x.shape[0], -1, -1, -1), value.expand(x.shape[0], -1, -1, -1)

    def _windowed(
        self, key: torch.Tensor, value: torch.Tensor, state: BlockState
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (keys, values) after those of the last window; store the newest ones in `state`."""
        if state.key is not None and state.value is not None:
            key = torch.cat([state.key, key], dim=2)
            value = torch.cat([state.value, value], dim=2)
        reach = self.config.sliding_window - 1
        start = max(0, key.shape[2] - reach)
        state.key, state.value = key[:, :, start:], value[:, :, start:]
        return key, value

    def _attended(
        self,
        query: torch.Tensor,
        plain: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        persistent_pair: tuple[torch.Tensor, torch.Tensor] | None,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """Return attention's output [batch, heads, tokens, size].

        Persistent tokens have no position: their logits come from queries that are not rotated. So
        queries and keys are two vectors side by side, and one of a key's vectors is zero.
        """
        if persistent_pair is not None:
            query = torch.cat([query, plain], dim=-1)
            key = torch.cat(
                [F.pad(persistent_pair[0], (self.head_dim, 0)), F.pad(key, (0, self.head_dim))], dim=2
            )
            value = torch.cat([persistent_pair[1], value], dim=2)
            mask = F.pad(mask, (persistent_pair[0].shape[2], 0), value=True)
        groups = self.heads // self.shared
        key, value = (tensor.repeat_interleave(groups, dim=1) for tensor in (key, value))
        if self.config._attn_implementation == "eager":
            logits = (query @ key.transpose(-1, -2)).float() * self.scaling
            shares = logits.masked_fill(~mask, torch.finfo(logits.dtype).min).softmax(-1)
            return shares.to(value.dtype) @ value
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=self.scaling)


class TitansMagMLP(nn.Module):
    """Gated MLP (SwiGLU)."""

    def __init__(self, config: TitansMagConfig) -> None:
        """Make the parameters."""
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the MLP's change of the stream, [batch, tokens, width]."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class TitansMagBlock(GradientCheckpointingLayer):
    """A pre-norm block: attention with memory, then an MLP."""

    def __init__(self, config: TitansMagConfig) -> None:
        """Make the parameters."""
        super().__init__()
        self.input_layernorm = TitansMagRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.self_attn = TitansMagAttention(config)
        self.post_attention_layernorm = TitansMagRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = TitansMagMLP(config)

    def forward(self, x: torch.Tensor, sight: Sight, state: BlockState | None = None) -> torch.Tensor:
        """Return the stream after the block, [batch, tokens, width]."""
        x = x + self.self_attn(
            self.input_layernorm(x),
            position_embeddings=sight.rotary,
            attention_mask=sight.mask,
            real=sight.real,
            state=state,
        )
        return x + self.mlp(self.post_attention_layernorm(x))
