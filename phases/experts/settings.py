"""Settings of an experts run."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from agent_forge.evaluation.task_families.families import LEVELS
from agent_forge.runs.kinds.setting_words import CONSTANTS, TRAINING, Labels
from agent_forge.studies.settings import Domain, Positive, TrainingConfig, Watched

Part = Literal["attention", "mlp"]
Training = Literal["cross-entropy", "reinforce", "cem"]
#: A relative change.
Relative = Annotated[float, Field(ge=0)]


class ExpertsConfig(TrainingConfig, Watched):
    """Settings: which experts are trained, how their mixtures are searched, what dispatch reads."""

    labels: ClassVar[Labels] = {
        "Experts": {
            "experts": "Experts",
            "parts": "Parts of the blocks",
            "neutral": "Neutral domain",
            "families": "Task families",
            "levels": "Levels of difficulty",
            "pool": "Tasks to train on",
            "family_items": "Tasks to choose and test on",
            "weak": "Success that needs no expert",
        },
        "Search of mixtures": {
            "evaluations": "Mixtures to measure",
            "population": "Mixtures of a generation",
            "elite": "Size of the elite",
            "finalists": "Finalists",
            "scale": "Step of the first factors",
            "windows": "Windows of a measurement",
            "drift": "Loss allowed on neutral text",
        },
        "Adapting to a domain": {
            "shots": "Windows of training text",
            "prompt": "Tokens that the classifier reads",
        },
        TRAINING: {
            "train": "Method",
            "rate": "Learning rate",
            "reinforce_rate": "Learning rate of reinforce",
            "replies": "Replies of a step",
            "kl": "Weight of the KL divergence",
            "lora": "Also train LoRA adapters",
            "lora_rate": "Learning rate of LoRA",
        },
        CONSTANTS: {
            "apart": "Distance of finalists",
            "margin": "Gap of a hopeless mixture",
            "probe": "Windows before giving up",
            "pull": "Pull towards the given model",
            "spread": "Spread of the first vectors",
            "rounds": "Rounds of the cross-entropy method",
            "points": "Mixtures of a round",
        },
    }

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
    families: tuple[Domain, ...] = Field(
        (),
        max_length=16,
        description="Task families that are measured like domains, by their answers, and that experts "
        "may be of; docs/curriculum.md lists them.",
    )
    levels: int = Field(
        1, ge=1, le=LEVELS, description="Levels of difficulty of each family: 1 to this one."
    )
    pool: int = Field(500, ge=2, le=100_000, description="Tasks of each family to train on, at most.")
    family_items: int = Field(
        100, ge=8, le=10_000, description="Tasks of each family to choose by, and to test on."
    )
    weak: float = Field(
        0.9,
        ge=0,
        le=1,
        description="A family gets an expert if the given model solves less than this share of it.",
    )
    train: Training = Field(
        "cross-entropy",
        description="How vectors are trained: by cross-entropy; those of families by reinforce, from "
        "the model's own replies and a check of them; or all by cem, the cross-entropy method, without "
        "gradients. Each reads as many tokens.",
    )
    rate: Positive = Field(0.1, description="Peak learning rate of the vectors.")
    reinforce_rate: Positive = Field(0.03, description="The same by reinforce.")
    replies: int = Field(
        64, ge=2, le=65_536, description="Replies that a step of reinforce samples, one to a prompt."
    )
    kl: float = Field(
        0.1,
        ge=0,
        description="Weight of the divergence from the given model in reinforce, in rewards a nat.",
    )
    spread: Positive = Field(
        0.1, description="Standard deviation of the first vectors that cem tries, around 1."
    )
    pull: float = Field(
        0.0, ge=0, description="Weight of the mean of (z − 1)² in the loss of an expert."
    )
    lora: bool = Field(
        False,
        description="Train low-rank adapters of about as many numbers beside each expert, on the same "
        "windows: their gain and damage are told beside its own. They are no part of mixtures.",
    )
    lora_rate: Positive = Field(0.013, description="Peak learning rate of the adapters.")
    evaluations: int = Field(
        5_000, ge=0, description="Mixtures that each arm of the search measures; 0: no search."
    )
    population: int = Field(50, ge=4, le=1_000, description="Mixtures of a generation.")
    elite: int = Field(
        5,
        ge=0,
        description="Mixtures that always survive, as the best by what the result is chosen by; 0: "
        "fronts and crowding alone decide, as in NSGA-II.",
    )
    finalists: int = Field(
        8,
        ge=1,
        le=100,
        description="Mixtures of each arm that are made and measured again, on the selection slice.",
    )
    apart: float = Field(
        0.2,
        ge=0,
        description="Finalists of an arm differ by more than this in a factor; 0: those that survive "
        "best, also if they are all but one mixture.",
    )
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
        0.02, description="How much worse in every domain than one of the models before is far behind."
    )
    drift: Relative = Field(
        0.005, description="Largest relative loss on neutral text of a mixture that may be the result."
    )
    shots: int = Field(
        8, ge=1, description="Windows of training text that a domain's mixture is found from."
    )
    rounds: int = Field(8, ge=1, le=100, description="Rounds of the cross-entropy method.")
    points: int = Field(
        16,
        ge=4,
        le=1_000,
        description="Mixtures of a round, and vectors of a step of cem; a quarter is followed.",
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

    @field_validator("parts", "families")
    @classmethod
    def _once(cls, given: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if len(set(given)) < len(given):
            noun = "part" if info.field_name == "parts" else "family"
            raise ValueError(f"give each {noun} once")
        return tuple(sorted(given))

    @model_validator(mode="after")
    def _fits(self) -> ExpertsConfig:
        """Return the settings; raise ValueError if they contradict each other."""
        if self.probe > self.windows:
            raise ValueError(f"probe is {self.probe}, a mixture is measured on {self.windows} windows")
        if self.train == "reinforce" and not self.families:
            raise ValueError("reinforce needs answers that can be checked: set families")
        if both := sorted(set(self.families) & set(self.domains)):
            raise ValueError(f"{both[0]} is a domain and a family: name the domain otherwise")
        return self
