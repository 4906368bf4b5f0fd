"""Recipes become weights: the same bits whoever builds them, and what each stage does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
import torch

from agent_forge.evomerge.merging import builder as merging_builder
from agent_forge.evomerge.merging.builder import Builder, Weights
from agent_forge.evomerge.merging.execute import add_noise
from agent_forge.evomerge.recipes.recipe import PIPELINES, Genes, Merge, Mutate, Noise, Pipeline, Source
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.folders import checkpoint
from testing.models import toy_models
from testing.models.toy_tensors import Toys, distance, same

LAYERS = (0, 2, 0)


def square_norm(x: torch.Tensor) -> float:
    return float(x.double().square().sum())


def pipeline(toys: Toys, number: int, seed: int = 5, **genes: object) -> Pipeline:
    """A pipeline over the toys' sources; layers are fixed unless genes say otherwise."""
    interpolation, arithmetic, selection = PIPELINES[number]
    return Pipeline(
        inputs=toys.sources,
        base=toys.base,
        interpolation=interpolation,
        arithmetic=arithmetic,
        selection=selection,
        genes=Genes.model_validate({"layers": LAYERS, **genes}),
        seed=seed,
    )


def merge(toys: Toys, method: str, *, on_base: bool = True, **params: object) -> Merge:
    """A single technique over the toys' sources."""
    return Merge.model_validate(
        {
            "method": method,
            "inputs": toys.sources,
            "base": toys.base if on_base else None,
            "params": params,
            "seed": 5,
        }
    )


def noise(seed: int = 1, **changes: object) -> Noise:
    """Noise on a fifth of the elements, half as long as the task vector."""
    return Noise.model_validate(
        {"rate": 0.2, "sigma": 0.5, "relative_to": "task_vector", "seed": seed, **changes}
    )


@pytest.fixture(scope="module")
def toys() -> Toys:
    """Three sources of three small blocks."""
    return Toys()


@pytest.fixture
def threads() -> Iterator[None]:
    """Give the number of threads back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


# ---- the eight pipelines -------------------------------------------------------------------


def test_the_eight_pipelines_differ_pairwise_and_from_the_plain_mean(tmp_path: Path):
    """SPEC §4: on a real (tiny) model with fixed layers, no bit of the number is without effect."""
    base_folder, source_folders = toy_models.family(tmp_path)
    known, stored = {}, {}
    for folder in (base_folder, *source_folders):
        weights = checkpoint.open_checkpoint(folder).tensors()
        source = Source(digest=checkpoint.digest(weights))
        known[source.id], stored[source.id] = source, weights
    base, *sources = known
    builder = Builder(known, stored.get)
    built = [builder.build(Merge(method="linear", inputs=tuple(sources), base=base))]
    for interpolation, arithmetic, selection in PIPELINES:
        recipe = Pipeline(
            inputs=tuple(sources),
            base=base,
            interpolation=interpolation,
            arithmetic=arithmetic,
            selection=selection,
            genes=Genes(layers=(0, 1, 0)),
            seed=3,
        )
        built.append(builder.build(recipe))
    mean = distance(built[0], stored[base])
    # SPEC §4: a bit whose effect is below 0.05 of the mean task vector is called inactive.
    assert all(distance(a, b) > 0.05 * mean for a, b in combinations(built, 2))
    assert all(merging_builder.not_finite(weights) is None for weights in built)


def test_a_pipeline_replaces_only_the_chosen_blocks(toys: Toys):
    """Block 1 is the second source's to the last bit; embedding and final norm stay merged."""
    with_choice = toys.build(pipeline(toys, 0))
    without = toys.build(pipeline(toys, 0, layers=(0, 0, 0)))
    for name, tensor in with_choice.items():
        if ".1." in name:
            assert torch.allclose(tensor, toys.inputs()[1][name], atol=1e-6)
        else:
            assert torch.equal(tensor, without[name])


@pytest.mark.parametrize("number", range(8))
def test_the_scale_gene_stretches_the_task_vector(toys: Toys, number: int):
    """λ is the last step of every pipeline, replaced blocks included: λ = 0.5 halves the child's."""
    whole, half = toys.build(pipeline(toys, number)), toys.build(pipeline(toys, number, scale=0.5))
    for name, origin in toys.origin.items():
        assert torch.allclose(half[name] - origin, (whole[name] - origin) / 2, atol=1e-6)


def test_a_scale_of_zero_is_the_base(toys: Toys):
    """λ = 0 keeps nothing of any source."""
    for number in range(8):
        assert same(toys.build(pipeline(toys, number, scale=0.0)), toys.origin)


