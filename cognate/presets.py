"""The presets: how large, how long, how gentle. Frozen; a change here changes every model made.

Chosen by the measurements in `docs/decisions/0004-cognate-presets.md`, before any search was run on
the models.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Preset(BaseModel):
    """One size of model and its training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    #: Expected number of parameters (tied head counted once); asserted before training.
    parameters: int
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    #: Tokens a window, windows a step.
    context: int
    batch: int
    #: Tokens of the common phase, and of each specialist's own phase.
    base_tokens: int
    specialist_tokens: int
    #: Peak learning rates.
    base_rate: float
    specialist_rate: float
    #: Share of each phase spent warming up.
    warmup: float = 0.1
    #: Characters of text per domain.
    characters: int


TINY = Preset(
    name="tiny",
    parameters=1_247_104,
    vocabulary=2048,
    hidden=128,
    layers=6,
    heads=4,
    kv_heads=2,
    intermediate=256,
    context=256,
    batch=16,
    base_tokens=3_000_000,
    specialist_tokens=600_000,
    base_rate=4e-3,
    specialist_rate=1e-3,
    characters=4_000_000,
)

SMALL = Preset(
    name="small",
    parameters=0,
    vocabulary=4096,
    hidden=256,
    layers=6,
    heads=4,
    kv_heads=2,
    intermediate=768,
    context=256,
    batch=16,
    base_tokens=12_000_000,
    specialist_tokens=2_500_000,
    base_rate=3e-3,
    specialist_rate=7e-4,
    characters=9_000_000,
)

M25 = Preset(
    name="25m",
    parameters=0,
    vocabulary=8192,
    hidden=384,
    layers=12,
    heads=6,
    kv_heads=2,
    intermediate=1280,
    context=512,
    batch=16,
    base_tokens=120_000_000,
    specialist_tokens=20_000_000,
    base_rate=2e-3,
    specialist_rate=4e-4,
    characters=30_000_000,
)

PRESETS = {preset.name: preset for preset in (TINY, SMALL, M25)}
