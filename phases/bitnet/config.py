"""Settings of a bitnet run."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from runs.kinds.setting_words import TRAINING, Labels
from studies.settings import Positive, TrainingConfig
from studies.training_settings import Watched


class BitnetConfig(TrainingConfig, Watched):
    """Settings: how long is trained, how weights are rounded, what is compared."""

    labels: ClassVar[Labels] = {
        "Ternary weights": {
            "group": "Columns that share a scale",
            "int8_activations": "Int8 activations",
            "quantisation_warmup": "Warm-up of quantisation",
            "distillation": "Weight of distillation",
            "scratch": "Also train from new weights",
        },
        TRAINING: {
            "rate": "Learning rate, ternary",
            "full_rate": "Learning rate, full precision",
        },
    }

    rate: Positive = Field(
        4e-3,
        description="Peak learning rate of ternary training; it takes higher ones than full precision.",
    )
    full_rate: Positive = Field(
        2e-3, description="Peak learning rate of the continued training in full precision."
    )
    group: int = Field(
        0,
        ge=0,
        description="Columns of a row that share a scale; 0: one for each matrix, as the formats for "
        "other programs need.",
    )
    int8_activations: bool = Field(
        True, description="Linear layers read their inputs as int8, with a scale for each token."
    )
    quantisation_warmup: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the steps in which quantisation rises from none to all.",
    )
    distillation: float = Field(
        0.0,
        ge=0,
        description="Weight of the divergence from the model that the run starts from; 0: none.",
    )
    scratch: bool = Field(
        False, description="Also train a ternary model from new weights, with as many tokens."
    )
