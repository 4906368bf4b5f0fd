"""Settings of a cognate run, and the presets of `forge cognate`: size, length, learning rates.

Presets are frozen: a change here changes every model that is trained. They were chosen by trials
(`docs/decisions/0004-cognate-presets.md`), before any search was run on the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from typing_extensions import override

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.kinds.forecast import Architecture
from agent_forge.runs.kinds.setting_words import DATA, LIMITS, TRAINING, Labels
from agent_forge.runs.record.device_setting import AUTO, DEVICE
from agent_forge.studies.settings import LORA_RATE, PRECISION, Adapted, Precision, Watched, weighted
from agent_forge.studies.study_view import Plain

#: Shares of the common phase: mostly general text and code, and a little of the domains that two
#: of the specialists will learn.
BASE_MIX = {"prose": 0.45, "code": 0.45, "math": 0.04, "data": 0.06}
#: Sizes that every architecture has.
SIZES = ("vocabulary", "hidden", "layers", "heads", "kv_heads", "intermediate", "context")
#: Sizes and settings of titans-mag.
TITANS_SIZES = ("window", "chunk", "persistent", "memory", "recursions", "halting")
#: Hidden units of a head, and the largest inner step size, of a two-layer memory.
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
        """Return domain → share of a specialist's text, of `common` shares and its own domain."""
        left = 1 - self.own_share
        mix = {d: share * left for d, share in common.items()} if left else {}
        return {**mix, domain: mix.get(domain, 0.0) + self.own_share}

    def initialisation(self) -> tuple[str, Plain]:
        """Return (name of the operation that draws the first weights, its parameters)."""
        return "qwen2-init@1", {name: getattr(self, name) for name in SIZES}

    def architecture(self) -> Architecture:
        """Return the fields that the models' config.json will have, before a model is made."""
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
        """Return a copy with this memory, recursions and halting, and their parameter count."""
        count = self.counts[memory] + (self.hidden + 1 if halting else 0)
        options = {"memory": memory, "recursions": recursions, "halting": halting}
        return self.model_copy(update={**options, "parameters": count})

    @override
    def initialisation(self) -> tuple[str, Plain]:
        sizes = {name: getattr(self, name) for name in TITANS_SIZES}
        return "titans-mag-init@1", {**super().initialisation()[1], **sizes, **TWO_LAYER}

    @override
    def architecture(self) -> Architecture:
        return {**super().architecture(), "model_type": "titans_mag"}


#: Shares of the common phase of titans-mag: it must hold recall at short distances from the beginning,
#: or the memory is not learned (docs/training.md).
TITANS_MIX = {"general": 0.6, "reasoning": 0.2, "memory": 0.2}


#: Parameters; `SIZES`; windows of a step; tokens and peak rates of base and specialist; characters.
Row = tuple[int, tuple[int, ...], int, tuple[int, int], tuple[float, float], int]

#: mini: seconds of training, all of the machinery, and models that are good for nothing else. 25m-wide:
#: as large as 25m, with rows of 512 and 1536: multiples of 256, so that llama.cpp's ternary types cut
#: them into blocks (as those of small); training length and rates are those of 25m, not tuned.
_QWEN2: dict[str, Row] = {
    "mini": (*(28_960, (512, 32, 2, 2, 1, 32, 64)), *(4, (60_000, 25_000), (1e-2, 5e-3), 1_200_000)),
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
    "mini": (*(36_432, (512, 32, 2, 2, 1, 32, 64)), *(4, (60_000, 25_000), (1e-2, 5e-3), 1_200_000)),
    "tiny": (
        *(1_144_432, (2048, 128, 5, 4, 2, 192, 320)),
        *(6, (1_800_000, 360_000), (4e-3, 5e-4), 4_000_000),
    ),
}
#: Window, chunk and persistent tokens; memory → parameters.
_MEMORIES: dict[str, tuple[tuple[int, int, int], dict[str, int]]] = {
    "mini": ((8, 8, 2), {"linear": 36_432, "two-layer": 44_624, "none": 28_960}),
    "tiny": ((32, 32, 4), {"linear": 1_144_432, "two-layer": 1_226_352, "none": 880_512}),
}


