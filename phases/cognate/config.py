"""Settings of a cognate run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from phases.cognate.presets import PRESETS, Preset

#: Domains of the built-in text (`evaluation.data.builtin.corpus.KNOWN`; a test compares them).
KNOWN = ("code", "math", "data", "prose", "multilingual")

Positive = Annotated[float, Field(gt=0)]


class CognateConfig(BaseModel):
    """Settings: what is trained, and for how long."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: Literal["mini", "tiny", "small", "25m"] = Field(
        "tiny", description="How large, how long; mini: seconds, to try the machinery."
    )
    domains: tuple[str, ...] = Field(
        ("code", "math", "data"),
        min_length=1,
        description=f"A specialist each: {', '.join(KNOWN)}.",
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of text, weights and batches.")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Arithmetic of the passes; weights and optimiser are float32."
    )
    optimiser: Literal["adamw", "muon", "mugrokfast"] = Field(
        "adamw",
        description="AdamW; Muon on hidden matrices with AdamW on the rest; the same behind Grokfast, "
        "with QK-Clip.",
    )
    base_rate: Positive | None = Field(
        None, description="Peak learning rate of the base's training; none: the preset's."
    )
    specialist_rate: Positive | None = Field(
        None, description="Peak learning rate of the specialists' training; none: the preset's."
    )
    device: str = Field("cpu", description="cpu or cuda:N.")
    max_hours: Positive | None = Field(None, description="Hours by the clock after which it ends.")
    max_device_hours: Positive | None = Field(
        None, description="Hours of work of all devices after which it ends."
    )

    @field_validator("domains")
    @classmethod
    def _known(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(given)) < len(given) or not set(given) <= set(KNOWN):
            raise ValueError(f"give some of {', '.join(KNOWN)}, each once")
        return given

    @property
    def size(self) -> Preset:
        """The preset."""
        return PRESETS[self.preset]
