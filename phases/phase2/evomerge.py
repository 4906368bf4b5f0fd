"""EvoMerge as the third source document imports it; it is in `agent_forge/documents.py`."""

from __future__ import annotations

from agent_forge.phases.phase2_evomerge import __getattr__ as __getattr__
