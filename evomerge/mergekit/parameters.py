"""Parameters of a config: numbers, gradients over depth, filters by tensor name.

A setting is a number (or a truth value), a list of numbers, or a list of {filter, value}. A list of
numbers is piecewise linear over the relative depth t of a layer inside its slice: t = index /
(layers − 1), 1 if the slice has one layer, 0 outside of blocks. Of a list of {filter, value} the
first that matches counts. A filter matches if it is part of the tensor's name; "*" or a missing
filter matches every name. `embedding`, `head` and `norm` in place of a filter match those groups
(the final norm is a norm), which gives each group a value of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evomerge.mergekit.parser import Map
from runs.errors import ConfigError

#: Groups that may stand in place of a filter, and the parts of tensor names that they match.
GROUPS = {
    "embedding": ("embed_tokens", "wte", "wpe", "embed_in"),
    "head": ("lm_head", "embed_out"),
    "norm": ("norm", "ln_"),
}


def evaluate(setting: Any, tensor: str, t: float) -> float | bool | None:
    """Return a setting's value for a tensor at depth t; None if no filter matches.

    Raise ValueError if the setting is not valid.
    """
    if isinstance(setting, bool):
        return setting
    if isinstance(setting, int | float):
        if not math.isfinite(setting):
            raise ValueError(f"{setting} is not a finite number")
        return float(setting)
    if isinstance(setting, list) and setting:
        if all(isinstance(x, int | float) and not isinstance(x, bool) for x in setting):
            return gradient(setting, t)
        if all(isinstance(x, dict) for x in setting):
            return _filtered(setting, tensor, t)
    raise ValueError("it is a number, a list of numbers, or a list of {filter, value}")


def gradient(points: Sequence[float], t: float) -> float:
    """Interpolate linearly between equally spaced points, at t from 0 to 1."""
    place = min(max(t, 0.0), 1.0) * (len(points) - 1)
    below = min(int(place), len(points) - 2) if len(points) > 1 else 0
    if len(points) == 1:
        return float(points[0])
    share = place - below
    return (1.0 - share) * points[below] + share * points[below + 1]


def matches(filter_: str | None, tensor: str) -> bool:
    """Return True if a filter matches this tensor."""
    if filter_ is None or filter_ == "*":
        return True
    return any(part in tensor for part in GROUPS.get(filter_, (filter_,)))


def _filtered(setting: list[dict[str, Any]], tensor: str, t: float) -> float | bool | None:
    for item in setting:
        strange = set(item) - {"filter", "value"}
        if strange or "value" not in item or not isinstance(item.get("filter"), str | None):
            raise ValueError("an item of a list of filters has the keys filter, a text, and value")
        if matches(item.get("filter"), tensor):
            return evaluate(item["value"], tensor, t)
    return None


@dataclass(frozen=True)
class Settings:
    """Maps that a parameter is looked up in, the strongest first, for one tensor."""

    file: str
    maps: tuple[Map, ...]
    tensor: str
    t: float
    #: The model whose own parameters come first; errors name it.
    model: str = ""

    def get(self, key: str, default: float | bool | None = None) -> float | bool | None:
        """Return the value of a parameter. Raise ConfigError naming file, line and key."""
        for mapping in self.maps:
            if mapping.get(key) is None:
                continue
            try:
                value = evaluate(mapping[key], self.tensor, self.t)
            except (ValueError, OverflowError, RecursionError) as error:
                line = mapping.lines.get(key, mapping.line)
                raise ConfigError(f"{self.file}, line {line}: parameter {key}: {error}.") from error
            if value is not None:
                return value
        return default

    def raw(self, key: str) -> Any:
        """Return a parameter as it stands in the file: a list that is no gradient."""
        return next((mapping[key] for mapping in self.maps if mapping.get(key) is not None), None)

    def number(self, key: str, default: float | None = None) -> float:
        """Return a parameter as a float. Raise ConfigError if it is missing without a default."""
        value = self.get(key, default)
        if value is None:
            of = f" of {self.model}" if self.model else ""
            raise ConfigError(
                f"{self.file}: parameter {key} is missing for tensor {self.tensor}{of}."
            )
        return float(value)
