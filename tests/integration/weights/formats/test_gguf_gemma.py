"""GGUF files of Gemma, read by llama.cpp itself.

llama.cpp computes GELU by a table of 16-bit floats (ggml, `ggml_vec_gelu_f32`). So its logits are
within 0.001 of transformers' for weights as they are initialised. For weights four times as large,
which say more about soft caps and windows, they are within 0.001 of transformers' with such a GELU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
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
    "head_dim": 32,
    "max_position_embeddings": 256,
}
WINDOW = {"query_pre_attn_scalar": 32, "sliding_window": 8}
#: Shorter than the tokens, so that the window matters; enough layers for a full one.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", WINDOW),
    "gemma2 low caps": (
        "gemma2",
        WINDOW | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.0},
    ),
    "gemma3": ("gemma3_text", WINDOW | {"num_hidden_layers": 7}),
    "gemma3 scaled": (
        "gemma3_text",
        WINDOW
        | {
            "num_hidden_layers": 7,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "gemma3 cap": ("gemma3_text", WINDOW | {"num_hidden_layers": 7, "final_logit_softcapping": 1.0}),
}
#: llama.cpp knows the largest models by their number of layers, and scales their attention otherwise.
LARGE = {
    "gemma2": WINDOW | {"num_hidden_layers": 46, "query_pre_attn_scalar": 16},
    "gemma3_text": WINDOW | {"num_hidden_layers": 62, "query_pre_attn_scalar": 16},
}


def made(kind: str, folder: Path, spread: float, more: dict[str, Any]) -> Any:
    """Write a random model, its norms too, and return it."""
    torch.manual_seed(3)
    config = AutoConfig.for_model(kind, **{**SIZES, **more, "initializer_range": spread})
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("norm.weight"):
                tensor.normal_(0, 0.2)
    model.save_pretrained(folder)
    return model


def llama_cpp_logits(model: Any, file: Path) -> np.ndarray:
    """The head's products with llama.cpp's states, capped."""
    found = LlamaCpp(file, hidden=True).states(IDS) @ model.lm_head.weight.detach().numpy().T
    cap = getattr(model.config, "final_logit_softcapping", None)
    return cap * np.tanh(found / cap) if cap else found


def logits(model: Any) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0].numpy()


def rounded_gelu(x: torch.Tensor) -> torch.Tensor:
    inside = functional.gelu(x.half().float(), approximate="tanh").half().float()
    return torch.where(x <= -10, 0.0, torch.where(x >= 10, x, inside))


def round_gelu(model: Any) -> None:
    for module in model.modules():
        if hasattr(module, "act_fn"):
            module.act_fn.forward = rounded_gelu


def greedy(model: Any, count: int) -> list[int]:
    said = model.generate(
        torch.tensor([IDS]), max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0
    )
    return said[0, len(IDS) :].tolist()


@pytest.mark.parametrize("case", one_quick(*CASES))
def test_llama_cpp_computes_gemma_as_transformers_does(tmp_path: Path, case: str) -> None:
    pytest.importorskip("xllamacpp")
    kind, more = CASES[case]
    file = tmp_path / "m.gguf"
    model = made(kind, tmp_path, 0.02, more)
    gguf_file.write(open_checkpoint(tmp_path), TOKENS, file, "F32", "toy")
    ours = logits(model)
    assert ours.std() > 0.1, "the logits say something"
    np.testing.assert_allclose(llama_cpp_logits(model, file), ours, atol=1e-3)
    assert LlamaCpp(file).greedy(IDS, 12) == greedy(model, 12)


@pytest.mark.parametrize("case", one_quick(*CASES))
def test_larger_weights_differ_by_the_rounded_gelu_only(tmp_path: Path, case: str) -> None:
    pytest.importorskip("xllamacpp")
    kind, more = CASES[case]
    file = tmp_path / "m.gguf"
    model = made(kind, tmp_path, 0.08, more)
    gguf_file.write(open_checkpoint(tmp_path), TOKENS, file, "F32", "toy")
    assert LlamaCpp(file).greedy(IDS, 12) == greedy(model, 12)
    round_gelu(model)
    np.testing.assert_allclose(llama_cpp_logits(model, file), logits(model), atol=1e-3)


@pytest.mark.parametrize("kind", one_quick(*LARGE))
def test_the_largest_models_have_another_scale(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("xllamacpp")
    file = tmp_path / "m.gguf"
    model = made(kind, tmp_path, 0.02, LARGE[kind])
    gguf_file.write(open_checkpoint(tmp_path), TOKENS, file, "F32", "toy")
    round_gelu(model)
    np.testing.assert_allclose(llama_cpp_logits(model, file), logits(model), atol=1e-3)


REFUSED = {
    "scale": ("gemma2", {"query_pre_attn_scalar": 64}, "scaled by query_pre_attn_scalar 64"),
    "large scale": ("gemma2", {"num_hidden_layers": 46}, "with 46 layers it scales by 16"),
    "no window": ("gemma3_text", {"sliding_window": None}, "without a sliding window"),
    "order": ("gemma3_text", {"layer_types": ["full_attention"] * 4}, "another order of sliding"),
    "period": ("gemma3_text", {"sliding_window_pattern": 3}, "another order of sliding layers"),
    "soft cap": ("gemma3_text", {"attn_logit_softcapping": 5.0}, "a soft cap of attention"),
    "activation": ("gemma", {"hidden_act": "silu"}, "the activation 'silu'"),
    "exact gelu": ("gemma2", {"hidden_activation": "gelu"}, "the activation 'gelu'"),
    "both ways": ("gemma3_text", {"use_bidirectional_attention": True}, "both directions"),
    "biases": ("gemma", {"attention_bias": True}, "biases of attention"),
    "untied": ("gemma", {"tie_word_embeddings": False}, "a head that is not the embedding"),
    "scaled": (
        "gemma3_text",
        {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 8.0}}},
        "sliding layers that are scaled by 'linear'",
    ),
    "Llama's activation": ("llama", {"hidden_act": "gelu"}, "the activation 'gelu'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_config_that_llama_cpp_computes_otherwise_is_refused(case: str) -> None:
    kind, more, match = REFUSED[case]
    config = {**SIZES, **WINDOW, "model_type": kind, "rms_norm_eps": 1e-6}
    gguf_architectures.check(config, "toy")
    with pytest.raises(SourceError, match=match):
        gguf_architectures.check(config | more, "toy")


def test_rotary_bases_are_read_of_old_and_new_configs(tmp_path: Path) -> None:
    """Configs of transformers 4 have rope_theta and rope_local_base_freq."""
    made("gemma3_text", tmp_path, 0.02, WINDOW)
    config = json.loads((tmp_path / "config.json").read_text())
    old = {k: v for k, v in config.items() if k != "rope_parameters"}
    old |= {"rope_theta": 5e5, "rope_local_base_freq": 2e4}
    new = config | {
        "rope_parameters": {
            "full_attention": {"rope_theta": 5e5, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 2e4, "rope_type": "default"},
        }
    }
    sums = []
    for told in (config, old, new):
        (tmp_path / "config.json").write_text(json.dumps(told))
        file = tmp_path / "m.gguf"
        gguf_file.write(open_checkpoint(tmp_path), TOKENS, file, "F32", "toy")
        sums.append(file.read_bytes())
    assert sums[1] == sums[2] != sums[0]
