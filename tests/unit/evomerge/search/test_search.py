"""The strategy: what a generation consists of, and how genes move."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.evomerge.config import EvoMergeConfig, parse
from agent_forge.evomerge.recipes.recipe import PIPELINES, Genes, Mutate, Pipeline, Recipe
from agent_forge.evomerge.search.genes.mutation import mutate_genes
from agent_forge.evomerge.search.strategies import elite_loser
from agent_forge.evomerge.search.strategies.elite_loser import Proposal, SourceFamily
from agent_forge.evomerge.search_settings import EliteLoserSearch
from agent_forge.search.pareto import Draws

FAMILY = SourceFamily(("a", "b", "c"), "base", 6)


# ---- genes ---------------------------------------------------------------------------------


def pipeline(number: int = 0, inputs: tuple[str, ...] = FAMILY.sources, **genes: object):
    """A pipeline over the family."""
    i, a, s = PIPELINES[number]
    return Pipeline(
        inputs=inputs,
        base="base",
        interpolation=i,
        arithmetic=a,
        selection=s,
        genes=Genes.model_validate(genes),
        seed=1,
    )


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 7),
    st.integers(0, 10**6),
    st.floats(0.01, 5.0),
    st.integers(1, 12),
    st.integers(2, 4),
)
def test_mutated_genes_are_always_valid(number: int, key: int, sigma: float, blocks: int, inputs: int):
    """However far a chain of mutations goes: bounds hold and the recipe validates."""
    search = EliteLoserSearch(gene_sigma=sigma)
    names = tuple("abcd"[:inputs])
    found = pipeline(number, names, layers=(0,) * blocks)
    for step in range(4):
        found = mutate_genes(found, search, key, step)
        genes = found.genes
        assert Pipeline.model_validate(found.model_dump()) == found
        assert (found.inputs, found.base, found.seed) == (names, "base", 1)
        assert 0.02 <= genes.scale <= 5
        assert 0 <= genes.drop <= 0.95
        assert 0.02 <= genes.density <= 1
        assert 1e-4 <= genes.epsilon <= 10
        if genes.ts is not None:
            assert len(genes.ts) == inputs - 1
            assert all(0.02 <= t <= 0.98 for t in genes.ts)
        if genes.weights is not None:
            assert len(genes.weights) == inputs
            assert min(genes.weights) >= 0
            assert sum(genes.weights) == pytest.approx(1.0, abs=inputs * 1e-6)
        if genes.layers is not None:
            assert len(genes.layers) == blocks
            assert sum(c != 0 for c in genes.layers) <= blocks // 3
            assert all(0 <= c <= inputs for c in genes.layers)


def test_a_mutation_depends_on_its_key_alone():
    """Replay makes the same mutant; the next slot another."""
    search, parent = EliteLoserSearch(), pipeline(3)
    assert mutate_genes(parent, search, 1, 2) == mutate_genes(parent, search, 1, 2)
    assert mutate_genes(parent, search, 1, 2) != mutate_genes(parent, search, 1, 3)


def test_only_the_genes_of_the_stages_move():
    """linear-ties-dfs reads weights, density, epsilon and scale; ts, drop and layers stay."""
    search = EliteLoserSearch(techniques=("linear", "ties", "dfs"))
    before = pipeline(3, drop=0.4, density=0.3)
    after = mutate_genes(before, search, 5)
    moved = {
        name for name in Genes.model_fields if getattr(before.genes, name) != getattr(after.genes, name)
    }
    assert moved == {"weights", "density", "epsilon", "scale"}


def test_genes_are_rounded_to_six_decimals():
    """The last bit of exp() on another machine must not reach a recipe's id."""
    for number in range(8):
        for key in range(10):
            genes = mutate_genes(pipeline(number), EliteLoserSearch(), key).genes
            numbers = [genes.scale, genes.drop, genes.density, genes.epsilon]
            numbers += [*(genes.weights or ()), *(genes.ts or ())]
            assert all(n == round(n, 6) for n in numbers)


