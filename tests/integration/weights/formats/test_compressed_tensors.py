"""Folders of the format compressed-tensors, read by that package and by transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from agent_forge.runs.errors import ConfigError, ConflictError, NotFiniteError, SourceError
from agent_forge.runs.home import Home
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.formats import compressed_tensors_folder as format_
from agent_forge.worker.exports import folder_exports
from testing.models import families
from testing.models.toys import Toys
from tests.integration.cli.test_forge import fails, succeeds

IDS = torch.tensor([list(range(1, 41))])


def made(toys: Toys, folder: Path, kind: str, dtype: torch.dtype, **more: Any) -> Path:
    """A random model with the toys' tokenizer."""
    shutil.copytree(toys.base, folder)
    told = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "initializer_range": 0.1,
        "max_position_embeddings": 256,
    }
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **told | more))
    model.to(dtype).save_pretrained(folder)
    return folder


def exported(source: Path, out: Path, type_: str, home: Path) -> dict[str, Any]:
    return folder_exports.compressed_tensors(Home(home), str(source), out, type_, lambda text: None)


def dequantised(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the weights that readers compute with: [rows, columns] of the scales' dtype."""
    group = values.shape[1] // scale.shape[1]
    return values.to(scale.dtype) * scale.repeat_interleave(group, 1)


def expected(source: Path, type_: str) -> dict[str, torch.Tensor]:
    """The weights with each matrix rounded, by our own definition."""
    checkpoint = open_checkpoint(source)
    names, group = format_.check(checkpoint, type_)
    return {
        name: dequantised(*format_.quantised(tensor, format_.TYPES[type_], group))
        if name in names
        else tensor
        for name, tensor in checkpoint.tensors().items()
    }


CASES = [
    ("qwen2", torch.float32, "int4"),
    ("qwen2", torch.bfloat16, "int8"),
    ("llama", torch.float16, "int4"),
    ("mistral", torch.float32, "int8"),
    ("gemma2", torch.bfloat16, "int4"),
]


@pytest.mark.filterwarnings("ignore:You passed `quantization_config`:UserWarning")
@pytest.mark.parametrize(("kind", "dtype", "type_"), CASES)
def test_transformers_loads_exactly_the_rounded_weights(
    toys: Toys, tmp_path: Path, kind: str, dtype: torch.dtype, type_: str
) -> None:
    pytest.importorskip("compressed_tensors")
    from transformers import CompressedTensorsConfig

    source = made(toys, tmp_path / "source", kind, dtype)
    told = exported(source, tmp_path / "out", type_, tmp_path / "home")
    assert told["group"] == 32, "96 is no multiple of 64"
    dense: Any = AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", quantization_config=CompressedTensorsConfig(dequantize=True), dtype=dtype
    )
    found, wanted = dense.state_dict(), expected(source, type_)
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize(("kind", "dtype", "type_"), CASES)
def test_transformers_computes_with_the_folder_as_it_is(
    toys: Toys, tmp_path: Path, kind: str, dtype: torch.dtype, type_: str
) -> None:
    """Two lines of Python, and the logits of a plain model with the rounded weights, bit for bit."""
    pytest.importorskip("compressed_tensors")
    source = made(toys, tmp_path / "source", kind, dtype)
    exported(source, tmp_path / "out", type_, tmp_path / "home")
    loaded: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    plain: Any = AutoModelForCausalLM.from_pretrained(source).eval()
    with torch.no_grad():
        found, exact = loaded(IDS).logits, plain(IDS).logits
        plain.load_state_dict(expected(source, type_), strict=False)
        wanted = plain(IDS).logits
    assert found.dtype == dtype
    assert torch.equal(found, wanted)
    assert not torch.equal(found, exact), "weights are rounded"


