"""EvoMerge, phase 2: evolution of merges."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_forge.evomerge.reports.outputs.tables import Run

__all__ = ["Run"]


def __getattr__(name: str) -> object:
    """Return the class `Run`, imported only when asked for; raise AttributeError for other names."""
    if name == "Run":
        from agent_forge.evomerge.reports.outputs.tables import Run

        return Run
    raise AttributeError(f"module 'evomerge' has no attribute {name!r}")
