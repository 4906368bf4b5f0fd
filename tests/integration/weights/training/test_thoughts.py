"""Thoughts before tokens: the diagonal mask, the mixture and REINFORCE beside slow references."""

from __future__ import annotations

import functools
import itertools
import math
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights import operations
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.recipes import Train, Transform
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.thoughts import modeling_thoughts as thinking
from agent_forge.weights.thoughts import parts
from agent_forge.weights.training.loop import segment
from agent_forge.weights.training.models.thinking import build, check_heeds
from agent_forge.weights.training.objectives.thoughts import ThoughtsObjective, predictions
from agent_forge.weights.training.windows import stream_digest
from testing.models import titans_toys
from testing.models.toy_training import INIT, VOCABULARY, model, recipe, streams
from testing.shares import one_quick
from tests.integration.weights.test_training import bits

ADDED = operations.complete(
    Transform(operation="thoughts-init@1", inputs={"of": INIT.id}, params={"pause": True}, seed=4)
)


@cache
def start() -> Tensors:
    """Return the toy model with a part for thoughts, whose mixing head is not the initial one."""
    made = operations.apply(ADDED, {"of": model()})
    drawn = torch.randn(1, 16, generator=torch.Generator().manual_seed(1))
    return Tensors(made.config, {**made.weights, "thoughts.last.weight": drawn})


def module(given: Tensors | None = None) -> Any:
    """Return the module of the toy model with its part, in float64."""
    return build(given or start()).double().eval()


def training(params: dict[str, Any] | None = None, **more: Any) -> Train:
    """Return the toy training with thoughts."""
    whole = {"kl": 0.1, "policy": 0.5, "lengths": [3, 2], **(params or {})}
    inputs = {"teacher": INIT.id} if whole["kl"] else {}
    fields = {"objective": "thoughts@1", "params": whole, "inputs": inputs, "start": ADDED.id}
    return recipe(**{**fields, **more})


def text(rows: int = 2, tokens: int = 7) -> torch.Tensor:
    """Return token ids [rows, tokens]."""
    drawn = torch.Generator().manual_seed(0)
    return torch.randint(0, VOCABULARY, (rows, tokens), generator=drawn)


