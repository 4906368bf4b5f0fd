"""Titans-MAG: a causal decoder whose sliding-window attention is gated with a neural memory.

Behrouz, Zhong, Mirrokni 2025, "Titans: Learning to Memorize at Test Time", arXiv 2501.00663, section
4.2 (memory as a gate). Each block is pre-norm: x ← x + A(norm x), x ← x + MLP(norm x), where A is
attention over a window and the block's persistent tokens, with a memory that has read all tokens.

With `recursions` T > 1 the blocks are applied T times with the same weights, each time to the state so
far plus the embeddings. This refinement of a latent state is that of "Less is More: Recursive Reasoning
with Tiny Networks" (arXiv 2510.04871), here causal, because that paper has no language model.
With `halting`, each application gives the probability that a token stops there (Graves 2016, "Adaptive
Computation Time", arXiv 1603.08983, without its penalty), and a token's state is the mean over its
applications. All applications are computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.utils.generic import ModelOutput

from .block_titans_mag import Sight, TitansMagAttention, TitansMagBlock, rotary
from .configuration_titans_mag import TitansMagConfig
from .memory_titans_mag import RATES, NeuralMemory, TitansMagRMSNorm
from .state_titans_mag import TitansMagCache


@dataclass
class TitansMagOutput(ModelOutput):
    """Output of a pass: logits [batch, tokens, vocabulary]; loss and cache if they were asked for."""

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    cache: TitansMagCache | None = None


class TitansMagPreTrainedModel(PreTrainedModel):
    """Base of the titans_mag models: their initialisation, and what transformers asks of a model."""

    config: TitansMagConfig
    config_class = TitansMagConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["TitansMagBlock"]
    _supports_sdpa = True
    #: The state of a memory cannot be cut back to fewer tokens.
    _is_stateful = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Draw the first weights of a module, in place."""
        std = self.config.initializer_range
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, TitansMagRMSNorm):
            nn.init.ones_(module.weight)
        if isinstance(module, nn.Conv1d):
            nn.init.normal_(module.weight, std=1 / math.sqrt(module.weight.shape[-1]))
        if isinstance(module, TitansMagAttention) and self.config.persistent_tokens:
            nn.init.normal_(module.persistent, std=1.0)
        if isinstance(module, NeuralMemory) and self.config.memory == "two-layer":
            nn.init.normal_(module.initial_first, std=1 / math.sqrt(module.size))
            nn.init.normal_(module.initial_second, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
            if module.out_features == len(RATES) * self.config.num_attention_heads:
                values = torch.tensor(RATES).repeat_interleave(self.config.num_attention_heads)
                module.bias.copy_(values)


class TitansMagModel(TitansMagPreTrainedModel):
    """Embedding, blocks and final norm."""

    def __init__(self, config: TitansMagConfig) -> None:
        """Make the parameters."""
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(TitansMagBlock(config) for _ in range(config.num_hidden_layers))
        self.norm = TitansMagRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        if config.halting:
            self.halt = nn.Linear(config.hidden_size, 1)
        self.post_init()

    def forward(
        self,
        x: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        cache: TitansMagCache | None = None,
    ) -> torch.Tensor:
        """Return the last hidden states, [batch, tokens, width], of embeddings `x` of that shape.

        `attention_mask` [batch, tokens so far] is 0 for padding, which must be on the left if there is
        a cache. Without mask and cache, `position_ids` tell where texts that share a row begin.
        """
        if attention_mask is not None and attention_mask.dim() != 2:
            raise ValueError("titans_mag models take masks [batch, tokens]: the memory reads in order")
        if attention_mask is None and cache is None and position_ids is not None:
            packed = _packed(position_ids.expand(x.shape[:2]))
            if packed is not None:
                return self._applied(x[packed[0]], packed[1], None)[packed[2]]
        return self._applied(x, attention_mask, cache)

    def _applied(
        self, x: torch.Tensor, mask: torch.Tensor | None, cache: TitansMagCache | None
    ) -> torch.Tensor:
        """Return the states after all applications of the blocks and the final norm, shaped as `x`."""
        sight = self._sight(x, mask, cache)
        embedded, states = x, []
        for turn in range(self.config.recursions):
            x = x + embedded if turn else x
            for number, block in enumerate(self.layers):
                place = turn * len(self.layers) + number
                x = block(x, sight, None if cache is None else cache.layers[place])
            states.append(x)
        return self.norm(self._halted(states) if self.config.halting else x)

    def _halted(self, states: list[torch.Tensor]) -> torch.Tensor:
        """Return each token's mean of `states`, weighted by its halting probabilities."""
        left, mean = torch.ones_like(states[0][..., :1]), torch.zeros_like(states[0])
        for number, state in enumerate(states):
            last = number == len(states) - 1
            share = left if last else left * torch.sigmoid(self.halt(state))
            mean, left = mean + share * state, left - share
        return mean

    def _sight(self, x: torch.Tensor, mask: torch.Tensor | None, cache: TitansMagCache | None) -> Sight:
        """Return a pass' Sight: positions, visible tokens, padding; add its tokens to `cache.seen`."""
        tokens = x.shape[1]
        past = cache.seen if cache is not None else 0
        window = min(past, self.config.sliding_window - 1)
        real = None
        if mask is not None and not bool((mask != 0).all()):
            real = (mask != 0)[:, -(tokens + window) :]
        places = torch.arange(past, past + tokens, device=x.device)
        distance = places[:, None] - torch.arange(past - window, past + tokens, device=x.device)
        visible = ((distance >= 0) & (distance < self.config.sliding_window))[None, None]
        if real is not None:
            visible = visible & real[:, None, None, :] | (distance == 0)  # padding sees itself
        # Only distances matter, so padding before a text shifts nothing.
        turned = rotary(places[None], x.shape[2] // self.config.num_attention_heads, self.theta)
        if cache is not None:
            cache.seen += tokens
        return Sight(turned, visible, None if real is None else real[:, -tokens:])

    @property
    def theta(self) -> float:
        """The base of the rotary frequencies."""
        return float(self.config.rope_theta)


def _packed(
    positions: torch.Tensor,
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor, tuple[torch.Tensor, ...]] | None:
    """Return (sources of new tokens, mask, places of old tokens) for a text a row; None if rows are so.

    A text begins where a position is not the previous one plus 1. The parts are (row, place) of each
    token of the new rows, their mask [texts, longest], and (text, place) of each old token.
    """
    starts = torch.ones_like(positions, dtype=torch.bool)
    starts[:, 1:] = positions[:, 1:] != positions[:, :-1] + 1
    if int(starts.sum()) == len(positions):
        return None
    tokens = positions.shape[1]
    text = starts.flatten().cumsum(0) - 1
    first = torch.nonzero(starts.flatten())[:, 0]
    within = torch.arange(positions.numel(), device=positions.device) - first[text]
    lengths = torch.diff(first, append=first.new_tensor([positions.numel()]))
    place = torch.arange(int(lengths.max()), device=positions.device)[None]
    mask = (place < lengths[:, None]).long()
    at = (first[:, None] + place).clamp(max=positions.numel() - 1)
    back = (text.view(positions.shape), within.view(positions.shape))
    return (at // tokens, at % tokens), mask, back


class TitansMagForCausalLM(TitansMagPreTrainedModel, GenerationMixin):
    """A model with a head that predicts the next token."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: TitansMagConfig) -> None:
        """Make the parameters."""
        super().__init__(config)
        self.model = TitansMagModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        cache: TitansMagCache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        **options: Any,
    ) -> TitansMagOutput:
        """Return a TitansMagOutput: logits of the last `logits_to_keep` tokens (0: all), maybe loss.

        With `use_cache` the output has a state that the next pass takes as `cache`.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give input_ids or inputs_embeds")
        x = self.model.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        needs_cache = self.config.use_cache if use_cache is None else use_cache
        if cache is None and needs_cache and not self.training:
            cache = TitansMagCache(self.config.num_hidden_layers * self.config.recursions)
        states = self.model(x, attention_mask, position_ids, cache)
        places = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(states[:, places])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.vocab_size, **options)
        return TitansMagOutput(loss=loss, logits=logits, cache=cache)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """Return False: the first pass makes the state, of the class TitansMagCache."""
        return False

    def prepare_inputs_for_generation(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        cache: TitansMagCache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 1,
        **options: Any,
    ) -> dict[str, Any]:
        """Return a dict of arguments of `forward` for the tokens that the cache has not read."""
        if cache is not None:
            input_ids = input_ids[:, cache.seen :]
        return {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "cache": cache,
            "use_cache": use_cache,
            "logits_to_keep": logits_to_keep,
        }

    def _update_model_kwargs_for_generation(
        self, outputs: Any, model_kwargs: dict[str, Any], *args: Any, **options: Any
    ) -> dict[str, Any]:
        """Return a dict of the arguments of the next pass, with the cache of `outputs`."""
        arguments = super()._update_model_kwargs_for_generation(outputs, model_kwargs, *args, **options)
        return {**arguments, "cache": outputs.cache}


__all__ = ["TitansMagCache", "TitansMagConfig", "TitansMagForCausalLM", "TitansMagModel"]
