"""A pipeline's settings without names from outside, as its lineage digest covers them. Pure.

Models and data that come from outside are numbered in the order of their first use: what they hold is
pinned by digest in the phases' runs, and the phases' lineages stand in the pipeline's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pipeline's recorded settings with numbers for models and data of no phase."""
    phases: Sequence[Mapping[str, Any]] = config.get("phases", ())
    names = {phase["name"] for phase in phases}
    model, entry = _numbering("model", names), _numbering("data", names)

    def phase(phase_settings: Mapping[str, Any]) -> dict[str, Any]:
        roles = sorted(phase_settings.get("models", {}).items())
        unchanged = phase_settings.get("unchanged")
        return {
            **phase_settings,
            "models": {role: [model(name) for name in models] for role, models in roles},
            "data": [entry(name) for name in phase_settings.get("data", ())],
            "unchanged": None if unchanged is None else model(unchanged),
        }

    numbered = [phase(table) for table in phases]
    return {**config, "phases": numbered, "test": [entry(name) for name in config.get("test", ())]}


def _numbering(word: str, phases: set[str]) -> Callable[[str], str]:
    """Return a function that leaves a reference to a phase as it is, and numbers all others."""
    numbers: dict[str, int] = {}

    def named(reference: str) -> str:
        if reference.partition(":")[0] in phases:
            return reference
        return f"{word} {numbers.setdefault(reference, len(numbers) + 1)}"

    return named
