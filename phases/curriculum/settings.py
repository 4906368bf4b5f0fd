"""Settings of a curriculum run."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from agent_forge.evaluation.task_families.families import LEVELS
from agent_forge.runs.kinds.setting_words import DATA, LIMITS, TRAINING, Labels
from agent_forge.runs.record.device_setting import AUTO, DEVICE
from agent_forge.studies.settings import KNOWN, Domain, Positive, TokensConfig, Watched, distinct

#: A share or a rate of success.
Rate = Annotated[float, Field(ge=0, le=1)]
Addition = Literal["chaos", "dreams", "self_model"]
Arm = Literal["adaptive", "uniform", "easy_to_hard", "chaos", "dreams", "self_model", "stages"]
Rule = Literal["window", "frontier"]
#: The arms that are trained without a setting.
ARMS: tuple[Arm, ...] = ("adaptive", "uniform", "easy_to_hard")
ADDITIONS: tuple[Addition, ...] = get_args(Addition)
#: Stages of training in the arm `stages`; the assessment before them is the first of seven.
STAGED = 6
#: Fewest items of a cell by which a level is passed or lost.
EVIDENCE = 8


class CurriculumConfig(TokensConfig, Watched):
    """Settings: the tasks, how long is trained on them, and by which rule the next mix is chosen."""

    labels: ClassVar[Labels] = {
        "Tasks": {
            "families": "Task families",
            "levels": "Levels of difficulty",
            "pool": "Items to train on",
            "selection_items": "Items to measure success on",
            "test_items": "Items to compare on",
        },
        "Curriculum": {
            "arms": "Arms",
            "adds": "Additions to adaptive",
            "segments": "Segments",
            "rule": "Rule of the next mix",
            "low": "Lowest success at the edge",
            "high": "Highest success at the edge",
            "promote": "Success that passes a level",
            "demote": "Success that loses a level",
            "replay": "Weight of passed levels",
            "trickle": "Least weight of a level",
            "cap": "Cap of a stuck family",
            "patience": "Segments until a family is stuck",
        },
        "Chaos": {
            "burst_every": "Segments between bursts",
            "burst_share": "Length of a burst",
            "burst_rate": "Learning rate in a burst",
            "burst_noise": "Noise in a burst",
            "relapse": "Success that a burst may lose",
        },
        "Dreams and self-model": {
            "dream": "Share of dreams",
            "dream_items": "Dreams of a level",
            "self_weight": "Weight of the self-model",
            "self_layer": "Block of the self-model",
        },
        TRAINING: {"rate": "Learning rate"},
        DATA: {
            "text": "Share of ordinary text",
            "text_domains": "Domains of ordinary text",
            "text_tokens": "Tokens of ordinary text",
            "characters": "Characters of built-in text",
            "seed": "Seed",
        },
        LIMITS: {"device": "Device"},
    }

    rate: Positive = Field(2e-3, description="Peak learning rate.")
    families: tuple[str, ...] = Field(
        ("addition", "automaton-110", "brackets", "lookup", "reversal", "sort-digits"),
        min_length=1,
        description="Task families; docs/curriculum.md lists them.",
    )
    levels: int = Field(
        LEVELS, ge=1, le=LEVELS, description="Levels of difficulty of each family: 1 to this one."
    )
    segments: int = Field(
        20, ge=1, le=100, description="Parts of each training; the mix is chosen before each."
    )
    pool: int = Field(
        2000, ge=16, le=100_000, description="Items of each family and level to train on, at most."
    )
    selection_items: int = Field(
        24,
        ge=EVIDENCE,
        le=10_000,
        description="Items of each family and level that success is measured on between segments, at "
        "most.",
    )
    test_items: int = Field(
        100,
        ge=EVIDENCE,
        le=10_000,
        description="Items of each family and level that the arms are compared on, at most.",
    )
    arms: tuple[Arm, ...] = Field(
        ARMS,
        min_length=1,
        description="What is trained, on as many tokens: adaptive follows success; uniform has all "
        "levels alike; easy_to_hard adds level after level; chaos, dreams and self_model are adaptive "
        "with that one addition; stages has seven stages, of which the first measures.",
    )
    adds: tuple[Addition, ...] = Field(
        (),
        description="What adaptive has besides: chaos (bursts of noise and learning rate), dreams "
        "(answers of the model itself to tasks that it has passed), self_model (a loss on its own "
        "activations).",
    )
    rule: Rule = Field(
        "window",
        description="How adaptive chooses: window gives each level a weight, and a family that is "
        "stuck its next level; frontier gives most of its items to the first level that is not passed.",
    )
    low: Rate = Field(0.6, description="Success from which a level is at the edge of chaos.")
    high: Rate = Field(0.9, description="Success up to which a level is at the edge of chaos.")
    promote: Rate = Field(0.9, description="Success above which a level is passed.")
    demote: Rate = Field(
        0.5,
        description="Success below which a level that was passed counts as lost, by the rule frontier.",
    )
    replay: Rate = Field(
        0.2,
        description="By the rule window the weight of a level that is passed, where one to be learned "
        "has 1; by the rule frontier the share of the levels that were passed.",
    )
    trickle: Rate = Field(
        0.1,
        description="By the rule window the weight that every level has at least; by the rule frontier "
        "the share that is spread evenly over all levels.",
    )
    cap: Rate = Field(
        0.5,
        description="Share of a family that does not move, as a part of what it would have had, by the "
        "rule frontier.",
    )
    patience: int = Field(
        2,
        ge=1,
        description="Segments without a promotion after which a family does not move: by the rule "
        "window its next level is opened, by the rule frontier its share is capped.",
    )
    burst_every: int = Field(
        4, ge=2, description="Segments from one burst of chaos to the next; the last one has none."
    )
    burst_share: Annotated[float, Field(gt=0, le=1)] = Field(
        0.25, description="Share of a segment's steps that a burst lasts, from the first one on."
    )
    burst_rate: float = Field(
        3.0, ge=1, le=10, description="Factor of the learning rate during a burst."
    )
    burst_noise: Rate = Field(
        0.2, description="Noise on the embeddings during a burst, as a share of their root mean square."
    )
    relapse: Rate = Field(
        0.05,
        description="Success that a segment with a burst may lose, the mean over levels; if it loses "
        "more, the next segment begins with the model before the burst.",
    )
    dream: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="Share of the items that are dreams, where a level is passed."
    )
    dream_items: int = Field(
        64, ge=1, le=10_000, description="Dreams of each level that is passed, at most."
    )
    text: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="Share of the items that are windows of ordinary text, so that the model keeps "
        "what it knew; 0: none.",
    )
    text_domains: tuple[Domain, ...] = Field(
        ("code", "math", "data"),
        min_length=1,
        description=f"Domains of built-in text that they are of, all alike: of {', '.join(KNOWN)}.",
    )
    text_tokens: int = Field(64, ge=8, le=1 << 16, description="Tokens of such a window.")
    characters: int = Field(
        1_000_000, ge=100_000, description="Characters of such text for each domain."
    )
    self_weight: Positive = Field(0.1, description="Weight of the loss of the self-model.")
    self_layer: int | None = Field(
        None, ge=0, description="Block whose activations the self-model predicts; none: the middle one."
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of items and batches.")
    device: str = Field(AUTO, description=DEVICE)

    _distinct = field_validator("families", "arms", "adds", "text_domains")(distinct)

    @field_validator("text_domains")
    @classmethod
    def _there(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in given if name not in KNOWN]:
            raise ValueError(f"there is no built-in text of {unknown[0]}: of {', '.join(KNOWN)}")
        return given

    @model_validator(mode="after")
    def _agrees(self) -> CurriculumConfig:
        if not self.demote <= self.low <= self.high <= self.promote:
            raise ValueError("demote, low, high and promote must not decrease")
        if self.replay + self.trickle >= 1:
            raise ValueError("replay and trickle together must be below 1")
        return self

    @model_validator(mode="after")
    def _adds(self) -> CurriculumConfig:
        if twice := [addition for addition in self.adds if addition in self.arms]:
            raise ValueError(f"adaptive has {twice[0]} already, so the arm {twice[0]} is the same")
        if "stages" in self.arms and self.segments < STAGED:
            raise ValueError(f"the arm stages needs {STAGED} segments at least")
        chaos = "chaos" in (*self.arms, *self.adds)
        if chaos and self.burst_every >= self.segments:
            raise ValueError("no segment has a burst: burst_every must be below segments")
        if (chaos or "stages" in self.arms) and self.burst_rate == 1 and not self.burst_noise:
            raise ValueError("a burst changes nothing: give burst_rate or burst_noise")
        return self
