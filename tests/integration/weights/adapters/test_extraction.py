"""Extraction of adapters: exact where the difference has the rank, and the nearest elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.adapters import extraction
from agent_forge.weights.adapters.extraction import Choice, FullModel
from agent_forge.weights.adapters.pairs import PairFolder, truncated
from agent_forge.weights.folders.checkpoint import open_checkpoint, write_weights
from testing.models import toy_adapters, toy_models
from tests.integration.cli.test_forge import fails, succeeds


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base of float32 with a tied head."""
    return toy_models.family(tmp_path_factory.mktemp("base"), 0)[0]


def tuned(base: Path, folder: Path, changes: dict[str, torch.Tensor]) -> Path:
    """Write a copy of a base with some of its tensors moved."""
    shutil.copytree(base, folder)
    tensors = dict(open_checkpoint(base).tensors())
    moved = {n: tensors[n] + change for n, change in changes.items()}
    write_weights(folder, {n: t.clone() for n, t in {**tensors, **moved}.items()}, 1 << 40)
    return folder


def source(folder: Path) -> FullModel:
    """Return an opened model as extraction takes it."""
    return FullModel(folder.name, str(folder), "0" * 64, open_checkpoint(folder))


def by_peft(base: Path, adapter: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of the base with the adapter merged by peft."""
    model: Any = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter)
    return dict(model.merge_and_unload().state_dict())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stable", [False, True])
def test_a_model_that_is_base_and_adapter_comes_out_again(
    base: Path, tmp_path: Path, stable: bool
) -> None:
    """By its rank: to rounding, with all of the energy, through peft."""
    adapter = toy_adapters.write(base, tmp_path / "a", 1, rank=3, use_rslora=stable)
    opened = PairFolder(adapter)
    changes = {f"{module}.weight": opened.pair(module).delta() for module in opened.modules}
    model = tuned(base, tmp_path / "model", changes)
    told = extraction.extract(source(base), source(model), tmp_path / "out", Choice(3))
    assert told["energy"] == pytest.approx(1, abs=1e-9)
    assert (told["lost"], told["saved"]) == ([], [])
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert config["target_modules"] == ["down_proj", "q_proj"]
    assert (config["r"], config["base_model_name_or_path"]) == (3, str(base))
    merged = by_peft(base, tmp_path / "out")
    for name, tensor in open_checkpoint(model).tensors().items():
        torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-6)


def test_the_energy_is_that_of_the_largest_singular_values(base: Path, tmp_path: Path) -> None:
    """By torch's own decomposition; the worst layers are told first."""
    names = [n for n in open_checkpoint(base).shapes if n.endswith(("q_proj.weight", "up_proj.weight"))]
    generator = torch.Generator().manual_seed(3)
    shapes = open_checkpoint(base).shapes
    changes = {name: 0.1 * torch.randn(shapes[name][1], generator=generator) for name in names}
    model = tuned(base, tmp_path / "model", changes)
    told = extraction.extract(source(base), source(model), tmp_path / "out", Choice(2))
    before, after = (open_checkpoint(folder).tensors() for folder in (base, model))
    first, kept, total = 0.0, 0.0, 0.0
    for name in names:
        moved = (after[name] - before[name]).double()
        values = torch.linalg.svdvals(moved).square()
        kept, total = kept + float(values[:2].sum()), total + float(values.sum())
        first += float(values[0])
        share = float(values[:2].sum() / values.sum())
        assert told["energy_by_layer"][name.removesuffix(".weight")] == pytest.approx(share, abs=1e-6)
        pair = PairFolder(tmp_path / "out").pair(name.removesuffix(".weight"))
        u, s, vh = torch.linalg.svd(moved)
        nearest = (u[:, :2] * s[:2]) @ vh[:2]
        torch.testing.assert_close(pair.delta().double(), nearest, rtol=1e-4, atol=1e-5)
    assert told["energy"] == pytest.approx(kept / total, abs=1e-6)
    assert told["kept_by_rank"] == pytest.approx({"1": first / total, "2": kept / total}, abs=1e-6)
    worst = list(told["worst"].values())
    assert worst == sorted(told["energy_by_layer"].values())[: len(worst)]


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (6, 6)])
def test_a_matrix_of_less_rank_is_met_and_the_rest_is_zero(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    left = torch.randn(shape[0], 2, generator=generator, dtype=torch.float64)
    right = torch.randn(2, shape[1], generator=generator, dtype=torch.float64)
    pair, kept, total = truncated(left @ right, 4)
    assert kept == pytest.approx(total)
    torch.testing.assert_close(pair.delta(), (left @ right).float(), rtol=1e-4, atol=1e-5)
    none, kept, total = truncated(torch.zeros(shape, dtype=torch.float64), 2)
    assert (kept, total) == (0, 0)
    assert not none.delta().any()


@pytest.mark.filterwarnings("ignore")
def test_what_is_no_matrix_of_a_block_is_lost_by_name_or_saved_whole(
    base: Path, tmp_path: Path
) -> None:
    """Embedding and norms; the tied head stays tied. A bias cannot be saved beside a pair."""
    shapes = {name: shape for name, (_, shape) in open_checkpoint(base).shapes.items()}
    names = ["model.embed_tokens.weight", "model.norm.weight", "model.layers.0.self_attn.q_proj.bias"]
    changes = {name: torch.full(shapes[name], 0.25) for name in names}
    changes["model.layers.0.self_attn.q_proj.weight"] = torch.ones(
        shapes["model.layers.0.self_attn.q_proj.weight"]
    )
    model = tuned(base, tmp_path / "model", changes)
    told = extraction.extract(source(base), source(model), tmp_path / "lost", Choice(1))
    assert sorted(told["lost"]) == sorted(names)
    squares = {name: float(change.square().sum()) for name, change in changes.items()}
    lost = sum(squares[name] for name in names) / sum(squares.values())
    assert told["lost_share"] == pytest.approx(lost, rel=1e-4)
    told = extraction.extract(source(base), source(model), tmp_path / "out", Choice(1, whole=True))
    assert told["saved"] == ["model.embed_tokens", "model.norm"]
    assert told["lost"] == ["model.layers.0.self_attn.q_proj.bias"]
    merged = by_peft(base, tmp_path / "out")
    for name, tensor in open_checkpoint(model).tensors().items():
        if not name.endswith("bias"):
            torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-5)
    assert torch.equal(merged["lm_head.weight"], merged["model.embed_tokens.weight"])


