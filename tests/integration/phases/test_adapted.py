"""Bakes of adapters: an ordinary model comes out, by the same bits however the run is killed."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_forge.phases.prompt_baking.recipes import FULL
from agent_forge.phases.prompt_baking.script import Bake
from agent_forge.phases.prompt_baking.settings import BakeConfig
from agent_forge.phases.tool_baking.settings import BakingConfig
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.kinds.view import overview
from agent_forge.studies.making.making import MakingState
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.recipes import Train
from agent_forge.weights.storage import model_origin
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.training import complete
from agent_forge.worker.commands import submit
from testing.miniatures import bake_runs
from testing.miniatures.bake_runs import ADAPTED, QUICK
from testing.miniatures.bitnet_runs import texts
from testing.verification import verified_again
from tests.integration.cli.test_forge import succeeds


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that a prompt moves."""
    return bake_runs.model(tmp_path_factory.mktemp("adapted-model"))


@pytest.fixture(scope="module")
def made(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run: (home, state, folder of the result)."""
    return bake_runs.whole(tmp_path_factory.mktemp("adapted"), model, **ADAPTED)


@pytest.mark.slow
def test_adapters_are_trained_and_the_result_is_an_ordinary_model(made, model: Path) -> None:
    """Matrices of the adapted layers change by the rank at most, and nothing else changes."""
    home, state, out = made
    assert audit.audit(bake_runs.rows(home)) == []
    full: Any = Bake().recipes(state)[FULL]
    assert isinstance(full, Train)
    assert complete(full) == full
    assert (full.objective, full.params["objective"]) == ("lora@1", "bake@1")
    assert (full.params["rank"], full.params["modules"]) == (4, ADAPTED["lora_modules"])
    cache = Artifacts.of(home)
    trained, given = cache.get(state.made[full.id].digest), open_checkpoint(model).tensors()
    assert trained is not None
    changed = {name for name, tensor in given.items() if not torch.equal(tensor, trained[name])}
    assert changed
    assert {name.split(".", 3)[3] for name in changed} == {
        "self_attn.q_proj.weight",
        "mlp.down_proj.weight",
    }
    for name in changed:
        values = torch.linalg.svdvals((trained[name] - given[name]).double())
        assert values[4] < 1e-5 * values[0]
    assert set(open_checkpoint(out / "model").tensors()) == set(given)
    assert state.completed.figures["ratio"].value < 1


@pytest.mark.slow
def test_the_parameters_that_are_trained_are_counted_and_told(made, model: Path) -> None:
    """By hand: rank · (in + out) of two layers of each block."""
    home, state, _ = made
    tensors = open_checkpoint(model).tensors()
    ends = ("q_proj.weight", "down_proj.weight")
    sides = [sum(t.shape) for name, t in tensors.items() if name.endswith(ends)]
    assert state.started.trainable == 4 * sum(sides)
    told = Bake().view.report(state, ())
    assert told["trained"] == state.started.trainable < told["parameters"]
    words = "\n".join(Bake().view.summary(state, ()))
    assert f"Adapters of {told['trained']:,} parameters were trained" in words
    shown = overview(state)
    assert [one.value for one in shown.head.facts if one.name == "trained parameters"] == [
        told["trained"]
    ]
    succeeds(home.folder, "show", "b")
    whole, own = told["parameters"], state.started.trainable
    assert Bake().memory(state) == 8 * whole + 16 * own
    places = Bake().models.ancestry(state, FULL)
    assert "bake@1 by adapters of rank 4" in places[0].words


@pytest.mark.slow
def test_everything_is_made_again_and_strengths_are_named(made) -> None:
    home, state, _ = made
    assert verified_again(home, state.run)[0] == []
    with closing(home.open_store()) as store:
        for name in ("b", "b:full", "b:strength-0.3"):
            assert model_origin.find(store, name) is not None
    assert Bake().run(state).figures == state.completed.figures


@pytest.mark.slow
def test_the_result_and_each_strength_leave_as_adapters(made, model: Path, tmp_path: Path) -> None:
    """The adapter has all of the energy: a strength scales the whole change."""
    home = made[0]
    for name in ("b", "b:strength-0.3", "b:full"):
        out = tmp_path / name.replace(":", "-")
        told = succeeds(home.folder, "export", name, "--format", "adapter", "--out", str(out))
        assert "energy:   1.000000 of the squared difference is kept" in told.stdout
        config = json.loads((out / "adapter_config.json").read_text())
        assert (config["r"], config["target_modules"]) == (4, ["down_proj", "q_proj"])
        assert config["base_model_name_or_path"] == str(model)


def test_adapters_have_a_rate_of_their_own() -> None:
    """Unless one is given; an optimiser of whole matrices is refused."""
    for kind in (BakeConfig, BakingConfig):
        assert kind.model_validate({}).rate == 3e-4
        assert kind.model_validate({"train": "lora"}).rate == 4e-3
        assert kind.model_validate({"train": "lora", "rate": 1e-3}).rate == 1e-3
        dumped = kind.model_validate({"train": "lora"}).model_dump(mode="json")
        assert kind.model_validate(dumped).rate == 4e-3
        with pytest.raises(ValueError, match="adapters need adamw"):
            kind.model_validate({"train": "lora", "optimiser": "muon"})


def test_layers_that_cannot_be_adapted_are_refused_before_any_work(model: Path, tmp_path: Path) -> None:
    given, data = {"model": [str(model)]}, texts(tmp_path / "texts")

    def refused(match: str, **settings: Any) -> None:
        asked = RunRequest("bake", {**QUICK, "train": "lora", **settings}, given, data)
        with pytest.raises(ConfigError, match=match):
            submit.check(submit.plan(asked))

    refused("the name 'lm_head': they are", lora_modules=["q_proj", "lm_head"])
    refused("a rank of 4096 is more than the layer", lora_rank=4096)


@pytest.mark.slow
def test_the_command_takes_a_rank(made, model: Path, tmp_path: Path) -> None:
    home = made[0]
    (tmp_path / "a.txt").write_text(bake_runs.PROMPT)
    args = ["--prompt", str(tmp_path / "a.txt"), "--lora", "2", "--detach", "--json"]
    for file in texts(tmp_path):
        args += ["--data", file]
    for name in ("context", "context_tokens", "reply_tokens", "neutral_tokens"):
        args += ["--set", f"{name}={QUICK[name]}"]
    args += ["--set", 'contexts=["rows"]', "--set", "generic=false", "--set", "built_in=[]"]
    told = succeeds(home.folder, "bake", str(model), *args)
    run = json.loads(told.stdout)["run"]
    first = json.loads(bake_runs.rows(home, run)[0].data)["config"]
    assert (first["train"], first["lora_rank"], first["rate"]) == ("lora", 2, 4e-3)
