"""Bitnet folders, read by plain transformers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_forge.runs.errors import ConfigError, ConflictError, SourceError
from agent_forge.runs.home import Home
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, open_checkpoint, write_weights
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.ternary import linears
from agent_forge.weights.training.models import modules
from agent_forge.worker.exports import folder_exports
from testing.models import ternary
from testing.models.toys import Toys

IDS = torch.tensor([list(range(1, 41))])


@pytest.fixture(scope="module", autouse=True)
def _plain() -> Iterator[None]:
    """BitLinear unpacks in functions that torch would compile by a C++ compiler: not here."""
    from torch import _dynamo

    settings: Any = _dynamo.config
    before, settings.disable = settings.disable, True
    yield
    settings.disable = before


@pytest.fixture(scope="module")
def folders(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("ternary")
    return {
        "qwen2": ternary.write(toys.base, place / "qwen2"),
        "llama": ternary.write(toys.base, place / "llama", "llama", tie_word_embeddings=True),
    }


def exported(model: Path, out: Path) -> dict:
    return folder_exports.bitnet(Home(out.parent / "home"), str(model), out, lambda text: None)


def ours(folder: Path) -> torch.Tensor:
    """Logits of the ternary forward, as the training's at λ = 1."""
    checkpoint = open_checkpoint(folder)
    config = {n: v for n, v in checkpoint.config.items() if n != "quantization_config"}
    module = modules.build(Tensors(config, checkpoint.tensors())).eval()
    linears.compute_packed(module, 0, int8=True)
    with torch.no_grad():
        return module(IDS).logits


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_transformers_computes_what_was_trained(folders, tmp_path: Path, kind: str) -> None:
    """With biases (Qwen2), and without and with the embedding as head: logits to 1e-4.

    And the greedy continuation; saving the loaded model again gives the same tensors.
    """
    told = exported(folders[kind], tmp_path / "out")
    assert told["ternary"] == 14
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        theirs = model(IDS).logits
    wanted = ours(folders[kind])
    assert wanted.std() > 0.5, "the logits say something"
    torch.testing.assert_close(theirs, wanted, atol=1e-4, rtol=0)
    said = model.generate(IDS, max_new_tokens=8, min_new_tokens=8, do_sample=False, pad_token_id=0)
    for at in range(IDS.shape[1], said.shape[1]):
        with torch.no_grad():
            assert model(said[:, :at]).logits[0, -1].argmax() == said[0, at]
    model.save_pretrained(tmp_path / "again")
    first, second = (load_file(tmp_path / n / "model.safetensors") for n in ("out", "again"))
    assert set(first) == set(second)
    assert all(torch.equal(first[name], second[name]) for name in first)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.decode(tokenizer.encode("x = 1\n")) == "x = 1\n"


def test_a_matrix_takes_two_bits_a_weight_and_one_scale(folders, tmp_path: Path) -> None:
    """The weights come back to the last bit but for the scale, which is stored as 1 / s."""
    from transformers.integrations.bitnet import unpack_weights  # imports torch's compiler: seconds

    told = exported(folders["qwen2"], tmp_path / "out")
    packed = load_file(tmp_path / "out" / "model.safetensors")
    whole = open_checkpoint(folders["qwen2"]).tensors()
    name = "model.layers.1.mlp.down_proj.weight"
    assert packed[name].shape == (16, 96)
    assert packed[name].dtype == torch.uint8
    assert torch.equal(unpack_weights(packed[name], dtype=torch.float32), whole[name].sign())
    scale = packed[f"{name}_scale"]
    assert scale.shape == (1,)
    assert 1 / scale.item() == pytest.approx(whole[name].max().item(), rel=1e-6)
    matrices = sum(t.numel() for n, t in whole.items() if "_proj.weight" in n)
    others = sum(t.numel() for n, t in whole.items() if "_proj.weight" not in n)
    tensors = matrices // 4 + 4 * 14 + 4 * others
    assert tensors < told["bytes"] < tensors + 8000, "all but the header is counted"


def test_what_cannot_be_packed_is_refused_and_leaves_nothing(toys, folders, tmp_path) -> None:
    out = tmp_path / "out"
    with pytest.raises(SourceError, match="is not ternary"):
        exported(toys.base, out)
    odd = ternary.write(toys.base, tmp_path / "odd", intermediate_size=98)
    with pytest.raises(ConfigError, match="has 98 rows: the bitnet format packs four"):
        exported(odd, out)
    grouped = tmp_path / "grouped"
    shutil.copytree(folders["qwen2"], grouped)
    tensors = dict(open_checkpoint(grouped).tensors())
    name = "model.layers.0.self_attn.k_proj.weight"
    tensors[name] = torch.cat([tensors[name][:, :32], tensors[name][:, 32:] * 2], 1)
    write_weights(grouped, tensors, SHARD_BYTES)
    with pytest.raises(SourceError, match="one s for the tensor"):
        exported(grouped, out)
    assert not out.exists()


def test_an_earlier_folder_is_replaced_and_any_other_is_not(folders, tmp_path: Path) -> None:
    out = tmp_path / "out"
    exported(folders["qwen2"], out)
    exported(folders["llama"], out)
    assert json.loads((out / "config.json").read_text())["model_type"] == "llama"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(ConflictError, match="holds other things"):
        exported(folders["qwen2"], tmp_path / "mine")