@pytest.mark.filterwarnings("ignore")
def test_transposed_matrices_come_out_again(tmp_path: Path) -> None:
    """Those of GPT-2."""
    base = toy_models.family(tmp_path, 0, of=toy_models.gpt2)[0]
    name = "transformer.h.1.mlp.c_fc.weight"
    shape = open_checkpoint(base).shapes[name][1]
    change = 0.1 * torch.outer(torch.arange(shape[0]).float(), torch.ones(shape[1]))
    model = tuned(base, tmp_path / "model", {name: change})
    told = extraction.extract(source(base), source(model), tmp_path / "out", Choice(1))
    assert told["energy"] == pytest.approx(1, abs=1e-9)
    merged = by_peft(base, tmp_path / "out")
    torch.testing.assert_close(merged[name], open_checkpoint(model).tensors()[name], rtol=0, atol=1e-6)


def test_what_does_not_fit_is_refused(base: Path, tmp_path: Path) -> None:
    same, wide = tuned(base, tmp_path / "same", {}), tmp_path / "wide"
    wide = toy_models.family(wide, 0, intermediate_size=48)[0]
    with pytest.raises(SourceError, match="nothing to extract"):
        extraction.extract(source(base), source(same), tmp_path / "out", Choice(2))
    with pytest.raises(SourceError, match=r"is no fine-tune of that base"):
        extraction.extract(source(base), source(wide), tmp_path / "out", Choice(2))
    with pytest.raises(ConfigError, match="a rank of 400 is more than the layer"):
        extraction.extract(source(base), source(same), tmp_path / "out", Choice(400))
    with pytest.raises(ConfigError, match="the name 'lm_head'"):
        extraction.extract(source(base), source(same), tmp_path / "out", Choice(2, ("lm_head",)))
    assert not (tmp_path / "out").exists()


def test_the_command_tells_the_energy(base: Path, tmp_path: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    shape = open_checkpoint(base).shapes[name][1]
    changes = {name: torch.eye(*shape), "model.norm.weight": torch.ones(shape[1])}
    model = tuned(base, tmp_path / "model", changes)
    out = str(tmp_path / "out")
    told = succeeds(tmp_path, "extract", str(base), str(model), out, "--rank", "4")
    share = 4 / min(shape)
    assert f"energy:   {share / 2:.6f} of the squared difference is kept" in told.stdout
    assert " by rank 1, " in told.stdout
    assert "lost:     0.500000 is in tensors without an adapter: model.norm.weight" in told.stdout
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Not in the adapter: model.norm.weight." in card
    record = json.loads((tmp_path / "out" / "adapter_extraction.json").read_text())
    assert len(record["base"]["digest"]) == 64
    assert "does not exist" in fails(tmp_path, 2, "extract", "./none", str(model), out)
