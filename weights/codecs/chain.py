"""Codec `chain@1`: several codecs in a row; each encodes the matrix that the previous one decodes.

The bytes are those of the last codec alone. So a chain has the rate of its last codec and the errors of
all: encoding the same numbers again replaces the rate, it does not multiply it. The default is the
chain of the source documents: SeedLM, VPTQ, Hyper-compression, at their default settings. It is here to
be compared with its parts, and is not recommended.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator

from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights import algorithms, codecs
from agent_forge.weights.codecs import Coded, matrices

#: The name of this codec, which no step may have.
NAME = "chain@1"


class ChainStep(BaseModel):
    """A codec of a chain."""

    model_config = ConfigDict(extra="forbid")

    codec: str
    params: dict[str, Any] = Field(default_factory=dict, validate_default=True)


class Params(BaseModel):
    """Settings of a chain."""

    model_config = ConfigDict(extra="forbid")

    #: The codecs, in order.
    steps: tuple[ChainStep, ...] = Field(
        (ChainStep(codec="seedlm@1"), ChainStep(codec="vptq@1"), ChainStep(codec="hyper@1")),
        min_length=1,
        max_length=8,
        validate_default=True,
    )

    @field_validator("steps")
    @classmethod
    def _complete(cls, steps: tuple[ChainStep, ...]) -> tuple[ChainStep, ...]:
        """Return the tuple of steps with every default written out. Raises ConfigError if bad."""
        for step in steps:
            if step.codec == NAME:
                raise ConfigError("a chain cannot be a step of a chain: list its steps instead.")
        return tuple(
            ChainStep(
                codec=step.codec,
                params=algorithms.complete(codecs.of(step.codec).Params, step.params, step.codec),
            )
            for step in steps
        )


class CodecChain:
    """The codec `chain@1`."""

    Params = Params

    def encode(
        self, matrix: torch.Tensor, gram: torch.Tensor | None, params: Params, seed: int
    ) -> Coded:
        """Return the coded matrix. Raises ConfigError for a shape that a step does not take."""
        matrices.check(matrix, gram)
        *first, last = params.steps
        for step in first:
            coded = codecs.encode(step.codec, matrix, step.params, gram, seed)
            matrix = codecs.decode(step.codec, coded)
        coded = codecs.encode(last.codec, matrix, last.params, gram, seed)
        return Coded(coded.shape, {"codec": last.codec, "header": coded.header}, coded.parts)

    def decode(self, coded: Coded) -> torch.Tensor:
        """Return the matrix decoded by the last codec, float32. Raises SourceError for others."""
        name, header = coded.header.get("codec"), coded.header.get("header")
        if name == NAME or name not in codecs.CODECS or not isinstance(header, dict):
            raise SourceError(f"the header names no codec that ends a chain: {name!r}.")
        return codecs.decode(name, Coded(coded.shape, header, coded.parts))