def test_weights_and_ts_reach_their_stage(toys: Toys):
    """With all weight on one input, nothing dropped and ε huge, linear-dare-dfs is a known mean.

    dfs then averages c and three sources: (τ₀ + τ₀ + τ₁ + τ₂)/4.
    """
    genes = {"weights": (1.0, 0.0, 0.0), "drop": 0.0, "epsilon": 1e9}
    found = toys.build(pipeline(toys, 1, **genes))
    a, b, c = toys.inputs()
    for name in toys.origin:
        assert torch.allclose(found[name], (2 * a[name] + b[name] + c[name]) / 4, atol=1e-5)
    by_t = toys.build(pipeline(toys, 5, ts=(0.0, 0.0), drop=0.0, epsilon=1e9))
    assert all(torch.allclose(by_t[n], found[n], atol=1e-5) for n in found)


def test_layers_of_a_wrong_length_are_refused(toys: Toys):
    """Three blocks, two entries; and none at all, which must be chosen first."""
    for layers in ((0, 1), (0, 0, 4), None):
        with pytest.raises(ConfigError, match="frankenmerge"):
            toys.build(pipeline(toys, 0, layers=layers))


# ---- single techniques ---------------------------------------------------------------------


def test_single_techniques_build_what_their_formula_says(toys: Toys):
    """Each on the base; mean, sum and trimmed mean are checked against plain expressions."""
    a, b, c = toys.inputs()
    mean = toys.build(merge(toys, "linear"))
    total = toys.build(merge(toys, "task_arithmetic", scale=0.5))
    halved = toys.build(merge(toys, "ties", density=1.0, scale=0.0))
    for n, o in toys.origin.items():
        assert torch.allclose(mean[n], (a[n] + b[n] + c[n]) / 3, atol=1e-6)
        assert torch.allclose(total[n], o + (a[n] + b[n] + c[n] - 3 * o) / 2, atol=1e-6)
        assert torch.equal(halved[n], o)


@pytest.mark.parametrize("method", ["linear", "slerp", "task_arithmetic", "ties", "dare", "dfs"])
def test_every_technique_is_finite_and_not_the_base(toys: Toys, method: str):
    """With its own defaults, on task vectors."""
    found = toys.build(merge(toys, method))
    assert merging_builder.not_finite(found) is None
    assert distance(found, toys.origin) > 0


def test_dare_alone_drops_per_source_and_rescales(toys: Toys):
    """At p = 0 it is the mean; at p = ½ its mean task vector has zeros where all three dropped."""
    assert distance(
        toys.build(merge(toys, "dare", drop=0.0)), toys.build(merge(toys, "linear"))
    ) == pytest.approx(0, abs=1e-5)
    found = toys.build(merge(toys, "dare", drop=0.5))
    dropped = sum(int((found[n] == toys.origin[n]).sum()) for n in found)
    n = sum(x.numel() for x in found.values())
    # Each of n is kept by nobody with probability ⅛; 5·√(n·⅛·⅞) allowed. 496 → 62 ± 37.
    assert abs(dropped - n / 8) < 5 * (n * 7 / 64) ** 0.5


def test_without_a_base_the_weights_themselves_are_merged(toys: Toys):
    """Linear on weights is linear on task vectors up to rounding; ties on weights is not."""
    alone, on_base = merge(toys, "linear", on_base=False), merge(toys, "linear")
    assert distance(toys.build(alone), toys.build(on_base)) < 1e-4
    assert (
        distance(toys.build(merge(toys, "ties", on_base=False)), toys.build(merge(toys, "ties"))) > 1.0
    )


def test_frankenmerge_alone_takes_whole_groups(toys: Toys):
    """Blocks from 1, 2, 0, embedding from 2, norm from 1: bit for bit."""
    found = toys.build(merge(toys, "frankenmerge", layers=(1, 2, 0, 2, 1, 0)))
    wanted = {"layers.0": 1, "layers.1": 2, "layers.2": 0, "embed": 2, "model.norm": 1}
    for name, tensor in found.items():
        choice = next(pick for part, pick in wanted.items() if part in name)
        assert torch.equal(tensor, toys.inputs()[choice][name])
    with pytest.raises(ConfigError, match="needs 6 layer entries"):
        toys.build(merge(toys, "frankenmerge", layers=(1, 2, 0)))


def test_pipelines_built_together_are_those_built_alone():
    """One pass over the sources for a generation: shared norms and thresholds change no bit."""
    toys = Toys(LARGE)
    recipes = [pipeline(toys, number, seed=number, layers=(0, 1, 2)) for number in range(8)]
    together = toys.builder(recipes).build_many(recipes)
    for recipe, weights in zip(recipes, together, strict=True):
        assert same(weights, toys.build(recipe))


# ---- the same bits -------------------------------------------------------------------------

