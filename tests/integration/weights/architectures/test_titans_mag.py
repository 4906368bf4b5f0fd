"""titans_mag: the neural memory against a token-by-token reference, causality, states, padding."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from agent_forge.weights.architectures.auto import AutoModelForCausalLM
from agent_forge.weights.architectures.auto_config import AutoConfig
from agent_forge.weights.architectures.titans_mag import neural_memory
from agent_forge.weights.architectures.titans_mag.neural_memory import Rates

SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
    "sliding_window": 5,
    "memory_chunk": 4,
    "memory_width": 6,
    "persistent_tokens": 2,
}
KINDS: list[dict[str, Any]] = [
    {},
    {"memory": "two-layer", "memory_step": 0.1},
    {"memory": "none", "persistent_tokens": 0},
    {"gate": "product", "recursions": 2},
    {"recursions": 3, "halting": True, "convolution": 1},
]


def build(**changes: Any) -> Any:
    """A model whose projections are large enough for memory and attention to matter."""
    config = AutoConfig.for_model("titans_mag", **{**SMALL, **changes})
    torch.manual_seed(0)
    made: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "proj" in name or "embed" in name:
                parameter.mul_(20)
    return made.eval()


def ids(rows: int, tokens: int) -> torch.Tensor:
    return torch.randint(0, 40, (rows, tokens), generator=torch.Generator().manual_seed(1))


# ---- the memory alone ----------------------------------------------------------------------------


def network(matrices: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The memory's network, as the paper has it: SiLU between matrices."""
    for number, matrix in enumerate(matrices):
        x = matrix @ (torch.nn.functional.silu(x) if number else x)
    return x


def reference(
    matrices: list[torch.Tensor],
    keys: torch.Tensor,
    values: torch.Tensor,
    queries: torch.Tensor,
    rates: torch.Tensor,
    chunk: int,
    bound: float,
) -> torch.Tensor:
    """One head, token by token, gradients by autograd: the equations of the module's docstring."""
    weights = [one.clone() for one in matrices]
    momenta = [torch.zeros_like(one) for one in matrices]
    anchor, found = weights, []
    for t in range(len(keys)):
        if t % chunk == 0:
            anchor = weights
        leaves = [one.detach().clone().requires_grad_() for one in anchor]
        loss = (network(leaves, keys[t]) - values[t]).square().sum() / 2
        slopes = torch.autograd.grad(loss, leaves)
        norm = math.sqrt(sum(float(one.square().sum()) for one in slopes))
        scale = min(1.0, bound / norm)
        step, momentum, forgetting = rates[t].tolist()
        momenta = [momentum * s - step * scale * g for s, g in zip(momenta, slopes, strict=True)]
        weights = [(1 - forgetting) * m + s for m, s in zip(weights, momenta, strict=True)]
        found.append(network(weights, queries[t]))
    return torch.stack(found)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("chunk", [1, 3, 16])
def test_chunks_are_the_token_by_token_rule(layers: int, chunk: int) -> None:
    draw = torch.Generator().manual_seed(layers)
    size, width, tokens = 4, 5, 11

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    shapes = [(size, size)] if layers == 1 else [(width, size), (size, width)]
    matrices = [numbers(2, *shape) for shape in shapes]
    keys, values, queries = (numbers(1, 2, tokens, size) for _ in range(3))
    rates = torch.rand(2, tokens, 3, generator=draw, dtype=torch.float64) * 0.8 + 0.1
    step, momentum, forgetting = rates.permute(2, 0, 1)[:, None]
    told = Rates(step, momentum.log(), (1 - forgetting).log(), torch.ones_like(step))
    bound = 3.0  # some gradients are above it, others are not
    state = neural_memory.begin(matrices, 1)
    found, after = neural_memory.read(state, queries, keys, values, told, chunk, bound)
    for head in range(2):
        own = [one[head] for one in matrices]
        wanted = reference(
            own, keys[0, head], values[0, head], queries[0, head], rates[head], chunk, bound
        )
        torch.testing.assert_close(found[0, head], wanted, rtol=1e-9, atol=1e-9)
    # The same in two passes: the state is all that lives between tokens.
    first = [one[:, :, :6] for one in (queries, keys, values)]
    second = [one[:, :, 6:] for one in (queries, keys, values)]
    a, state = neural_memory.read(state, *first, told.part(0, 6), chunk, bound)
    b, state = neural_memory.read(state, *second, told.part(6, 11), chunk, bound)
    torch.testing.assert_close(torch.cat([a, b], 2), found, rtol=1e-9, atol=1e-9)
    for one, other in zip(state.weights + state.momenta, after.weights + after.momenta, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_gradient_is_bounded() -> None:
    """Without a bound a two-layer memory diverges: pilots had NaN."""
    draw = torch.Generator().manual_seed(0)
    key, value = (100 * torch.randn(1, 1, 3, 4, generator=draw) for _ in range(2))
    matrices = [torch.randn(1, 1, 5, 4, generator=draw), torch.randn(1, 1, 4, 5, generator=draw)]
    inputs, errors = neural_memory.surprise(matrices, key, value, 0.5)
    whole = sum(
        (e[..., :, None] * x[..., None, :]).square().sum((-1, -2))
        for x, e in zip(inputs, errors, strict=True)
    )
    torch.testing.assert_close(torch.as_tensor(whole).sqrt(), torch.full((1, 1, 3), 0.5))


# ---- the model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", KINDS)
def test_no_token_sees_a_later_one(changes: dict[str, Any]) -> None:
    model, given = build(**changes), ids(1, 13)
    embeddings = model.model.embed_tokens(given).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings, use_cache=False).logits
    for at in (0, 6, 11):
        (slope,) = torch.autograd.grad(logits[0, at].sum(), embeddings, retain_graph=True)
        assert not slope[0, at + 1 :].any()
        assert slope[0, at].any()


