"""Operations: initialisation and interpolation, and the table that names them."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen2ForCausalLM

from agent_forge.runs.errors import ConfigError, NotFiniteError, SourceError, UnknownAlgorithmError
from agent_forge.weights import operations
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.operations import fresh, qwen2_init
from agent_forge.weights.recipes import Transform
from agent_forge.weights.tensors import Tensors
from testing.models.toy_training import INIT, model


def line(place: float, start: Tensors, end: Tensors) -> Tensors:
    """The model at a place between two."""
    roles = {"start": "1" * 64, "end": "2" * 64}
    recipe = Transform(operation="interpolate@1", inputs=roles, params={"place": place})
    return operations.apply(recipe, {"start": start, "end": end})


def test_a_fresh_model_is_the_one_that_transformers_makes_of_the_seed() -> None:
    """Also after other numbers were drawn, and without a trace in torch's generator."""
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    made = operations.apply(INIT, {})
    assert torch.equal(torch.random.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(INIT.seed)
        config = qwen2_init.configuration(qwen2_init.Qwen2Shape(**INIT.params))
        plain = dict(Qwen2ForCausalLM(config).named_parameters())
    assert digest(made.weights) == digest({n: p.detach() for n, p in plain.items()})
    other = operations.apply(INIT.model_copy(update={"seed": 4}), {})
    assert digest(other.weights) != digest(made.weights)


def test_fresh_weights_are_those_of_the_architecture_s_own_initialisation() -> None:
    """For Qwen2 the same as of `qwen2-init` with the same seed; another seed gives others."""
    recipe = Transform(operation="fresh@1", inputs={"of": "1" * 64}, seed=INIT.seed)
    made = operations.apply(recipe, {"of": model()})
    assert digest(made.weights) == digest(model().weights)
    other = operations.apply(recipe.model_copy(update={"seed": 9}), {"of": model()})
    assert digest(other.weights) != digest(made.weights)
    with pytest.raises(ConfigError, match="fresh reads the input of"):
        fresh.Fresh().apply({}, fresh.Parameterless(), 0)


def test_interpolation_is_exact_at_both_ends_and_linear_between() -> None:
    """0.1 and 0.3 have no exact sum in float32: a sloppy formula misses the far end."""
    start = Tensors({}, {"w": torch.tensor([0.1, -2.0, 1e8])})
    end = Tensors({}, {"w": torch.tensor([0.3, 6.0, 1.0])})
    assert torch.equal(line(0.0, start, end).weights["w"], start.weights["w"])
    assert torch.equal(line(1.0, start, end).weights["w"], end.weights["w"])
    assert line(0.25, start, end).weights["w"][1] == 0.0
    assert line(0.5, start, end).weights["w"][1] == 2.0
    assert line(2.0, start, end).weights["w"][1] == 14.0


def test_interpolation_computes_in_float32_and_keeps_the_dtype_of_the_start() -> None:
    """1 and 1.0078125 are neighbours in bfloat16: their middle is a number of float32 only."""
    full = Tensors({}, {"w": torch.tensor([1.0])})
    half = Tensors({}, {"w": torch.tensor([1.0078125], dtype=torch.bfloat16)})
    assert line(0.5, full, half).weights["w"].item() == 1.00390625
    assert line(0.0, full, half).weights["w"].dtype == torch.float32
    assert line(1.0, half, full).weights["w"].dtype == torch.bfloat16


def test_models_that_do_not_fit_are_refused() -> None:
    """Names, shapes and roles."""
    whole = model()
    with pytest.raises(SourceError, match="only one of the two"):
        line(0.5, whole, Tensors({}, {"w": torch.zeros(1)}))
    with pytest.raises(SourceError, match="tensor w has shapes"):
        line(0.5, Tensors({}, {"w": torch.zeros(1)}), Tensors({}, {"w": torch.zeros(2)}))
    single = Transform(operation="interpolate@1", inputs={"start": "1" * 64}, params={"place": 0.5})
    with pytest.raises(ConfigError, match="start and end"):
        operations.apply(single, {"start": whole})
    with pytest.raises(ConfigError, match="inputs must be"):
        operations.apply(single, {})
    with pytest.raises(ConfigError, match="reads no inputs"):
        operations.apply(INIT.model_copy(update={"inputs": {"a": "1" * 64}}), {"a": whole})


def test_a_transform_must_write_out_its_parameters() -> None:
    """As a training must."""
    roles = {"start": "1" * 64, "end": "2" * 64}
    short = Transform(operation="interpolate@1", inputs=roles)
    whole = operations.complete(short)
    assert whole.params == {"place": 0.5}
    assert operations.complete(whole) == whole
    with pytest.raises(ConfigError, match="does not write out place"):
        operations.apply(short, {"start": model(), "end": model()})
    with pytest.raises(ConfigError, match="qwen2-init@1: hidden"):
        operations.complete(Transform(operation="qwen2-init@1", params={**INIT.params, "hidden": 0}))
    with pytest.raises(UnknownAlgorithmError, match="'ternary@1' is not known"):
        operations.complete(Transform(operation="ternary@1"))


def rounded(of: Tensors, like: Tensors, others: str = "float32") -> Tensors:
    """The model `of` in the dtypes of another."""
    roles = {"like": "1" * 64, "of": "2" * 64}
    recipe = Transform(operation="rounded@1", inputs=roles, params={"others": others})
    return operations.apply(recipe, {"like": like, "of": of})


def test_rounding_gives_each_tensor_the_dtype_that_it_has_in_the_other_model() -> None:
    """To the nearest number, ties to even: 1 + 2^-8 is between two of bfloat16, 1 and 1 + 2^-7."""
    values = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20])
    like = {"a": torch.zeros(1).bfloat16(), "b": torch.zeros(1), "c": torch.zeros(1).half()}
    of = Tensors({}, {**dict.fromkeys("abcd", values), "n": torch.tensor([3])})
    made = rounded(of, Tensors({}, like), "float16").weights
    assert made["a"].tolist() == [1.0, 1 + 2**-6, 1 + 2**-7]
    dtypes = [torch.bfloat16, torch.float32, torch.float16, torch.float16, torch.int64]
    assert [made[name].dtype for name in "abcdn"] == dtypes
    assert torch.equal(made["b"], values)


