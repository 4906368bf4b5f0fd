"""Settings of a baking run."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from agent_forge.runs.kinds.setting_words import CONSTANTS, TRAINING, Labels
from agent_forge.studies.settings import LORA_RATE, AdaptedConfig, Positive, distinct
from agent_forge.tools.tasks.base import LEVELS
from agent_forge.tools.tasks.own import OwnRepair

Prompt = Annotated[str, Field(min_length=1, max_length=65_536)]
Cycle = Literal["tools", "personas"]
CYCLES: tuple[Cycle, ...] = get_args(Cycle)
#: Fewest trajectories that are trained on.
LEAST = 4
#: Characters of all repairs, at most: they are part of an event.
MOST = 4_000_000
#: Prompts under which a model is to answer as before.
OTHERS = (
    "You are a helpful assistant.\n",
    "Answer in one short sentence.\n",
    "Continue the following text.\n",
)


class BakingConfig(AdaptedConfig):
    """Settings: the tasks, the cycles and when they end, and each bake."""

    labels: ClassVar[Labels] = {
        "Tool tasks": {
            "families": "Families of tool tasks",
            "repairs": "Repairs of your own",
            "levels": "Levels of difficulty",
            "train_items": "Tasks to bake on",
            "selection_items": "Tasks to decide by",
            "test_items": "Tasks to compare on",
            "tool_prompt": "Prompt about the tools",
            "form": "Form of tool calls",
            "chat": "Chat template",
            "calls": "Calls of a session",
            "reply_tokens": "Tokens of a turn",
        },
        "Personas": {
            "personas": "Personas",
            "proposal": "Text that proposes a persona",
            "persona_tokens": "Tokens of a persona",
        },
        "Cycles": {
            "cycles": "Cycles",
            "iterations": "Bakes of all cycles",
            "strength": "Strength of a bake",
        },
        "What stays as it is": {
            "others": "Other prompts",
            "others_weight": "Weight of other prompts",
            "neutral_weight": "Weight of ordinary text",
            "neutral_tokens": "Tokens of ordinary text",
        },
        TRAINING: {"steps": "Steps", "rate": "Learning rate"},
        CONSTANTS: {
            "smoothing": "Scores of a moving average",
            "window": "Averages of a slope",
            "epsilon": "Slope that ends a cycle",
        },
    }

    families: tuple[str, ...] = Field(
        ("calculation", "execution", "memory", "repair", "retrieval", "table"),
        description="Families of tool tasks; docs/baking.md lists them.",
    )
    repairs: tuple[OwnRepair, ...] = Field(
        (),
        max_length=2_000,
        description="Repairs of your own, as the family `own`; `--set repairs=@FILE` reads a file.",
    )
    levels: int = Field(2, ge=1, le=LEVELS, description="Levels of difficulty: 1 to this one.")
    train_items: int = Field(48, ge=LEAST, le=10_000, description="Tasks of each family to bake on.")
    selection_items: int = Field(
        16, ge=4, le=10_000, description="Tasks of each family that cycles are decided by."
    )
    test_items: int = Field(
        48, ge=8, le=10_000, description="Tasks of each family that the result is compared on."
    )
    tool_prompt: Prompt | None = Field(
        None, description="The prompt that tells of the tools; none: a standard one lists them."
    )
    form: Literal["auto", "chat", "tags", "brackets", "words"] = Field(
        "auto",
        description="How calls are written; auto: the first of them that the tokenizer can write.",
    )
    chat: bool | None = Field(
        None,
        description="True: prompts are system messages of the chat template; none: if there is one.",
    )
    cycles: tuple[Cycle, ...] = Field(
        CYCLES, min_length=1, description="The cycles, the first one first."
    )
    iterations: int = Field(8, ge=1, le=100, description="Bakes of all cycles, at most.")
    strength: float = Field(
        0.5, gt=0, le=1, description="Share of the way to the trained model in each iteration."
    )
    personas: int = Field(9, ge=1, le=64, description="Personas that the model proposes.")
    proposal: Prompt = Field(
        "You are", description="Text that the model continues to propose a persona."
    )
    persona_tokens: int = Field(16, ge=1, le=512, description="Tokens of a persona, at most.")
    reply_tokens: int = Field(48, ge=1, description="Tokens of a turn, at most.")
    calls: int = Field(2, ge=1, le=16, description="Calls of a session, at most.")
    smoothing: int = Field(2, ge=1, description="Scores that a moving average is taken over.")
    window: int = Field(
        3, ge=2, description="Moving averages over which the slope of a cycle is computed."
    )
    epsilon: float = Field(
        0.01, ge=0, description="Slope, in score an iteration, below which a cycle has ended."
    )
    others: tuple[Prompt, ...] = Field(
        OTHERS, description="Prompts under which the model is to answer as before."
    )
    others_weight: float = Field(
        1.0, ge=0, description="Weight of the divergence from the model before, under these."
    )
    neutral_weight: float = Field(
        1.0, ge=0, description="Weight of the divergence from the model before on ordinary text."
    )
    neutral_tokens: int = Field(
        32, ge=1, description="Tokens of a window of ordinary text, one for each turn of a step."
    )
    steps: int = Field(60, ge=1, description="Steps of each training.")
    rate: Positive = Field(
        3e-4, description=f"Peak learning rate; of adapters {LORA_RATE:g} without a setting."
    )

    _named_once = field_validator("families", "cycles")(distinct)

    @field_validator("repairs")
    @classmethod
    def _once(cls, given: tuple[OwnRepair, ...]) -> tuple[OwnRepair, ...]:
        ids = [each_repair.id for each_repair in given]
        if twice := next((repair_id for repair_id in ids if ids.count(repair_id) > 1), None):
            raise ValueError(f"the repair {twice!r} is there twice")
        first: dict[str, str] = {}
        for repair in given:
            if (other := first.setdefault(repair.question, repair.id)) != repair.id:
                raise ValueError(f"the repairs {other!r} and {repair.id!r} are the same")
        if (size := sum(each_repair.size for each_repair in given)) > MOST:
            raise ValueError(f"all repairs together have {size:,} characters; {MOST:,} at most")
        return given

    @model_validator(mode="after")
    def _agrees(self) -> BakingConfig:
        if not (self.families or self.repairs):
            raise ValueError("there are no tasks: name families, or give repairs")
        if not (self.proposal.strip() and all(prompt.strip() for prompt in self.others)):
            raise ValueError("a prompt has no text")
        if self.tool_prompt is not None and not self.tool_prompt.strip():
            raise ValueError("the tool prompt has no text")
        return self

    @property
    def rehearsed(self) -> tuple[str, ...]:
        """The other prompts that trainings rehearse; () if their weight is 0."""
        return self.others if self.others_weight else ()

    @override
    def steps_of(self, context: int) -> int:
        return self.steps

    @override
    def reads(self, context: int) -> int:
        return self.steps * self.batch * self.neutral_tokens if self.neutral_weight else 0
