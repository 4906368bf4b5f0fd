"""GGUF files as sources: every family computes what llama.cpp computes of the same file."""

from __future__ import annotations

import ctypes
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from agent_forge.runs.errors import UnavailableError
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.folders.gguf_source import conversion, header
from agent_forge.weights.formats import gguf_file, libllama
from testing.shares import one_quick
from tests.integration.weights.formats import test_gguf_families as families
from tests.integration.weights.formats import test_gguf_gemma as gemma

#: Any tokens do that fit a merge: these tests give ids.
NAMES = ("a", "b", "ab", *(f"t{i}" for i in range(3, families.ROWS)))
TOKENS = replace(families.TOKENS, tokens=NAMES, merges=("a b",))
GEMMA = {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **families.CASES,
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "gemma": ("gemma", {"head_dim": 16}),
    "gemma2": ("gemma2", GEMMA),
    "gemma3": ("gemma3_text", {**GEMMA, "num_hidden_layers": 7}),
    "gemma3 linear": (
        "gemma3_text",
        {
            **GEMMA,
            "num_hidden_layers": 7,
            "rope_parameters": {
                "full_attention": families.LINEAR,
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
            },
        },
    ),
}


def written(kind: str, more: dict[str, Any], folder: Path, type_: str = "F32") -> Path:
    """Write a random model as a GGUF file."""
    model = families.made(kind, folder / "given", more)
    if kind.startswith("gemma"):  # norms are stored as their difference from 1
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                if "norm" in name:
                    tensor.sub_(1)
        model.save_pretrained(folder / "given")
    file = folder / "model.gguf"
    gguf_file.write(open_checkpoint(folder / "given"), TOKENS, file, type_, "toy")
    return file


@pytest.mark.parametrize("case", one_quick(*CASES))
def test_every_family_computes_what_llama_cpp_computes(tmp_path: Path, case: str) -> None:
    """In float32: positions, scales, norms, orders of rows and kinds of layers come from the file."""
    pytest.importorskip("xllamacpp")
    kind, more = CASES[case]
    file = written(kind, more, tmp_path)
    folder = conversion.folder(file, tmp_path / "cache", "x")
    given = load_file(tmp_path / "given/model.safetensors")
    assert load_file(folder / "model.safetensors").keys() == given.keys()
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert model.dtype == torch.float32
    ours = families.logits(model, families.IDS)
    assert ours.std() > 0.3, "the logits say something"
    theirs = families.llama_cpp_logits(model, file, families.IDS)
    if kind.startswith("gemma"):
        gemma.round_gelu(model)
        ours = families.logits(model, families.IDS)
    if cap := getattr(model.config, "final_logit_softcapping", None):
        theirs = cap * np.tanh(theirs / cap)
    # llama.cpp's GELU is a table of 16-bit numbers, whose ends `round_gelu` does not have
    np.testing.assert_allclose(theirs, ours, atol=4e-3 if kind.startswith("gemma") else 1e-3)


@pytest.mark.parametrize("case", one_quick(*CASES))
def test_a_file_gives_back_the_model_that_it_was_written_of(tmp_path: Path, case: str) -> None:
    """Weights to the bit (a norm's 1 that is added and taken away costs the last one), and config."""
    kind, more = CASES[case]
    folder = conversion.folder(written(kind, more, tmp_path), tmp_path / "cache", "x")
    given = load_file(tmp_path / "given/model.safetensors")
    for name, tensor in load_file(folder / "model.safetensors").items():
        close = 1e-6 if kind.startswith("gemma") and "norm" in name else 0
        torch.testing.assert_close(tensor, given[name], atol=close, rtol=0)
    before, after = (AutoConfig.from_pretrained(place) for place in (tmp_path / "given", folder))
    assert after.model_type == kind.replace("mistral", "llama")
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "tie_word_embeddings"):
        assert getattr(after, key) == getattr(before, key)
    if kind != "mistral":
        ids = torch.tensor([families.IDS])
        models = (AutoModelForCausalLM.from_pretrained(p).eval() for p in (tmp_path / "given", folder))
        with torch.no_grad():
            first, second = (model(ids).logits for model in models)
        torch.testing.assert_close(first, second, atol=1e-4, rtol=1e-4)


TYPES = [type_ for type_ in Type if type_ not in conversion.PLAIN and header._readable(type_)]


