"""Settings are compared as transformers reads them: what changes the function is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_forge.weights.folders.checkpoint import Checkpoint
from agent_forge.weights.folders.sources import compare_settings


def settings(folder: Path, **config: Any) -> Checkpoint:
    """Return a model without tensors."""
    return Checkpoint(folder, folder, config, {}, {}, {})


def keys(tmp_path: Path, one: dict[str, Any], other: dict[str, Any], **both: Any) -> list[str]:
    """Return the settings that are named as different."""
    left, right = settings(tmp_path / "a", **both, **one), settings(tmp_path / "b", **both, **other)
    return [warning.split(" is ")[0] for warning in compare_settings(left, right)]


SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("qwen2", {}, {"rope_theta": 10000.0}),
        (
            "qwen2",
            {"rope_theta": 1e6},
            {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
        ),
        (
            "qwen2",
            {"rope_scaling": {"type": "yarn", "factor": 4.0}, "rope_theta": 1e6},
            {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6}},
        ),
        ("qwen2", {}, {"head_dim": 16}),
        ("qwen2", {}, {"layer_types": ["full_attention"] * 2}),
        ("qwen2", {"max_window_layers": 21}, {"max_window_layers": 28}),
        ("qwen2", {"sliding_window": 4096, "use_sliding_window": False}, {}),
        ("qwen2", {"torch_dtype": "float16"}, {"dtype": "bfloat16"}),
        ("qwen2", {"eos_token_id": 1, "use_cache": False}, {"eos_token_id": [2, 3]}),
        ("qwen2", {"initializer_range": 0.1, "attention_dropout": 0.1}, {"_name_or_path": "x"}),
        ("llama", {"pretraining_tp": 2, "temperature": 0.6}, {"quantization_config": {"a": 1}}),
    ],
)
def test_one_meaning_in_two_spellings_is_no_difference(
    tmp_path: Path, kind: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Left out or written, of transformers 4 or 5: `--strict` must take both."""
    assert keys(tmp_path, one, other, model_type=kind, **SMALL) == []


@pytest.mark.parametrize(
    ("kind", "one", "other", "named"),
    [
        (
            "granite",
            {},
            {"logits_scaling": 8.0, "residual_multiplier": 0.22, "embedding_multiplier": 12.0},
            ["embedding_multiplier", "logits_scaling", "residual_multiplier"],
        ),
        ("gemma2", {"final_logit_softcapping": None}, {}, ["final_logit_softcapping"]),
        ("gemma2", {"query_pre_attn_scalar": 144}, {}, ["query_pre_attn_scalar"]),
        ("qwen2", {"rope_theta": 1e6}, {}, ["rope_theta"]),
        (
            "qwen2",
            {"rope_scaling": {"type": "yarn", "factor": 4.0}},
            {"rope_scaling": {"type": "yarn", "factor": 2.0}},
            ["factor"],
        ),
        (
            "gemma3",
            {"text_config": {**SMALL, "sliding_window": 512}},
            {"text_config": SMALL},
            ["text_config.sliding_window"],
        ),
        ("qwen2", {"rms_norm_eps": 1e-5}, {}, ["rms_norm_eps"]),
        ("qwen2", {"a_scale_of_2027": 2}, {}, ["a_scale_of_2027"]),
    ],
)
def test_a_setting_that_changes_the_function_is_named(
    tmp_path: Path, kind: str, one: dict[str, Any], other: dict[str, Any], named: list[str]
) -> None:
    """Whatever its name, and wherever it stands; a default counts like a value that is written."""
    assert keys(tmp_path, one, other, model_type=kind, **SMALL) == named


def test_the_warning_says_both_values_and_whose_is_kept(tmp_path: Path) -> None:
    left = settings(tmp_path / "a", model_type="qwen2", rope_theta=1e6)
    right = settings(tmp_path / "b", model_type="qwen2", vocab_size=7)
    first, second = compare_settings(left, right)
    assert first == (
        "rope_theta is 1000000.0 in a and 10000.0 in b: positions are encoded with another base. "
        "a's is kept."
    )
    assert second.startswith("vocab_size is 151936 in a and 7 in b")
    assert compare_settings(left, right, {"vocab_size"}) == [first]


def test_lists_with_an_entry_a_layer_are_not_compared_between_depths(tmp_path: Path) -> None:
    """Slices take layers of models of different depths."""
    assert keys(tmp_path, {"num_hidden_layers": 2}, {"num_hidden_layers": 3}, model_type="gemma2") == []