def test_one_technique_is_exchanged_now_and_then():
    """Probability 0.1 over 1,000 keys: 100 ± 5·√(1000·0.1·0.9) = 47; one stage at a time."""
    found = Counter(mutate_genes(pipeline(0), EliteLoserSearch(), k).number for k in range(1000))
    assert set(found) == {0, 1, 2, 4}
    assert abs(1000 - found[0] - 100) <= 47


def test_a_switch_stays_within_the_allowed_techniques():
    """`techniques` holds for ever, not only for generation 0."""
    search = EliteLoserSearch(techniques=("linear", "slerp", "ties", "dfs"))
    found = {mutate_genes(pipeline(3), search, k).number for k in range(300)}
    assert found == {3, 7}


def test_a_switch_to_frankenmerge_leaves_its_layers_open():
    """They are chosen by measuring, not by chance."""
    mutants = [mutate_genes(pipeline(7), EliteLoserSearch(), k) for k in range(300)]
    switched = [m for m in mutants if m.selection == "frankenmerge"]
    assert switched
    assert all(m.needs_layers for m in switched)


def test_a_frankenmerge_s_blocks_move_and_never_beyond_a_third():
    """Half of the mutations try; from two of six replaced no third one is."""
    search = EliteLoserSearch(techniques=("linear", "ties", "frankenmerge"))
    found = [
        mutate_genes(pipeline(2, layers=(1, 2, 0, 0, 0, 0)), search, k).genes.layers or ()
        for k in range(300)
    ]
    assert any(layers != (1, 2, 0, 0, 0, 0) for layers in found)
    assert {sum(c != 0 for c in layers) for layers in found} == {1, 2}
    assert all(sum(a != b for a, b in zip(x, (1, 2, 0, 0, 0, 0), strict=True)) <= 1 for x in found)


def test_draws_below_a_number_stay_below_it():
    """Even where a uniform value rounds up to 1."""
    draws = Draws(1, "x", count=64)
    assert {draws.below(3) for _ in range(60)} == {0, 1, 2}


# ---- generations ---------------------------------------------------------------------------


def test_generation_zero_is_the_eight_pipelines():
    """Each once, over all sources, with the config's genes and a seed of its own."""
    config = documented(dare_drop=0.3, ties_density=0.4)
    found = elite_loser.first_generation(config, FAMILY)
    assert [p.slot for p in found] == list(range(8))
    assert [p.pipeline.number for p in found if p.pipeline] == list(range(8))
    assert {p.kind for p in found} == {"seeded"}
    recipes = [p.recipe for p in found if isinstance(p.recipe, Pipeline)]
    assert {r.inputs for r in recipes} == {FAMILY.sources}
    assert {(r.genes.drop, r.genes.density) for r in recipes} == {(0.3, 0.4)}
    assert len({r.seed for r in recipes}) == 8


def test_a_small_population_takes_a_keyed_choice_of_pipelines():
    """Four of eight, without repetition, another four for another seed."""
    small: dict[str, object] = {"population_size": 4, "elite_size": 1}
    choices = set()
    for seed in range(12):
        found = elite_loser.first_generation(documented(**small, seed=seed), FAMILY)
        numbers = tuple(p.pipeline.number for p in found if p.pipeline)
        assert len(set(numbers)) == 4
        assert numbers == tuple(sorted(numbers))
        choices.add(numbers)
    assert len(choices) > 6


def test_a_large_population_fills_up_with_perturbed_copies():
    """Sixteen: the eight as they are, then eight with moved genes."""
    config = documented(population_size=16, elite_size=4)
    found = elite_loser.first_generation(config, FAMILY)
    assert len({p.recipe.id for p in found}) == 16
    scales = [p.pipeline.genes.scale for p in found if p.pipeline]
    assert scales[:8] == [1.0] * 8
    assert all(s != 1.0 for s in scales[8:])


