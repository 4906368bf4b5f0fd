"""Settings of an experts run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from evaluation.given_model_runs.settings import Domain, Positive, TrainingConfig
from evaluation.training_runs.training_settings import Watched

Part = Literal["attention", "mlp"]
#: A relative change.
Relative = Annotated[float, Field(ge=0)]


class ExpertsConfig(TrainingConfig, Watched):
    """Settings: which experts are trained, how their mixtures are searched, what dispatch reads."""

    domains: tuple[Domain, ...] = Field(
        ("code", "math", "data", "prose"),
        min_length=2,
        description="Domains that are measured: those that experts may be of, and the neutral one. "
        "With data of your own, its domains.",
    )
    neutral: Domain = Field(
        "prose",
        description="Domain of ordinary text, on which a mixture is to stay as the given model is. No "
        "expert is of it. Data of your own without such a domain get the built-in one.",
    )
    tokens: int = Field(250_000, ge=1, description="Tokens that the training of each expert reads.")
    experts: int = Field(
        3,
        ge=1,
        le=16,
        description="Experts at most: of the domains that the given model predicts worst.",
    )
    parts: tuple[Part, ...] = Field(
        ("mlp",),
        min_length=1,
        description="Parts of the blocks whose matrices' singular values are scaled.",
    )
    rate: Positive = Field(0.1, description="Peak learning rate of the vectors.")
    pull: float = Field(
        0.0, ge=0, description="Weight of the mean of (z − 1)² in the loss of an expert."
    )
    lora: bool = Field(
        True,
        description="Train low-rank adapters of about as many numbers beside each expert, on the same "
        "windows: their gain and damage are told beside its own. They are no part of mixtures.",
    )
    lora_rate: Positive = Field(0.013, description="Peak learning rate of the adapters.")
    evaluations: int = Field(
        5_000, ge=0, description="Mixtures that each arm of the search measures; 0: no search."
    )
    population: int = Field(50, ge=4, le=1_000, description="Mixtures of a generation.")
    scale: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Step of the factors of the first mixtures: each technique at ten multiples of it.",
    )
    windows: int = Field(
        8, ge=1, description="Windows of each domain that a mixture is measured on by the search."
    )
    probe: int = Field(
        2,
        ge=1,
        description="Windows of each domain after which a mixture that is far behind is given up.",
    )
    margin: Relative = Field(
        0.02,
        description="How much worse in every domain than one of the models before is far behind.",
    )
    drift: Relative = Field(
        0.005,
        description="Largest relative loss on neutral text of a mixture that may be the result.",
    )
    shots: int = Field(
        8, ge=1, description="Windows of training text that a domain's mixture is found from."
    )
    rounds: int = Field(8, ge=1, le=100, description="Rounds of the cross-entropy method.")
    points: int = Field(
        16, ge=4, le=1_000, description="Mixtures of a round; a quarter is followed."
    )
    prompt: int = Field(
        32, ge=1, description="Tokens of a window that the classifier chooses an expert by."
    )

    @field_validator("optimiser")
    @classmethod
    def _of_vectors(cls, given: str) -> str:
        if given != "adamw":
            raise ValueError("vectors are no matrices: they are trained by adamw")
        return given

    @field_validator("parts")
    @classmethod
    def _once(cls, given: tuple[Part, ...]) -> tuple[Part, ...]:
        if len(set(given)) < len(given):
            raise ValueError("give each part once")
        return tuple(sorted(given))

    @model_validator(mode="after")
    def _fits(self) -> ExpertsConfig:
        """Refuse settings that contradict each other."""
        if self.probe > self.windows:
            raise ValueError(
                f"probe is {self.probe}, a mixture is measured on {self.windows} windows"
            )
        return self
