"""EvoMerge under the first source document's name for phase 2; see `agent_forge/documents.py`.

The public API stands above the phases, so it is named as text and imported on first use.
"""

from __future__ import annotations

from importlib import import_module

#: Names that the document imports from here.
NAMES = ("EvoMerge", "EvoMergeConfig")


def __getattr__(name: str) -> object:
    """Return the class `name` of the public API; raise AttributeError for other names."""
    if name in NAMES:
        return getattr(import_module("agent_forge.documents"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
