"""Suggestions for a name that is not known, from the names that are. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

#: Names that are suggested at most, and how alike they must be, 0 to 1.
MOST, ALIKE = 3, 0.6


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return " (did you mean A or B?)" with known names that are like a name; empty without any.

    A known name is like it if most letters are the same, or if it begins with the name.
    """
    names = sorted(candidates)
    begun = [candidate for candidate in names if name and candidate.startswith(name.lower())]
    like = dict.fromkeys([*begun, *get_close_matches(name.lower(), names, MOST, ALIKE)])
    return f" (did you mean {' or '.join(list(like)[:MOST])}?)" if like else ""
