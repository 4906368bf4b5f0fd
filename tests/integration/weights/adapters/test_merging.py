"""Adapters merged into an adapter: as peft's `add_weighted_adapter`, and what is refused."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from agent_forge.runs.errors import ConfigError, ConflictError, ForgeError, SourceError
from agent_forge.weights import randomness
from agent_forge.weights.adapters import merging
from agent_forge.weights.adapters.choices import COMBINATIONS, PLAIN, Combination
from agent_forge.weights.adapters.pairs import PREFIX, PairFolder
from testing.models import toy_adapters, toy_models
from tests.integration.cli.test_forge import call, fails, succeeds

WEIGHTS = [0.7, -0.4, 1.3]
DENSE = ("svd", "cat", "linear")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base of float32."""
    return toy_models.family(tmp_path_factory.mktemp("base"), 0)[0]


@pytest.fixture(scope="module")
def alike(base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three adapters of one rank, of layers that overlap in part, with other scales."""
    folder = tmp_path_factory.mktemp("alike")
    return [
        toy_adapters.write(base, folder / "a", 1),
        toy_adapters.write(base, folder / "b", 2, alpha=2, modules=("q_proj", "up_proj")),
        toy_adapters.write(base, folder / "c", 3, alpha=4, modules=("q_proj", "down_proj")),
    ]


@pytest.fixture(scope="module")
def unlike(base: Path, alike: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The first of them, and two of other ranks."""
    folder = tmp_path_factory.mktemp("unlike")
    b = toy_adapters.write(base, folder / "b", 2, rank=2, modules=("q_proj", "up_proj"))
    return [alike[0], b, toy_adapters.write(base, folder / "c", 3, rank=6)]


def deltas(folder: Path) -> dict[str, torch.Tensor]:
    """Return scale · B A of each module, by the files."""
    opened = PairFolder(folder)
    return {module: opened.pair(module).delta() for module in opened.modules}


def by_peft(base: Path, adapters: list[Path], **how: Any) -> dict[str, torch.Tensor]:
    """Return the changes of the adapter that peft makes, by module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [f"n{i}" for i in range(len(adapters))]
        plain = AutoModelForCausalLM.from_pretrained(base)
        model = PeftModel.from_pretrained(plain, adapters[0], adapter_name=names[0])
        for name, adapter in zip(names[1:], adapters[1:], strict=True):
            model.load_adapter(str(adapter), adapter_name=name)
        model.base_model.add_weighted_adapter(names, WEIGHTS, "merged", **how)
    return {
        name.removeprefix(PREFIX): layer.get_delta_weight("merged").detach()
        for name, layer in model.named_modules()
        if hasattr(layer, "lora_A") and "merged" in layer.lora_A
    }


def same_masks(monkeypatch: pytest.MonkeyPatch, how: Combination, adapters: list[Path]) -> None:
    """Let peft's pruning take the masks of this program, in the order in which it asks for them."""
    opened = [PairFolder(adapter) for adapter in adapters]
    parts = ("delta",) if how.name.endswith("_svd") else ("A", "B")

    def keys() -> Iterator[tuple[int, str, str]]:
        for module in order:
            count = sum(module in one.modules for one in opened)
            yield from ((i, part, module) for part in parts for i in range(count))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = [name for name, _ in AutoModelForCausalLM.from_pretrained(BASE[0]).named_modules()]
    order = [name for name in names if any(name in one.modules for one in opened)]
    asked = keys()

    def bernoulli(given: torch.Tensor) -> torch.Tensor:
        adapter, part, module = next(asked)
        drawn = randomness.uniform(given.numel(), how.seed, "adapter-mask", adapter, part, module)
        return (torch.from_numpy(drawn).reshape(given.shape) < given).float()

    monkeypatch.setattr(torch, "bernoulli", bernoulli)


BASE: list[Path] = []


@pytest.mark.parametrize("sign", ["total", "frequency"])
@pytest.mark.parametrize("name", COMBINATIONS)
def test_each_combination_is_peft_s(
    base: Path,
    alike: list[Path],
    unlike: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    sign: str,
) -> None:
    """With a negative weight, other scales and layers; those that can also with other ranks."""
    if sign == "frequency" and "ties" not in name:
        return
    BASE[:] = [base]
    adapters = alike if name in PLAIN else unlike
    density = None if name in DENSE else 0.6
    how = Combination(name, density, 3 if name.endswith("svd") else None, sign, seed=5)
    merging.merge(adapters, WEIGHTS, how, tmp_path / "merged")
    if "dare" in name:
        same_masks(monkeypatch, how, adapters)
    expected = by_peft(
        base,
        adapters,
        combination_type=name,
        density=density,
        svd_rank=how.rank,
        majority_sign_method=sign,
    )
    ours = deltas(tmp_path / "merged")
    assert set(ours) == set(expected)
    for module, tensor in expected.items():
        torch.testing.assert_close(ours[module], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["ties", "cat", "svd"])
def test_peft_loads_the_result(base: Path, alike: list[Path], tmp_path: Path, name: str) -> None:
    """Without a word: every key has its place, and the change is the files'."""
    how = Combination(name, 0.5 if name == "ties" else None)
    merging.merge(alike, WEIGHTS, how, tmp_path / "merged")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        plain = AutoModelForCausalLM.from_pretrained(base)
        model: Any = PeftModel.from_pretrained(plain, tmp_path / "merged")
    assert not [str(one.message) for one in told if "adapter" in str(one.message)]
    merged = dict(model.merge_and_unload().state_dict())
    before = dict(AutoModelForCausalLM.from_pretrained(base).state_dict())
    for module, delta in deltas(tmp_path / "merged").items():
        moved = merged[f"{module}.weight"] - before[f"{module}.weight"]
        torch.testing.assert_close(moved, delta, rtol=1e-4, atol=1e-6)


def test_cat_and_svd_of_all_ranks_are_the_weighted_sum(unlike: list[Path], tmp_path: Path) -> None:
    """By hand: the sum of w · scale · B A; rank-stabilised scales as they are."""
    adapters = [*unlike[:2]]
    rslora = json.loads((unlike[2] / "adapter_config.json").read_text())
    stable = tmp_path / "stable"
    stable.mkdir()
    (stable / "adapter_config.json").write_text(json.dumps({**rslora, "use_rslora": True}))
    (stable / "adapter_model.safetensors").symlink_to(unlike[2] / "adapter_model.safetensors")
    adapters.append(stable)
    parts = [deltas(adapter) for adapter in adapters]
    for name, rank in (("cat", None), ("svd", 12)):
        merging.merge(adapters, WEIGHTS, Combination(name, rank=rank), tmp_path / name)
        for module, delta in deltas(tmp_path / name).items():
            total = sum(w * p[module] for w, p in zip(WEIGHTS, parts, strict=True) if module in p)
            torch.testing.assert_close(delta, total, rtol=1e-4, atol=1e-5)


def test_dare_keeps_the_expected_share_and_depends_on_the_seed_alone(
    alike: list[Path], tmp_path: Path
) -> None:
    def made(seed: int) -> dict[str, torch.Tensor]:
        how = Combination("dare_linear", 0.3, seed=seed)
        merging.merge(alike[:2], [1.0, 1.0], how, tmp_path / "out")
        return load_file(tmp_path / "out" / "adapter_model.safetensors")

    first, again, other = made(1), made(1), made(2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    alone = [tensor for name, tensor in first.items() if "down_proj" in name or "up_proj" in name]
    kept = sum(int((tensor != 0).sum()) for tensor in alone)
    count = sum(tensor.numel() for tensor in alone)
    assert abs(kept / count - 0.3) < 4 * (0.3 * 0.7 / count) ** 0.5


def test_what_does_not_fit_is_refused(
    base: Path, alike: list[Path], unlike: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def refused(error: type[ForgeError], match: str, adapters: list[Path], **how: Any) -> None:
        with pytest.raises(error, match=match):
            merging.merge(adapters, WEIGHTS[: len(adapters)], Combination(**how), out)
        assert not out.exists()

    refused(ConfigError, "has the ranks 4, 6", unlike, name="linear")
    with pytest.raises(ConfigError, match="no finite number"):
        merging.merge(alike[:2], [float("nan"), 1.0], Combination("cat"), out)
    refused(ConfigError, "ties needs a density", alike, name="ties")
    refused(ConfigError, "drops nothing", alike, name="cat", density=0.5)
    refused(ConfigError, "not above 0", alike, name="ties", density=0.0)
    refused(ConfigError, "leave out --rank", alike, name="cat", rank=3)
    refused(ConfigError, "two or more, each given once", [alike[0], alike[0]], name="svd")
    wide = toy_models.family(tmp_path / "wide", 0, hidden_size=48, intermediate_size=48)[0]
    other = toy_adapters.write(wide, tmp_path / "other", 1)
    refused(SourceError, "of different bases", [alike[0], other], name="svd")
    odd = toy_adapters.write(base, tmp_path / "odd", 1)
    file = odd / "adapter_model.safetensors"
    save_file({**load_file(file), f"{PREFIX}model.norm.weight": torch.ones(32)}, file)
    refused(SourceError, r"model\.norm\.weight, which is no low-rank", [alike[0], odd], name="svd")
    dora = toy_adapters.write(base, tmp_path / "dora", 1, use_dora=True)
    refused(SourceError, "use_dora is not supported", [alike[0], dora], name="svd")
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(ConflictError):
        merging.merge(alike, WEIGHTS, Combination("svd"), out)


def test_the_command_writes_an_adapter_with_its_origin(alike: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "both"
    args = ["merge", "--adapters", f"{alike[0]},{alike[1]}", "--weights", "0.7,0.3"]
    told = succeeds(tmp_path, *args, "--method", "ties", "--density", "0.5", str(out))
    assert "(rank 4, " in told.stdout
    record = json.loads((out / "adapter_merge.json").read_text())
    assert [one["weight"] for one in record["adapters"]] == [0.7, 0.3]
    assert record["adapters"][0]["files"] == PairFolder(alike[0]).digests
    assert "# A merge of 2 adapters by ties, density 0.5" in (out / "README.md").read_text()
    config = json.loads((out / "adapter_config.json").read_text())
    assert config["target_modules"] == ["down_proj", "q_proj", "up_proj"]
    assert "give numbers" in fails(tmp_path, 2, *args[:3], "--weights", "a,b", str(out))
    assert "is an option of --adapters" in fails(
        tmp_path, 2, "merge", "x.yml", str(out), "--density", "0.5"
    )
    assert "Missing argument 'OUT'" in call(tmp_path, "merge", "x.yml").output
