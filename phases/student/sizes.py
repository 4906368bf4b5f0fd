"""Sizes of a student: settings of config.json in which it differs from the given model. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phases.student.config import StudentConfig
from runs.errors import ConfigError

#: Size → the names that families give it.
HIDDEN = ("hidden_size", "n_embd", "d_model")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
HEADS = ("num_attention_heads", "n_head", "num_heads")
KV_HEADS = ("num_key_value_heads",)
INTERMEDIATE = ("intermediate_size", "n_inner", "d_ff")

#: Setting of config.json → its value.
Changes = dict[str, int | tuple[str, ...]]


def changes(config: Mapping[str, Any], asked: StudentConfig) -> Changes:
    """Return the student's sizes under the names of the given model's config.json.

    Raises ConfigError for a config without a size, and for sizes that do not divide.
    """
    hidden, layers = _named(config, HIDDEN), _named(config, LAYERS)
    heads, width = _named(config, HEADS), asked.width
    dimension = config.get("head_dim") or config[hidden] // config[heads]
    found: Changes = {layers: asked.layers or max(1, round(config[layers] * asked.depth))}
    found[heads] = count = asked.heads or (
        max(1, asked.hidden // dimension) if asked.hidden else max(1, round(config[heads] * width))
    )
    pairs = max(1, round(config[hidden] * width / (2 * count)))  # rotations turn numbers in pairs
    found[hidden] = whole = asked.hidden or 2 * count * pairs
    if not config.get("head_dim") and (whole % count or whole // count % 2):
        raise ConfigError(
            f"a hidden size of {whole} gives {count} heads no even size: set hidden to a multiple of "
            f"{2 * count}, or heads to another number."
        )
    if shared := _key(config, KV_HEADS):
        found[shared] = _kv_heads(count, config[heads], config[shared], asked.kv_heads)
    if inner := _key(config, INTERMEDIATE):
        found[inner] = asked.intermediate or max(1, round(config[inner] * width))
    elif asked.intermediate:
        raise ConfigError(
            "the given model's config.json has no size of feed-forward layers to set."
        )
    if types := config.get("layer_types"):
        found["layer_types"] = tuple(types[i % len(types)] for i in range(_int(found[layers])))
    return found


def of_student(config: Mapping[str, Any], asked: StudentConfig) -> dict[str, Any] | None:
    """Return the student's config.json as far as the given model's is known; None without its sizes.

    Raises ConfigError for sizes that do not divide.
    """
    if any(_key(config, names) is None for names in (HIDDEN, LAYERS, HEADS)):
        return None
    return {**config, **changes(config, asked)}


def _kv_heads(count: int, heads: int, shared: int, asked: int | None) -> int:
    """Return the number of heads of keys and values of `count` heads.

    The given model has `shared` of them for its `heads`. Raises ConfigError for a number that does not
    divide `count`.
    """
    if asked is None:
        most = max(1, count * shared // heads)
        return max(n for n in range(1, most + 1) if count % n == 0)
    if count % asked:
        raise ConfigError(f"{count} heads cannot share {asked} heads of keys and values evenly.")
    return asked


def _key(config: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the name that a config has for a size; None if it has none, or no number."""
    return next((name for name in names if isinstance(config.get(name), int)), None)


def _named(config: Mapping[str, Any], names: Sequence[str]) -> str:
    found = _key(config, names)
    if found is None:
        raise ConfigError(
            f"the given model's config.json has no {names[0]}: a smaller one cannot be described."
        )
    return found


def _int(value: int | tuple[str, ...]) -> int:
    assert isinstance(value, int)
    return value
