"""Settings by the source documents' names: which are taken, and why the others are left out.

The documents have settings that cannot mean anything here (`evomerge.config.REFUSED`). Wherever a
user gives settings, such a setting is left out with a warning, so that the documents' files and
requests work; with `strict` it is refused, and so it is by `EvoMergeConfig` itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evomerge.config import REFUSED
from runs.errors import ConfigError

#: Settings of the documents that say what is so in any case → the value that they ask for.
_ALWAYS = {"enable_caching": True, "use_holdout_validation": True, "early_stopping": True}
#: Settings of the documents that say how often what happens here at every event.
_EXCEEDED = frozenset({"checkpoint_every", "checkpoint_dir"})


def translated(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings that can be taken, and name → why of those that are left out.

    Raises ConfigError for `merge_operators` that are no object.
    """
    own: dict[str, Any] = {}
    left: dict[str, str] = {}
    for name, value in given.items():
        if name == "merge_operators":
            if not isinstance(value, Mapping):
                raise ConfigError("setting merge_operators: give an object of settings.")
            inner, more = translated(value)
            own, left = own | inner, left | more
        elif name == "mixed_precision":
            own |= {"evaluation_dtype": "bfloat16"} if value else {}
        elif name == "early_stopping" and not value:
            own["convergence_patience"] = 0
        elif name in _EXCEEDED or (name in _ALWAYS and value == _ALWAYS[name]):
            continue
        elif name in REFUSED:
            left[name] = REFUSED[name]
        else:
            own[name] = value
    return own, left


def warnings(left: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each setting that is left out."""
    return tuple(f"setting {name} is left out: {why}." for name, why in left.items())
