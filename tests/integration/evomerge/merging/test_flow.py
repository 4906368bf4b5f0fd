"""Data flow space: paths as genes, as recipes, as weights, and in runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evomerge.merging import dataflow, folded_factors
from agent_forge.evomerge.merging.builder import Builder
from agent_forge.evomerge.recipes.recipe import RECIPE, Flow, Mutate, Noise, Step, blocks, label
from agent_forge.evomerge.reports import report, search_statistics
from agent_forge.evomerge.run.rules.decide import told
from agent_forge.evomerge.run.state import fold
from agent_forge.evomerge.search import current
from agent_forge.evomerge.search.genes import mutation
from agent_forge.evomerge.search.genes.genome import Space, space_of
from agent_forge.evomerge.search.genes.path_genes import Paths
from agent_forge.evomerge.search.strategies.cma_es import CmaEs
from agent_forge.evomerge.search.strategy import SourceFamily
from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.runs.history import audit
from agent_forge.weights import block_names, cost
from agent_forge.weights.folders.checkpoint import open_checkpoint
from testing.models import toy_models
from testing.models.toy_tensors import Toys, same
from testing.worlds.fake_world import BLOCK_COST, COST, World, small

PATHS = Paths(blocks=3, sources=3, repeats=2, most=5)
SEARCHING = ("tournament", "cma-es", "nsga2")


# ---- genes ------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(st.lists(st.floats(0, 1), min_size=12, max_size=12))
def test_a_path_comes_back_from_its_point(x: list[float]) -> None:
    steps = PATHS.steps(x)
    assert 1 <= len(steps) <= 5
    assert [s.block for s in steps] == sorted(s.block for s in steps)
    again = PATHS.steps(PATHS.point(steps))
    assert [(s.model, s.block) for s in again] == [(s.model, s.block) for s in steps]
    for a, b in zip(again, steps, strict=True):
        assert a.scale == pytest.approx(b.scale, abs=2e-6)
        assert 0.5 <= b.scale <= 2


def test_paths_by_hand() -> None:
    """Block 1 of the merge, then twice block 2: of source 3, halved, and of source 1, doubled."""
    x = [0.3, 0.5, 0.1, 0.5, 0.99, 0.0, 0.76, 1.0, 0.19, 0.5, 0.5, 0.5]
    expected = (
        Step(model=0, block=0),
        Step(model=3, block=1, scale=0.5),
        Step(model=1, block=1, scale=2.0),
    )
    assert PATHS.steps(x) == expected
    assert PATHS.steps(PATHS.straight) == tuple(Step(model=0, block=b) for b in range(3))
    assert PATHS.steps([0.0] * 12) == PATHS.steps(PATHS.straight)  # nothing is no model
    full = PATHS.steps([0.5, 0.5, 0.6, 0.5] * 3)
    assert [s.block for s in full] == [0, 0, 1, 1, 2]  # five at most: the last repeat goes
    short = replace(PATHS, most=3).steps([0.5, 0.5, 0.6, 0.5] * 3)
    assert [s.block for s in short] == [0, 1, 2]
    assert len(PATHS.names) == PATHS.dimension == 12


def test_a_point_says_both_the_merge_and_the_path() -> None:
    toys = Toys()
    own = Space(SourceFamily(toys.sources, toys.base, 3), "ties", "parts", 2, PATHS)
    assert len(own.names) == own.dimension == own.merging + 12 == sum(own.sizes)
    recipe = own.recipe(own.uniform([0.5, 0.25, 0.25]))
    assert isinstance(recipe, Flow)
    assert label(recipe, {}) == "ties+path"
    assert RECIPE.validate_json(recipe.model_dump_json()) == recipe
    assert own.recipe(own.point(recipe, toys.known)) == recipe
    without = Space(own.family, "ties", "parts", 2)
    assert without.recipe(without.point(recipe, toys.known)) == recipe.merged
    assert own.recipe(own.point(recipe.merged, toys.known)) == recipe
    mutant = Mutate(parent=recipe.id, base=toys.base, pipeline=recipe)
    assert own.recipe(own.point(mutant, toys.known)) == recipe
    assert blocks(mutant, {}, 3) == 3


# ---- weights ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    return toy_models.family(tmp_path_factory.mktemp("flow"), rms_norm_eps=1e-12)


def opened(family: tuple[Path, list[Path]]) -> Toys:
    """The trained layout of names, under ids."""
    toys = Toys()
    for id_, folder in zip((toys.base, *toys.sources), (family[0], *family[1]), strict=True):
        toys.stored[id_] = open_checkpoint(folder).tensors()
    return toys


def recipe_of(toys: Toys, *steps: tuple[int, int, float]) -> Flow:
    space = Space(SourceFamily(toys.sources, toys.base, 3), "task_arithmetic", "whole", 1)
    path = tuple(Step(model=m, block=b, scale=s) for m, b, s in steps)
    return Flow(merged=space.merge(space.uniform([0.5, 0.3, 0.2])), steps=path)


@torch.inference_mode()
def test_a_child_computes_what_the_path_says(family, tmp_path: Path) -> None:
    """Against the models' own blocks, called one after the other with their inputs scaled."""
    toys = opened(family)
    recipe = recipe_of(toys, (0, 0, 1.0), (2, 0, 0.7), (1, 2, 1.5), (0, 1, 1.0), (3, 2, 0.5))
    made = Builder(toys.known, toys.stored.get).build(recipe)
    folders = [family[0], *family[1]]
    merged = Builder(toys.known, toys.stored.get).build(recipe.merged)
    layers = []
    for number, folder in enumerate(folders):
        model = AutoModelForCausalLM.from_pretrained(folder)
        if number == 0:
            model.load_state_dict(dict(merged), strict=False)
            top = model
        layers.append(model.model.layers)
    ids = torch.arange(12).view(1, 12) * 7 % 320
    hidden = top.model.embed_tokens(ids)
    places = torch.arange(12).view(1, 12)
    turned = top.model.rotary_emb(hidden, places)
    mask = torch.full((12, 12), float("-inf")).triu(1).view(1, 1, 12, 12)
    for step in recipe.steps:
        hidden = layers[step.model][step.block](
            step.scale * hidden, attention_mask=mask, position_ids=places, position_embeddings=turned
        )
    expected = top.lm_head(top.model.norm(hidden))
    resident = ResidentModel(folders[0], "cpu", tied=True)
    resident.load(made, len(recipe.steps))
    torch.testing.assert_close(resident.logits(ids), expected, rtol=1e-4, atol=1e-4)
    resident.load(merged)  # and back to three blocks
    torch.testing.assert_close(resident.logits(ids), _logits(top, ids), rtol=1e-4, atol=1e-5)


