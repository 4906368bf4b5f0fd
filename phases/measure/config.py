"""Settings of a measurement."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from evaluation.data.slices import Slice
from runs.kinds.setting_words import DATA, LIMITS, Labels
from runs.record.device_setting import AUTO, DEVICE


class MeasureConfig(BaseModel):
    """Settings of a measurement."""

    labels: ClassVar[Labels] = {
        DATA: {
            "slice": "Slice of the data",
            "context": "Tokens of context",
            "seed": "Seed",
        },
        LIMITS: {
            "device": "Device",
        },
    }

    model_config = ConfigDict(frozen=True, extra="forbid")

    slice: Slice = Field("test", description="The slice of the data that is measured on.")
    context: int = Field(
        1024,
        ge=8,
        le=1 << 20,
        description="Tokens that a prediction may look back on; less if a model takes fewer.",
    )
    seed: int = Field(0, description="Of the resamples that intervals are computed from.")
    device: str = Field(AUTO, description=DEVICE)
