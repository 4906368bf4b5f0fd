"""Parts of the events of runs that train from a given model: arms and results."""

from __future__ import annotations

from runs.event_types import Part
from runs.system.digests import Digest


class Arm(Part):
    """A model that was measured on the test slice."""

    recipe_id: Digest
    #: Domain → bits per byte.
    bits_per_byte: dict[str, float]


class Result(Part):
    """A model that the run gives."""

    recipe_id: Digest
    #: BLAKE3 of its weights.
    digest: Digest
