"""Settings by the source documents' names: which are taken, and why the others are left out.

The documents have settings that cannot mean anything here (`evomerge.config.REFUSED`). In a request
for a run such a setting is left out with a warning, so that the documents' files and requests work;
with `strict` it is refused, and so it is by `EvoMergeConfig` itself, in pipelines and in forks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evomerge.config import REFUSED, RENAMED
from runs.errors import ConfigError

#: Settings of the documents whose value always holds here → that value.
_ALWAYS = {"enable_caching": True, "use_holdout_validation": True, "early_stopping": True}
#: Settings of the documents for checkpoints: every event is one.
_EXCEEDED = frozenset({"checkpoint_every", "checkpoint_dir"})
#: What the documents' `merge_operators` may hold.
_OPERATORS = frozenset(
    ("linear_weight", "slerp_t", "ties_threshold", "ties_density", "dare_threshold", "dare_drop")
) | {"dare_amplification", "frankenmerge_layers", "dfs_merge_ratio"}


def translated(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings that can be taken, and name → why of those that are left out.

    Raises ConfigError for a setting that is given under two names, or a wrong `merge_operators`.
    """
    taken_settings: dict[str, Any] = {}
    left: dict[str, str] = {}
    for name, value in _flat(settings):
        if name == "search" and isinstance(value, Mapping):
            value, more = translated(value)
            left |= more
        if name == "mixed_precision":
            name, value = "evaluation_dtype", "bfloat16" if value else "model"
        if name in _EXCEEDED or (name in _ALWAYS and value == _ALWAYS[name]):
            continue
        if name in REFUSED and not (name == "early_stopping" and value is False):
            left[name] = REFUSED[name]
        elif RENAMED.get(name, name) in {RENAMED.get(key, key) for key in taken_settings}:
            raise ConfigError(f"setting {RENAMED.get(name, name)} is given under two of its names.")
        else:
            taken_settings[name] = value
    if (
        taken_settings.pop("early_stopping", True) is False
    ):  # the documents' way to say so, with any patience
        taken_settings = {
            n: v for n, v in taken_settings.items() if RENAMED.get(n, n) != "convergence_patience"
        }
        taken_settings["convergence_patience"] = 0
    return taken_settings, left


def _flat(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the settings, those of `merge_operators` among the others. Raises ConfigError."""
    inner = settings.get("merge_operators", {})
    if not isinstance(inner, Mapping):
        raise ConfigError("setting merge_operators: give an object of settings.")
    if unknown := sorted(set(inner) - _OPERATORS):
        raise ConfigError(f"merge_operators has no setting {unknown[0]}.")
    return [*((n, v) for n, v in settings.items() if n != "merge_operators"), *inner.items()]


def warnings(left: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each setting that is left out."""
    return tuple(f"setting {name} is left out: {why}." for name, why in left.items())


def refuse(left: Mapping[str, str]) -> None:
    """Raise ConfigError if a setting would be left out."""
    if left:
        lines = (f"setting {name} is refused: {why}." for name, why in left.items())
        raise ConfigError("\n".join(lines))
