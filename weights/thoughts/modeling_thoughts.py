"""A causal language model that thinks before each token (Quiet-STaR, arXiv 2403.09629).

A thought of t tokens stands between a token and the next: start, T_1 … T_t, end. The model predicts the
next token twice, without the thought (the base) and after it, and mixes both:

    p = w · p(after the thought) + (1 − w) · p(base),    w = σ(head(h_base, h_thought))

`start`, `end` and `pause` are vectors in the place of embeddings, not tokens of the vocabulary.

Thoughts after all positions of a row are computed at once. Layer k below has the k-th token of every
thought. A token sees the text up to the position of its thought, and the earlier tokens of its thought:

    text       x_0  x_1  x_2  …        position j
    layer 0    s    s    s             position j + 1
    layer 1    T    T    T             position j + 2, and so on

This file needs only torch, transformers and safetensors, so that it can lie in the folder of a model.
There it is used without `trust_remote_code`:

    from modeling_thoughts import Thinker

    model = Thinker.from_pretrained("FOLDER")
    ids = model.generate(prompt_ids, 20)                 # with thoughts
    ids = model.generate(prompt_ids, 20, think=False)    # without: the folder's ordinary model
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: Files beside a model: the parameters below, and the length of a thought.
TENSORS, SETTINGS = "thoughts.safetensors", "thoughts.json"
#: Name of the parameters as a part of a model.
PART = "thoughts"


class Thoughts(nn.Module):
    """Parameters that thinking needs: the vectors around a thought, and the mixing head."""

    def __init__(self, hidden: int, pause: bool = False) -> None:
        """Make the parameters for a model of this hidden size, with a pause vector if `pause`."""
        super().__init__()
        self.start = nn.Parameter(torch.zeros(hidden))
        self.end = nn.Parameter(torch.zeros(hidden))
        self.pause = nn.Parameter(torch.zeros(hidden)) if pause else None
        self.first = nn.Linear(2 * hidden, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.last = nn.Linear(hidden, 1)

    def logit(self, base: Tensor, thought: Tensor) -> Tensor:
        """Return the logit of w, [..], of hidden states [.., hidden] without and with the thought."""
        x = F.relu(self.first(torch.cat([base, thought], -1)))
        return self.last(F.relu(self.second(x))).squeeze(-1)


@dataclass(frozen=True)
class ThoughtPass:
    """Result of a forward pass over a text and the thoughts after all its positions."""

    #: Logits [rows, 1 + layers, tokens, vocabulary] and last hidden states [.., hidden]: 0 is the text,
    #: then the layers of the thoughts.
    logits: Tensor
    states: Tensor


def mask(tokens: int, layers: int, dtype: torch.dtype, device: Any = None) -> Tensor:
    """Return the additive attention mask, 0 or lowest, [1, 1, n, n] with n = tokens · (1 + layers).

    Text sees the text before it. A token of a thought sees the text up to the thought's position, and
    the thought so far (the diagonals).
    """
    place = torch.arange(tokens, device=device).repeat(1 + layers)
    layer = torch.arange(1 + layers, device=device).repeat_interleave(tokens)
    text = (layer == 0) & (place <= place[:, None])
    own_thought = (layer > 0) & (place == place[:, None]) & (layer <= layer[:, None])
    added = torch.zeros(place.numel(), place.numel(), dtype=dtype, device=device)
    return added.masked_fill(~(text | own_thought), torch.finfo(dtype).min)[None, None]


def positions(tokens: int, layers: int, device: Any = None) -> Tensor:
    """Return the position ids of a text and its thoughts, [1, tokens · (1 + layers)] int64."""
    first = torch.arange(tokens, device=device)
    return torch.cat([first + layer for layer in range(1 + layers)])[None]


def embedded(model: Any, thoughts: Thoughts, ids: Tensor, ahead: Tensor) -> Tensor:
    """Return embeddings of start, thought, end and the text ahead, [rows, layers, tokens, hidden].

    `ids` are the thoughts [rows, length, tokens]; `ahead` are the tokens of the text after each,
    [rows, count, tokens]. There are length + count + 2 layers.
    """
    embed = model.get_input_embeddings()
    return _around(thoughts, embed(ids), embed(ahead))


def paused(model: Any, thoughts: Thoughts, length: int, ahead: Tensor) -> Tensor:
    """Return `embedded` with `length` pause vectors as a thought, [rows, layers, tokens, hidden]."""
    assert thoughts.pause is not None
    rows, _, tokens = ahead.shape
    inner = thoughts.pause.expand(rows, length, tokens, -1)
    return _around(thoughts, inner, model.get_input_embeddings()(ahead))


def _around(thoughts: Thoughts, inner: Tensor, ahead: Tensor) -> Tensor:
    shape = (inner.shape[0], 1, *inner.shape[2:])
    return torch.cat([thoughts.start.expand(shape), inner, thoughts.end.expand(shape), ahead], 1)


def forward(model: Any, text: Tensor, layers: Tensor) -> ThoughtPass:
    """Return a ThoughtPass: logits and last hidden states of one pass over a text and its thoughts.

    `text` are ids [rows, tokens], `layers` embeddings [rows, layers, tokens, hidden].
    """
    first = model.get_input_embeddings()(text)
    rows, tokens, hidden = first.shape
    count = layers.shape[1]
    output = model(
        inputs_embeds=torch.cat([first, layers.reshape(rows, -1, hidden).to(first.dtype)], 1),
        attention_mask=mask(tokens, count, first.dtype, text.device),
        position_ids=positions(tokens, count, text.device).expand(rows, -1),
        use_cache=False,
        output_hidden_states=True,
    )
    shape = (rows, 1 + count, tokens, -1)
    return ThoughtPass(output.logits.reshape(shape), output.hidden_states[-1].reshape(shape))


@torch.no_grad()
def sampled(
    model: Any,
    thoughts: Thoughts,
    text: Tensor,
    length: int,
    draws: Tensor | None = None,
    temperature: float = 1.0,
) -> Tensor:
    """Return the ids, [rows, length, tokens], of a thought of `length` tokens after each position.

    `text` are ids [rows, tokens]; `draws` are numbers in (0, 1), [rows, length, tokens]: each takes the
    token at that place of the cumulated probabilities. Without draws, each token is the likeliest.
    """
    from transformers import DynamicCache

    rows, tokens = text.shape
    embed = model.get_input_embeddings()
    full = mask(tokens, length, embed.weight.dtype, text.device)
    places = positions(tokens, length, text.device)
    cache, thought_tokens = DynamicCache(), []
    inputs = embed(text)
    for layer in range(length + 1):
        upto = slice(layer * tokens, (layer + 1) * tokens)
        passed = model(
            inputs_embeds=inputs,
            attention_mask=full[:, :, upto, : upto.stop],
            position_ids=places[:, upto].expand(rows, -1),
            use_cache=True,
            **{_cache_name(model): cache},
        )
        if layer:
            drawn = None if draws is None else draws[:, layer - 1]
            thought_tokens.append(_taken(passed.logits, drawn, temperature))
        inputs = embed(thought_tokens[-1]) if layer else thoughts.start.expand(rows, tokens, -1)
    return torch.stack(thought_tokens, 1)


def _cache_name(model: Any) -> str:
    """Return the name of a model's argument for its cache: "cache" or "past_key_values"."""
    parameters = inspect.signature(model.forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"


def _taken(logits: Tensor, draws: Tensor | None, temperature: float) -> Tensor:
    """Return a token id for each of the logits [rows, tokens, vocabulary], [rows, tokens] int64."""
    if draws is None:
        return logits.argmax(-1)
    sums = (wide(logits) / temperature).softmax(-1).cumsum(-1)
    thresholds = draws[..., None].to(sums.dtype) * sums[..., -1:]
    return torch.searchsorted(sums, thresholds, right=True).squeeze(-1).clamp_max(logits.shape[-1] - 1)


def wide(values: Tensor) -> Tensor:
    """Return the values in float32, or unchanged if they are float64."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def mixed(base: Tensor, thought: Tensor, logit: Tensor) -> Tensor:
    """Return log(w p + (1 − w) q) of log q (base), log p (thought) and w's logit, of their shape."""
    return torch.logaddexp(F.logsigmoid(logit) + thought, F.logsigmoid(-logit) + base)


class Thinker(nn.Module):
    """A causal language model of transformers together with the parameters of thinking."""

    def __init__(self, model: Any, thoughts: Thoughts, length: int, temperature: float = 1.0) -> None:
        """Store the model, how many tokens a thought has, and the temperature of sampled thoughts."""
        super().__init__()
        self.model, self.thoughts = model, thoughts
        self.length, self.temperature = length, temperature

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Thinker:
        """Return the Thinker of a folder's model and its two files of thoughts, for evaluation.

        It computes in float32, as when thoughts were measured, even if the weights have 16 bits.
        """
        from safetensors.torch import load_file
        from transformers import AutoModelForCausalLM

        settings = json.loads((Path(folder) / SETTINGS).read_text("utf-8"))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        tensors = load_file(Path(folder) / TENSORS)
        return cls(model, loaded(tensors), settings["length"], settings["temperature"]).eval()

    @torch.no_grad()
    def next_token(self, ids: Tensor, think: bool = True, draws: Tensor | None = None) -> Tensor:
        """Return log p, [vocabulary], of the token after ids [1, tokens], with a thought if `think`.

        There is one thought, computed token by token; its tokens are not added to the text. It is
        sampled by `draws`, numbers in [0, 1), [length]; without draws each token is the likeliest.
        """
        embed = self.model.get_input_embeddings()
        text = embed(ids)
        output = self.model(inputs_embeds=text, use_cache=False, output_hidden_states=True)
        base = wide(output.logits[0, -1]).log_softmax(-1)
        if not think:
            return base
        row = torch.cat([text, self.thoughts.start[None, None]], 1)
        for place in range(self.length):
            if self.thoughts.pause is not None:
                token = self.thoughts.pause[None, None]
            else:
                logits = self.model(inputs_embeds=row, use_cache=False).logits[:, -1:]
                drawn = None if draws is None else draws[None, place, None]
                token = embed(_taken(logits, drawn, self.temperature))
            row = torch.cat([row, token], 1)
        row = torch.cat([row, self.thoughts.end[None, None]], 1)
        after = self.model(inputs_embeds=row, use_cache=False, output_hidden_states=True)
        logit = self.thoughts.logit(output.hidden_states[-1][0, -1], after.hidden_states[-1][0, -1])
        return mixed(base, wide(after.logits[0, -1]).log_softmax(-1), logit)

    def generate(
        self, ids: Tensor, count: int, think: bool = True, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return `ids` [1, tokens] and `count` new ids, each the likeliest, [1, tokens + count].

        With a generator, thoughts are sampled, as they were when they were measured.
        """
        for _ in range(count):
            draws = None
            if generator is not None:
                draws = torch.rand(self.length, generator=generator).to(ids.device)
            ids = torch.cat([ids, self.next_token(ids, think, draws).argmax()[None, None]], 1)
        return ids


def loaded(tensors: Mapping[str, Tensor]) -> Thoughts:
    """Return a `Thoughts` with these parameters. Raises RuntimeError for other names or shapes."""
    thoughts = Thoughts(tensors["start"].numel(), "pause" in tensors)
    thoughts.load_state_dict(dict(tensors))
    return thoughts.to(tensors["start"].dtype)
