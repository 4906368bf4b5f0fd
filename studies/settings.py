"""Settings that kinds of run share: a training's text, length, batches and arithmetic. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from typing_extensions import override

from agent_forge.runs.kinds.setting_words import DATA, LIMITS, TRAINING, Labels
from agent_forge.runs.record.device_setting import AUTO, DEVICE


class Watched(BaseModel):
    """The setting of the watch over a training's loss."""

    labels: ClassVar[Labels] = {TRAINING: {"divergence": "Limit of a diverging loss"}}

    #: In miniature trainings no loss was more than three standard deviations above its average.
    divergence: Annotated[float, Field(gt=0)] | None = Field(
        12.0,
        description="Standard deviations above its moving average at which a loss ends the training; "
        "null: only a loss or gradient that is no finite number does.",
    )


#: Peak learning rate of adapters without a setting.
LORA_RATE = 4e-3


class Adapted(BaseModel):
    """Settings of a training of all weights, or of low-rank adapters that are merged into them."""

    labels: ClassVar[Labels] = {
        TRAINING: {
            "train": "Weights to train",
            "lora_rank": "LoRA rank",
            "lora_alpha": "LoRA alpha",
            "lora_modules": "Layers with LoRA adapters",
        }
    }

    #: The setting that is the learning rate of the adapters.
    adapters_rate: ClassVar[str] = "rate"
    #: What is trained → its rate without a setting, where that is not the default.
    rates: ClassVar[Mapping[str, float]] = {"lora": LORA_RATE}

    train: Literal["full", "lora"] = Field(
        "full",
        description="What is trained: all weights, or low-rank adapters, which are merged into the "
        "weights afterwards (LoRA).",
    )
    lora_rank: int = Field(8, ge=1, le=65_536, description="Rank of the adapters.")
    lora_alpha: float = Field(
        16.0, gt=0, description="An adapter's product is multiplied by this over the rank."
    )
    lora_modules: tuple[str, ...] = Field(
        (),
        max_length=64,
        description="Last parts of the names of the layers that get adapters, such as q_proj or "
        "mlp.up_proj; none: all linear layers of the blocks.",
    )

    @model_validator(mode="before")
    @classmethod
    def _rated(cls, given: object) -> object:
        """Return the settings; if there is no learning rate, with that of `rates` for it."""
        if not isinstance(given, dict):
            return given  # pyright: ignore[reportUnknownVariableType]  # the check says nothing of it
        settings = cast("dict[str, object]", given)
        rate = cls.rates.get(str(settings.get("train")))
        if rate is None or settings.get(cls.adapters_rate) is not None:
            return settings
        return {**settings, cls.adapters_rate: rate}

    @model_validator(mode="after")
    def _served(self) -> Self:
        optimiser = getattr(self, "optimiser", "adamw")
        if self.train == "lora" and optimiser != "adamw":
            raise ValueError(f"the optimiser {optimiser} is for whole matrices: adapters need adamw")
        return self


#: Domains of the built-in text (`evaluation.data.builtin.corpus.KNOWN`; a test compares them).
KNOWN = ("code", "math", "data", "prose", "multilingual", "chains")
#: Shares of built-in text that is trained on: those that a base of `forge cognate` is trained on.
MIX = {"prose": 0.45, "code": 0.45, "math": 0.04, "data": 0.06}

Positive = Annotated[float, Field(gt=0)]
Domain = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")]


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names as they are. Raises ValueError if a name stands twice."""
    if len(set(names)) < len(names):
        raise ValueError("give each name once")
    return names


def weighted(mix: dict[str, float] | None) -> dict[str, float] | None:
    """Return `mix` as it is. Raises ValueError if it has no domain; None is allowed."""
    if mix == {}:
        raise ValueError("give at least one domain its weight, or leave it out")
    return mix


#: What the passes of a training compute in; it is determined at the start and pinned in the profile.
Precision = Literal["auto", "float32", "bfloat16"]
PRECISION = (
    "Arithmetic of the passes; auto: bfloat16 if the device multiplies in it and the model has five "
    "million parameters or more. Weights and optimiser are float32."
)


class Length(BaseModel):
    """The length of a training that is told in tokens."""

    labels: ClassVar[Labels] = {TRAINING: {"tokens": "Tokens to train on"}}

    tokens: int = Field(1_000_000, ge=1, description="Tokens that each training reads: all arms alike.")


class StepsConfig(BaseModel):
    """Settings of a training from a given model on any data: batches and arithmetic."""

    labels: ClassVar[Labels] = {
        TRAINING: {
            "batch": "Windows of a step",
            "context": "Tokens of a window",
            "optimiser": "Optimiser",
            "precision": "Precision",
            "accumulation": "Gradient accumulation",
            "checkpointing": "Gradient checkpointing",
        }
    }

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    batch: int = Field(16, ge=1, le=65_536, description="Windows of a step.")
    context: int | None = Field(
        None,
        ge=8,
        le=1 << 20,
        description="Tokens of a window; none: 256, or fewer if the model takes no more.",
    )
    optimiser: Literal["adamw", "muon"] = Field(
        "adamw", description="AdamW; or Muon on hidden matrices with AdamW on the rest."
    )
    precision: Precision = Field("auto", description=PRECISION)
    accumulation: int = Field(
        1, ge=1, description="Parts that a step's windows are computed in, to need less memory."
    )
    checkpointing: bool = Field(
        False, description="Compute activations again in the backward pass, to need less memory."
    )

    @field_validator("accumulation")
    @classmethod
    def _divides(cls, given: int, info: object) -> int:
        batch = getattr(info, "data", {}).get("batch")
        if batch and batch % given:
            raise ValueError(f"a batch of {batch} cannot be computed in {given} equal parts")
        return given

    def steps_of(self, context: int) -> int:
        """Return the number of steps of a training on windows of `context` tokens."""
        raise NotImplementedError


class TokensConfig(StepsConfig, Length):
    """Settings of a training on any data whose length is told in tokens."""

    @override
    def steps_of(self, context: int) -> int:
        return max(1, self.tokens // (self.batch * context))


class TextConfig(StepsConfig):
    """Settings of a training on text, but for its length."""

    labels: ClassVar[Labels] = {
        DATA: {
            "domains": "Domains",
            "mix": "Mix of domains",
            "characters": "Characters of built-in text",
            "seed": "Seed",
        },
        LIMITS: {"device": "Device"},
    }

    domains: tuple[Domain, ...] = Field(
        ("code", "math", "data"),
        min_length=1,
        description=f"Domains that are measured: of {', '.join(KNOWN)}; with data of your own, its "
        "domains.",
    )
    mix: dict[Domain, Positive] | None = Field(
        None,
        description="Domain → its weight in what is trained on; none: that of a base of forge cognate, "
        "or with data of your own all domains alike.",
    )
    characters: int = Field(
        4_000_000, ge=100_000, description="Characters of built-in text for each domain."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of text, new weights and batches.")
    device: str = Field(AUTO, description=DEVICE)

    @field_validator("domains")
    @classmethod
    def _distinct(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if len({name.lower() for name in given}) < len(given):
            raise ValueError("give each domain once")
        return given

    _mixed = field_validator("mix")(weighted)

    def reads(self, context: int) -> int:
        """Return the number of tokens of ordinary text that a training reads."""
        return self.steps_of(context) * self.batch * context


class AdaptedConfig(Adapted, TextConfig):
    """Settings of a training from a given model, of all weights or of low-rank adapters."""


class TrainingConfig(TextConfig, TokensConfig):
    """Settings of a training on text whose length is told in tokens."""