@pytest.mark.parametrize("bits", [4, 8])
def test_the_package_unpacks_what_we_pack(bits: int) -> None:
    """Every value at every place of a word."""
    pytest.importorskip("compressed_tensors")
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32

    most = 2 ** (bits - 1)
    values = torch.arange(-most, most, dtype=torch.int8)
    values = torch.stack([values.roll(by) for by in range(32 // bits)])
    packed = format_.packed(values, bits)
    assert torch.equal(packed, pack_to_int32(values, bits))
    assert torch.equal(unpack_from_int32(packed, bits, values.shape), values)


@given(st.integers(0, 2**32 - 1), st.sampled_from([4, 8]), st.sampled_from(["f32", "f16", "bf16"]))
def test_rounding_is_to_the_nearest(seed: int, bits: int, name: str) -> None:
    """Within half a step; the largest value of a group is cut, by a step that the dtype has rounded."""
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name]
    random = torch.Generator().manual_seed(seed)
    weights = (torch.randn(3, 64, generator=random) / 10.0 ** (seed % 2)).to(dtype)
    weights[0, :32] = 0
    values, scale = format_.quantised(weights, bits, 32)
    assert torch.equal(dequantised(values, scale)[0, :32], torch.zeros(32, dtype=dtype))
    assert -(2 ** (bits - 1)) <= int(values.min())
    steps = scale.double().repeat_interleave(32, 1)
    away = (values.double() * steps - weights.double()).abs() / steps
    assert float(away.max()) <= 0.5 + 2 ** (bits - 1) * torch.finfo(dtype).eps / 2 + 1e-4


def test_a_hand_made_group() -> None:
    """Scale 15 / 7.5 = 2: -15 → -7.5 → -8 (to even), 15 → 7.5 → 8, cut to 7; 2.9 → 1.45 → 1."""
    weights = torch.zeros(1, 32)
    weights[0, :4] = torch.tensor([-15.0, 15.0, 2.9, -3.1])
    values, scale = format_.quantised(weights, 4, 32)
    assert scale.tolist() == [[2.0]]
    assert values[0, :4].tolist() == [-8, 7, 1, -2]
    # 8 - 8 = 0, 8 + 7 = 15, 9, 6, and 8 for each 0, the first value in the lowest four bits.
    assert format_.packed(values, 4)[0, 0].item() == 0x888869F0 - 2**32


def test_what_cannot_be_written_is_refused(toys: Toys, tmp_path: Path) -> None:
    out, home = tmp_path / "out", tmp_path / "home"
    with pytest.raises(ConfigError, match=r"cut into groups of 128, 64, 32, and .* rows of 16"):
        exported(toys.base, out, "int4", home)
    source = made(toys, tmp_path / "source", "qwen2", torch.float32)
    with pytest.raises(ConfigError, match="'Q4_0' is not of compressed-tensors: use int8 or int4"):
        exported(source, out, "Q4_0", home)
    config = json.loads((source / "config.json").read_text())

    def changed(more: dict[str, Any]) -> None:
        (source / "config.json").write_text(json.dumps(config | more))

    other = families.save(tmp_path / "gpt2", "gpt2")
    with pytest.raises(SourceError, match="'gpt2' cannot be written as compressed-tensors"):
        exported(other, out, "int4", home)
    changed({"quantization_config": {"quant_method": "bitnet"}})
    with pytest.raises(SourceError, match=r"is quantised \(bitnet\)"):
        exported(source, out, "int4", home)
    changed({})
    weights = load_file(source / "model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, source / "model.safetensors", {"format": "pt"})
    with pytest.raises(NotFiniteError, match=r"model\.norm\.weight holds NaN or Inf"):
        exported(source, out, "int4", home)
    assert not out.exists()


def test_only_an_earlier_folder_of_this_format_is_replaced(toys: Toys, tmp_path: Path) -> None:
    source, out = made(toys, tmp_path / "source", "qwen2", torch.float32), tmp_path / "out"
    first = exported(source, out, "int4", tmp_path / "home")
    sums = {file.name: file.read_bytes() for file in out.iterdir()}
    assert exported(source, out, "int4", tmp_path / "home") == first
    assert {file.name: file.read_bytes() for file in out.iterdir()} == sums
    with pytest.raises(ConflictError, match="holds other things"):
        exported(source, source, "int4", tmp_path / "home")


def test_the_command_writes_a_folder(toys: Toys, tmp_path: Path) -> None:
    source, home = made(toys, tmp_path / "source", "qwen2", torch.float32), tmp_path / "home"
    words = ("export", str(source), "--format", "compressed-tensors", "--out", str(tmp_path / "out"))
    assert "needs --type int8 or --type int4" in fails(home, 2, *words)
    done = succeeds(home, *words, "--type", "int4")
    assert "14 matrices int4 in groups of 32" in done.output
    assert (tmp_path / "out" / "tokenizer.json").is_file()
    assert "add --format gguf" in fails(home, 2, *words, "--type", "int4", "--ollama")
