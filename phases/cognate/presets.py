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
        options = {"memory": memory, "recursions": recursions, "halting": halting}
        return self.model_copy(update={**options, "parameters": count})

    def initialisation(self) -> tuple[str, dict[str, Any]]:
        """Return the operation that draws the first weights, and its parameters."""
        sizes = {name: getattr(self, name) for name in TITANS_SIZES}
        return "titans-mag-init@1", {**super().initialisation()[1], **sizes, **TWO_LAYER}

    def architecture(self) -> Architecture:
        """Return what is known of the models before they are made, as their config.json will say."""
        return {**super().architecture(), "model_type": "titans_mag"}


#: Shares of the common phase of titans-mag: it must hold recall at short distances from the beginning,
#: or the memory is not learned (docs/titans.md).
TITANS_MIX = {"general": 0.6, "reasoning": 0.2, "memory": 0.2}


#: Parameters; `SIZES`; windows of a step; tokens and peak rates of base and specialist; characters.
Row = tuple[int, tuple[int, ...], int, tuple[int, int], tuple[float, float], int]

#: mini: seconds of training, all of the machinery, and models that are good for nothing else. 25m-wide:
#: as large as 25m, with rows of 512 and 1536: multiples of 256, so that llama.cpp's ternary types cut
#: them into blocks (as those of small); training length and rates are those of 25m, not tuned.
_QWEN2: dict[str, Row] = {
    "mini": (
        *(28_960, (512, 32, 2, 2, 1, 32, 64)),
        *(4, (60_000, 25_000), (1e-2, 5e-3), 1_200_000),
    ),
    "tiny": (
        *(1_150_080, (2048, 128, 6, 4, 2, 256, 128)),
        *(16, (1_800_000, 360_000), (4e-3, 5e-4), 4_000_000),
    ),
    "small": (
        *(5_773_568, (4096, 256, 6, 4, 2, 768, 256)),
        *(16, (12_000_000, 2_500_000), (3e-3, 7e-4), 9_000_000),
    ),
    "25m": (
        *(25_576_320, (8192, 384, 12, 6, 2, 1280, 512)),
        *(16, (120_000_000, 20_000_000), (2e-3, 4e-4), 30_000_000),
    ),
    "25m-wide": (
        *(25_309_952, (8192, 512, 7, 8, 2, 1536, 512)),
        *(16, (120_000_000, 20_000_000), (2e-3, 4e-4), 30_000_000),
    ),
}
#: tiny: about as many parameters as qwen2's. A window of 32, and texts of ten.
_TITANS: dict[str, Row] = {
    "mini": (
        *(36_432, (512, 32, 2, 2, 1, 32, 64)),
        *(4, (60_000, 25_000), (1e-2, 5e-3), 1_200_000),
    ),
    "tiny": (
        *(1_144_432, (2048, 128, 5, 4, 2, 192, 320)),
        *(6, (1_800_000, 360_000), (4e-3, 5e-4), 4_000_000),
    ),
}
#: Window, chunk, persistent tokens; memory → parameters.
_MEMORIES: dict[str, tuple[Any, ...]] = {
    "mini": (8, 8, 2, {"linear": 36_432, "two-layer": 44_624, "none": 28_960}),
    "tiny": (32, 32, 4, {"linear": 1_144_432, "two-layer": 1_226_352, "none": 880_512}),
}


def _fields(name: str, row: Row, mix: Mapping[str, float]) -> dict[str, Any]:
    """Return the fields of a preset from a row of the tables above."""
    parameters, sizes, batch, tokens, rates, characters = row
    return {
        "name": name,
        "parameters": parameters,
        **dict(zip(SIZES, sizes, strict=True)),
        "batch": batch,
        "base_tokens": tokens[0],
        "specialist_tokens": tokens[1],
        "base_rate": rates[0],
        "specialist_rate": rates[1],
        "base_mix": mix,
        "own_share": 0.7,
        "characters": characters,
    }


PRESETS = {name: Preset(**_fields(name, row, BASE_MIX)) for name, row in _QWEN2.items()}
#: Presets of titans-mag.
TITANS = {
    name: TitansPreset(
        **_fields(name, row, TITANS_MIX),
        **dict(zip(("window", "chunk", "persistent", "counts"), _MEMORIES[name], strict=True)),
    )
    for name, row in _TITANS.items()
}
