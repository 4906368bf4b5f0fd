"""titans-mag end to end: trained by cognate, then merged by evolution and taken by other phases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from agent_forge.phases.cognate import recipes
from agent_forge.phases.cognate.script import Cognate
from agent_forge.phases.cognate.settings import CognateConfig
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.studies.making.making import MakingState
from agent_forge.weights import architectures
from agent_forge.weights.architectures.auto import AutoModelForCausalLM
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.formats.decompression import decompress
from agent_forge.worker.commands import submit
from testing.miniatures import bake_runs, bitnet_runs, cognate_runs, compression_runs
from testing.models import titans_toys
from testing.models.toys import Toys
from testing.worlds import runs

#: Short trainings at a high rate: the specialists must become the best on their own text.
QUICK = {"architecture": "titans-mag", "base_tokens": 8_000, "specialist_tokens": 6_000}


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Toys:
    """A base, three sources and data."""
    return titans_toys.toys(tmp_path_factory.mktemp("titans"), initializer_range=0.25)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, MakingState, Path]:
    """A finished run of specialists: (home, state, folder of the models)."""
    folder = tmp_path_factory.mktemp("titans-cognate")
    home = Home(folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORGE_SEGMENT_STEPS", "12")
        cognate_runs.submit(home, **QUICK)
        state = cognate_runs.finish(home)
    Cognate().write_result(home, state, folder / "models")
    return home, state, folder / "models"


def whole(folder: Path) -> Any:
    """The model of a folder, which holds its code and names it."""
    config = json.loads((folder / "config.json").read_text())
    assert config["auto_map"] == architectures.auto_map(config)
    assert all((folder / name).is_file() for name in architectures.code(config))
    if (folder / "README.md").is_file():
        assert "`trust_remote_code`" in (folder / "README.md").read_text("utf-8")
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)


@pytest.mark.slow
def test_cognate_trains_specialists_of_a_titans_base(trained: tuple[Home, MakingState, Path]) -> None:
    home, state, out = trained
    assert state.status == "completed"
    assert audit.audit(cognate_runs.rows(home)) == []
    assert recipes.fresh(state.submitted.config).operation == "titans-mag-init@1"
    for role, model in state.completed.models.items():
        loaded = whole(out / role)
        assert loaded.config.model_type == "titans_mag"
        assert digest(open_checkpoint(out / role).tensors()) == model.digest


@pytest.mark.slow
def test_a_run_that_is_carried_on_elsewhere_gives_the_same_models(
    trained: tuple[Home, MakingState, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In two homes one after the other, cut after some segments: the same bits."""
    home, state, _ = trained
    monkeypatch.setenv("FORGE_SEGMENT_STEPS", "8")
    other = cognate_runs.share_text(home, Home(tmp_path))
    cognate_runs.submit(other, **QUICK)
    cognate_runs.carry_until(other, lambda now: any(len(a) >= 2 for a in now.advanced.values()))
    again = cognate_runs.finish(other)
    assert again.lineage_digest() == state.lineage_digest()
    assert {m.digest for m in again.made.values()} == {m.digest for m in state.made.values()}


@pytest.mark.slow
def test_evolution_merges_them(toys: Toys, tmp_path: Path) -> None:
    """Kernels and groups of layers see the memory's tensors; the champion's folder has its code."""
    home = Home(tmp_path / "home")
    runs.submit(home, toys)
    state = runs.finish(home)
    assert state.status == "completed"
    kinds.of("evomerge").write_result(home, state, tmp_path / "out")
    model = whole(tmp_path / "out")
    assert model.config.model_type == "titans_mag"
    base = open_checkpoint(toys.base).tensors()
    made = open_checkpoint(tmp_path / "out").tensors()
    assert made.keys() == base.keys()
    memory = [name for name in made if ".memory." in name and base[name].any()]
    assert memory
    assert not any(torch.equal(made[name], base[name]) for name in memory)


@pytest.mark.slow
def test_it_becomes_ternary(toys: Toys, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    bitnet_runs.submit(home, toys.base)
    _, state, out = bitnet_runs.result(home, tmp_path / "out")
    assert state.status == "completed"
    whole(out / "model")


@pytest.mark.slow
def test_a_prompt_is_baked_into_it(toys: Toys, tmp_path: Path) -> None:
    """Its own replies are sampled with its state, padded on the left."""
    home = Home(tmp_path / "home")
    bake_runs.submit(home, toys.base)
    _, state, out = bake_runs.result(home, tmp_path / "out")
    assert state.status == "completed"
    whole(out / "model")


@pytest.mark.slow
def test_it_is_compressed_and_decoded(toys: Toys, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    compression_runs.submit(home, toys.base, compression_runs.data(tmp_path))
    state = compression_runs.finish(home)
    assert state.status == "completed"
    kinds.of("compression").write_result(home, state, tmp_path / "out")
    (file,) = (tmp_path / "out").glob("*.forge")
    decompress(file, tmp_path / "decoded")
    whole(tmp_path / "decoded")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"architecture": "titans-mag", "preset": "small"}, "presets mini, tiny"),
        ({"recursions": 2}, "recursions is a setting of titans-mag"),
        ({"memory": "none"}, "memory is a setting of titans-mag"),
        ({"architecture": "titans-mag", "halting": True}, "two recursions or more"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        submit.plan(RunRequest("cognate", settings, {}, ()))


def test_a_given_base_has_its_own_architecture(toys: Toys) -> None:
    given = RunRequest("cognate", {"architecture": "titans-mag"}, {"base": [str(toys.base)]}, ())
    with pytest.raises(ConfigError, match="leave out architecture"):
        submit.plan(given)


@pytest.mark.parametrize("memory", ["linear", "two-layer", "none"])
@pytest.mark.parametrize("preset", ["mini", "tiny"])
def test_presets_have_the_parameters_that_they_say(preset: Any, memory: Any) -> None:
    from agent_forge.weights import operations
    from agent_forge.weights.recipes import Transform

    halting = memory != "none"
    config = CognateConfig(
        architecture="titans-mag", preset=preset, memory=memory, recursions=2, halting=halting
    )
    recipe: Transform = recipes.fresh(config)
    made = operations.apply(operations.complete(recipe), {})
    config.size.check(sum(t.numel() for t in made.weights.values()))
    assert recipe == operations.complete(recipe)
