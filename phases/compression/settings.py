"""Settings of a compression, and its menu: codecs at a rate, by name. Pure.

A name says the codec and its rate: bits a weight, or the step in root mean squares of the weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agent_forge.runs.kinds.setting_words import DATA, LIMITS, Labels
from agent_forge.runs.record.device_setting import AUTO, DEVICE


@dataclass(frozen=True)
class Coding:
    """A codec with its parameters; those that are not named have their defaults."""

    codec: str
    params: Mapping[str, object] = field(default_factory=dict)
    #: Parameters for the embedding that differ from these.
    embedding: Mapping[str, object] = field(default_factory=dict)


#: Steps of the entropy-coded codec, in root mean squares of a matrix, or of each row of an embedding.
STEPS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0)

#: What a matrix falls back to that a codec does not take, and if a weight is too large for 16 bits.
PLAIN, WHOLE = "plain-16", "plain-32"
#: Name → setting.
MENU: Mapping[str, Coding] = {
    WHOLE: Coding("plain@1", {"dtype": "float32"}),
    PLAIN: Coding("plain@1", {"dtype": "float16"}),
    **{f"rtn-{bits}": Coding("rtn@1", {"bits": bits}) for bits in (8, 4, 3, 2)},
    **{f"gptq-{bits}": Coding("gptq@1", {"bits": bits}) for bits in (4, 3, 2)},
    **{f"uniform-{step:g}": Coding("uniform@1", {"step": step}, {"rows": True}) for step in STEPS},
    "ternary": Coding("ternary@1"),
    "seedlm-4": Coding("seedlm@1", {"bits": 4}),
    "seedlm-3": Coding("seedlm@1", {"bits": 3}),
    "vptq-2": Coding("vptq@1", {"vector": 4, "bits": 8}),
    "hyper-6": Coding("hyper@1", {"points": 2048, "classes": 2}),
    "hyper-4": Coding("hyper@1", {"points": 128, "classes": 2}),
    "chain": Coding("chain@1"),
}


#: Bytes of a unit.
UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


class CompressionConfig(BaseModel):
    """Settings of a compression."""

    labels: ClassVar[Labels] = {
        "Size and quality": {
            "budget": "Size of the file",
            "retention": "Quality to keep",
            "regression": "Largest loss in a domain",
        },
        "Codecs": {
            "settings": "Codecs and rates",
            "mixtures": "Mixtures of codecs",
            "calibration": "Tokens for calibration",
        },
        DATA: {"context": "Tokens of context", "seed": "Seed"},
        LIMITS: {"device": "Device"},
    }

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget: int | None = Field(
        None,
        ge=1,
        description="Bytes that the file may take, its tokenizer left out, as a number or as 2MB: the "
        "best model within them is chosen. None: the smallest file that keeps `retention`.",
    )
    retention: float = Field(
        0.95,
        gt=0,
        le=1,
        description="Share of quality that the chosen model keeps, without a budget: bits per byte of "
        "the input over the model's own, on the selection slice.",
    )
    regression: float | None = Field(
        None,
        ge=0,
        description="Largest rise of bits per byte in any domain that the chosen model may have, "
        "without a budget, on the selection slice: 0.05 is 5 %. None: the mean over domains decides.",
    )
    settings: tuple[str, ...] = Field(
        tuple(name for name in MENU if name != WHOLE),
        min_length=1,
        description="Codecs at a rate, each tried on every matrix. Mixtures choose among them.",
    )
    mixtures: int = Field(
        8,
        ge=0,
        le=64,
        description="Mixtures that are tried: a setting for each matrix by how sensitive the model is "
        "to errors there. 0: none.",
    )
    calibration: int = Field(
        16_384,
        ge=0,
        description="Tokens of the train slice that the inputs of layers are read on, for codecs that "
        "round for a layer's outputs. 0: errors count alike in every direction.",
    )
    context: int = Field(
        1024,
        ge=8,
        le=1 << 20,
        description="Tokens that a prediction may look back on; less if the model takes fewer.",
    )
    seed: int = Field(0, description="Of codecs that draw, and of the resamples of intervals.")
    device: str = Field(AUTO, description=DEVICE)

    @field_validator("budget", mode="before")
    @classmethod
    def _in_bytes(cls, value: object) -> object:
        """Return a size such as "300kB" in bytes; other values are unchanged."""
        if not isinstance(value, str):
            return value
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", value)
        if match is None or match[2].lower() not in UNITS:
            raise ValueError(f"{value!r} is no size: give bytes, or for example 300kB, 2MB, 1.5GiB")
        return int(float(match[1]) * UNITS[match[2].lower()])

    @field_validator("settings", mode="before")
    @classmethod
    def _separated(cls, value: object) -> object:
        """Return a tuple of the names that a text separates by commas; others are unchanged."""
        return tuple(value.split(",")) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _known(self) -> Self:
        """Return the settings; raise ValueError if one is not on the menu, or is there twice."""
        if unknown := [name for name in self.settings if name not in MENU]:
            raise ValueError(f"there is no setting {unknown[0]!r}: there are {', '.join(MENU)}")
        if len(set(self.settings)) < len(self.settings):
            raise ValueError("a setting is named twice")
        return self
