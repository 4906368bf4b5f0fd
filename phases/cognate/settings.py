"""Settings of a cognate run."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from phases.cognate.presets import PRESETS, TITANS, Preset
from runs.kinds.setting_words import DATA, LIMITS, TRAINING, Labels
from runs.record.device_setting import AUTO, DEVICE
from studies.settings import weighted
from studies.training_settings import LORA_RATE, Adapted, Watched

#: Domains of text of the program's own (`evaluation.training_text.own_texts.KNOWN`; a test compares).
KNOWN = (
    *("code", "math", "data", "prose", "multilingual", "chains"),
    *("reasoning", "memory", "general"),
)
#: Names that no specialist can have: folders and roles of their own.
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
        1,
        ge=1,
        le=16,
        description="How often titans-mag applies its blocks, with the same weights.",
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
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Arithmetic of the passes; weights and optimiser are float32."
    )
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
    def _optimised(cls, given: Any) -> Any:
        """Write out the optimiser of adapters if there is none."""
        if isinstance(given, dict) and given.get("train") == "lora":
            return {"optimiser": "adamw", **given}
        return given

    @model_validator(mode="after")
    def _shardable(self) -> Self:
        if self.sharded and self.train == "lora":
            raise ValueError("adapters are merged into whole weights: leave out sharded")
        if self.sharded and self.processes == 1:
            raise ValueError("sharded needs two processes or more: set processes")
        if self.sharded and self.precision != "float32":
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