def test_memory_reaches_beyond_the_window() -> None:
    """Two blocks of windows of 5 see 8 tokens back; only a memory sees the token 12 back."""
    for kind, reached in (("linear", True), ("two-layer", True), ("none", False)):
        model, given = build(memory=kind), ids(1, 14)
        other = given.clone()
        other[0, 0] = (given[0, 0] + 1) % 40
        with torch.no_grad():
            a, b = (model(x, use_cache=False).logits[0, -1] for x in (given, other))
        assert bool((a != b).any()) == reached


@pytest.mark.parametrize("changes", KINDS)
def test_token_by_token_is_the_whole_pass(changes: dict[str, Any]) -> None:
    model, given = build(**changes), ids(2, 15)
    with torch.no_grad():
        whole = model(given, use_cache=False).logits
        for cuts in ([1] * 15, [6, 9], [3, 1, 5, 6]):
            cache, found, at = None, [], 0
            for length in cuts:
                told = model(given[:, at : at + length], cache=cache, use_cache=True)
                cache, at = told.cache, at + length
                found.append(told.logits)
            torch.testing.assert_close(torch.cat(found, 1), whole, rtol=1e-4, atol=1e-4)
    assert cache.layers[0].key.shape[2] == 4  # no more than the window needs


@pytest.mark.parametrize("changes", KINDS)
def test_padding_on_the_left_changes_nothing(changes: dict[str, Any]) -> None:
    """Chunks begin with a text's first token, however much padding is before it."""
    model, given = build(**changes), ids(2, 12)
    mask = torch.ones(2, 15, dtype=torch.int64)
    mask[0, :3] = 0
    padded = torch.cat([torch.zeros(2, 3, dtype=torch.int64), given], 1)
    padded[1] = ids(1, 15)[0]
    with torch.no_grad():
        alone = model(given[:1], use_cache=False).logits[0]
        beside = model(padded[1:], use_cache=False).logits[0]
        for cut in (15, 8):
            told = model(padded[:, :cut], attention_mask=mask[:, :cut], use_cache=True)
            found, cache = [told.logits], told.cache
            for at in range(cut, 15):
                seen = mask[:, : at + 1]
                told = model(padded[:, at : at + 1], attention_mask=seen, cache=cache)
                found.append(told.logits)
            logits = torch.cat(found, 1)
            torch.testing.assert_close(logits[0, 3:], alone, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(logits[1], beside, rtol=1e-4, atol=1e-4)


def test_texts_that_share_a_row_do_not_see_each_other() -> None:
    """`answers` packs items into rows, and says so by positions that begin again."""
    model, given = build(), ids(2, 12)
    places = torch.arange(12)[None].repeat(2, 1)
    places[0, 5:] = torch.arange(7)
    with torch.no_grad():
        found = model(given, position_ids=places, use_cache=False).logits
        for row, cut in ((0, slice(0, 5)), (0, slice(5, 12)), (1, slice(0, 12))):
            alone = model(given[row : row + 1, cut], use_cache=False).logits[0]
            torch.testing.assert_close(found[row, cut], alone, rtol=1e-5, atol=1e-5)


def test_generation_with_a_state_is_generation_without() -> None:
    model, given = build(), ids(2, 9)
    how = {"max_new_tokens": 9, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    mask = torch.ones_like(given)
    mask[0, :4] = 0
    told = [model.generate(given, attention_mask=mask, use_cache=u, **how) for u in (True, False)]
    assert torch.equal(*told)
    beams = model.generate(given, num_beams=2, **how)
    assert beams.shape == (2, 18)


def test_a_mask_of_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match="in order"):
        build()(ids(1, 4), attention_mask=torch.ones(1, 1, 4, 4))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory": "deep"}, "memory is one of"),
        ({"recursions": 10**9}, "recursions is from 1 to 64"),
        ({"memory_step": 0.0}, "memory_step"),
        ({"num_key_value_heads": 3}, "heads divide"),
        ({"halting": True}, "halting needs two"),
    ],
)
def test_settings_that_no_model_can_have_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        AutoConfig.for_model("titans_mag", **{**SMALL, **changes})


def test_gradients_reach_every_parameter() -> None:
    """Also the rates that depend on the token, and the memory's first weights."""
    for changes in KINDS:
        model, given = build(**changes).train(), ids(2, 12)
        model(given, labels=given).loss.backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.any(), name


def test_eager_attention_is_sdpa() -> None:
    model, given = build(), ids(1, 9)
    with torch.no_grad():
        a = model(given, use_cache=False).logits
        model.config._attn_implementation = "eager"
        b = model(given, use_cache=False).logits
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