def test_rounding_beyond_the_range_of_a_dtype_names_the_tensor() -> None:
    """Float16 ends at 65,504; what bfloat16 trained may lie beyond."""
    like = Tensors({}, {"w": torch.zeros(1).half()})
    with pytest.raises(NotFiniteError, match=r"tensor w has numbers up to 7e\+04, beyond .* float16"):
        rounded(Tensors({}, {"w": torch.tensor([1.0, -7e4])}), like)
    with pytest.raises(ConfigError, match="rounded reads the inputs like and of"):
        operations.of("rounded@1")().apply({}, None, 0)


def test_a_mixture_of_the_second_version_has_the_dtypes_of_its_base() -> None:
    """It is the first version's of the same base in float32, rounded once."""
    base = {name: t.bfloat16() for name, t in model().weights.items()}
    wide = {name: t.float() for name, t in base.items()}
    moved = Tensors({}, {name: t * 1.25 for name, t in wide.items()})
    roles = {"of": "1" * 64, "model-0000": "2" * 64}
    made = {}
    for version, of in ((1, wide), (2, base)):
        params = {"models": [0.5], "experts": []}
        recipe = Transform(operation=f"mixture@{version}", inputs=roles, params=params)
        inputs = {"of": Tensors({}, of), "model-0000": moved}
        made[version] = operations.apply(recipe, inputs).weights
    for name, tensor in made[2].items():
        assert torch.equal(tensor, made[1][name].bfloat16())
