"""Parameters of objectives that have another objective inside them."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from agent_forge.weights import algorithms
from agent_forge.weights.recipes import Versioned
from agent_forge.weights.training import objectives


class InnerParams(BaseModel):
    """The objective inside, and its parameters, all of them written out."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    #: Names of objectives that cannot be inside, and the subject of the error's sentence.
    refused: ClassVar[tuple[str, ...]] = ()
    what: ClassVar[str] = ""

    objective: Versioned
    params: dict[str, Any] = Field(default={}, validate_default=True)

    @field_validator("objective")
    @classmethod
    def _serves(cls, given: str) -> str:
        if given.partition("@")[0] in cls.refused:
            raise ValueError(f"{cls.what} do not serve the objective {given}")
        return given

    @field_validator("params")
    @classmethod
    def _whole(cls, given: dict[str, object], info: ValidationInfo) -> dict[str, object]:
        """Return the parameters of the inner objective with every default written out."""
        name = info.data.get("objective")
        return given if name is None else algorithms.complete(objectives.of(name).Params, given, name)