def _logits(model, ids: torch.Tensor) -> torch.Tensor:
    return model(input_ids=ids, use_cache=False).logits


def test_the_straight_path_is_the_merge(family) -> None:
    toys = opened(family)
    recipe = recipe_of(toys, (0, 0, 1.0), (0, 1, 1.0), (0, 2, 1.0))
    builder = Builder(toys.known, toys.stored.get)
    merged = builder.build(recipe.merged)
    made = builder.build(recipe)
    assert same({n: made[n] for n in merged}, merged)
    assert same({n: builder.origin(recipe, toys.origin)[n] for n in merged}, toys.stored[toys.base])
    assert not {t.data_ptr() for t in made.values()} & {t.data_ptr() for t in merged.values()}


def test_noise_goes_onto_a_path(family) -> None:
    """It is as large as the task vector along the path, repeated blocks included."""
    toys = opened(family)
    recipe = recipe_of(toys, (0, 0, 1.0), (0, 2, 1.0), (1, 2, 1.0), (2, 2, 1.0))
    noise = Noise(rate=0.9, sigma=0.5, relative_to="task_vector", seed=3)
    mutant = Mutate(parent=recipe.id, base=toys.base, pipeline=recipe, noise=noise)
    known = {**toys.known, recipe.id: recipe, mutant.id: mutant}
    builder = Builder(known, toys.stored.get)
    plain, noisy, origin = (
        builder.build(recipe),
        builder.build(mutant),
        builder.origin(mutant, toys.origin),
    )
    assert set(plain) == set(noisy) == set(origin)
    for name in plain:
        moved, whole = ((a[name] - plain[name]).norm().item() for a in (noisy, origin))
        assert moved == pytest.approx(0.5 * whole, rel=0.01), name


def test_scales_are_no_part_of_a_task_vector(family) -> None:
    """Noise and sketches are of what was learned, not of how far a path turned the stream up."""
    toys = opened(family)
    plain = recipe_of(toys, *((0, b, 1.0) for b in range(3)))
    turned = recipe_of(toys, *((0, b, 1.3) for b in range(3)))
    builder = Builder(toys.known, toys.stored.get)
    (one, zero), (two, other) = (
        (builder.build(r), builder.origin(r, toys.origin)) for r in (plain, turned)
    )
    for name in one:
        number = block_names.block_of(name)
        folded = number is not None and folded_factors.writes(name)
        scale = 1.3 ** (number + 1) if folded else 1.0  # pyright: ignore[reportOptionalOperand]
        torch.testing.assert_close(
            scale * (two[name] - other[name]), one[name] - zero[name], rtol=1e-4, atol=1e-7
        )


