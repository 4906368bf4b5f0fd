"""Phases as the specification sketches them: each call is a run, and returns a loaded model."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

import agent_forge
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from testing.miniatures import (
    baking_runs,
    bitnet_runs,
    compression_runs,
    curriculum_runs,
    experts_runs,
    quietstar_runs,
    small_text,
)
from testing.models.toys import Toys

pytestmark = pytest.mark.slow

#: Class → (kind, method, settings of a run of seconds).
PHASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "QuietSTaR": ("quietstar", "enhance_reasoning", quietstar_runs.QUICK),
    "BitNetQuantizer": ("bitnet", "quantize", bitnet_runs.QUICK),
    "CapabilityBaker": ("baking", "bake", baking_runs.QUICK),
    "ADASOptimizer": ("experts", "apply_vectors", experts_runs.QUICK),
    "FinalCompressor": ("compression", "compress", {**compression_runs.SETTINGS, "budget": "1MB"}),
}


def text_for(name: str, folder: Path) -> list[str]:
    """Items for a phase's miniature."""
    if name == "FinalCompressor":
        return [str(compression_runs.data(folder))]
    texts = experts_runs.texts if name == "ADASOptimizer" else bitnet_runs.texts
    return texts(folder / "texts")


def kind_of(home: Home, run: str) -> str:
    """The kind of a run, from the log."""
    with closing(home.open_store()) as store:
        return repository.load(store, run).kind


@pytest.mark.parametrize("name", PHASES)
def test_a_phase_s_class_carries_a_run_and_returns_its_model(
    name: str, toys: Toys, tmp_path: Path
) -> None:
    """From a loaded model; the same call again means the same run."""
    kind, method, settings = PHASES[name]
    home, data = Home(tmp_path / "home"), text_for(name, tmp_path)
    model: Any = AutoModelForCausalLM.from_pretrained(toys.base)
    phase = getattr(agent_forge, name)(data, home.folder, **settings)
    made = getattr(phase, method)(model)
    assert kind_of(home, phase.ended.run) == kind
    assert made(input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 320)
    again = getattr(agent_forge, name)(data, home.folder, **settings)
    getattr(again, method)({"model": model, "ready_for_quietstar": True})
    assert again.ended == phase.ended


def test_a_run_and_its_model_are_in_the_home_of_the_environment(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its database."""
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FORGE_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")
    kind, _, settings = PHASES["QuietSTaR"]
    phase = agent_forge.QuietSTaR(text_for("QuietSTaR", tmp_path), **settings)
    phase.enhance_reasoning(str(toys.base))
    assert phase.ended
    assert kind_of(Home.default(), phase.ended.run) == kind
    assert not (tmp_path / "home" / "forge.db").exists()


def test_what_is_handed_over_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no 'model'; it has metrics"):
        agent_forge.QuietSTaR(home=tmp_path).enhance_reasoning({"metrics": {}})
    with pytest.raises(ConfigError, match="segments are the stages"):
        agent_forge.ForgeTrainer(home=tmp_path, segments=4).train("models/base")


def test_the_trainer_has_as_many_segments_as_stages(toys: Toys, tmp_path: Path) -> None:
    settings = {n: v for n, v in curriculum_runs.QUICK.items() if n != "segments"}
    trainer = agent_forge.ForgeTrainer(home=tmp_path / "home", **{**settings, "tokens": 5_760})
    made = trainer.train(toys.base, stages=6)
    assert made.config.vocab_size == 320
    assert trainer.ended
    with closing(Home(tmp_path / "home").open_store()) as store:
        config = repository.load(store, trainer.ended.run).submitted.config
    assert config.segments == 6
    assert "stages" in config.arms


def test_the_specialists_are_three_of_one_base(tmp_path: Path) -> None:
    """With the documents' specialties by default; here on a small text and in miniature."""
    models = agent_forge.create_cognate_models(
        [str(small_text.file())], tmp_path, preset="mini", domains=small_text.DOMAINS
    )
    assert len(models) == len(small_text.DOMAINS)
    first, second = (next(model.parameters()) for model in models[:2])
    assert not torch.equal(first, second)