def one_by_one(built: Any, row: torch.Tensor, inner: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits and last states after each of some ids and then some embeddings [n, hidden].

    An ordinary causal pass over one sequence, with no mask and no positions of our own.
    """
    whole = torch.cat([built.get_input_embeddings()(row), inner])[None]
    found = built(inputs_embeds=whole, use_cache=False, output_hidden_states=True)
    return found.logits[0], found.hidden_states[-1][0]


@torch.no_grad()
def test_thoughts_at_once_are_those_one_by_one() -> None:
    """Every logit and state of every layer, and the text's own: the mask keeps thoughts apart."""
    built, ids = module(), text()
    thoughts = text(6, 7).view(2, 3, 7)
    ahead = torch.stack([ids.roll(-1, 1), ids.roll(-2, 1)], 1)
    layers = thinking.embedded(built, built.thoughts, thoughts, ahead)
    passed = thinking.forward(built, ids, layers)
    for row, place in itertools.product(range(2), range(7)):
        logits, states = one_by_one(built, ids[row, : place + 1], layers[row, :, place])
        for layer in range(1 + 1 + 3 + 1 + 2):
            torch.testing.assert_close(
                passed.logits[row, layer, place], logits[place + layer], rtol=0, atol=1e-12
            )
            torch.testing.assert_close(
                passed.states[row, layer, place], states[place + layer], rtol=0, atol=1e-12
            )


@torch.no_grad()
def test_in_float32_the_difference_is_rounding() -> None:
    built, ids = module().float(), text()
    layers = thinking.paused(built, built.thoughts, 2, ids[:, None])
    passed = thinking.forward(built, ids, layers)
    for place in range(7):
        logits, _ = one_by_one(built, ids[0, : place + 1], layers[0, :, place])
        torch.testing.assert_close(passed.logits[0, :, place], logits[place:], rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_thoughts_are_sampled_as_one_by_one(temperature: float) -> None:
    """By a draw, the first token at which the sum of probabilities is above it; else the likeliest."""
    built, ids = module(), text(1, 5)
    draws = torch.rand(1, 3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    embed = built.get_input_embeddings()
    for given in (draws, None):
        found = thinking.sampled(built, built.thoughts, ids, 3, given, temperature)
        for place in range(5):
            inner = [built.thoughts.start]
            for k in range(3):
                logits, _ = one_by_one(built, ids[0, : place + 1], torch.stack(inner))
                token = int(logits[-1].argmax())
                if given is not None:
                    sums = (logits[-1] / temperature).softmax(-1).cumsum(-1)
                    token = int((sums <= given[0, k, place]).sum())
                assert int(found[0, k, place]) == token
                inner.append(embed.weight[token])


@torch.no_grad()
def slow_loss(built: Any, tokens: torch.Tensor, draws: torch.Tensor, params: dict[str, Any]) -> float:
    """Return the loss by its definition, one sequence at a time: NLL − policy · r⁺ log π."""
    embed, part = built.get_input_embeddings(), built.thoughts
    rows, passes, length, width = draws.shape
    lost, policies = [], []
    for row, place in itertools.product(range(rows), range(width)):
        base, states = one_by_one(built, tokens[row, :-1], embed.weight[:0])
        rewards, said = [], []
        for one in range(passes):
            inner, log_pi = [part.start], 0.0
            for k in range(length):
                logits, _ = one_by_one(built, tokens[row, : place + 1], torch.stack(inner))
                p = logits[-1].softmax(-1)
                token = int((p.cumsum(-1) <= draws[row, one, k, place]).sum())
                log_pi += math.log(p[token])
                inner.append(embed.weight[token])
            inner.append(part.end)
            reward = 0.0
            for m in range(params["ahead"]):
                if place + m >= width:
                    break
                wanted = tokens[row, place + 1 + m]
                logits, after = one_by_one(built, tokens[row, : place + 1], torch.stack(inner))
                w = part.logit(states[place + m], after[-1]).sigmoid()
                p = w * logits[-1].softmax(-1) + (1 - w) * base[place + m].softmax(-1)
                own = params["own"]
                told = math.log(p[wanted]) + own * float(logits[-1].log_softmax(-1)[wanted])
                lost.append(-told / (1 + own))
                reward += told / (1 + own)
                inner.append(embed.weight[wanted])
            rewards.append(reward)
            said.append(log_pi)
        mean = sum(rewards) / passes
        policies += [max(r - mean, 0) * s for r, s in zip(rewards, said, strict=True)]
    return sum(lost) / len(lost) - params["policy"] * sum(policies) / len(policies)


@pytest.mark.parametrize("own", [0.0, 0.5])
def test_the_loss_is_that_of_its_definition(own: float) -> None:
    """Mixture, tokens ahead, the mean of the passes, positive rewards alone, and log π: all of it."""
    params = {"kl": 0.0, "policy": 0.7, "passes": 3, "ahead": 2, "own": own}
    whole = training(params, batch=2, context=5)
    built = module()
    found = ThoughtsObjective(whole, built, streams(), {})
    batch = found.batch(0)
    wanted = slow_loss(built, batch["tokens"], batch["draws"], whole.params)
    assert float(found.loss(batch).detach()) == pytest.approx(wanted, abs=1e-12)


def test_the_guard_is_the_divergence_from_the_teacher_without_thoughts() -> None:
    built = module()
    losses = {}
    for kl in (0.0, 2.0):
        whole = training({"kl": kl})
        read = {"teacher": model()} if kl else {}
        found = ThoughtsObjective(whole, built, streams(), read)
        if kl:
            found._teacher._module.double()  # type: ignore[union-attr]
        losses[kl] = float(found.loss(found.batch(0)).detach())
    # The model is its teacher: nothing is apart.
    assert losses[2.0] == pytest.approx(losses[0.0], abs=1e-6)
    with torch.no_grad():
        built.get_parameter("model.embed_tokens.weight").mul_(1.5)
    apart = []
    for kl in (0.0, 2.0):
        whole = training({"kl": kl})
        found = ThoughtsObjective(whole, built, streams(), {"teacher": model()} if kl else {})
        if kl:
            found._teacher._module.double()  # type: ignore[union-attr]
        apart.append(float(found.loss(found.batch(0)).detach()))
    tokens = found.batch(0)["tokens"][:, :-1]
    own = built(input_ids=tokens).logits.log_softmax(-1)
    theirs = module(start())(input_ids=tokens).logits.log_softmax(-1)
    kl = float((theirs.exp() * (theirs - own)).sum(-1).mean().detach())
    assert apart[1] - apart[0] == pytest.approx(2.0 * kl, abs=1e-6)


@torch.no_grad()
def test_pauses_are_the_same_computation_without_thoughts() -> None:
    """One vector in the place of every token of a thought; one pass, and no random numbers."""
    whole = training({"kl": 0.0, "thinks": "pause", "ahead": 1, "own": 0.0}, batch=2, context=4)
    built = module()
    found = ThoughtsObjective(whole, built, streams(), {})
    tokens, part, lost = found.batch(0)["tokens"], built.thoughts, []
    inner = torch.stack([part.start, part.pause, part.pause, part.pause, part.end])
    for row, place in itertools.product(range(2), range(4)):
        base, states = one_by_one(built, tokens[row, : place + 1], inner[:0])
        logits, after = one_by_one(built, tokens[row, : place + 1], inner)
        w = part.logit(states[-1], after[-1]).sigmoid()
        p = w * logits[-1].softmax(-1) + (1 - w) * base[-1].softmax(-1)
        lost.append(-math.log(p[tokens[row, place + 1]]))
    assert float(found.loss(found.batch(0)).detach()) == pytest.approx(sum(lost) / 8, abs=1e-12)
    assert not found.batch(5)["draws"].any()


def test_the_length_of_thoughts_falls_in_equal_shares() -> None:
    """Fast Quiet-STaR's curriculum: 16, 8, 4 of 8 steps."""
    found = ThoughtsObjective(
        training({"kl": 0.0, "lengths": [16, 8, 4]}), build(start()), streams(), {}
    )
    assert [found.length(step) for step in range(8)] == [16, 16, 16, 8, 8, 8, 4, 4]
    assert found.batch(7)["draws"].shape == (4, 2, 4, 12)


def test_the_head_is_not_trained_before_thoughts_have_settled() -> None:
    """Three of eight steps here; all else is."""
    built = build(start())
    found = ThoughtsObjective(training({"kl": 0.0, "settling": 0.3}), built, streams(), {})
    for step, trained in ((0, False), (2, False), (3, True), (7, True)):
        built.zero_grad()
        found.loss(found.batch(step)).backward()
        for name, parameter in built.named_parameters():
            if name != "thoughts.pause":
                head = name.startswith("thoughts.") and name not in ("thoughts.start", "thoughts.end")
                assert parameter.grad is not None
                assert bool(parameter.grad.any()) is (trained or not head), (step, name)


def carried(whole: Train, cuts: tuple[int, ...]) -> Any:
    """The last snapshot of a training that is cut after these steps."""
    optimiser, given, made = None, start(), None
    read = dict.fromkeys(whole.inputs, model())
    for first, last in itertools.pairwise((0, *cuts, whole.upto)):
        made = segment(whole, given, optimiser, streams(), first, last, inputs=read)
        given, optimiser = Tensors(given.config, made.weights), made.optimiser
    return made


@pytest.mark.parametrize(
    ("precision", "checkpointing", "thinks"),
    one_quick(
        ("bfloat16", True, "sampled"),
        ("float32", False, "sampled"),
        ("float32", True, "sampled"),
        ("bfloat16", False, "sampled"),
        ("float32", False, "pause"),
    ),
)
def test_cut_after_every_step_the_bits_are_the_same(
    precision: str, checkpointing: bool, thinks: str
) -> None:
    """Thoughts are drawn by the step's key; the curriculum changes its length on the way."""
    more = {"precision": precision, "checkpointing": checkpointing, "accumulation": 2}
    recipe_ = training({"thinks": thinks}, **more)
    whole, cut = carried(recipe_, ()), carried(recipe_, tuple(range(1, 8)))
    assert bits(cut) == bits(whole)
    assert digest(whole.weights) != digest(start().weights)
    assert not torch.equal(whole.weights["thoughts.start"], start().weights["thoughts.start"])


def test_activations_computed_again_change_no_bit() -> None:
    """Sampling keeps keys and values, which such a module does not do while it trains."""
    assert bits(carried(training(checkpointing=True), ())) == bits(carried(training(), ()))


# ---- the useful thought --------------------------------------------------------------------------

#: Texts go round 0 … 7. A thought is one of four hints; start and end are the tokens S and E.
ROUND, HINTS, USEFUL, S, E, ALL = 8, 4, 9, 12, 13, 14


class Hinted(torch.nn.Module):
    """A model by construction: it knows what follows a token after the hint USEFUL, and else nothing.

    After S it gives hint n the logit theta[n]: all that there is to learn. States are a token, and the
    sum of those that it sees.
    """

    def __init__(self) -> None:
        super().__init__()
        self.theta = torch.nn.Parameter(torch.zeros(HINTS))
        self.embed = torch.nn.Embedding.from_pretrained(torch.eye(ALL, 2 * ALL))
        self.thoughts = thinking.Thoughts(2 * ALL).requires_grad_(False)
        self.thoughts.start.copy_(self.embed.weight[S])
        self.thoughts.end.copy_(self.embed.weight[E])
        self.thoughts.last.bias.fill_(2.0)

    def get_input_embeddings(self) -> Any:
        """Return the embeddings."""
        return self.embed

    def forward(
        self, inputs_embeds: Any, attention_mask: Any, past_key_values: Any = None, **_: Any
    ) -> Any:
        """Return logits and states as a model of transformers does."""
        own = seen = inputs_embeds[..., :ALL]
        if past_key_values is not None:
            seen = past_key_values.update(own[:, None], own[:, None], 0)[0][:, 0]
        visible = (attention_mask[0, 0] == 0).float() @ seen
        next_ = visible[..., :ROUND].roll(1, -1) * 6.0 * visible[..., USEFUL, None]
        text = torch.nn.functional.pad(next_, (0, ALL - ROUND), value=-30.0)
        hints = torch.full((ALL,), -30.0).index_copy(0, torch.arange(8, 8 + HINTS), self.theta)
        logits = torch.where(own[..., S, None] == 1, hints, text)
        return SimpleNamespace(logits=logits, hidden_states=[torch.cat([own, visible], -1)])


@pytest.mark.parametrize(("policy", "chance"), [(3.0, 0.95), (0.0, 0.25)])
def test_reinforce_finds_the_useful_thought(policy: float, chance: float) -> None:
    """The likelihood alone teaches nothing of what to think: without the reward no number moves."""
    ids = torch.arange(400).remainder(ROUND).numpy().astype("int32")
    whole = training(
        {"lengths": [1], "ahead": 1, "kl": 0.0, "policy": policy, "passes": 2},
        data={"even": 1.0},
        data_digests={"even": stream_digest(ids)},
        batch=32,
        context=1,
        steps=120,
    )
    with torch.no_grad():
        built = Hinted()
    found = ThoughtsObjective(whole, built, {"even": ids}, {})
    steps = torch.optim.Adam([built.theta], 0.1)
    for step in range(120):
        steps.zero_grad()
        found.loss(found.batch(step)).backward()
        steps.step()
    after = built.theta.detach().softmax(0)
    assert after.argmax() == USEFUL - 8 or policy == 0
    assert (after[USEFUL - 8] >= chance) if policy else (after == chance).all()


# ---- the model that thinks -----------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("pause", [False, True])
def test_a_thinker_predicts_what_the_training_predicts(pause: bool) -> None:
    """Token by token, with the likeliest thought; its parameters go through a file's names."""
    _, own = parts.split(start().weights)
    if not pause:
        own.pop("pause")
    built, tokens = module(), text(1, 6)
    thinker = thinking.Thinker(built, thinking.loaded(own).double(), 2)
    ids, ahead = tokens[:, :-1], tokens[:, None, 1:]
    if pause:
        layers = thinking.paused(built, thinker.thoughts, 2, ahead[:, :-1])
    else:
        thoughts = thinking.sampled(built, thinker.thoughts, ids, 2)
        layers = thinking.embedded(built, thinker.thoughts, thoughts, ahead[:, :-1])
    passed = thinking.forward(built, ids, layers)
    told = predictions(thinker.thoughts, passed, ahead)[0][0, 0]
    for place in range(5):
        alone = thinker.next_token(ids[:, : place + 1])
        assert float(alone.exp().sum()) == pytest.approx(1, abs=1e-5)
        assert float(alone[tokens[0, place + 1]]) == pytest.approx(float(told[place]), abs=1e-5)
    longer = thinker.generate(ids, 3)
    assert longer.shape == (1, 8)
    plain = thinker.next_token(ids, think=False)
    torch.testing.assert_close(plain, built(input_ids=ids).logits[0, -1].log_softmax(-1))


def test_a_new_part_changes_no_prediction_of_the_model_and_can_be_removed() -> None:
    made = operations.apply(ADDED, {"of": model()})
    own = {name for name in made.weights if name.startswith("thoughts.")}
    assert own == {
        f"thoughts.{name}"
        for name in (
            *("start", "end", "pause", "first.weight", "first.bias"),
            *("second.weight", "second.bias", "last.weight", "last.bias"),
        )
    }
    states = torch.randn(3, 16)
    part = thinking.loaded(parts.split(made.weights)[1])
    assert part.logit(states, -states).sigmoid().tolist() == pytest.approx([0.1] * 3)
    assert digest(made.weights) == digest(operations.apply(ADDED, {"of": model()}).weights)
    taken = Transform(operation="thoughts-removed@1", inputs={"of": ADDED.id})
    assert digest(operations.apply(taken, {"of": made}).weights) == digest(model().weights)
    for operation in ("thoughts-init@1", "thoughts-removed@1"):
        with pytest.raises(ConfigError, match="reads the input of"):
            operations.apply(operations.complete(Transform(operation=operation)), {})


def test_an_architecture_that_does_not_heed_the_mask_is_refused() -> None:
    built = build(start())
    check_heeds(built)
    plain = built.forward

    @functools.wraps(plain)
    def deaf(*args: Any, **given: Any) -> Any:
        return plain(*args, **{**given, "attention_mask": None})

    built.forward = deaf
    with pytest.raises(ConfigError, match="does not heed the mask"):
        check_heeds(built)


def test_large_logits_are_no_other_architecture() -> None:
    """SmolLM2 was refused: in float32 its logits differ by 0.0015, as these do by more."""
    built: Any = build(start())
    with torch.no_grad():
        built.model.norm.weight.mul_(1e5)
    check_heeds(built)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2"])
def test_other_decoders_think_too(kind: str) -> None:
    """With learned positions and dropout as well; what a model does in training is its own affair."""
    sizes = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
    ids = {"bos_token_id": 0, "eos_token_id": 0}
    config = AutoConfig.for_model(kind, **sizes, **heads, **ids)
    config.tie_word_embeddings = True
    found: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    given = Tensors(config.to_dict(), {n: p.detach() for n, p in found.named_parameters()})
    recipe_ = Transform(operation="thoughts-init@1", inputs={"of": INIT.id})
    check_heeds(build(operations.apply(operations.complete(recipe_), {"of": given})))


def test_wrong_inputs_are_refused() -> None:
    built = build(start())
    with pytest.raises(ConfigError, match="reads the models"):
        ThoughtsObjective(training({"kl": 0.1}), built, streams(), {})
    with pytest.raises(ConfigError, match="reads the models"):
        ThoughtsObjective(training({"kl": 0.0}), built, streams(), {"teacher": model()})
    with pytest.raises(SourceError, match="no part for thoughts"):
        build(model())
    short = {n: t for n, t in start().weights.items() if n != "thoughts.end"}
    with pytest.raises(SourceError, match="does not fit"):
        build(Tensors(start().config, short))


def test_an_architecture_of_our_own_that_takes_no_such_mask_is_refused() -> None:
    """The message once asked for trust_remote_code."""
    recipe_ = operations.complete(Transform(operation="thoughts-init@1", inputs={"of": INIT.id}))
    with pytest.raises(ConfigError, match=r"cannot compute thoughts: .*\[batch, tokens\]"):
        check_heeds(build(operations.apply(recipe_, {"of": titans_toys.initial()})))