def _fields(name: str, row: Row, mix: Mapping[str, float]) -> Plain:
    """Return the keyword arguments of a preset from a row of the tables above."""
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
        **dict(zip(("window", "chunk", "persistent"), _MEMORIES[name][0], strict=True)),
        counts=_MEMORIES[name][1],
    )
    for name, row in _TITANS.items()
}


#: Domains of built-in text (`evaluation.training_text.own_texts.KNOWN`; a test compares both).
KNOWN = (
    *("code", "math", "data", "prose", "multilingual", "chains"),
    *("reasoning", "memory", "general"),
)
#: Names that no specialist can have, because folders and roles have them.
TAKEN = ("base", "items", "untrained")

Positive = Annotated[float, Field(gt=0)]
#: Names of domains: each is a role, and a folder.
NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$"
Domain = Annotated[str, Field(pattern=NAME)]


class CognateConfig(Adapted, Watched):
    """Settings: what is trained, and for how long."""

    labels: ClassVar[Labels] = {
        "Model": {
            "preset": "Size and length",
            "architecture": "Architecture",
            "memory": "Neural memory",
            "recursions": "Applications of the blocks",
            "halting": "Halting",
            "vocabulary": "Tokens of the vocabulary",
        },
        TRAINING: {
            "base_rate": "Learning rate of the base",
            "specialist_rate": "Learning rate of specialists",
            "base_tokens": "Tokens for the base",
            "specialist_tokens": "Tokens for a specialist",
            "batch": "Windows of a step",
            "context": "Tokens of a window",
            "precision": "Precision",
            "optimiser": "Optimiser",
            "checkpointing": "Gradient checkpointing",
            "average": "Snapshots averaged",
            "average_as": "Decay that the average stands for",
        },
        DATA: {
            "domains": "Domains of specialists",
            "own_share": "Share of the own domain",
            "mix": "Mix of domains",
            "seed": "Seed",
        },
        LIMITS: {
            "device": "Device",
            "processes": "Processes",
            "sharded": "Sharded training (FSDP)",
            "max_hours": "Hours by the clock",
            "max_device_hours": "Hours of all devices",
        },
    }

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    adapters_rate: ClassVar[str] = "specialist_rate"

    train: Literal["full", "lora"] = Field(
        "full",
        description="What is trained of a specialist: all weights, or low-rank adapters, which are "
        "merged into the weights afterwards (LoRA). All weights of a base from scratch are trained.",
    )
    preset: Literal["mini", "tiny", "small", "25m", "25m-wide"] = Field(
        "tiny",
        description="How large, how long; mini: seconds, to try the machinery. With a base of your own "
        "its size is the base's, the rest the preset's.",
    )
    architecture: Literal["qwen2", "titans-mag"] = Field(
        "qwen2",
        description="Of the base that is trained; titans-mag: attention over a window, gated with a "
        "neural memory, for the presets mini and tiny.",
    )
    memory: Literal["linear", "two-layer", "none"] = Field(
        "linear", description="The neural memory of titans-mag: a matrix a head, two, or none."
    )
    recursions: int = Field(
        1, ge=1, le=16, description="How often titans-mag applies its blocks, with the same weights."
    )
    halting: bool = Field(
        False,
        description="titans-mag with two recursions or more: each token learns how much every "
        "application of the blocks counts. All of them are computed.",
    )
    domains: tuple[Domain, ...] = Field(
        ("code", "math", "data"),
        min_length=1,
        description=f"A specialist each: of {', '.join(KNOWN)}; with data of your own, of its domains.",
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of text, weights and batches.")
    precision: Precision = Field("auto", description=PRECISION)
    optimiser: Literal["muon", "adamw", "mugrokfast"] = Field(
        "muon",
        description="Muon on hidden matrices with AdamW on the rest; AdamW alone; Muon behind "
        "Grokfast, with QK-Clip.",
    )
    checkpointing: bool = Field(
        False, description="Compute activations again in the backward pass, to need less memory."
    )
    average: int = Field(
        1,
        ge=1,
        le=64,
        description="Snapshots of the last fifth of each training whose average is its model; 1: its "
        "last step. From 2 on the learning rate stays at its peak: the average is its decay.",
    )
    average_as: Literal["linear", "cosine", "1-sqrt"] = Field(
        "linear",
        description="Decay that the average stands for; linear: all snapshots count alike. Only with "
        "average.",
    )
    base_rate: Positive | None = Field(
        None, description="Peak learning rate of the base's training; none: the preset's."
    )
    specialist_rate: Positive | None = Field(
        None,
        description="Peak learning rate of the specialists' training; none: the preset's, of adapters "
        f"{LORA_RATE:g}.",
    )
    base_tokens: int | None = Field(
        None, ge=1, description="Tokens that the base is trained on; none: the preset's."
    )
    specialist_tokens: int | None = Field(
        None, ge=1, description="Tokens that a specialist is trained on; none: the preset's."
    )
    batch: int | None = Field(
        None, ge=1, le=65_536, description="Windows of a step; none: the preset's."
    )
    context: int | None = Field(
        None, ge=8, le=1 << 20, description="Tokens of a window; none: the preset's."
    )
    vocabulary: int | None = Field(
        None,
        ge=257,
        le=1 << 18,
        description="Tokens of the tokenizer that is trained on the text; none: the preset's. Text "
        "with few different words gives fewer. The embedding has a row for each.",
    )
    own_share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Share of a specialist's own domain; the rest of its text is the common mix. None: "
        "the preset's.",
    )
    mix: dict[Domain, Positive] | None = Field(
        None,
        description="Domain → its weight in the common mix; none: the preset's, or with data of your "
        "own all domains alike.",
    )
    device: str = Field(AUTO, description=DEVICE)
    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes that share every step's windows; on GPUs one for each GPU from `device` "
        "on. Another number gives other bits.",
    )
    sharded: bool = Field(
        False,
        description="Each process trains with a part of weights, gradients and optimiser only (FSDP). "
        "To load, save and measure a model, each has whole weights.",
    )
    max_hours: Positive | None = Field(None, description="Hours by the clock after which it ends.")
    max_device_hours: Positive | None = Field(
        None, description="Hours of work of all devices after which it ends."
    )

    @field_validator("domains")
    @classmethod
    def _distinct(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if len({name.lower() for name in given}) < len(given):
            raise ValueError("give each domain once")
        if taken := sorted(set(TAKEN) & {name.lower() for name in given}):
            raise ValueError(f"{taken[0]} is the name of something else: rename the data")
        return given

    _mixed = field_validator("mix")(weighted)

    @model_validator(mode="before")
    @classmethod
    def _optimised(cls, given: object) -> object:
        """Return the settings with AdamW for adapters, if they name no optimiser."""
        if isinstance(given, dict) and given.get("train") == "lora":
            return {"optimiser": "adamw", **given}
        return given

    @model_validator(mode="after")
    def _shardable(self) -> Self:
        if self.sharded and self.train == "lora":
            raise ValueError("adapters are merged into whole weights: leave out sharded")
        if self.sharded and self.processes == 1:
            raise ValueError("sharded needs two processes or more: set processes")
        if self.sharded and self.precision == "bfloat16":
            raise ValueError(f"sharded computes in float32: leave out {self.precision}")
        if self.sharded and self.optimiser == "mugrokfast":
            raise ValueError(
                "QK-Clip of mugrokfast needs whole weights: take muon or adamw, or leave out sharded"
            )
        return self

    @model_validator(mode="after")
    def _known_architecture(self) -> Self:
        if self.architecture == "titans-mag" and self.preset not in TITANS:
            raise ValueError(f"titans-mag has the presets {', '.join(TITANS)}, not {self.preset}")
        if self.architecture == "qwen2":
            for name in ("memory", "recursions", "halting"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} is a setting of titans-mag: set architecture")
        if self.halting and self.recursions == 1:
            raise ValueError("halting needs two recursions or more: set recursions")
        return self

    @property
    def size(self) -> Preset:
        """The preset, with the settings that change it. Embedding and head are one tensor."""
        names = ("base_tokens", "specialist_tokens", "batch", "context", "own_share")
        settings = {name: getattr(self, name) for name in names}
        changed = {name: value for name, value in settings.items() if value is not None}
        if self.architecture == "qwen2":
            preset = PRESETS[self.preset]
        else:
            preset = TITANS[self.preset].chosen(self.memory, self.recursions, self.halting)
        if self.vocabulary is not None:
            rows = self.vocabulary - preset.vocabulary
            changed["vocabulary"] = self.vocabulary
            changed["parameters"] = preset.parameters + rows * preset.hidden
        return preset.model_copy(update=changed)
