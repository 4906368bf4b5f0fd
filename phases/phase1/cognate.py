"""`load_phase1_models` as the third source document imports it; it is in `agent_forge/documents.py`.

The public API stands above the phases, so it is named as text and imported when it is asked for.
"""

from __future__ import annotations

from importlib import import_module

#: Names that the document imports from here.
NAMES = ("load_phase1_models",)


def __getattr__(name: str) -> object:
    """Return the function of the public API."""
    if name in NAMES:
        return getattr(import_module("agent_forge.documents"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
