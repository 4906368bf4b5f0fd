"""Settings of a student run."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from runs.kinds.setting_words import TRAINING, Labels
from studies.settings import Positive, TrainingConfig
from studies.training_settings import Watched

#: Share of the given model's size.
Share = Annotated[float, Field(gt=0, le=1)]


class StudentConfig(TrainingConfig, Watched):
    """Settings: how large the student is, how long and how it is trained."""

    labels: ClassVar[Labels] = {
        "Size of the student": {
            "width": "Share of the width",
            "depth": "Share of the layers",
            "hidden": "Hidden size",
            "layers": "Layers",
            "intermediate": "Feed-forward size",
            "heads": "Attention heads",
            "kv_heads": "Key-value heads",
        },
        "Distillation": {
            "distillation": "Weight of distillation",
            "temperature": "Temperature",
            "alone": "Also train without the given model",
        },
        TRAINING: {
            "rate": "Learning rate",
        },
    }

    width: Share = Field(
        0.5,
        description="Share of the given model's hidden size, feed-forward size and heads that the "
        "student has.",
    )
    depth: Share = Field(0.5, description="Share of the given model's layers that the student has.")
    hidden: int | None = Field(None, ge=1, description="Hidden size; none: by `width`.")
    layers: int | None = Field(None, ge=1, description="Layers; none: by `depth`.")
    intermediate: int | None = Field(
        None, ge=1, description="Size of the feed-forward layers; none: by `width`."
    )
    heads: int | None = Field(
        None,
        ge=1,
        description="Attention heads; none: by `width`, or with `hidden` as many as keep their size.",
    )
    kv_heads: int | None = Field(
        None, ge=1, description="Heads of keys and values; none: shared as in the given model."
    )
    rate: Positive = Field(4e-3, description="Peak learning rate.")
    distillation: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Share of the loss that is the divergence from the given model; the text has the "
        "rest.",
    )
    temperature: Positive = Field(
        1.0,
        description="What logits are divided by before the given model and the student are compared.",
    )
    alone: bool = Field(
        True,
        description="Also train the same student without the given model, on the same text; the better "
        "one on the selection slice is the result.",
    )