def documented(**given: object) -> EvoMergeConfig:
    """Settings of the source documents' search."""
    return parse({"strategy": "elite-loser", **given})


def next_generation(config: EvoMergeConfig, generation: int = 1, reseeded: bool = False):
    """(ranking, proposals) after a generation 0 that was ranked in the order of slots."""
    first = elite_loser.first_generation(config, FAMILY)
    known: dict[str, Recipe] = {p.recipe.id: p.recipe for p in first}
    ranking = [p.recipe.id for p in first]
    return ranking, elite_loser.next_generation(config, FAMILY, known, ranking, generation, reseeded)


def test_the_next_generation_is_mutants_of_the_best_and_merges_of_the_rest_by_threes():
    """2 × 3 mutants of ranks 0 and 1, then ranks 2–4 and 5–7 in their order."""
    ranking, found = next_generation(documented())
    assert [p.slot for p in found] == list(range(8))
    assert [p.kind for p in found] == ["mutated"] * 6 + ["merged"] * 2
    assert [p.parents for p in found[:6]] == [(ranking[0],)] * 3 + [(ranking[1],)] * 3
    assert found[6].parents == tuple(ranking[2:5])
    assert found[7].parents == tuple(ranking[5:8])
    for proposal in found[6:]:
        assert isinstance(proposal.recipe, Pipeline)
        assert (proposal.recipe.inputs, proposal.recipe.base) == (proposal.parents, "base")
    assert len({p.recipe.id for p in found}) == 8
    assert elite_loser.loser_slots(documented()) == (6, 7)


def test_reseeded_slots_are_random_pipelines_over_the_sources():
    """New blood has no parents in the population; the mutants stay what they were."""
    _, usual = next_generation(documented())
    _, fresh = next_generation(documented(), reseeded=True)
    assert fresh[:6] == usual[:6]
    for proposal in fresh[6:]:
        assert (proposal.kind, proposal.parents) == ("seeded", ())
        assert proposal.pipeline is not None
        assert proposal.pipeline.inputs == FAMILY.sources
        assert proposal.pipeline.genes.scale != 1.0


@pytest.mark.parametrize(
    ("kind", "genes", "noise"), [("weights", False, True), ("genes", True, False), ("both", True, True)]
)
def test_mutation_changes_what_the_config_says(kind: str, genes: bool, noise: bool):
    """Weights, genes or both."""
    _, found = next_generation(documented(mutation=kind, mutation_rate=0.5))
    for proposal in found[:6]:
        assert isinstance(proposal.recipe, Mutate)
        assert (proposal.recipe.pipeline is not None) is genes
        assert (proposal.recipe.noise is not None) is noise
        assert proposal.recipe.noise is None or proposal.recipe.noise.rate == 0.5


def test_proposals_depend_on_seed_generation_and_slot_alone():
    """The strategy is a function of the log: the same twice, another for another key."""
    assert next_generation(documented()) == next_generation(documented())
    ids = [
        {p.recipe.id for p in next_generation(documented(seed=seed), generation)[1]}
        for seed, generation in ((0, 1), (1, 1), (0, 2))
    ]
    assert all(not a & b for a, b in ((ids[0], ids[1]), (ids[0], ids[2]), (ids[1], ids[2])))


def test_chosen_layers_are_filled_into_pipelines_and_mutants():
    """The recipe exists only with them; all else stays."""
    open_ = pipeline(0)
    for recipe in (open_, Mutate(parent="x", base="base", pipeline=open_)):
        filled = Proposal(3, "seeded", recipe, ("x",)).with_layers((0, 1, 0, 0, 0, 0))
        assert (filled.slot, filled.kind, filled.parents) == (3, "seeded", ("x",))
        assert filled.pipeline is not None
        assert filled.pipeline.genes.layers == (0, 1, 0, 0, 0, 0)
        assert not filled.pipeline.needs_layers
