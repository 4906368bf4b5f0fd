"""Low-rank adapters: peft's forward and merge as the oracle, and a training that is cut anywhere."""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.recipes import Algorithm, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import complete
from agent_forge.weights.training.canary import canary
from agent_forge.weights.training.loop import Snapshot, segment
from agent_forge.weights.training.models import low_rank, modules, sharding
from agent_forge.weights.training.models.low_rank import DOWN, UP, LowRankAdapters
from agent_forge.weights.training.models.modules import TEACHER
from agent_forge.weights.training.windows import stream_digest
from testing.models import toy_baking, toy_training
from testing.shares import one_quick
from tests.integration.weights.test_training import bits

KEY = (0, "toy")
QWEN2 = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def digests_of_answers() -> dict[str, str]:
    return {name: stream_digest(ids) for name, ids in toy_training.answers().items()}


def qwen2() -> Any:
    """The toy: linear layers with matrices [out, in], some with biases."""
    return modules.build(toy_training.model())


def gpt2() -> Any:
    """A model whose matrices are [in, out]."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        config = GPT2Config(vocab_size=64, n_embd=16, n_layer=2, n_head=2, n_positions=32)
        return AutoModelForCausalLM.from_config(config).eval()


def with_values(module: Any, rank: int, names: tuple[str, ...]) -> LowRankAdapters:
    """Adapters of a module, with values that change what it predicts."""
    made = LowRankAdapters(module, rank, 6.0, names, KEY)
    generator = torch.Generator().manual_seed(2)
    state = {
        name: 0.3 * torch.randn(t.shape, generator=generator) if name.endswith(UP) else t
        for name, t in made.state().items()
    }
    made.load(state)
    return made


def of_peft(plain: Any, adapters: LowRankAdapters, rank: int, names: tuple[str, ...]) -> Any:
    """The same model as peft adapts it, with the same A and B."""
    import peft

    config = peft.LoraConfig(
        r=rank,
        lora_alpha=6,
        target_modules=list(names) or "all-linear",
        fan_in_fan_out=isinstance(plain.config, GPT2Config),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft reads names that transformers renamed
        theirs = peft.get_peft_model(plain, config)
    parameters = {n: p for n, p in theirs.named_parameters() if p.requires_grad}
    ours = {n: t for n, t in adapters.state().items() if not n.endswith("/weight")}
    assert len(parameters) == len(ours)
    with torch.no_grad():
        for name, tensor in ours.items():
            place, _, part = name.partition("/")
            parameters[f"base_model.model.{place}.{part}.default.weight"].copy_(tensor)
    return theirs.eval()


@pytest.mark.parametrize(
    ("build", "names"),
    [(qwen2, ()), (qwen2, ("q_proj", "mlp.down_proj")), (gpt2, ()), (gpt2, ("attn.c_proj", "c_fc"))],
)
def test_forward_and_merge_are_those_of_peft(build: Any, names: tuple[str, ...]) -> None:
    """To the last bit, and the merged model predicts within rounding as the adapted one."""
    ours = build().eval()
    plain = copy.deepcopy(ours)
    theirs = of_peft(copy.deepcopy(plain), with_values(ours, 3, names), 3, names)
    tokens = torch.arange(40).reshape(2, 20) % 64
    with torch.no_grad():
        said = ours(input_ids=tokens).logits
        assert torch.equal(said, theirs(input_ids=tokens).logits)
        assert (said - plain(input_ids=tokens).logits).abs().max() > 1e-2
        merged = dict(low_rank.merged(ours))
        wanted = dict(theirs.merge_and_unload().named_parameters())
        assert set(merged) == set(wanted)
        assert all(torch.equal(merged[name], wanted[name]) for name in merged)
        fused = copy.deepcopy(plain)
        fused.load_state_dict(merged, strict=False)
        assert torch.allclose(fused(input_ids=tokens).logits, said, atol=1e-4)


def test_first_values_are_drawn_by_key_and_change_nothing() -> None:
    """A is uniform within 1 / √in, as peft begins; global state is neither read nor moved."""
    before = torch.random.get_rng_state()
    module, plain = qwen2(), qwen2()
    found = LowRankAdapters(module, 4, 8.0, (), KEY).state()
    torch.manual_seed(5)
    same = LowRankAdapters(qwen2(), 4, 8.0, (), KEY).state()
    other = LowRankAdapters(qwen2(), 4, 8.0, (), (1, "toy")).state()
    torch.random.set_rng_state(before)
    assert {name.partition("/")[0].rpartition(".")[2] for name in found} == QWEN2
    downs = [name for name in found if name.endswith(DOWN)]
    assert len(downs) == 14
    for name in downs:
        values, bound = found[name], 1 / math.sqrt(found[name].shape[1])
        assert torch.equal(values, same[name])
        assert not torch.equal(values, other[name])
        assert values.abs().max() <= bound
        assert values.abs().max() > 0.8 * bound
        assert found[name.replace(DOWN, UP)].abs().max() == 0
    assert len({digest({"a": found[name]}) for name in downs}) == len(downs)
    assert all(torch.equal(t, p) for t, p in zip(*map(weights_of, (module, plain)), strict=True))
    assert all(p.requires_grad == (DOWN in n or UP in n) for n, p in module.named_parameters())


def weights_of(module: Any) -> list[torch.Tensor]:
    return list(modules.weights(module).values())


def adapted(inner: str = "lm@1", optimiser: str = "adamw@1", **params: Any) -> Train:
    """A complete recipe of adapters for one of the toys' trainings."""
    made = toy_baking.recipe() if inner == "bake@1" else toy_training.recipe(objective=inner)
    given = {"objective": inner, "params": made.params, "rank": 4, **params}
    changes = {
        "objective": "lora@1",
        "params": given,
        "accumulation": 2,
        "optimiser": Algorithm(name=optimiser),
    }
    return complete(Train.model_validate({**made.model_dump(), **changes}))


