"""Value types inside the events of an EvoMerge run."""

from __future__ import annotations

from typing import Literal

from evaluation.measures.bootstrap import Comparison
from runs.event_types import Part


class Rival(Part):
    """One source or baseline, and the champion's lead over it on the test slice."""

    name: str
    kind: Literal["base", "source", "baseline"]
    recipe_id: str
    scalar: float | None
    #: None if the rival has no fitness.
    lead: Comparison | None
