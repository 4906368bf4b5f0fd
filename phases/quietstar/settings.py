"""Settings of a quietstar run."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from agent_forge.runs.kinds.setting_words import CONSTANTS, TRAINING, Labels
from agent_forge.studies.settings import Positive, TrainingConfig, Watched

#: Tokens of a thought.
ThoughtLength = Annotated[int, Field(ge=1, le=256)]


class QuietstarConfig(TrainingConfig, Watched):
    """Settings: how a model thinks, how long it is trained, and what is measured."""

    labels: ClassVar[Labels] = {
        "Thoughts": {
            "thought_lengths": "Tokens of a thought",
            "passes": "Thoughts per position",
            "ahead": "Tokens that reward a thought",
            "temperature": "Temperature of thoughts",
            "greedy": "Measure with the likeliest thoughts",
        },
        "Losses": {"kl": "Weight of the KL divergence"},
        "Measuring": {
            "hard": "Share of hard tokens",
            "document_tokens": "Tokens of a document",
            "measured_tokens": "Tokens of a domain",
        },
        TRAINING: {"base_tokens": "Tokens before the arms branch", "rate": "Learning rate"},
        CONSTANTS: {
            "own": "Weight of the thought's prediction",
            "settling": "Steps with a fixed share",
            "policy": "Weight of REINFORCE",
            "weight": "First share of thoughts",
        },
    }

    tokens: int = Field(
        100_000, ge=1, description="Tokens that each arm reads: all arms the same windows."
    )
    batch: int = Field(8, ge=1, le=65_536, description="Windows of a step.")
    context: int | None = Field(
        None,
        ge=8,
        le=1 << 20,
        description="Tokens of a window; none: 64, or fewer if the model takes no more with thoughts.",
    )
    base_tokens: int = Field(
        100_000,
        ge=0,
        description="Tokens of ordinary training before the arms branch, so that no arm leaves a "
        "plateau alone; 0: they branch from the given model.",
    )
    rate: Positive = Field(5e-4, description="Peak learning rate of all trainings.")
    thought_lengths: tuple[ThoughtLength, ...] = Field(
        (4,),
        min_length=1,
        max_length=16,
        description="Tokens of a thought; several, as [16, 8, 4]: each for an equal share of the "
        "steps. Measured with the last.",
    )
    passes: int = Field(2, ge=2, le=64, description="Thoughts sampled after each position.")
    ahead: int = Field(2, ge=1, le=64, description="Tokens of the text that a thought is rewarded for.")
    temperature: Positive = Field(1.0, description="Temperature at which thoughts are sampled.")
    greedy: bool = Field(
        False, description="Measure with the likeliest thoughts instead of sampled ones."
    )
    own: float = Field(
        1.0,
        ge=0,
        description="Weight of the thought's own prediction in loss and reward, beside the mixture; 0: "
        "the paper's loss.",
    )
    settling: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the steps in which the share of the thought stays as it began: a model "
        "that never saw a thought would turn it off.",
    )
    policy: float = Field(1.0, ge=0, description="Weight of REINFORCE.")
    kl: float = Field(
        0.1,
        ge=0,
        description="Weight of the divergence, without thoughts, from the model that the arms branch "
        "from; 0: none.",
    )
    weight: float = Field(
        0.1, gt=0, lt=1, description="Share of the thought in the mixture before any training."
    )
    hard: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Share of the held-out tokens that are hard: those that the given model predicts "
        "worst in each domain.",
    )
    document_tokens: int = Field(
        256, ge=8, description="Tokens of a held-out document that are measured, from its start."
    )
    measured_tokens: int = Field(
        16_000, ge=64, description="Tokens of each domain that are measured on a slice, about."
    )