def carried(training: Train, cuts: tuple[int, ...] = ()) -> Snapshot:
    """The last snapshot of a training that is cut after these steps."""
    start, optimiser, made = toy_training.model(), None, None
    given = dict.fromkeys(training.inputs, toy_training.model())
    answers = training.params["objective"] == "answers@1"
    read = toy_training.answers() if answers else toy_baking.streams()
    for first, last in itertools.pairwise((0, *cuts, training.upto)):
        made = segment(training, start, optimiser, read, first, last, inputs=given)
        start, optimiser = Tensors(start.config, made.weights), made.optimiser
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("inner", "changes"),
    one_quick(
        ("lm@1", {"precision": "bfloat16", "checkpointing": True}),
        ("lm@1", {}),
        ("bake@1", {}),
        ("answers@1", {"data_digests": digests_of_answers()}),
        ("distil@1", {"inputs": {"teacher": toy_training.INIT.id}}),
    ),
)
def test_a_training_of_adapters_that_is_cut_after_every_step_has_the_same_bits(
    inner: str, changes: dict[str, Any]
) -> None:
    """With every objective that adapters serve."""
    training = adapted(inner).model_copy(update=changes)
    whole, cut = carried(training), carried(training, tuple(range(1, 8)))
    assert bits(cut) == bits(whole)
    if inner == "lm@1":
        assert whole.losses[-1] < whole.losses[0]


def test_the_result_is_the_given_model_and_a_matrix_of_low_rank_in_each_layer() -> None:
    given, made = toy_training.model().weights, carried(adapted(rank=2, modules=["q_proj"])).weights
    assert set(made) == set(given)
    for name in given:
        change = made[name] - given[name]
        if name.endswith("q_proj.weight"):
            values = torch.linalg.svdvals(change)
            assert values[1] > 1e-4
            assert values[2] < 1e-5 * values[0]
        else:
            assert change.abs().max() == 0


def test_without_its_adapters_a_training_cannot_be_carried_on() -> None:
    """Weights alone do not say them: what lacks or is added is refused."""
    training = adapted()
    half = segment(training, toy_training.model(), None, toy_baking.streams(), 0, 4)
    start = Tensors(toy_training.model().config, half.weights)
    bare = {n: t for n, t in half.optimiser.items() if not n.endswith(UP)}
    with pytest.raises(KeyError, match="lora_B"):
        segment(training, start, bare, toy_baking.streams(), 4, 8)


