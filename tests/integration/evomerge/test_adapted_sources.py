"""Merging runs whose sources are adapters of their base: nothing whole is written of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from agent_forge.evomerge import submission
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.tasks.context import MergeContext
from agent_forge.runs.errors import ConfigError, SourceChangedError, SourceError
from agent_forge.runs.history.repository import load
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import submit as commands_submit
from agent_forge.worker.exports import delivery
from testing.models import toy_adapters, toy_models
from testing.models.toys import Toys
from testing.verification import verified_again
from testing.worlds import runs
from tests.integration.cli.test_forge import succeeds


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """A base in bfloat16, and three adapters of it with other ranks and layers."""
    folder = tmp_path_factory.mktemp("adapted")
    base, _ = toy_models.family(folder, 0, torch.bfloat16)
    adapters = [
        toy_adapters.write(base, folder / "a", 1),
        toy_adapters.write(base, folder / "b", 2, rank=2, modules=("v_proj", "up_proj")),
        toy_adapters.write(base, folder / "c", 3, use_rslora=True),
    ]
    return base, adapters


def named(base: Path, adapters: list[Path]) -> list[str]:
    """The sources as a user writes them."""
    return [f"{base}+{adapter}" for adapter in adapters]


def planned(sources: list[str], base: list[str], data: str = "") -> submission.Plan:
    """Return the plan of a run of adapters."""
    models = {"sources": sources, "base": base}
    return submission.plan(
        RunRequest("evomerge", dict(runs.SETTINGS), models, [data] if data else []), Lookup()
    )


@pytest.fixture(scope="module")
def made(given, toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, RunState]:
    """A finished run over them; its base is the adapters' own."""
    home = Home(tmp_path_factory.mktemp("home"))
    plan = planned(named(*given), [], str(toys.data))
    submission.check(plan)
    store = home.open_store()
    commands_submit.submit(store, plan, "r")
    store.close()
    return home, runs.finish(home)


def summed(base: Path, adapter: Path) -> dict[str, torch.Tensor]:
    """Return W + scale · B A by hand, in the dtype of W."""
    config = json.loads((adapter / "adapter_config.json").read_text())
    parts = load_file(adapter / "adapter_model.safetensors")
    root = config["r"] ** 0.5 if config.get("use_rslora") else config["r"]
    result = dict(open_checkpoint(base).tensors())
    for name, tensor in result.items():
        prefix = f"base_model.model.{name.removesuffix('.weight')}"
        if (a := parts.get(f"{prefix}.lora_A.weight")) is not None:
            b = parts[f"{prefix}.lora_B.weight"]
            result[name] = (tensor.float() + config["lora_alpha"] / root * (b @ a)).to(tensor.dtype)
    return result


def test_sources_are_the_base_and_each_adapter_s_change(given, made) -> None:
    """Rounded once, to the base's dtype."""
    _, state = made
    bench = MergeContext(state, Artifacts.of(made[0]))
    for adapter, weights in zip(given[1], bench.source_weights, strict=True):
        expected = summed(given[0], adapter)
        assert list(weights) == sorted(expected)
        for name, tensor in expected.items():
            assert weights[name].dtype == tensor.dtype
            torch.testing.assert_close(weights[name], tensor, rtol=2**-8, atol=0)


def test_the_log_names_base_and_adapters_by_digest(given, made) -> None:
    _, state = made
    base, adapters = given
    assert state.started.base.digest == digest(open_checkpoint(base).tensors())
    for record, adapter in zip(state.started.sources, adapters, strict=True):
        assert record.name == f"base+{adapter.name}"
        for file in ("adapter_config.json", "adapter_model.safetensors"):
            content = (adapter / file).read_bytes()
            assert record.files[f"added_{file}"] == companions.digest(content)


def test_the_base_s_weights_are_on_the_disk_once(made) -> None:
    """Under a name in each of the four copies."""
    copies = MergeContext(made[1], Artifacts.of(made[0])).copies
    files = {(place / "model.safetensors").stat().st_ino for place in copies}
    assert len(set(copies)) == 4
    assert len(files) == 1


def test_results_are_ordinary_models_of_the_base_s_dtype(given, made, tmp_path: Path) -> None:
    """And everything is measured and built again to the bit, also by the recipe file."""
    home, _ = made
    assert verified_again(home)[0] == []
    delivery.deliver(home, "r", tmp_path / "champion", None, model="mean")
    merged = open_checkpoint(tmp_path / "champion").tensors()
    base = open_checkpoint(given[0]).tensors()
    changed = [summed(given[0], adapter) for adapter in given[1]]
    assert not list((tmp_path / "champion").glob("added*"))
    for name in base:
        mean = torch.stack([one[name].float() for one in changed]).mean(0)
        assert merged[name].dtype == torch.bfloat16
        torch.testing.assert_close(merged[name].float(), mean, rtol=2**-7, atol=1e-5)
    recipe = tmp_path / "champion" / "evomerge_recipe.json"
    succeeds(home.folder, "merge", str(recipe), str(tmp_path / "again"))
    again = open_checkpoint(tmp_path / "again").tensors()
    assert digest(again) == digest(merged)


def test_an_adapter_that_is_changed_is_found(given, made, tmp_path: Path) -> None:
    """The run has its own copy; without it, another adapter under the name is refused."""
    home, _ = made
    _, adapters = given
    file = adapters[0] / "adapter_model.safetensors"
    before = file.read_bytes()
    try:
        save_file({n: t * 2 for n, t in load_file(file).items()}, file)
        bench = MergeContext(runs.state(home), Artifacts.of(home))
        bench.check_sources()
        del bench
        shutil.copytree(home.folder, tmp_path / "other")
        shutil.rmtree(tmp_path / "other" / "artifacts" / "models")
        other = Home(tmp_path / "other")
        store = other.open_store()
        with pytest.raises(SourceChangedError, match=r"added_adapter_model\.safetensors differ"):
            MergeContext(load(store, "r"), Artifacts.of(other)).check_sources()
        store.close()
    finally:
        file.write_bytes(before)


def test_what_does_not_fit_is_refused_before_any_work(given, tmp_path: Path) -> None:
    base, adapters = given
    sources = named(base, adapters)
    other, _ = toy_models.family(tmp_path, 0)
    with pytest.raises(ConfigError, match=r"source base\+c is an adapter of .* not that of the base"):
        planned(sources, [str(other)])
    with pytest.raises(ConfigError, match=r"adapters of its base"):
        planned([*sources, f"{other}+{adapters[0]}"], [])
    with pytest.raises(SourceError, match=r"adapter .*none does not exist"):
        planned([*sources, f"{base}+{tmp_path / 'none'}"], [])
    head = toy_adapters.write(base, tmp_path / "head", 4, modules=("embed_tokens",))
    file = head / "adapter_model.safetensors"
    parts = {
        n.replace("A.weight", "embedding_A").replace("B.weight", "embedding_B"): t
        for n, t in load_file(file).items()
    }
    save_file(parts, file)
    with pytest.raises(SourceError, match="Merge it first, by a config"):
        submission.check(planned([*sources, f"{base}+{head}"], []))
    wrong = toy_adapters.write(base, tmp_path / "wrong", 5)
    parts = {
        n: t[:, :-1].contiguous() if "lora_A" in n else t
        for n, t in load_file(wrong / "adapter_model.safetensors").items()
    }
    save_file(parts, wrong / "adapter_model.safetensors")
    with pytest.raises(SourceError, match="it belongs to another model"):
        submission.check(planned([*sources, f"{base}+{wrong}"], []))
