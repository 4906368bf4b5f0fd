"""Presets of `forge cognate`: model size, training length and learning rates.

They are frozen: a change here changes every model that is trained. They were chosen by trials
(`docs/decisions/0004-cognate-presets.md`), before any search was run on the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from runs.errors import ConfigError
from runs.kinds.architecture import Architecture

#: Shares of the common phase: mostly general text and code, and a little of the domains that two
#: of the specialists will learn.
BASE_MIX = {"prose": 0.45, "code": 0.45, "math": 0.04, "data": 0.06}
#: Sizes that every architecture has.
SIZES = ("vocabulary", "hidden", "layers", "heads", "kv_heads", "intermediate", "context")
#: Sizes and settings of titans-mag.
TITANS_SIZES = ("window", "chunk", "persistent", "memory", "recursions", "halting")
#: Of a two-layer memory: hidden units of a head, and the largest inner step size.
TWO_LAYER = {"width": 64, "step": 0.1}


class PresetError(ConfigError):
    """A preset does not agree with the tokenizer or model that it gives."""


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
    #: Tokens per window, windows per step.
    context: int
    batch: int
    #: Tokens of the common phase, and of each specialist's own phase.
    base_tokens: int
    specialist_tokens: int
    #: Peak learning rates.
    base_rate: float
    specialist_rate: float
    #: domain → share of the common phase.
    base_mix: dict[str, float]
    #: Share of a specialist's own domain; the rest of its text is the common mix (replay).
    own_share: float
    #: Share of each phase spent warming up.
    warmup: float = 0.1
    #: Characters of text per domain.
    characters: int

    def check(self, counted: int) -> None:
        """Raise PresetError if a model's number of parameters is not the preset's."""
        if counted != self.parameters:
            raise PresetError(
                f"preset {self.name} is {self.parameters:,} parameters, the model has {counted:,}"
            )

    def specialist_mix(self, domain: str, common: Mapping[str, float]) -> dict[str, float]:
        """Return domain → share of a specialist's phase; `common` are the shares of the common mix."""
        left = 1 - self.own_share
        mix = {d: share * left for d, share in common.items()} if left else {}
        return {**mix, domain: mix.get(domain, 0.0) + self.own_share}

    def initialisation(self) -> tuple[str, dict[str, Any]]:
        """Return the operation that draws the first weights, and its parameters."""
        return "qwen2-init@1", {name: getattr(self, name) for name in SIZES}

    def architecture(self) -> Architecture:
        """Return what is known of the models before they are made, as their config.json will say."""
        return {
            "model_type": "qwen2",
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
        }


#: Seconds of training: all of the machinery, and models that are good for nothing else.
MINI = Preset(
    name="mini",
    parameters=28_960,
    vocabulary=512,
    hidden=32,
    layers=2,
    heads=2,
    kv_heads=1,
    intermediate=32,
    context=64,
    batch=4,
    base_tokens=60_000,
    specialist_tokens=25_000,
    base_rate=1e-2,
    specialist_rate=5e-3,
    base_mix=BASE_MIX,
    own_share=0.7,
    characters=1_200_000,
)

TINY = Preset(
    name="tiny",
    parameters=1_150_080,
    vocabulary=2048,
    hidden=128,
    layers=6,
    heads=4,
    kv_heads=2,
    intermediate=256,
    context=128,
    batch=16,
    base_tokens=1_800_000,
    specialist_tokens=360_000,
    base_rate=4e-3,
    specialist_rate=5e-4,
    base_mix=BASE_MIX,
    own_share=0.7,
    characters=4_000_000,
)

SMALL = Preset(
    name="small",
    parameters=5_773_568,
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
    base_mix=BASE_MIX,
    own_share=0.7,
    characters=9_000_000,
)

M25 = Preset(
    name="25m",
    parameters=25_576_320,
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
    base_mix=BASE_MIX,
    own_share=0.7,
    characters=30_000_000,
)

#: As large as 25m, with rows of 512 and 1536: multiples of 256, so that llama.cpp's ternary types cut
#: them into blocks (as those of `small`). Training length and rates are those of 25m, not tuned.
M25_WIDE = Preset(
    name="25m-wide",
    parameters=25_309_952,
    vocabulary=8192,
    hidden=512,
    layers=7,
    heads=8,
    kv_heads=2,
    intermediate=1536,
    context=512,
    batch=16,
    base_tokens=120_000_000,
    specialist_tokens=20_000_000,
    base_rate=2e-3,
    specialist_rate=4e-4,
    base_mix=BASE_MIX,
    own_share=0.7,
    characters=30_000_000,
)


class TitansPreset(Preset):
    """One size of a titans-mag model, and its training."""

    #: Tokens that attention sees; those that share a chunk of the memory; learned tokens of a block.
    window: int
    chunk: int
    persistent: int
    #: Memory → number of parameters.
    counts: dict[str, int]
    memory: str = "linear"
    recursions: int = 1
    halting: bool = False

    def chosen(self, memory: str, recursions: int, halting: bool) -> TitansPreset:
        """Return the preset with another memory, or applied several times."""
        count = self.counts[memory] + (self.hidden + 1 if halting else 0)
        told = {"memory": memory, "recursions": recursions, "halting": halting}
        return self.model_copy(update={**told, "parameters": count})

    def initialisation(self) -> tuple[str, dict[str, Any]]:
        """Return the operation that draws the first weights, and its parameters."""
        own = {name: getattr(self, name) for name in TITANS_SIZES}
        return "titans-mag-init@1", {**super().initialisation()[1], **own, **TWO_LAYER}

    def architecture(self) -> Architecture:
        """Return what is known of the models before they are made, as their config.json will say."""
        return {**super().architecture(), "model_type": "titans_mag"}


#: Shares of the common phase of titans-mag: it must hold recall at short distances from the beginning,
#: or the memory is not learned (docs/titans.md).
TITANS_MIX = {"general": 0.6, "reasoning": 0.2, "memory": 0.2}

TITANS_MINI = TitansPreset(
    name="mini",
    parameters=36_432,
    vocabulary=512,
    hidden=32,
    layers=2,
    heads=2,
    kv_heads=1,
    intermediate=32,
    context=64,
    batch=4,
    base_tokens=60_000,
    specialist_tokens=25_000,
    base_rate=1e-2,
    specialist_rate=5e-3,
    base_mix=TITANS_MIX,
    own_share=0.7,
    characters=1_200_000,
    window=8,
    chunk=8,
    persistent=2,
    counts={"linear": 36_432, "two-layer": 44_624, "none": 28_960},
)

#: About as many parameters as qwen2's tiny. A window of 32, and texts of ten.
TITANS_TINY = TitansPreset(
    name="tiny",
    parameters=1_144_432,
    vocabulary=2048,
    hidden=128,
    layers=5,
    heads=4,
    kv_heads=2,
    intermediate=192,
    context=320,
    batch=6,
    base_tokens=1_800_000,
    specialist_tokens=360_000,
    base_rate=4e-3,
    specialist_rate=5e-4,
    base_mix=TITANS_MIX,
    own_share=0.7,
    characters=4_000_000,
    window=32,
    chunk=32,
    persistent=4,
    counts={"linear": 1_144_432, "two-layer": 1_226_352, "none": 880_512},
)

#: Presets of titans-mag.
TITANS = {preset.name: preset for preset in (TITANS_MINI, TITANS_TINY)}
PRESETS = {preset.name: preset for preset in (MINI, TINY, SMALL, M25, M25_WIDE)}
