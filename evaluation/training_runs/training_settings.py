"""Settings that all kinds of run that train models on text share. Pure."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, Field

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