def test_parameters_are_counted_by_the_config() -> None:
    """By hand: rank · (in + out) of the toy's seven layers in two blocks."""
    sides = [(16, 16), (16, 8), (16, 8), (16, 16), (16, 32), (16, 32), (32, 16)]
    config = toy_training.model().config
    assert low_rank.count(config, 4, ()) == 2 * 4 * sum(map(sum, sides))
    assert low_rank.count(config, 2, ("up_proj", "down_proj")) == 2 * 2 * 2 * 48
    module = qwen2()
    LowRankAdapters(module, 4, 8.0, (), KEY)
    trained = sum(p.numel() for p in module.parameters() if p.requires_grad)
    assert trained == low_rank.count(config, 4, ())


def test_every_setting_is_part_of_the_bits() -> None:
    given = toy_training.model()
    every: list[dict[str, Any]] = [{}, {"rank": 5}, {"alpha": 3.0}, {"modules": ["q_proj"]}]
    made = [canary(adapted(**params), given, toy_baking.streams())[0] for params in every]
    assert len(set(made)) == 4


def test_what_does_not_fit_is_refused() -> None:
    given = toy_training.model()

    def refused(match: str, training: Train) -> None:
        with pytest.raises(ConfigError, match=match):
            segment(training, given, None, toy_baking.streams(), 0, 1)

    refused("no linear layer .* the name 'lm_head': they are down_proj", adapted(modules=["lm_head"]))
    refused("the name 'proj'", adapted(modules=["proj"]))
    refused("rank of 9 is .*k_proj has, which is 8 × 16", adapted(rank=9))
    refused("adapters need adamw", adapted(optimiser="mugrokfast@1"))
    with pytest.raises(ConfigError, match="do not serve the objective ternary@1"):
        adapted("ternary@1")
    with pytest.raises(ConfigError, match="do not serve the objective lora@1"):
        complete(adapted().model_copy(update={"params": {"objective": "lora@1"}}))
    with pytest.raises(ConfigError, match=r"bake@1: neutral"):
        complete(
            adapted("bake@1").model_copy(
                update={"params": {"objective": "bake@1", "params": {"neutral": -1}}}
            )
        )
    with pytest.raises(ConfigError, match="a sharded training has none"):
        sharding.check(adapted())
    with pytest.raises(ConfigError, match="nothing to adapt"):
        low_rank.chosen(torch.nn.Linear(4, 4), 1, ())
    module = qwen2()
    first, second = (module.model.layers[n].mlp.up_proj for n in (0, 1))
    second.weight = first.weight
    with pytest.raises(ConfigError, match="share a matrix"):
        low_rank.chosen(module, 1, ())


def test_parameters_of_the_objective_are_written_out() -> None:
    bare = adapted("bake@1").model_copy(update={"params": {"objective": "bake@1"}})
    assert complete(bare).params == {
        "objective": "bake@1",
        "params": {"neutral": 1.0, "others": 1.0, "top": None},
        "rank": 8,
        "alpha": 16.0,
        "modules": [],
    }
    assert TEACHER in complete(bare).inputs


def test_the_layers_nearest_to_a_number_of_parameters_are_found() -> None:
    """All of a name together; each matrix has as many at rank 1 as rows and columns."""
    shapes = {f"{n}.{leaf}_proj.weight": (6, 4) for n in range(2) for leaf in ("up", "gate")}
    shapes |= {f"{n}.down_proj.weight": (4, 10) for n in range(2)}
    assert low_rank.nearest(shapes, 20) == ("gate_proj",)  # 20; up_proj has as many
    assert low_rank.nearest(shapes, 27) == ("down_proj",)  # 28
    assert low_rank.nearest(shapes, 47) == ("down_proj", "gate_proj")  # 48
    assert low_rank.nearest(shapes, 1000) == ("down_proj", "gate_proj", "up_proj")