#: More than 100,000 elements each, no multiple of a vector's or a chunk's length.
LARGE = {
    "model.layers.0.long.weight": (131_077,),
    "model.layers.1.wide.weight": (3, 50_021),
    "model.layers.2.tall.weight": (50_021, 3),
    "model.norm.weight": (7,),
}


@pytest.mark.parametrize("number", range(8))
@pytest.mark.usefixtures("threads")
def test_threads_do_not_reach_the_bits(number: int):
    """A worker with other cores must give the same digest, on tensors that torch does split."""
    toys = Toys(LARGE)
    parent = pipeline(toys, number)
    child = Mutate(parent=parent.id, base=toys.base, noise=noise())
    digests = set()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        digests.add(checkpoint.digest(toys.build(child, parent)))
    assert len(digests) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cached_and_rebuilt_parents_give_the_same_bits(dtype: torch.dtype):
    """A child reads its parents as rounded, from the cache or not: pipeline, noise, noise, genes."""
    toys = Toys(dtype=dtype)
    first = pipeline(toys, 6)
    second = Mutate(parent=first.id, base=toys.base, noise=noise(1))
    third = Mutate(parent=second.id, base=toys.base, noise=noise(2, rate=1.0))
    merged = pipeline(toys, 3).model_copy(update={"inputs": (second.id, third.id, first.id)})
    genes = pipeline(toys, 6, scale=0.7)
    fourth = Mutate(parent=third.id, base=toys.base, pipeline=genes, noise=noise(3))
    family = [first, second, third, merged, fourth]
    cached: dict[str, Weights] = {}
    for recipe in family:
        cached[recipe.id] = toys.builder(family, **cached).build(recipe)
    for recipe in family:
        assert same(toys.builder(family).build(recipe), cached[recipe.id])
    assert len({checkpoint.digest(w) for w in cached.values()}) == len(family)


def test_the_order_of_tensors_does_not_matter(toys: Toys):
    """Shard layout decides the order in which tensors are read, and must decide nothing else."""
    backwards = Toys()
    for id_, model in list(backwards.stored.items()):
        backwards.stored[id_] = dict(reversed(list(model.items())))
    for number in (0, 7):
        a, b = toys.build(pipeline(toys, number)), backwards.build(pipeline(backwards, number))
        assert checkpoint.digest(a) == checkpoint.digest(b)


def test_another_recipe_seed_gives_another_mask(toys: Toys):
    """Dare's mask is keyed by the recipe's seed; a pipeline without dare does not use it."""
    assert not same(toys.build(pipeline(toys, 1)), toys.build(pipeline(toys, 1, seed=6)))
    assert same(toys.build(pipeline(toys, 3)), toys.build(pipeline(toys, 3, seed=6)))


def test_bfloat16_sources_are_rounded_once():
    """The child is the float32 result rounded: no stage in between is."""
    toys = Toys(dtype=torch.bfloat16)
    for number in range(8):
        recipe = pipeline(toys, number)
        found = toys.build(recipe)
        wide = {name: origin.float() for name, origin in toys.origin.items()}
        exact = toys.builder([recipe], **{recipe.base: wide}).build(recipe)
        for name in toys.origin:
            assert exact[name].dtype == torch.float32
            assert found[name].dtype == torch.bfloat16
            assert torch.equal(found[name], exact[name].to(torch.bfloat16))


def test_the_dtype_of_the_result_is_the_base_s(toys: Toys):
    """A float32 source on a bfloat16 base gives bfloat16."""
    mixed = Toys(dtype=torch.float32)
    mixed.stored[mixed.base] = {n: x.to(torch.bfloat16) for n, x in mixed.origin.items()}
    assert {x.dtype for x in mixed.build(pipeline(mixed, 0)).values()} == {torch.bfloat16}


def test_integer_tensors_are_copied_from_the_base():
    """Some checkpoints store position ids; a mean of them would be nonsense."""
    toys = Toys()
    for number, model in enumerate(toys.stored.values()):
        model["model.position_ids"] = torch.arange(4) + number  # pyright: ignore
    recipe = pipeline(toys, 7)
    child = Mutate(parent=recipe.id, base=toys.base, noise=noise())
    assert toys.build(child, recipe)["model.position_ids"].tolist() == [0, 1, 2, 3]


def test_a_source_must_be_at_hand(toys: Toys):
    """Everything else can be rebuilt, a source cannot."""
    strange = Source(digest="f" * 64)
    assert same(toys.builder().build(toys.known[toys.base]), toys.origin)
    with pytest.raises(KeyError, match="not at hand"):
        toys.build(strange)


# ---- mutation ------------------------------------------------------------------------------

BIG = {"model.layers.0.mlp.up_proj.weight": (200, 100), "model.norm.weight": (5_000,)}


