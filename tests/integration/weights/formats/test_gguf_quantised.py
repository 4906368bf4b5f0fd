"""Files that llama.cpp's own library quantises and measures, with an importance matrix of ours."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.loading import load_items, load_tokenizer
from agent_forge.evaluation.measures import perplexity
from agent_forge.runs.errors import ConfigError, DataError, SourceError, UnavailableError
from agent_forge.runs.home import Home
from agent_forge.weights.codecs.feedback import calibration
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.formats import gguf_file, gguf_quantised, libllama
from agent_forge.worker.exports import gguf_export
from testing.models.toys import Toys
from testing.services.llama_cpp import LlamaCpp
from testing.shares import one_quick


@pytest.fixture(scope="module")
def library() -> None:
    """Skip unless the package is installed and its library runs here."""
    pytest.importorskip(libllama.PACKAGE)
    try:
        with libllama.Library(1) as library:
            library.check()
    except UnavailableError as error:
        pytest.skip(str(error))


def folder_of(toys: Toys, place: Path, width: int) -> Path:
    """A Llama with the toys' tokenizer and rows of `width` and twice that."""
    shutil.copytree(toys.base, place, dirs_exist_ok=True)
    for file in place.glob("*.safetensors"):
        file.unlink()
    base = json.loads((toys.base / "config.json").read_text())
    torch.manual_seed(3)
    config = AutoConfig.for_model(
        "llama",
        vocab_size=base["vocab_size"],
        bos_token_id=base["bos_token_id"],
        eos_token_id=base["eos_token_id"],
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=False,
        max_position_embeddings=256,
        initializer_range=0.05,
    )
    AutoModelForCausalLM.from_config(config).float().save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def wide(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(toys, tmp_path_factory.mktemp("wide"), 256)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four texts for each slice that an export reads."""
    file = tmp_path_factory.mktemp("data") / "texts.jsonl"
    rows = [
        {"id": f"{slice_}{i}", "domain": f"d{i % 2}", "slice": slice_, "text": text * (i + 1)}
        for slice_, text in (("train", "one two three. "), ("test", "four, five and 6\n"))
        for i in range(4)
    ]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(file)


def exported(model: Path, out: Path, type_: str, **more: Any) -> dict[str, Any]:
    text = gguf_export.ExportText(**more)
    return gguf_export.export(Home(out.parent), str(model), out, type_, lambda words: None, text=text)


def types_of(file: Path) -> Counter[str]:
    return Counter(t.tensor_type.name for t in gguf.GGUFReader(file).tensors if t.shape.size > 1)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "type_", one_quick("Q4_K_M", *(sorted(set(gguf_quantised.QUANTISED) - {"Q4_K_M"})))
)
def test_llama_cpp_reads_every_type_that_it_quantises(
    wide: Path, data: str, tmp_path: Path, type_: str
) -> None:
    pytest.importorskip("xllamacpp")
    told = exported(wide, tmp_path / "m.gguf", type_, imatrix=(data,))
    assert told["bytes"] == (tmp_path / "m.gguf").stat().st_size
    assert told["other_types"] == {}
    assert told["imatrix_tokens"] > 0
    assert told["bits_per_byte"] > 0
    assert len(LlamaCpp(tmp_path / "m.gguf").greedy([1, 2, 3], 4)) == 4


@pytest.mark.usefixtures("library")
def test_rows_that_256_does_not_divide_get_the_types_of_llama_cpp(
    toys: Toys, data: str, tmp_path: Path
) -> None:
    """Q4_K falls back to Q5_0 and Q6_K to Q8_0 (llama.cpp, `tensor_type_fallback`)."""
    model = folder_of(toys, tmp_path / "narrow", 64)
    told = exported(model, tmp_path / "m.gguf", "Q4_K_M")
    assert set(told["other_types"].values()) == {"Q5_0", "Q8_0"}
    assert told["other_types"]["model.layers.0.self_attn.q_proj.weight"] == "Q5_0"
    assert len(told["other_types"]) == sum(types_of(tmp_path / "m.gguf").values()) == 16


@pytest.mark.usefixtures("library")
def test_the_matrix_changes_the_weights_and_several_types_share_it(
    wide: Path, data: str, tmp_path: Path
) -> None:
    plain = exported(wide, tmp_path / "plain.gguf", "Q4_0")
    told = exported(wide, tmp_path / "all", "F16,Q4_0,IQ2_XS", imatrix=(data,))
    files = {file["type"]: Path(file["file"]) for file in told["files"]}
    assert [file.name.rpartition("-")[2] for file in files.values()] == [
        "F16.gguf",
        "Q4_0.gguf",
        "IQ2_XS.gguf",
    ]
    assert types_of(files["Q4_0"])["Q6_K"] == 1, "llama.cpp gives the head more bits"
    assert files["Q4_0"].read_bytes() != Path(plain["file"]).read_bytes()
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == sorted(
        file.name for file in files.values()
    )


@pytest.mark.usefixtures("library")
def test_bits_per_byte_in_llama_cpp_are_ours(wide: Path, data: str, tmp_path: Path) -> None:
    """The file is F32; documents, windows and start token are the same."""
    told = exported(wide, tmp_path / "m.gguf", "F32", measure=(data,))
    checkpoint, tokenizer = open_checkpoint(wide), load_tokenizer(str(wide))
    split = gguf_export.split_of(checkpoint, tokenizer, load_items((data,), needed=("test",)), "test")
    model = ResidentModel(wide, "cpu", checkpoint.tied)
    model.load(dict(checkpoint.tensors()))
    rates = [
        sum(perplexity.score(model, queue)) / sum(d.bytes for d in queue) / math.log(2)
        for queue in split.values()
    ]
    assert len(rates) == 2
    assert told["bits_per_byte"] == pytest.approx(sum(rates) / 2, rel=1e-5)


def test_importance_is_the_mean_of_squares_of_each_input(wide: Path, data: str) -> None:
    """Two layers by hand: the embedding's norm before q, and silu(gate) · up before down."""
    checkpoint, tokenizer = open_checkpoint(wide), load_tokenizer(str(wide))
    items = load_items((data,), needed=("train",))
    split = gguf_export.split_of(checkpoint, tokenizer, items, "train")
    means, tokens = gguf_export.importance(checkpoint, split, lambda words: None)
    windows = [w for queue in split.values() for d in queue for w in d.windows]
    assert tokens == sum(map(len, windows))
    weights = checkpoint.tensors()
    first = "model.layers.0."
    ids = torch.from_numpy(np.concatenate(windows))
    rows = weights["model.embed_tokens.weight"][ids].double()
    rows = rows * (rows.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    expected = (rows * weights[f"{first}input_layernorm.weight"]).square().mean(0)
    np.testing.assert_allclose(means["blk.0.attn_q.weight"], expected, rtol=1e-4)
    assert means["blk.0.attn_k.weight"].tolist() == means["blk.0.attn_v.weight"].tolist()
    assert set(means) == {
        f"blk.{i}.{name}.weight"
        for i in (0, 1)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    }
    assert means["blk.0.ffn_down.weight"].shape == (512,)


def test_the_diagonal_of_grams_is_what_squares_are(wide: Path) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(wide, dtype=torch.float32)
    windows = [np.arange(1, 30), np.arange(5, 15)]
    whole, diagonal = calibration.grams(model, windows), calibration.squares(model, windows)
    assert whole.keys() == diagonal.keys()
    for name, gram in whole.items():
        torch.testing.assert_close(diagonal[name], gram.diagonal())


def test_a_matrix_is_kept_in_the_format_of_llama_imatrix(tmp_path: Path) -> None:
    """Sums and counts: names and keys are those of llama.cpp's tools/imatrix."""
    file = tmp_path / "i.gguf"
    mean = np.array([0.5, 0.25, 2.0], np.float32)
    libllama.write(file, {"blk.0.attn_q.weight": mean}, 1000, 512, "texts.jsonl")
    reader = gguf.GGUFReader(file)
    tensors = {tensor.name: tensor.data.ravel().tolist() for tensor in reader.tensors}
    assert tensors == {
        "blk.0.attn_q.weight.in_sum2": [500.0, 250.0, 2000.0],
        "blk.0.attn_q.weight.counts": [1000.0],
    }
    assert reader.fields["general.type"].contents() == "imatrix"
    assert reader.fields["imatrix.chunk_count"].contents() == 2
    assert reader.fields["imatrix.chunk_size"].contents() == 512
    assert reader.fields["imatrix.datasets"].contents() == ["texts.jsonl"]
    assert "general.architecture" not in reader.fields
    assert libllama.read(file)["blk.0.attn_q.weight"].tolist() == mean.tolist()


@pytest.mark.usefixtures("library")
def test_a_kept_matrix_gives_the_same_file_and_one_of_another_model_is_refused(
    wide: Path, data: str, tmp_path: Path
) -> None:
    keep, one, two = tmp_path / "i.gguf", tmp_path / "a.gguf", tmp_path / "b.gguf"
    told = exported(wide, one, "IQ3_XXS", imatrix=(data,), keep=keep)
    assert told["imatrix"] == str(keep)
    again = exported(wide, two, "IQ3_XXS", imatrix=(str(keep),))
    assert "bits_per_byte" not in again, "a matrix is no text"
    assert one.read_bytes() == two.read_bytes()
    libllama.write(keep, {"blk.0.attn_q.weight": np.ones(8, np.float32)}, 9, 512, "x")
    with pytest.raises(ConfigError, match="importance matrix of another model"):
        exported(wide, two, "IQ3_XXS", imatrix=(str(keep),))
    keep.write_bytes(b"GGUF" + b"\xff" * 64)
    with pytest.raises(SourceError, match="cannot be read as an importance matrix"):
        exported(wide, two, "IQ3_XXS", imatrix=(str(keep),))
    assert one.read_bytes() == two.read_bytes(), "what was there stays"


@pytest.mark.usefixtures("library")
def test_an_old_file_stays_if_the_library_fails(wide: Path, tmp_path: Path, monkeypatch) -> None:
    """The library aborts in its own process; here it meets a file that is cut off."""
    out = tmp_path / "m.gguf"
    exported(wide, out, "F16")
    before = out.read_bytes()
    write = gguf_file.write

    def cut(checkpoint: Any, tokens: Any, file: Path, *more: Any) -> Any:
        written = write(checkpoint, tokens, file, *more)
        with file.open("r+b") as opened:
            opened.truncate(written.bytes // 2)
        return written

    monkeypatch.setattr(gguf_file, "write", cut)
    with pytest.raises(UnavailableError, match=r"llama\.cpp's library did not quantise the model: "):
        exported(wide, out, "Q4_K_M")
    assert out.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_what_cannot_be_quantised_is_refused_before_any_work(wide: Path, data: str, tmp_path) -> None:
    def refused(error: type[Exception], match: str, type_: str, **more: Any) -> None:
        with pytest.raises(error, match=match):
            exported(wide, tmp_path / "m.gguf", type_, **more)
        assert list(tmp_path.iterdir()) == []

    refused(ConfigError, "IQ2_XXS needs an importance matrix: add --imatrix DATA", "IQ2_XXS")
    refused(ConfigError, "'Q4_K' is not known: use one of F32", "Q4_K")
    refused(ConfigError, "names a type twice", "Q8_0,Q8_0")
    refused(ConfigError, "--imatrix is for quantised types, and F16 is none", "F16", imatrix=(data,))
    refused(DataError, "no such file|does not exist|is not", "Q6_K", imatrix=("missing.jsonl",))
    refused(ConfigError, "GGUF type '' is empty", "Q8_0,")
    keep = tmp_path / "m.gguf"
    refused(ConfigError, "the file of --imatrix-out, too", "Q6_K", imatrix=(data,), keep=keep)
    keep = tmp_path / "m.gguf" / "wide-Q6_K.gguf"  # of several types OUT is a folder
    with pytest.raises(ConfigError, match="there is no folder"):
        exported(wide, tmp_path / "m.gguf", "Q8_0,Q6_K", imatrix=(data,), keep=keep)


def test_a_file_is_not_written_over_its_own_source(wide: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.gguf"
    exported(wide, out, "F16")
    before = out.read_bytes()
    with pytest.raises(ConfigError, match="the file that the model comes from"):
        exported(out, out, "Q8_0")
    assert out.read_bytes() == before


def test_a_matrix_that_cannot_be_used_is_refused(wide: Path, data: str, tmp_path: Path) -> None:
    """Sums of squares are not negative; a type that needs the whole matrix is not begun."""
    file, out = tmp_path / "i.gguf", tmp_path / "m.gguf"
    means = np.ones(256, np.float32)
    libllama.write(file, {"blk.0.attn_q.weight": -means}, 9, 512, "x")
    with pytest.raises(SourceError, match="are no sums of squares"):
        exported(wide, out, "Q4_K_M", imatrix=(str(file),))
    libllama.write(file, {"blk.0.attn_q.weight": means}, 9, 512, "x")
    checkpoint, read = open_checkpoint(wide), libllama.read(file)
    assert " covers 1 of " in gguf_export.check_matrix(checkpoint, read, file)
    with pytest.raises(ConfigError, match=r"covers 1 of \d+ matrices .* IQ2_XXS needs all"):
        gguf_export.check_matrix(checkpoint, read, file, "IQ2_XXS")
    with pytest.raises(ConfigError, match="is a matrix: give it alone"):
        exported(wide, out, "Q4_K_M", imatrix=(str(file), data))
    with pytest.raises(ConfigError, match="leave out --imatrix-out"):
        exported(wide, out, "Q4_K_M", imatrix=(str(file),), keep=tmp_path / "k.gguf")
    assert not out.exists()


def test_where_nothing_can_be_written_that_is_said(wide: Path, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="nothing can be written to /proc"):
        gguf_export.export(Home(tmp_path), str(wide), Path("/proc/a.gguf"), "F16", lambda words: None)


def test_folders_of_exports_that_were_killed_are_removed(wide: Path, tmp_path: Path) -> None:
    """Those that no process holds; one that a living export holds stays."""
    left, held = tmp_path / ".gguf-1", tmp_path / ".gguf-2"
    for place in (left, held):
        place.mkdir()
        (place / "exact.gguf").write_bytes(b"GGUF")
        os.utime(place, (0, 0))
    descriptor = os.open(held, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    try:
        exported(wide, tmp_path / "m.gguf", "F16")
    finally:
        os.close(descriptor)
    assert not left.exists()
    assert held.exists()
    assert [place.name for place in tmp_path.glob(".gguf-*")] == [held.name]


def test_the_missing_package_is_named_with_its_command(wide: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("agent_forge.runs.system.packages.installed", lambda module: False)
    with pytest.raises(UnavailableError, match=r"--type Q6_K needs the package llama-cpp-py-sync, "):
        exported(wide, tmp_path / "m.gguf", "Q6_K")
    assert list(tmp_path.iterdir()) == []
