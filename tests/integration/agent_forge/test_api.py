"""The Python API, as the source documents use it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent_forge import EvoMerge, EvoMergeConfig, EvoMergePipeline, Run
from agent_forge.runs.errors import ConfigError, NotFoundError, SourceError
from testing.models.toys import Toys

SETTINGS: dict[str, Any] = {
    "strategy": "elite-loser",
    "max_generations": 1,
    "search_windows": 3,
    "search_questions": 2,
}


@pytest.fixture(scope="module")
def evolved(toys: Toys, tmp_path_factory: pytest.TempPathFactory):
    """(home, what the callback saw, the result), from loaded modules and a path."""
    from transformers import AutoModelForCausalLM

    home = tmp_path_factory.mktemp("api")
    forge = EvoMerge(EvoMergeConfig(**SETTINGS), home=home)
    seen: list[tuple[int, float, float]] = []
    forge.register_callback("generation", lambda *args: seen.append(args))
    loaded = [AutoModelForCausalLM.from_pretrained(s) for s in toys.sources[:2]]
    models = [*loaded, toys.sources[2]]
    result = asyncio.run(forge.evolve(models, base=toys.base, data=[toys.data]))
    return home, seen, result


@pytest.mark.slow
def test_evolve_returns_the_result_of_the_source_documents(evolved) -> None:
    """Field by field."""
    _, seen, result = evolved
    assert result.success
    assert result.phase_name == "evomerge"
    assert result.duration_seconds > 0
    assert set(result.metrics) == {
        "best_fitness",
        "initial_fitness",
        "improvement",
        "improvement_pct",
        "generations_run",
        "convergence_reason",
        "final_diversity",
        "best_combo",
        "combo_usage",
        "fitness_components",
    }
    assert result.metrics["generations_run"] == 1
    assert result.metrics["convergence_reason"] == "generations"
    assert sum(result.metrics["combo_usage"].values()) == 16
    assert [g for g, _, _ in seen] == [0, 1]
    assert seen[-1][1] == result.metrics["best_fitness"]
    assert seen[-1][2] == result.metrics["final_diversity"]
    assert Path(result.artifacts["model"]).is_dir()
    assert result.artifacts["final_checkpoint"] == result.artifacts["model"]
    assert len(json.loads(Path(result.artifacts["evolution_log"]).read_text())["generations"]) == 2
    assert result.artifacts["best_generation"] in (0, 1)


@pytest.mark.slow
def test_the_champion_is_a_loaded_model_and_the_hand_over_is_kept(evolved) -> None:
    """Phase 3 takes it as it is."""
    import torch

    result = evolved[2]
    out = result.model(input_ids=torch.tensor([[1, 2, 3]]))
    assert out.logits.shape == (1, 3, 320)
    handed = result.handover(["code", "math"])
    assert handed["ready_for_quietstar"] is True
    assert handed["specializations"] == ["code", "math"]
    assert set(handed["phase_2_metrics"]) == {"fitness", "perplexity", "accuracy", "generations"}


@pytest.mark.slow
def test_loaded_modules_are_sources_like_any_other(evolved, toys: Toys) -> None:
    """Written once under their digest; the same weights as the folders they came from."""
    from agent_forge.weights.folders.checkpoint import digest, open_checkpoint

    home, _, result = evolved
    state = Run(result.artifacts["run"], None if home is None else _home(home)).state
    assert state.started is not None
    expected = [digest(open_checkpoint(s).tensors()) for s in toys.sources]
    assert [s.digest for s in state.started.sources] == expected


def _home(folder: Path):
    from agent_forge.runs.home import Home

    return Home(folder)


@pytest.mark.slow
def test_resume_goes_on_with_a_run(evolved) -> None:
    """A finished one gives its result again."""
    home, _, result = evolved
    forge = EvoMerge(home=home)
    forge.resume(result.artifacts["run"])
    again = asyncio.run(forge.evolve())
    assert again.report["champion"] == result.report["champion"]


@pytest.mark.slow
def test_resume_at_a_generation_forks_and_ends_the_same(evolved) -> None:
    """The source documents' load_checkpoint: go on from there, and the old run stays as it is."""
    home, _, result = evolved
    forge = EvoMerge(home=home)
    name = forge.resume(result.artifacts["run"], generation=0)
    again = asyncio.run(forge.evolve())
    assert again.artifacts["run"] == name != result.artifacts["run"]
    assert again.report["champion"] == result.report["champion"]
    assert again.report["lineage_digest"] == result.report["lineage_digest"]


@pytest.mark.slow
def test_a_run_reports_from_the_log_alone(evolved) -> None:
    """Without any model loaded."""
    home, _, result = evolved
    run = Run(result.artifacts["run"], _home(home))
    assert run.name == result.artifacts["run"]
    assert run.report()["metrics"] == result.metrics


def test_bad_input_is_an_error_before_work(toys: Toys, tmp_path) -> None:
    """And nothing is recorded."""
    forge = EvoMerge(EvoMergeConfig(**SETTINGS), home=tmp_path)
    with pytest.raises(SourceError, match="only source0"):
        asyncio.run(forge.evolve([toys.sources[0]]))
    with pytest.raises(ConfigError, match="callback 'epoch' is not known"):
        forge.register_callback("epoch", print)
    with pytest.raises(NotFoundError):
        forge.resume("nothing")


def test_the_strategy_of_a_search_that_names_none_is_that_of_the_terminal(tmp_path) -> None:
    """`auto`; a setting that `elite-loser` alone has means that strategy."""
    from agent_forge.evomerge.config import parse

    given: list[dict[str, Any]] = [{}, {"generations": 2}, {"elite_size": 2}]
    for settings, name in zip(given, ["auto", "auto", "elite-loser"], strict=True):
        config = EvoMerge(EvoMergeConfig(**settings), home=tmp_path).config
        assert config == parse(settings)
        assert config.search.strategy == name
    assert EvoMerge(home=tmp_path).config.search.strategy == "auto"


def test_the_names_of_the_second_document_work() -> None:
    """`EvoMergePipeline` is the same class."""
    assert EvoMergePipeline is EvoMerge
    with pytest.raises(AttributeError):
        getattr(__import__("agent_forge"), "nothing")  # noqa: B009
