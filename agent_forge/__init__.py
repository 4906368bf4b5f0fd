"""The public Python API, a thin layer.

from agent_forge import EvoMerge, EvoMergeConfig

result = await EvoMerge(EvoMergeConfig(generations=8)).evolve(["a", "b", "c"], base="base")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_forge.api import EvoMerge, EvoMergePipeline, EvoMergeResult, Run
    from evomerge.config import EvoMergeConfig

__all__ = ["EvoMerge", "EvoMergeConfig", "EvoMergePipeline", "EvoMergeResult", "Run"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that importing the package costs nothing."""
    if name == "EvoMergeConfig":
        from evomerge.config import EvoMergeConfig

        return EvoMergeConfig
    if name in __all__:
        from agent_forge import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
