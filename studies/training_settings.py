"""Settings that several kinds of run that train models on text share. Pure."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from runs.kinds.setting_words import TRAINING, Labels


class Watched(BaseModel):
    """The setting of the watch over a training's loss."""

    labels: ClassVar[Labels] = {
        TRAINING: {
            "divergence": "Limit of a diverging loss",
        },
    }

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
        },
    }

    #: The setting that is the learning rate of the adapters.
    adapters_rate: ClassVar[str] = "rate"

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
    def _rated(cls, given: Any) -> Any:
        """Write out the learning rate of adapters if there is none: they need a larger one."""
        if not isinstance(given, dict) or given.get("train") != "lora":
            return given
        rate = given.get(cls.adapters_rate)
        return {**given, cls.adapters_rate: LORA_RATE if rate is None else rate}

    @model_validator(mode="after")
    def _served(self) -> Self:
        optimiser = getattr(self, "optimiser", "adamw")
        if self.train == "lora" and optimiser != "adamw":
            raise ValueError(
                f"the optimiser {optimiser} is for whole matrices: adapters need adamw"
            )
        return self
