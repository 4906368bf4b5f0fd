"""GGUF files, read by llama.cpp itself and by transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.runs.errors import ConfigError, ConflictError, NotFiniteError, SourceError
from agent_forge.runs.home import Home
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.formats import gguf_file
from agent_forge.worker.exports import gguf_export
from testing.models import families
from testing.models.toys import Toys
from testing.services.llama_cpp import LlamaCpp

IDS = list(range(1, 41))
#: Types whose blocks of 32 divide the rows of the models here.
QUANTISED = ("Q8_0", "Q5_1", "Q4_0")


def written(folder: Path, file: Path, type_: str) -> gguf_file.Written:
    checkpoint = open_checkpoint(folder)
    tokens = gguf_file.tokens_of(load_tokenizer(str(folder)), checkpoint.config["vocab_size"])
    return gguf_file.write(checkpoint, tokens, file, type_, "toy")


@pytest.fixture(scope="module")
def folders(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each architecture, 64 wide, with large random weights, and the toys' tokenizer."""
    found = {}
    base = json.loads((toys.base / "config.json").read_text())
    for kind in ("qwen2", "llama", "mistral"):
        place = found[kind] = tmp_path_factory.mktemp(kind)
        shutil.copytree(toys.base, place, dirs_exist_ok=True)
        for file in place.glob("*.safetensors"):
            file.unlink()
        told = {
            **{k: base[k] for k in ("vocab_size", "bos_token_id", "eos_token_id")},
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "tie_word_embeddings": False,
            "max_position_embeddings": 256,
            "sliding_window": None,
            "initializer_range": 0.2,
        }
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **told))
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                if name.endswith("bias"):
                    tensor.normal_(0, 0.5)
        model.float().save_pretrained(place)
    return found


def logits(folder: Path, **more: Any) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **more).eval()
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0]


def llama_cpp_logits(folder: Path, file: Path) -> np.ndarray:
    """The head's products with llama.cpp's states."""
    head = open_checkpoint(folder).tensors()["lm_head.weight"].float().numpy()
    return LlamaCpp(file, hidden=True).states(IDS) @ head.T


@pytest.mark.parametrize("kind", ["qwen2", "llama", "mistral"])
def test_llama_cpp_computes_what_transformers_does(folders, tmp_path: Path, kind: str) -> None:
    """Also the rotated rows of Llama: in another order every position but the first would differ."""
    pytest.importorskip("xllamacpp")
    file = tmp_path / "m.gguf"
    assert written(folders[kind], file, "F32").other == {}
    ours = logits(folders[kind]).numpy()
    assert ours.std() > 0.5, "the logits say something"
    np.testing.assert_allclose(llama_cpp_logits(folders[kind], file), ours, atol=1e-3)


def test_llama_cpp_goes_on_with_the_same_tokens_and_cuts_text_alike(folders, tmp_path) -> None:
    pytest.importorskip("xllamacpp")
    file = tmp_path / "m.gguf"
    written(folders["qwen2"], file, "F32")
    reader = LlamaCpp(file)
    model = AutoModelForCausalLM.from_pretrained(folders["qwen2"], dtype=torch.float32)
    said = model.generate(
        torch.tensor([IDS]), max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=0
    )
    assert reader.greedy(IDS, 12) == said[0, len(IDS) :].tolist()
    tokenizer = load_tokenizer(str(folders["qwen2"]))
    for text in ("def f(x):\n    return x+1 # 12345", "Größe, naïve — 日本", "  two  spaces\t\r\n"):
        assert reader.tokenize(text) == tokenizer(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize("type_", QUANTISED)
def test_quantised_files_compute_with_what_they_hold(folders, tmp_path, type_: str) -> None:
    """As transformers reads the same file: both see the rounded weights."""
    file = tmp_path / "m.gguf"
    assert written(folders["qwen2"], file, type_).other == {}
    rounded = logits(tmp_path, gguf_file=file.name)
    assert not torch.allclose(rounded, logits(folders["qwen2"]), atol=1e-3), "it is rounded"
    pytest.importorskip("xllamacpp")
    model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype=torch.float32)
    head = model.lm_head.weight.detach().float().numpy()
    found = torch.tensor(LlamaCpp(file, hidden=True).states(IDS) @ head.T)
    theirs, ours = found.log_softmax(-1), rounded.double().log_softmax(-1)
    kl = (ours.exp() * (ours - theirs)).sum(-1).mean()
    assert kl < 5e-3, "llama.cpp rounds activations, too, to 8 bits"