def test_weights_of_another_depth_are_refused_unless_a_path_made_them(family) -> None:
    toys = opened(family)
    made = Builder(toys.known, toys.stored.get).build(recipe_of(toys, (0, 0, 1.0), (0, 2, 1.0)))
    resident = ResidentModel(family[0], "cpu", tied=True)
    with pytest.raises(SourceError, match=r"do not fit its config\.json"):
        resident.load(made)
    resident.load(made, 2)
    resident.load(toys.origin)


def test_a_step_that_is_not_there_is_named(family) -> None:
    toys = opened(family)
    for step, what in (((0, 3, 1.0), "block 3 of model 0"), ((4, 0, 1.0), "block 0 of model 4")):
        with pytest.raises(ConfigError, match=f"step 2 of the path takes {what}: .*0 to 2.*to 3"):
            Builder(toys.known, toys.stored.get).build(recipe_of(toys, (0, 0, 1.0), step))


def test_a_block_costs_what_a_model_with_one_more_costs_more() -> None:
    found = []
    for count in (3, 4):
        config = toy_models.config(num_hidden_layers=count)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        shapes = {n: tuple(p.shape) for n, p in model.named_parameters()}
        found.append((cost.cost(shapes, 4, config, 64), cost.of_block(shapes, 4, config, 64)))
    (three, block), (four, same_block) = found
    assert block == same_block
    assert three.with_blocks(1, block) == four
    assert four.with_blocks(-1, block) == three


def test_a_config_keeps_its_number_of_blocks_unless_a_path_changed_it(family) -> None:
    """Some models have tensors of a block more than config.json counts: that stays theirs."""
    toys, donor = opened(family), open_checkpoint(family[0])
    counted = replace(donor, config={**donor.config, "num_hidden_layers": 2})
    assert dataflow.settings_for(toys.origin, counted, tied=True)["num_hidden_layers"] == 2
    made = Builder(toys.known, toys.stored.get).build(recipe_of(toys, (0, 0, 1.0), (0, 0, 1.0)))
    found = dataflow.settings_for(made, donor, tied=True)
    assert found["num_hidden_layers"] == 2
    assert "torch_dtype" not in found


def test_models_whose_blocks_are_of_several_kinds_are_refused(family) -> None:
    """By a list of the config, or by the tensors that blocks have."""
    shapes = open_checkpoint(family[0]).shapes
    settings = toy_models.config().to_dict()
    dataflow.check_architecture(family[0], settings, shapes)
    types = ["full_attention", "sliding_attention", "full_attention"]
    with pytest.raises(ConfigError, match=r"several kinds .*full_attention, sliding_attention"):
        dataflow.check_architecture(family[0], {**settings, "layer_types": types}, shapes)
    name = "model.layers.2.mlp.down_proj.weight"
    wider = {**shapes, name: (shapes[name][0], (1, 2))}
    with pytest.raises(ConfigError, match=r"other tensors .*block 2 of \[1, 2\]"):
        dataflow.check_architecture(family[0], settings, wider)
    without = {n: shape for n, shape in shapes.items() if n != name}
    with pytest.raises(ConfigError, match=r"other tensors .*block 2 of none"):
        dataflow.check_architecture(family[0], settings, without)


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "vocab_size": 320,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
FOLDING: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"head_dim": 16},
    "smollm3": {},
    "granite": {"residual_multiplier": 0.3, "embedding_multiplier": 12.0},
    "gemma": {"head_dim": 16},
    "phi3": {},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv", "conv"]},
    "olmo": {},
    "gpt2": {"n_embd": 64, "n_head": 4, "n_layer": 4},
    "qwen3_moe": {
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    },
}


@pytest.mark.parametrize("kind", FOLDING)
def test_factors_fold_into_models_whose_blocks_read_through_norms(kind: str) -> None:
    """Tried on the class that the config names: no list of architectures."""
    own = {} if kind == "gpt2" else SMALL
    config = CONFIG_MAPPING[kind](**{**own, **FOLDING[kind]})
    assert folded_factors.obstacle(Path("m"), config.to_dict()) is None


@pytest.mark.parametrize("kind", ["olmo2", "gemma2", "gemma3_text", "phi"])
def test_factors_do_not_fold_into_post_norms(kind: str) -> None:
    """OLMo 2 norms what it writes and not what it reads, Gemma 2 and 3 norm both."""
    config = CONFIG_MAPPING[kind](**SMALL)
    why = folded_factors.obstacle(Path("m"), config.to_dict())
    assert why is not None
    assert f"the weights of {kind} models" in why


