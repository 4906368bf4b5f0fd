"""The continuous genome: points become recipes and come back; groups cover every tensor once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.evomerge.merging.builder import Builder
from agent_forge.evomerge.recipes import tensor_groups
from agent_forge.evomerge.recipes.recipe import (
    RECIPE,
    SPECIES,
    Genes,
    Grouped,
    Merge,
    Mutate,
    Noise,
    Pipeline,
    Source,
    label,
)
from agent_forge.evomerge.search.genes.genome import DETAILS, Space, consensus
from agent_forge.evomerge.search.strategy import SourceFamily
from agent_forge.runs.errors import ConfigError
from testing.models.toy_tensors import SHAPES, Toys, same

SOURCES = tuple(Source(digest=f"{i:064x}") for i in range(4))
KNOWN = {s.id: s for s in SOURCES}
FAMILY = SourceFamily(tuple(s.id for s in SOURCES[1:]), SOURCES[0].id, 6)


def space(species: str = "ties", detail: str = "full", depths: int = 3) -> Space:
    return Space(FAMILY, species, detail, depths)  # pyright: ignore[reportArgumentType]


def test_groups_of_a_model() -> None:
    """Two layer groups of three blocks: by depth and part; what stands outside by place."""
    expected = {
        "model.embed_tokens.weight": "embedding",
        "model.layers.0.self_attn.q_proj.weight": "layers 1/2 attention",
        "model.layers.0.self_attn.q_norm.weight": "layers 1/2 attention",
        "model.layers.2.mlp.up_proj.weight": "layers 1/2 mlp",
        "model.layers.2.post_attention_layernorm.weight": "layers 1/2 rest",
        "model.layers.3.input_layernorm.weight": "layers 2/2 rest",
        "transformer.h.5.attn.c_attn.weight": "layers 2/2 attention",
        "model.norm.weight": "head",
        "lm_head.weight": "head",
    }
    names = tensor_groups.names(2)
    assert {n: names[tensor_groups.of(n, 6, 2)] for n in expected} == expected
    assert len(names) == tensor_groups.count(2) == 8


@given(blocks=st.integers(1, 40), depths=st.integers(1, 12))
def test_layer_groups_are_neighbours_of_even_size(blocks: int, depths: int) -> None:
    depths = min(blocks, depths)
    places = [tensor_groups.of(f"layers.{b}.mlp.x", blocks, depths) // 3 for b in range(blocks)]
    assert places == sorted(places)
    sizes = [places.count(d) for d in range(depths)]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=60, deadline=None)
@given(data=st.data(), species=st.sampled_from(SPECIES), detail=st.sampled_from(DETAILS))
def test_a_point_comes_back_from_its_recipe(data, species: str, detail: str) -> None:
    """Exactly: what a strategy is told is what was built."""
    here = space(species, detail)
    x = data.draw(st.lists(st.floats(0, 1), min_size=here.dimension, max_size=here.dimension))
    recipe = here.recipe(x, seed=7)
    again = here.point(recipe, KNOWN)
    assert again == pytest.approx(x, abs=1e-6)
    assert here.recipe(again, seed=7) == recipe
    assert RECIPE.validate_json(recipe.model_dump_json()) == recipe
    assert len(here.names) == len(x)
    assert recipe.name == label(recipe, KNOWN) == species


def test_points_outside_count_as_the_edge() -> None:
    here = space("task_arithmetic", "whole")
    assert here.recipe([-3.0, 0.5, 9.0]).params[0] == {"weights": [-0.5, 0.5, 1.5]}


@pytest.mark.parametrize("detail", DETAILS)
def test_finer_cells_begin_where_coarser_ones_were(detail: str) -> None:
    coarse = space("ties", "whole")
    recipe = coarse.recipe([0.2, 0.4, 0.6, 0.8])
    fine = space("ties", detail)
    assert fine.recipe(fine.point(recipe, KNOWN)) == recipe


def test_another_number_of_layer_groups_takes_the_nearest() -> None:
    two, four = space("task_arithmetic", "full", 2), space("task_arithmetic", "full", 4)
    x = [i / 24 for i in range(two.dimension)]
    rows = four.recipe(four.point(two.recipe(x), KNOWN)).params
    old = two.recipe(x).params
    assert rows[:6] == (*old[:3], *old[:3])
    assert rows[-2:] == old[-2:]


def test_any_candidate_seeds_a_point() -> None:
    """Sources, static merges, pipelines, mutants, other species: by what they come down to."""
    known = dict(KNOWN)
    arithmetic = Merge(
        method="task_arithmetic", inputs=FAMILY.sources, base=FAMILY.base, params={"scale": 0.6}
    )
    mean = Merge(method="linear", inputs=FAMILY.sources, base=FAMILY.base)
    first = Pipeline(
        inputs=FAMILY.sources,
        base=FAMILY.base,
        interpolation="linear",
        arithmetic="ties",
        selection="dfs",
        seed=1,
        genes=Genes(weights=(2.0, 1.0, 1.0), scale=0.8, density=0.3),
    )
    known[first.id] = first
    second = first.model_copy(
        update={
            "inputs": (first.id, FAMILY.sources[0]),
            "genes": Genes(ts=(0.25,)),
            "interpolation": "slerp",
        }
    )
    noise = Noise(rate=0.1, sigma=0.1, relative_to="task_vector", seed=1)
    mutant = Mutate(parent=first.id, base=FAMILY.base, noise=noise)
    expected = [
        (SOURCES[2], [0, 1, 0]),
        (SOURCES[0], [0, 0, 0]),
        (arithmetic, [0.6, 0.6, 0.6]),
        (mean, [1 / 3, 1 / 3, 1 / 3]),
        (first, [0.4, 0.2, 0.2]),
        (second, [0.25 + 0.75 * 0.4, 0.75 * 0.2, 0.75 * 0.2]),
        (mutant, [0.4, 0.2, 0.2]),
    ]
    here = space("task_arithmetic", "whole")
    for recipe, weights in expected:
        assert consensus(recipe, known, FAMILY.sources) == pytest.approx(weights)
        made = here.recipe(here.point(recipe, known))
        assert made.params[0]["weights"] == pytest.approx(weights, abs=1e-6)
    assert space("ties", "whole").recipe(space("ties", "whole").point(first, known)).params[0] == {
        "normalise": False,
        "weights": pytest.approx([0.4, 0.2, 0.2]),
        "density": 0.3,
    }


def test_slerp_takes_the_shares() -> None:
    here = space("slerp", "whole")
    weights = space("task_arithmetic", "whole")
    point = here.point(weights.recipe(weights.uniform([0.5, 0.25, 0.25])), KNOWN)
    assert here.recipe(point).params[0]["ts"] == pytest.approx([1 / 3, 0.25], abs=1e-6)


def grouped(toys: Toys, species: str, detail: str = "full", **changes: object) -> Grouped:
    own = Space(SourceFamily(toys.sources, toys.base, 3), species, detail, 3)  # pyright: ignore[reportArgumentType]
    x = [((7 * i) % 11) / 20 + 0.25 for i in range(own.dimension)]
    return own.recipe(x, 5).model_copy(update=changes)


def build(toys: Toys, recipe):
    known = {**toys.known, recipe.id: recipe}
    return Builder(known, toys.stored.get).build(recipe)


def test_groups_are_merged_by_their_own_weights() -> None:
    """Task arithmetic by hand, tensor by tensor."""
    toys = Toys()
    recipe = grouped(toys, "task_arithmetic")
    made = build(toys, recipe)
    base = toys.stored[toys.base]
    for name in SHAPES:
        weights = recipe.params[tensor_groups.of(name, 3, 3)]["weights"]
        expected = base[name].clone()
        for weight, source in zip(weights, toys.sources, strict=True):
            expected += weight * (toys.stored[source][name] - base[name])
        torch.testing.assert_close(made[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("species", SPECIES)
def test_one_value_for_all_is_the_technique_itself(species: str) -> None:
    toys = Toys()
    recipe = grouped(toys, species, "whole")
    if recipe.method == "stages":
        genes = Genes.model_validate(recipe.params[0]["genes"])
        first, second, third = species.split("-")
        plain = Pipeline(
            inputs=toys.sources,
            base=toys.base,
            interpolation=first,  # pyright: ignore[reportArgumentType]
            arithmetic=second,
            selection=third,
            genes=genes,
            seed=recipe.seed,
        )
    else:
        plain = Merge(
            method=recipe.method,
            inputs=toys.sources,
            base=toys.base,
            params=recipe.params[0],
            seed=recipe.seed,
        )
    assert same(build(toys, recipe), build(toys, plain))


def test_noise_goes_onto_a_grouped_recipe() -> None:
    toys = Toys()
    recipe = grouped(toys, "ties")
    noise = Noise(rate=0.5, sigma=0.5, relative_to="task_vector", seed=3)
    mutant = Mutate(parent=toys.sources[0], base=toys.base, pipeline=recipe, noise=noise)
    toys.known[recipe.id] = recipe
    alone = Mutate(parent=recipe.id, base=toys.base, noise=noise)
    plain, noisy = build(toys, recipe), build(toys, alone)
    assert any(not torch.equal(plain[n], noisy[n]) for n in SHAPES)
    with pytest.raises(TypeError):  # a source has no genome to be mutated
        build(toys, mutant)


def test_a_recipe_with_other_groups_is_refused() -> None:
    toys = Toys()
    recipe = grouped(toys, "ties")
    with pytest.raises(ConfigError, match="are 11 groups of tensors, the recipe has parameters for 10"):
        build(toys, recipe.model_copy(update={"params": recipe.params[:-1]}))
    wrong = ({"weights": [1.0, 1.0, 1.0], "dens": 0.3}, *recipe.params[1:])
    with pytest.raises(ConfigError, match="parameter dens"):
        build(toys, recipe.model_copy(update={"params": wrong}))
