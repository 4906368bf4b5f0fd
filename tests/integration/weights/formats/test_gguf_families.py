"""GGUF files of every family around Llama, and of scaled positions, read by llama.cpp itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.formats import gguf_architectures, gguf_file
from testing.models.gguf_tokens import IDS, ROWS, TOKENS
from testing.services.llama_cpp import LlamaCpp
from testing.shares import one_quick

SIZES = {
    "vocab_size": ROWS,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 32}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}


def long_rope(count: int, length: int) -> dict[str, Any]:
    """Settings of LongRoPE in a config, for heads with a number of frequencies."""
    factors = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1 + 0.1 * i for i in range(count)],
        "long_factor": [2 + 0.5 * i for i in range(count)],
        "original_max_position_embeddings": length,
    }
    return {
        "rope_parameters": factors,
        "original_max_position_embeddings": length,
        "max_position_embeddings": 2 * length,
    }


UNTIED = {"tie_word_embeddings": False}
PARTIAL = long_rope(6, 256)
PARTIAL["rope_parameters"]["partial_rotary_factor"] = 0.75
#: Name of a case → its family, and what its config says beside SIZES.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("qwen3", {"head_dim": 32, **UNTIED}),
    "smollm3": ("smollm3", {"num_hidden_layers": 9, "tie_word_embeddings": True}),
    "phi3": ("phi3", UNTIED),
    "phi3 longrope": ("phi3", UNTIED | long_rope(8, 256)),
    "phi3 partial": ("phi3", UNTIED | PARTIAL),
    "granite": (
        "granite",
        {
            "attention_multiplier": 0.2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "logits_scaling": 2.0,
            "tie_word_embeddings": True,
        },
    ),
    "granite llama3": ("granite", {"rope_parameters": LLAMA3, **UNTIED}),
    "granite biased": ("granite", {"attention_bias": True, "mlp_bias": True, **UNTIED}),
    "olmo2": ("olmo2", UNTIED),
    "olmo2 grouped": ("olmo2", UNTIED | {"num_key_value_heads": 1, "rope_parameters": YARN}),
    "lfm2": (
        "lfm2",
        {
            "layer_types": ["conv", "conv", "full_attention", "conv"],
            "block_auto_adjust_ff_dim": False,
            "tie_word_embeddings": True,
        },
    ),
    "lfm2 adjusted": (
        "lfm2",
        {"full_attn_idxs": [1, 3], "block_multiple_of": 32, "conv_L_cache": 4, **UNTIED},
    ),
    "llama linear": ("llama", {"rope_parameters": LINEAR, **UNTIED}),
    "llama yarn": ("llama", {"rope_parameters": YARN, **UNTIED}),
    "llama llama3": ("llama", {"rope_parameters": LLAMA3, **UNTIED}),
    "llama longrope": ("llama", UNTIED | long_rope(8, 256)),
    "llama wide": ("llama", {"head_dim": 32, "mlp_bias": True, "attention_bias": True, **UNTIED}),
    "qwen2 yarn": (
        "qwen2",
        {"rope_parameters": YARN | {"attention_factor": 1.5, "beta_fast": 16.0}, **UNTIED},
    ),
    "qwen3 yarn": ("qwen3", {"rope_parameters": YARN, "head_dim": 16, **UNTIED}),
    "smollm3 yarn": ("smollm3", {"rope_parameters": YARN, **UNTIED}),
    "mistral window": ("mistral", {"sliding_window": 48, **UNTIED}),
}


def made(kind: str, folder: Path, more: dict[str, Any]) -> Any:
    """Write a random model, its norms and biases too, and return it."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**SIZES, **more}))
    model = model.float().eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("bias"):
                tensor.normal_(0, 0.5)
            elif "norm" in name:
                tensor.normal_(1, 0.2)
    model.save_pretrained(folder)
    return model


def llama_cpp_logits(model: Any, file: Path, ids: list[int]) -> np.ndarray:
    """The head's products with llama.cpp's states."""
    states = LlamaCpp(file, hidden=True).states(ids)
    head = model.lm_head.weight.detach().numpy().T
    return states @ head / getattr(model.config, "logits_scaling", 1)


def logits(model: Any, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


@pytest.mark.parametrize("case", one_quick(*CASES))
def test_llama_cpp_computes_every_family_as_transformers_does(tmp_path: Path, case: str) -> None:
    """In float32; states of the last layer are those of every position."""
    pytest.importorskip("xllamacpp")
    kind, more = CASES[case]
    file = tmp_path / "m.gguf"
    model = made(kind, tmp_path, more)
    assert gguf_file.write(open_checkpoint(tmp_path), TOKENS, file, "F32", "toy").other == {}
    ours = logits(model, IDS)
    assert ours.std() > 0.3, "the logits say something"
    np.testing.assert_allclose(llama_cpp_logits(model, file, IDS), ours, atol=1e-3)


def test_long_texts_have_the_long_factors_of_their_positions(tmp_path: Path) -> None:
    """llama.cpp takes them if its context is longer than the original, transformers if a text is."""
    pytest.importorskip("xllamacpp")
    ids = [*IDS, *IDS]
    model, file = made("phi3", tmp_path, UNTIED | long_rope(8, 64)), tmp_path / "m.gguf"
    gguf_file.write(open_checkpoint(tmp_path), TOKENS, file, "F32", "toy")
    np.testing.assert_allclose(llama_cpp_logits(model, file, ids), logits(model, ids), atol=1e-3)


def config_of(kind: str, **more: Any) -> dict[str, Any]:
    return AutoConfig.for_model(kind, **{**SIZES, **more}).to_dict() | {"model_type": kind}


def test_the_context_of_a_file_ends_with_a_window_that_llama_cpp_does_not_slide() -> None:
    config = config_of("mistral", sliding_window=48)
    assert gguf_architectures.context(config) == 48
    assert "ends with the window, at 48 tokens" in gguf_architectures.notes(config)[0]
    assert gguf_architectures.notes(config_of("mistral", sliding_window=None)) == ()


@pytest.mark.parametrize(
    ("kind", "more", "what"),
    [
        ("qwen2", {"rope_parameters": LLAMA3}, "scaled by 'llama3' for this architecture"),
        ("llama", {"rope_parameters": {**LINEAR, "rope_type": "dynamic"}}, "scaled by 'dynamic'"),
        ("phi3", {"hidden_act": "gelu"}, "the activation 'gelu'"),
        ("olmo2", {"tie_word_embeddings": True}, "a head that is the embedding"),
        ("granite", {"residual_multiplier": 0.0}, "residual_multiplier 0"),
        ("smollm3", {"no_rope_layer_interval": 2}, "another order of layers without positions"),
        ("smollm3", {"attention_bias": True}, "biases of linear layers"),
        ("lfm2", {"conv_bias": True}, "biases of convolutions"),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 8}, "a sliding window"),
    ],
)
def test_a_config_that_llama_cpp_would_compute_otherwise_is_refused(
    kind: str, more: dict[str, Any], what: str
) -> None:
    gguf_architectures.check(config_of(kind, tie_word_embeddings=False), "toy")
    with pytest.raises(SourceError, match=f"llama.cpp does not have .*{what}"):
        gguf_architectures.check(config_of(kind, **{"tie_word_embeddings": False, **more}), "toy")