# ---- runs -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHING)
def test_runs_search_paths(name: str) -> None:
    given = small(
        strategy=name,
        population_size=8,
        generations=4,
        path_repeats=2,
        path_blocks=4,
        species=("ties", "slerp"),
    )
    world, other = World(given), World(given)
    state = world.run()
    assert state.completed, state.failed
    assert audit.audit(world.rows) == []
    other.run(order=lambda tasks: list(reversed(tasks)))
    assert other.state.lineage_digest() == state.lineage_digest()
    depths = {}
    for id_ in {c.recipe_id for c in state.candidates.values()}:
        recipe = state.recipes[id_]
        depths[id_] = blocks(recipe, state.recipes, 3)
        assert state.cost(id_) == COST.with_blocks(depths[id_] - 3, BLOCK_COST)
    assert len(set(depths.values())) > 1
    assert max(depths.values()) <= 4
    judged = [e for e in state.evaluations.values() if e.recipe_id in depths and e.fitness]
    for event in judged:
        assert event.fitness
        ratio = COST.flops_per_token / state.cost(event.recipe_id).flops_per_token
        gain = (ratio - 1) * min(1.0, event.fitness.quality) if ratio > 1 else ratio - 1
        assert event.fitness.normalised["speed"] == pytest.approx(1 + gain)


def test_a_distribution_is_told_the_path_that_it_asked_for() -> None:
    """Else the genes of a path would never leave the middle of their intervals."""
    world = World(small(strategy="cma-es", population_size=8, generations=4, path_repeats=1))
    world.run()
    state = fold(world.rows)
    now = CmaEs()._now(told(state, 4))
    straight = now.space.point(state.recipes[state.generations[0].ranking[0]], state.recipes)
    moved = now.mean[now.space.merging :]
    assert len({round(x, 6) for x in moved}) == len(moved)
    assert len(straight) == len(now.mean)


def test_what_techniques_earn_counts_under_their_names() -> None:
    """A path over a merge by ties is by ties, for the next choice and for the report's genes."""
    given = small(
        strategy="tournament",
        population_size=8,
        generations=6,
        path_repeats=1,
        technique_selection="earned",
        species=("ties", "slerp"),
    )
    state = World(given).run()
    assert set(mutation.earned(told(state, 6))) <= {"ties", "slerp"}
    assert search_statistics.genes(state)
    assert all("path" in row["technique"] for row in search_statistics.techniques(state))


def test_a_champion_of_another_depth_is_compared_by_all_of_its_score() -> None:
    """Its lead is its score minus the other's; what it costs is its own."""
    given = small(strategy="tournament", population_size=8, generations=4, path_repeats=1)
    world = World(given)
    state = world.run()
    assert state.completed
    depth = blocks(state.recipes[state.completed.champion], state.recipes, 3)
    assert depth != 3, "another seed would show it"
    for rival in state.completed.rivals:
        assert rival.lead
        assert rival.scalar is not None
        score = state.completed.test.scalar - rival.scalar
        assert rival.lead.difference == pytest.approx(score, abs=1e-9)
        assert rival.lead.low <= rival.lead.difference <= rival.lead.high
    found = report.report(state, world.rows)
    text = report.markdown(found)
    assert f"The champion has {depth} blocks" in text
    assert found["cost"]["flops_per_token"] == state.cost(state.completed.champion).flops_per_token


@pytest.mark.parametrize("name", ["auto", "elite-loser"])
def test_strategies_that_search_no_paths_say_so(name: str) -> None:
    """The message names the strategies that do."""
    size = 4 if name == "elite-loser" else 5
    with pytest.raises(ConfigError, match="path_repeats belongs to tournament, cma-es, nsga2, not to"):
        current(small(strategy=name, population_size=size, path_repeats=1))


def test_without_the_setting_nothing_has_a_path() -> None:
    toys = Toys()
    kin = SourceFamily(toys.sources, toys.base, 3)
    assert space_of(small(strategy="cma-es", population_size=5), kin, "ties").paths is None
    own = space_of(small(strategy="cma-es", population_size=5, path_repeats=2), kin, "ties").paths
    assert own == Paths(3, 3, 2, 4)


def test_logs_from_before_paths_cost_what_they_did() -> None:
    world = World()
    world.run()
    state = world.state
    assert state.started
    state.started = state.started.model_copy(update={"block_cost": None})
    assert {state.cost(id_) == COST for id_ in state.recipes} == {True}
