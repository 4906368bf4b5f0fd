"""Specialists that are low-rank adapters of a base: cognate runs with LoRA."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from agent_forge.phases.cognate import figures
from agent_forge.phases.cognate.script import Cognate
from agent_forge.phases.cognate.settings import CognateConfig
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.kinds.view import overview
from agent_forge.studies.given_dtype import FLOAT32
from agent_forge.studies.making.making import MakingState
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training import complete
from agent_forge.worker.commands import submit
from testing.miniatures import cognate_runs
from testing.models import toy_models
from testing.verification import verified_again
from tests.golden.record_cognate import texts
from tests.integration.cli.test_forge import fails, succeeds

ADAPTED = {
    "train": "lora",
    "lora_rank": 4,
    "specialist_tokens": 12_000,
    "batch": 4,
    "specialist_rate": 2e-2,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run over a given base in bfloat16: (home, state, folder of the base)."""
    folder = tmp_path_factory.mktemp("cognate-adapted")
    base, _ = toy_models.family(folder, 0, torch.bfloat16)
    home = Home(folder / "home")
    cognate_runs.submit(home, base=base, data=texts(folder), **ADAPTED)
    return home, cognate_runs.finish(home), base


@pytest.mark.slow
def test_each_specialist_is_the_base_and_a_change_of_the_rank(made) -> None:
    """Embedding, head and norms are the base's; every matrix of the blocks moves by rank 4."""
    home, state, base = made
    assert audit.audit(cognate_runs.rows(home)) == []
    stored = open_checkpoint(base).tensors()
    for role, recipe in Cognate().trainings(state).items():
        assert complete(recipe) == recipe
        assert (recipe.objective, recipe.params["objective"]) == ("lora@1", "lm@1")
        assert recipe.optimiser.name == "adamw@1"
        trained = Artifacts.of(home).get(state.made[recipe.id].digest)
        assert trained is not None, role
        for name, tensor in stored.items():
            moved = (trained[name] - tensor.float()).double()
            if name.endswith("proj.weight"):
                values = torch.linalg.svdvals(moved)
                assert values[3] > 0
                assert values[4] < 1e-5 * values[0]
            else:
                assert not moved.any(), name
    assert figures.no_specialist(Cognate().run(state)) == ""


@pytest.mark.slow
def test_the_adapters_parameters_are_counted_and_told(made) -> None:
    """By hand: rank · (inputs + outputs) of every linear layer of the blocks."""
    home, state, base = made
    stored = open_checkpoint(base).tensors()
    sides = [sum(t.shape) for name, t in stored.items() if name.endswith("proj.weight")]
    assert state.started.trainable == 4 * sum(sides)
    whole, own = state.started.parameters, state.started.trainable
    assert Cognate().memory(state) == 8 * whole + 16 * own
    facts = {one.name: one.value for one in overview(state).head.facts}
    assert facts["trained parameters"] == own
    role = next(iter(Cognate().trainings(state)))
    card = Cognate.prose.card(Cognate().run(state), role)
    assert "by adapters of rank 4, merged into the weights." in card
    words = [one.words for one in Cognate().models.ancestry(state, role)]
    assert any("lm@1 by adapters of rank 4" in one for one in words)
    assert verified_again(home, state.run)[0] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_specialist_leaves_as_an_adapter_of_the_given_base(made, tmp_path: Path) -> None:
    """By the rank that it was trained with: to rounding, also on the base in bfloat16."""
    home, state, base = made
    out = tmp_path / "adapter"
    told = succeeds(
        home.folder, "export", f"{state.run}:sums", "--format", "adapter", "--out", str(out)
    )
    assert "energy:   1.000000 of the squared difference is kept" in told.stdout
    config = json.loads((out / "adapter_config.json").read_text())
    assert (config["r"], config["base_model_name_or_path"]) == (4, str(base))
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    merged = PeftModel.from_pretrained(plain, out).merge_and_unload().state_dict()
    recipes = Cognate().run(state).recipes
    recipe = recipes.get(f"sums{FLOAT32}", recipes["sums"])
    trained = Artifacts.of(home).get(state.made[recipe.id].digest)
    assert trained is not None
    for name, tensor in trained.items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-6)
    told = fails(
        home.folder, 2, "export", f"{state.run}:base", "--format", "adapter", "--out", str(out)
    )
    assert "was not trained in run" in told


def test_a_base_from_scratch_is_trained_whole_and_its_specialists_by_adapters() -> None:
    config = CognateConfig.model_validate({"train": "lora"})
    assert (config.optimiser, config.specialist_rate) == ("adamw", 4e-3)
    assert CognateConfig.model_validate(config.model_dump(mode="json")) == config
    assert CognateConfig.model_validate({}).specialist_rate is None
    given = CognateConfig.model_validate({"train": "lora", "specialist_rate": 1e-3})
    assert given.specialist_rate == 1e-3
    with pytest.raises(ValueError, match="adapters need adamw"):
        CognateConfig.model_validate({"train": "lora", "optimiser": "muon"})
    with pytest.raises(ValueError, match="leave out sharded"):
        CognateConfig.model_validate({"train": "lora", "sharded": True, "processes": 2})


def test_layers_that_cannot_be_adapted_are_refused_before_any_work(tmp_path: Path) -> None:
    """Both a given base and one from scratch are adapted."""
    base, _ = toy_models.family(tmp_path, 0)
    data = texts(tmp_path)

    def refused(match: str, models: dict[str, list[str]], **settings: object) -> None:
        asked = RunRequest("cognate", {"preset": "mini", "train": "lora", **settings}, models, data)
        with pytest.raises(ConfigError, match=match):
            submit.check(submit.plan(asked))

    for models in ({"base": [str(base)]}, {}):
        refused("the name 'lm_head': they are", models, lora_modules=["lm_head"])
        refused("a rank of 4096 is more than the layer", models, lora_rank=4096)
