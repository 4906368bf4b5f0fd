"""Students of a compression: what they must have in common with the given model, and their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from runs.errors import ConfigError

#: Names of folders and roles that tell nothing.
PLAIN_NAMES = ("", "model")
#: The name of a student whose own tells nothing.
NAME = "student"


def names(given: Sequence[str]) -> list[str]:
    """Return the first parts of the students' points' names: distinct, and without separators."""
    found: list[str] = []
    for text in given:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
        name = NAME if plain in PLAIN_NAMES else plain
        same = sum(other == name or other.startswith(f"{name}+") for other in found)
        found.append(f"{name}+{same + 1}" if same else name)
    return found


def check(name: str, own: int, given: int, tokenizer: Any, others: Any) -> None:
    """Raise ConfigError for a student that is not smaller, or reads text by other tokens.

    `own` and `given` are numbers of parameters; `others` is the given model's tokenizer.
    """
    if own >= given:
        raise ConfigError(
            f"student {name} has {own:,} parameters, not fewer than the {given:,} of the given model: "
            "its points would be no smaller."
        )
    if _form(tokenizer) != _form(others):
        raise ConfigError(
            f"student {name} has another tokenizer than the given model: give a model that reads text "
            "as that one does, such as the result of a student run."
        )


def _form(tokenizer: Any) -> Any:
    """Return what decides how a tokenizer cuts text."""
    if tokenizer.is_fast:
        return tokenizer.backend_tokenizer.to_str()
    return type(tokenizer).__name__, tokenizer.get_vocab()
