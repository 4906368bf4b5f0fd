"""Settings of a bake."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from agent_forge.evaluation.verifiers.form import AnyForm
from agent_forge.runs.kinds.setting_words import TRAINING, Labels
from agent_forge.studies.settings import KNOWN, LORA_RATE, AdaptedConfig, Domain, Positive, Watched

#: Text of a prompt.
Prompt = Annotated[str, Field(min_length=1, max_length=65_536)]
#: Weight of a term of the loss.
Weight = Annotated[float, Field(ge=0)]
#: Share of the steps at which a training is stopped.
Stop = Annotated[float, Field(gt=0, lt=1)]
#: Fewest contexts that a slice must have.
LEAST = 8


class BakeConfig(AdaptedConfig, Watched):
    """Settings: the prompts, what they are baked on, how long and how strongly."""

    labels: ClassVar[Labels] = {
        "Prompts": {
            "prompts": "Prompts to bake",
            "checks": "Checks of replies",
            "sequence": "One prompt after the other",
            "pursuit": "Further bakes of the same prompts",
            "own_replies": "Further bakes on own replies",
            "singly": "Measure each prompt alone",
            "chat": "Chat template",
        },
        "Contexts and replies": {
            "contexts": "Domains of contexts",
            "built_in": "Domains of ordinary text",
            "context_tokens": "Tokens of a context",
            "reply_tokens": "Tokens of a reply",
            "trajectories": "Replies to train on",
            "held_out": "Held-out contexts",
            "beyond": "Text before far contexts",
        },
        "What stays as it is": {
            "others": "Other prompts",
            "generic": "General prompts",
            "others_weight": "Weight of other prompts",
            "neutral_weight": "Weight of ordinary text",
            "neutral_tokens": "Tokens of ordinary text",
        },
        "Choice of the result": {
            "strengths": "Strengths to measure",
            "stops": "Shares of the steps to measure",
        },
        TRAINING: {"steps": "Steps", "rate": "Learning rate", "top": "Tokens compared one by one"},
    }

    prompts: tuple[Prompt, ...] = Field(
        (),
        description="Texts of the prompts, at least one; several are baked together, in their order. "
        "`forge bake` reads them from files.",
    )
    checks: tuple[AnyForm | None, ...] = Field(
        (),
        description="For each prompt, how a reply is checked, or none. The share of replies that pass "
        "is measured of the given model with and without the prompts, and of the result. `forge bake` "
        "reads NAME.check.json beside a prompt's file.",
    )
    sequence: bool = Field(
        False,
        description="Bake several prompts one after the other. The teacher is always the given model, "
        "under all prompts up to that one.",
    )
    pursuit: int = Field(
        0,
        ge=0,
        le=16,
        description="Further bakes of the same prompts, each with the result before it as the teacher.",
    )
    own_replies: int = Field(
        0,
        ge=0,
        le=16,
        description="Further bakes on replies that the result before them writes without the prompts: "
        "at each token it comes closer to what the given model says after the prompts.",
    )
    singly: bool = Field(
        True, description="Measure of several prompts how much of each the result has kept."
    )
    chat: bool | None = Field(
        None,
        description="True: the prompts are the system message and a context is the user's, by the "
        "tokenizer's chat template; false: they stand before the context; none: by the template if it "
        "has one.",
    )
    contexts: tuple[Domain, ...] = Field(
        (),
        description="Domains whose texts are contexts; none: those of data of your own, or else code. "
        "The other domains are the ordinary text, on which the model is to stay as it is.",
    )
    built_in: tuple[Domain, ...] = Field(
        ("code", "math", "data"),
        description="Domains of built-in text that are ordinary text beside data of your own.",
    )
    context_tokens: int = Field(32, ge=1, description="Tokens of a context, at most.")
    reply_tokens: int = Field(32, ge=1, description="Tokens of a reply to a context, at most.")
    trajectories: int = Field(
        160, ge=LEAST, le=1 << 20, description="Replies to train on; as many under other prompts."
    )
    held_out: int = Field(
        64, ge=LEAST, le=1 << 16, description="Contexts to measure on, in each of two slices."
    )
    others: tuple[Prompt, ...] = Field(
        (), description="Further prompts under which the model is to answer as before."
    )
    generic: bool = Field(
        True, description="Also keep the answers under a few general prompts, one of them untrained."
    )
    others_weight: Weight = Field(
        1.0, description="Weight of the divergence from the given model under other prompts."
    )
    neutral_weight: Weight = Field(
        1.0, description="Weight of the divergence from the given model on ordinary text."
    )
    neutral_tokens: int = Field(
        32, ge=1, description="Tokens of a window of ordinary text, one for each reply of a step."
    )
    top: int | None = Field(
        None,
        ge=1,
        description="Likeliest tokens that are compared one by one, the rest as one; none: the whole "
        "vocabulary.",
    )
    strengths: tuple[Positive, ...] = Field(
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0),
        min_length=1,
        max_length=32,
        description="Shares of the way from the given to the trained model that are measured; one of "
        "them is chosen.",
    )
    stops: tuple[Stop, ...] = Field(
        (),
        max_length=32,
        description="Shares of the steps at which the training as it is then is measured, too: one of "
        "these or of the strengths is chosen.",
    )
    beyond: int | None = Field(
        256,
        ge=1,
        description="Tokens of ordinary text before a further set of contexts to measure on, if the "
        "model takes so long a sequence; none: no such set.",
    )
    steps: int = Field(90, ge=1, description="Steps of the training.")
    rate: Positive = Field(
        3e-4, description=f"Peak learning rate; of adapters {LORA_RATE:g} without a setting."
    )

    @field_validator("prompts", "others")
    @classmethod
    def _said(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if any(not prompt.strip() for prompt in given):
            raise ValueError("a prompt has no text")
        return given

    @field_validator("built_in")
    @classmethod
    def _known(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [domain for domain in given if domain not in KNOWN or domain == "prose"]:
            names = ", ".join(domain for domain in KNOWN if domain != "prose")
            raise ValueError(f"{unknown[0]!r} is not measured: take some of {names}")
        return given

    @field_validator("strengths")
    @classmethod
    def _ascending(cls, given: tuple[float, ...]) -> tuple[float, ...]:
        if list(given) != sorted(set(given)):
            raise ValueError("give each strength once, in ascending order")
        return given

    @field_validator("stops")
    @classmethod
    def _in_order(cls, given: tuple[float, ...]) -> tuple[float, ...]:
        if list(given) != sorted(set(given)):
            raise ValueError("give each stop once, in ascending order")
        return given

    @model_validator(mode="after")
    def _fits(self) -> BakeConfig:
        """Return the settings; raise ValueError if they contradict each other."""
        stops = [round(share * self.steps) for share in self.stops]
        if stops and (len(set(stops)) < len(stops) or not 0 < stops[0] <= stops[-1] < self.steps):
            raise ValueError(
                f"stops are of other steps than 1 to {self.steps - 1}, or of the same ones"
            )
        if len(self.checks) > len(self.prompts):
            raise ValueError(
                f"{len(self.checks)} checks are given for {len(self.prompts)} prompts: each is of one"
            )
        if self.sequence and len(self.prompts) == 1:
            raise ValueError("a sequence needs at least two prompts")
        return self

    @override
    def steps_of(self, context: int) -> int:
        return self.steps

    @override
    def reads(self, context: int) -> int:
        return self.steps * self.batch * self.neutral_tokens if self.neutral_weight else 0
