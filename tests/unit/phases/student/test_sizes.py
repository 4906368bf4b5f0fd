"""Sizes of a student by the settings: what follows from the given model, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from agent_forge.phases.student import StudentConfig, changes
from agent_forge.runs.errors import ConfigError

#: The base of `forge cognate --preset tiny`: heads of 32.
TINY = {
    "hidden_size": 128,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "layer_types": ["full_attention"] * 6,
}


def sizes(config: dict[str, Any], **asked: Any) -> list[Any]:
    """Hidden size, layers, heads, heads of keys and values, feed-forward size."""
    found = changes(config, StudentConfig(**asked))
    assert len(found.get("layer_types", "x" * 6)) in (6, found["num_hidden_layers"])
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return [*(found[name] for name in names), found["intermediate_size"]]


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, [64, 3, 2, 1, 128]),
        ({"width": 0.25, "depth": 0.5}, [32, 3, 1, 1, 64]),
        ({"hidden": 64, "layers": 4, "intermediate": 160}, [64, 4, 2, 1, 160]),
        ({"hidden": 32, "layers": 3, "intermediate": 96, "heads": 4}, [32, 3, 4, 2, 96]),
        ({"width": 0.75}, [96, 3, 3, 1, 192]),
        ({"width": 1.0, "kv_heads": 4, "depth": 0.01}, [128, 1, 4, 4, 256]),
    ],
)
def test_what_is_not_given_follows_from_the_given_model(asked: Any, wanted: list[int]) -> None:
    """Heads keep their size of 32 unless their number is given; shared heads stay shared."""
    assert sizes(TINY, **asked) == wanted


def test_layers_of_several_types_keep_their_order() -> None:
    types = ["sliding_attention", "full_attention"] * 3
    found = changes({**TINY, "layer_types": types}, StudentConfig(layers=3))
    assert found["layer_types"] == ("sliding_attention", "full_attention", "sliding_attention")


def test_a_head_size_of_its_own_is_kept_and_other_families_have_their_own_names() -> None:
    """Qwen3 has heads of 128 whatever the hidden size is; GPT-2 calls its sizes n_embd and n_layer."""
    found = changes({**TINY, "head_dim": 128}, StudentConfig(hidden=72, heads=3))
    assert (found["hidden_size"], found["num_attention_heads"]) == (72, 3)
    gpt2 = {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None}
    assert changes(gpt2, StudentConfig()) == {"n_embd": 384, "n_layer": 6, "n_head": 6}
    with pytest.raises(ConfigError, match="no size of feed-forward layers to set"):
        changes(gpt2, StudentConfig(intermediate=5))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"hidden": 50, "heads": 4}, "set hidden to a multiple of 8"),
        ({"hidden": 12, "heads": 4}, "gives 4 heads no even size"),
        ({"heads": 4, "kv_heads": 3}, "4 heads cannot share 3 heads"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(asked: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        changes(TINY, StudentConfig(**asked))


def test_a_config_without_sizes_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no hidden_size"):
        changes({"text_config": TINY}, StudentConfig())
