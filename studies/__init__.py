"""Studies: what all kinds of run that make models and compare them have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_forge.studies.study import AnyStudy as AnyStudy