def functions() -> ctypes.CDLL:
    """llama.cpp's own functions that make numbers of codes."""
    found = importlib.util.find_spec("xllamacpp")
    if found is None or not found.submodule_search_locations:
        pytest.skip("xllamacpp is not installed")
    return ctypes.CDLL(str(Path(found.submodule_search_locations[0]) / "xllamacpp.abi3.so"))


@pytest.mark.parametrize("type_", TYPES, ids=lambda type_: type_.name)
def test_codes_become_the_numbers_that_llama_cpp_makes_of_them(type_: Type) -> None:
    """The bytes are random; a product and a sum may be rounded once or twice."""
    block, size = gguf.GGML_QUANT_SIZES[type_]
    content = np.random.default_rng(5).integers(0, 256, 64 * size, np.uint8).tobytes()
    theirs = np.empty(64 * block, np.float32)
    name = type_.name.lower().replace("_k", "_K")
    numbers = theirs.ctypes.data_as(ctypes.c_void_p)
    getattr(functions(), f"dequantize_row_{name}")(content, numbers, ctypes.c_int64(theirs.size))
    ours = header.rows(content, type_, block).ravel()
    finite = np.isfinite(theirs)
    assert finite.mean() > 0.5
    np.testing.assert_array_equal(np.isfinite(ours), finite)
    scale = np.abs(theirs[finite]).reshape(-1, 1).max()
    np.testing.assert_allclose(ours[finite], theirs[finite], rtol=3e-7, atol=3e-7 * scale)


QUANTISED = ("Q4_1", "Q8_0", "Q5_0", "Q6_K", "Q4_K_M", "IQ4_XS")


@pytest.mark.parametrize("type_", one_quick(*QUANTISED))
def test_a_rounded_file_computes_nearer_to_llama_cpp_than_to_the_exact_model(
    tmp_path: Path, type_: str
) -> None:
    """llama.cpp rounds activations to 8 bits beside codes, so it differs a little from any other."""
    pytest.importorskip("xllamacpp")
    wide = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 2}
    plain = type_ in gguf_file.TYPES
    file = written("llama", wide, tmp_path, type_ if plain else "F32")
    if not plain:
        pytest.importorskip(libllama.PACKAGE)
        try:
            with libllama.Library(1) as library:
                library.quantise(file, tmp_path / "coded.gguf", type_, None)
        except UnavailableError as error:
            pytest.skip(str(error))
        file = tmp_path / "coded.gguf"
    folder = conversion.folder(file, tmp_path / "cache", "x")
    read = AutoModelForCausalLM.from_pretrained(folder).eval()
    given = AutoModelForCausalLM.from_pretrained(tmp_path / "given").eval()
    ours, before = (families.logits(model, families.IDS) for model in (read, given))
    theirs = families.llama_cpp_logits(read, file, families.IDS)
    away = np.std(ours - theirs)
    assert away < 0.1 * ours.std()
    assert type_ == "Q8_0" or away < 0.5 * np.std(before - theirs)
    name = type_.removesuffix("_M")
    assert conversion.rounded(header.read(file)) == name
    bits = "8" if name == "Q8_0" else name[1 + name.startswith("IQ")]
    assert open_checkpoint(folder).warnings == (
        f"{file.name}: weights were rounded to {bits} bits ({name}) before they came here.",
    )


@pytest.mark.parametrize(("type_", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
def test_a_file_of_16_bits_becomes_a_folder_of_16_bits_if_nothing_is_lost(
    tmp_path: Path, type_: str, dtype: torch.dtype
) -> None:
    folder = tmp_path / "given"
    model = families.made("llama", folder, {"num_hidden_layers": 1})
    for exact in (True, False):
        if exact:
            model.to(dtype).float().save_pretrained(folder)
        else:  # a norm that 16 bits do not hold
            model.model.norm.weight.data[0] = 1 + 2**-20
            model.float().save_pretrained(folder)
        file = tmp_path / f"{exact}.gguf"
        gguf_file.write(open_checkpoint(folder), TOKENS, file, type_, "toy")
        weights = load_file(conversion.folder(file, tmp_path / "cache", "x") / "model.safetensors")
        assert {tensor.dtype for tensor in weights.values()} == {dtype if exact else torch.float32}