def test_a_file_has_the_same_bytes_again_and_tells_what_is_in_it(toys: Toys, tmp_path) -> None:
    """Rows of 16 have no blocks of 32: those matrices are F16, and named."""
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    one, two = (written(toys.base, file, "Q8_0") for file in (first, second))
    assert one == two
    assert first.read_bytes() == second.read_bytes()
    assert "model.layers.0.self_attn.q_proj.weight" in one.other


def test_what_cannot_be_written_is_refused_before_any_work(toys: Toys, tmp_path: Path) -> None:
    home, out = Home(tmp_path / "home"), tmp_path / "m.gguf"

    def refused(error: type[Exception], match: str, folder: Path, type_: str = "F16") -> None:
        with pytest.raises(error, match=match):
            gguf_export.export(home, str(folder), out, type_, lambda text: None)
        assert [p.name for p in tmp_path.glob("*gguf*")] == []

    refused(ConfigError, "'Q9_9' is not known: use one of F32", toys.base, "Q9_9")
    changed = tmp_path / "changed"
    shutil.copytree(toys.base, changed)
    config = json.loads((changed / "config.json").read_text())
    other = families.save(tmp_path / "gpt2", "gpt2")
    refused(SourceError, "'gpt2' cannot be written as GGUF", other)
    short = {name: value for name, value in config.items() if name != "rms_norm_eps"}
    (changed / "config.json").write_text(json.dumps(short))
    refused(SourceError, "config.json lacks rms_norm_eps", changed)
    scaled = {"rope_theta": 1e4, "rope_type": "dynamic", "factor": 2.0}
    (changed / "config.json").write_text(json.dumps(config | {"rope_parameters": scaled}))
    refused(SourceError, "positions that are scaled by 'dynamic'", changed)
    (changed / "config.json").write_text(json.dumps(config))
    tensors = open_checkpoint(toys.base).tensors()
    bad = dict(tensors) | {"model.norm.weight": torch.full((16,), float("nan"))}
    save_file(bad, changed / "model.safetensors", {"format": "pt"})
    refused(NotFiniteError, "model.norm.weight holds NaN or Inf", changed)


def test_a_file_that_is_no_gguf_is_never_replaced(toys: Toys, tmp_path: Path) -> None:
    home, out = Home(tmp_path / "home"), tmp_path / "notes.txt"
    out.write_text("mine")
    with pytest.raises(ConflictError, match="no GGUF file"):
        gguf_export.export(home, str(toys.base), out, "F16", lambda text: None)
    assert out.read_text() == "mine"
    with pytest.raises(ConfigError, match="is a folder"):
        gguf_export.export(home, str(toys.base), tmp_path, "F16", lambda text: None)


def test_a_file_says_if_texts_begin_with_a_token_of_their_own(toys: Toys, tmp_path: Path) -> None:
    """Llama 3's do: without it llama.cpp would begin another text than transformers."""
    pytest.importorskip("xllamacpp")
    from tokenizers.processors import TemplateProcessing

    checkpoint, tokenizer = open_checkpoint(toys.base), load_tokenizer(str(toys.base))
    assert gguf_file.tokens_of(tokenizer, 320).begins is False
    bos = (tokenizer.bos_token, tokenizer.bos_token_id)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{bos[0]} $A", special_tokens=[bos]
    )
    tokens = gguf_file.tokens_of(tokenizer, 320)
    gguf_file.write(checkpoint, tokens, tmp_path / "m.gguf", "F32", "toy")
    ids = tokenizer("some text").input_ids
    assert ids[0] == bos[1]
    assert LlamaCpp(tmp_path / "m.gguf").tokenize("some text", special=True) == ids


def test_a_tokenizer_without_a_name_is_refused(toys: Toys) -> None:
    tokenizer = load_tokenizer(str(toys.base))
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(SourceError, match="has no name in"):
        gguf_file.tokens_of(tokenizer, 320)