def mutated(toys: Toys, given: Noise) -> tuple[Weights, Weights]:
    """A parent (the mean) and the parent with noise."""
    parent = pipeline(toys, 3, density=1.0)
    child = Mutate(parent=parent.id, base=toys.base, noise=given)
    return toys.build(parent), toys.build(child, parent)


def test_noise_touches_the_share_that_it_was_told():
    """Rate 0.1 of 20,000: 2,000 ± 5·√(20,000·0.1·0.9) = 212; the rest keeps its bits."""
    parent, child = mutated(Toys(BIG), noise(rate=0.1))
    name = "model.layers.0.mlp.up_proj.weight"
    assert abs(int((parent[name] != child[name]).sum()) - 2_000) <= 212


def test_noise_is_as_long_as_its_share_of_the_task_vector():
    """‖noise‖ = σ·‖parent − base‖ per tensor, whatever the rate; rounding to float32 allowed."""
    toys = Toys(BIG)
    for rate in (0.01, 1.0):
        parent, child = mutated(toys, noise(rate=rate, sigma=0.2))
        for name, origin in toys.origin.items():
            added = square_norm(child[name] - parent[name]) ** 0.5
            task = square_norm(parent[name] - origin) ** 0.5
            assert added == pytest.approx(0.2 * task, rel=1e-3)


def test_absolute_noise_has_its_deviation_on_touched_elements():
    """The source documents' literal form: σ = 0.01 per element, 20,000 of them, 5σ/√(2n) allowed."""
    parent, child = mutated(Toys(BIG), noise(rate=1.0, sigma=0.01, relative_to="absolute"))
    name = "model.layers.0.mlp.up_proj.weight"
    deviation = float((child[name] - parent[name]).double().std())
    assert deviation == pytest.approx(0.01, abs=5 * 0.01 / 40_000**0.5 + 1e-6)


def test_noise_depends_on_seed_and_tensor_alone():
    """Two seeds touch other elements; one seed twice gives the same bits."""
    toys = Toys(BIG)
    assert same(mutated(toys, noise(1))[1], mutated(toys, noise(1))[1])
    assert not same(mutated(toys, noise(1))[1], mutated(toys, noise(2))[1])


def test_noise_on_a_zero_task_vector_is_nothing():
    """Relative to nothing there is nothing; not NaN."""
    toys = Toys()
    origin = toys.origin["model.norm.weight"]
    found = origin.clone()
    add_noise(noise(rate=1.0), "model.norm.weight", origin, found)
    assert torch.equal(found, origin)


def test_noise_may_touch_no_element_at_all():
    """A rate of 10⁻⁶ rounds to none of 65,536 lanes."""
    toys = Toys()
    origin = toys.origin["model.norm.weight"]
    parent = toys.inputs()[0]["model.norm.weight"]
    found = parent.clone()
    add_noise(noise(rate=1e-6), "model.norm.weight", origin, found)
    assert torch.equal(found, parent)


def test_a_mutant_with_other_genes_takes_its_parent_s_noises_along(toys: Toys):
    """The pipeline is built anew, then every noise of the line is added, oldest first."""
    parent = pipeline(toys, 7)
    noisy_parent = Mutate(parent=parent.id, base=toys.base, noise=noise(1))
    genes = pipeline(toys, 7, epsilon=0.5)
    child = Mutate(parent=noisy_parent.id, base=toys.base, pipeline=genes, noise=noise(2))
    step = Mutate(parent=genes.id, base=toys.base, noise=noise(1))
    by_hand = Mutate(parent=step.id, base=toys.base, noise=noise(2))
    found = toys.build(child, parent, noisy_parent)
    assert same(found, toys.build(by_hand, genes, step))
    quiet = Mutate(parent=noisy_parent.id, base=toys.base, pipeline=genes)
    assert same(toys.build(quiet, parent, noisy_parent), toys.build(step, genes))


def test_a_mutant_with_nothing_new_is_its_parent(toys: Toys):
    """Neither genes nor noise: the parent's own weights."""
    parent = pipeline(toys, 2)
    child = Mutate(parent=parent.id, base=toys.base)
    assert same(toys.build(child, parent), toys.build(parent))


# ---- not finite ----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_not_finite_names_the_tensor(toys: Toys, bad: float):
    """One bad element is enough, and the event says where."""
    weights = {name: tensor.clone() for name, tensor in toys.origin.items()}
    assert merging_builder.not_finite(weights) is None
    weights["model.norm.weight"][3] = bad
    assert merging_builder.not_finite(weights) == "model.norm.weight"


def test_not_finite_ignores_integers():
    """Isfinite of integers is not the question."""
    assert merging_builder.not_finite({"a": torch.arange(3), "b": torch.ones(2)}) is None
