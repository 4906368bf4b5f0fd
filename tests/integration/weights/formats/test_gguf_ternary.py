"""GGUF files of ternary models: what they hold, which sizes they take, and what llama.cpp computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.formats import gguf_file
from testing.models import ternary
from testing.models.toys import Toys
from testing.services.llama_cpp import LlamaCpp

IDS = list(range(1, 41))
WIDE: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "initializer_range": 0.05}


def written(folder: Path, file: Path, type_: str, fallback: bool = False) -> gguf_file.Written:
    checkpoint = open_checkpoint(folder)
    tokens = gguf_file.tokens_of(load_tokenizer(str(folder)), checkpoint.config["vocab_size"])
    return gguf_file.write(checkpoint, tokens, file, type_, "toy", fallback)


@pytest.fixture(scope="module")
def wide(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ternary.write(toys.base, tmp_path_factory.mktemp("wide"), **WIDE)


@pytest.mark.parametrize("type_", ["TQ1_0", "TQ2_0"])
def test_a_file_holds_the_ternary_weights_with_their_scale_in_float16(
    wide: Path, tmp_path: Path, type_: str
) -> None:
    """Read back by the package: the same trits, and s as the nearest float16."""
    assert written(wide, tmp_path / "m.gguf", type_).other == {}
    tensors = {t.name: t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    ours = open_checkpoint(wide).tensors()["model.layers.1.mlp.down_proj.weight"].numpy()
    found = tensors["blk.1.ffn_down.weight"]
    assert found.tensor_type.name == type_
    read = gguf.quants.dequantize(found.data, found.tensor_type)
    scale = np.float32(np.float16(np.abs(ours).max()))
    np.testing.assert_array_equal(read, np.sign(ours) * scale)
    assert tensors["token_embd.weight"].tensor_type.name == "F16"
    kinds = {t.tensor_type.name for name, t in tensors.items() if "norm" not in name}
    assert kinds == {type_, "F16", "F32"}, "linear layers; embedding and head; biases"


def test_llama_cpp_computes_with_what_the_file_holds(wide: Path, tmp_path: Path) -> None:
    """Beside an F32 file of the same weights; it rounds activations to 8 bits in both worlds."""
    pytest.importorskip("xllamacpp")
    file, whole = tmp_path / "m.gguf", tmp_path / "whole.gguf"
    small, large = written(wide, file, "TQ2_0"), written(wide, whole, "F32")
    assert small.bytes < large.bytes / 4
    head = open_checkpoint(wide).tensors()["lm_head.weight"].float().numpy()
    ours, theirs = (
        torch.tensor(LlamaCpp(f, hidden=True).states(IDS) @ head.T).double().log_softmax(-1)
        for f in (whole, file)
    )
    assert (ours.exp() * (ours - theirs)).sum(-1).mean() < 5e-3
    model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype=torch.float32)
    with torch.no_grad():
        read = model.eval()(torch.tensor([IDS])).logits[0].double().log_softmax(-1)
    assert (read.exp() * (read - theirs)).sum(-1).mean() < 5e-3


def test_widths_that_blocks_do_not_divide_are_refused_with_those_that_fit(
    toys: Toys, tmp_path: Path
) -> None:
    """Unless the user asks for F16; then they are named."""
    folder = ternary.write(toys.base, tmp_path / "model", hidden_size=64, intermediate_size=256)
    file = tmp_path / "m.gguf"
    with pytest.raises(ConfigError, match=r"it is 64 \(model\.layers.*; 256 would fit\)\. Add --fall"):
        written(folder, file, "TQ2_0")
    assert not file.exists()
    other = written(folder, file, "TQ2_0", fallback=True).other
    assert len(other) == 12, "all but down_proj"
    assert "model.layers.0.mlp.down_proj.weight" not in other
    read = {t.name: t.tensor_type.name for t in gguf.GGUFReader(file).tensors}
    assert read["blk.0.ffn_down.weight"] == "TQ2_0"
    assert read["blk.0.attn_q.weight"] == "F16"


def test_weights_that_are_not_ternary_are_refused(toys: Toys, tmp_path: Path, wide: Path) -> None:
    """The type would keep −d, 0 and d of each block: garbage that looks like a file."""
    from agent_forge.weights.folders.checkpoint import SHARD_BYTES, write_weights

    folder = ternary.write(toys.base, tmp_path / "model", **WIDE)
    tensors = dict(open_checkpoint(folder).tensors())
    name = "model.layers.1.self_attn.o_proj.weight"
    tensors[name] = tensors[name] * torch.linspace(1, 2, 256)
    write_weights(folder, tensors, SHARD_BYTES)
    with pytest.raises(SourceError, match=f"{name} is not ternary"):
        written(folder, tmp_path / "m.gguf", "TQ1_0")
