"""Phase 2 as the first source document imports it."""

from __future__ import annotations

from agent_forge.documents import EvoMerge, EvoMergeConfig

__all__ = ["EvoMerge", "EvoMergeConfig"]
