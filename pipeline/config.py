"""Settings of a pipeline: its phases in order, what each gets from those before, and its gates."""

from __future__ import annotations

from collections.abc import Set
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from agent_forge.runs.kinds.setting_words import LIMITS, Labels
from agent_forge.runs.record.device_setting import AUTO, DEVICE

#: Names of phases: each ends the name of a run.
NAME = r"^[a-z0-9][a-z0-9_-]{0,31}$"
#: What a reference to a phase's items ends with.
ITEMS = "items"

Otherwise = Literal["stop", "pass unchanged"]


def _several(setting: object) -> object:
    """Return a text or a table as a list of one; a list is unchanged."""
    return [setting] if isinstance(setting, str | dict) else setting


Several = Annotated[tuple[str, ...], BeforeValidator(_several)]


class GateConfig(BaseModel):
    """A limit on a figure of the phase's run; it decides whether the pipeline goes on."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    metric: str = Field(description="A figure that the phase's kind of run gives.")
    at_least: float | None = Field(default=None, description="The least value that passes.")
    at_most: float | None = Field(default=None, description="The greatest value that passes.")
    otherwise: Otherwise = Field(
        default="stop",
        description="What follows where the limit is not met: the pipeline stops, or goes on with the "
        "phase's input unchanged.",
    )

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("give at_least or at_most, one of them")
        return self

    def meets(self, value: float, low: float | None, high: float | None) -> bool:
        """Return True if the value passes, or the worse end of its interval if there is one."""
        if self.at_least is not None:
            return (value if low is None else low) >= self.at_least
        assert self.at_most is not None
        return (value if high is None else high) <= self.at_most


class PhaseConfig(BaseModel):
    """One phase: a run of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(pattern=NAME, description="The phase's name, which its run's name ends with.")
    kind: str = Field(description="The kind of run.")
    settings: dict[str, Any] = Field({}, description="The run's settings.")
    models: dict[str, Several] = Field(
        {}, description="Role → models: PHASE or PHASE:ROLE of a phase before, or any model."
    )
    data: Several = Field((), description="Files and folders, or PHASE:items of a phase before.")
    gates: Annotated[tuple[GateConfig, ...], BeforeValidator(_several)] = Field(
        (), validation_alias=AliasChoices("gates", "gate"), description="Limits on its figures."
    )
    unchanged: str | None = Field(
        None,
        description="The model that goes on where a gate passes it through unchanged: one of `models`; "
        "none: the only one.",
    )

    @property
    def given(self) -> tuple[str, ...]:
        """Names of all models that the phase gets, role by role."""
        return tuple(model for models in self.models.values() for model in models)

    @property
    def input(self) -> str | None:
        """The model that may pass unchanged; None if there are several and none is named."""
        models = tuple(dict.fromkeys(self.given))
        return self.unchanged or (models[0] if len(models) == 1 else None)


#: The documents' gates: 95 % of quality kept a phase, no domain 5 % worse, 84 % kept over all phases.
STANDARD = (
    GateConfig(metric="retention", at_least=0.95),
    GateConfig(metric="regression", at_most=0.05),
    GateConfig(metric="cumulative", at_least=0.84),
)


class PipelineConfig(BaseModel):
    """Settings of a pipeline."""

    labels: ClassVar[Labels] = {
        "Pipeline": {"phases": "Phases", "test": "Test items", "gates": "Gates"},
        LIMITS: {"device": "Device"},
    }

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    phases: tuple[PhaseConfig, ...] = Field(
        (),
        validation_alias=AliasChoices("phases", "phase"),
        description="The phases, in the order in which they run.",
    )
    test: Several = Field(
        (),
        description="Items that no phase may use, and on whose test slice results are measured: files, "
        "folders or PHASE:items. None: the items of the first phase that pins items.",
    )
    gates: Annotated[tuple[GateConfig, ...], BeforeValidator(_several)] = Field(
        STANDARD,
        validation_alias=AliasChoices("gates", "gate"),
        description="Limits for every phase that makes one model of models it is given, measured on "
        "`test`. A phase's own gate on the same figure takes the place of one of these.",
    )
    device: str = Field(AUTO, description=f"Device of phases that say nothing else: {DEVICE}")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = {phase.name for phase in self.phases}
        before: set[str] = set()
        for phase in self.phases:
            if phase.name in before:
                raise ValueError(f"two phases are called {phase.name}")
            _check(phase, before, names)
            before.add(phase.name)
        return self

    def phase(self, number: int) -> PhaseConfig:
        """Return the settings of phase `number`, counted from 1."""
        return self.phases[number - 1]

    def named(self, reference: str) -> tuple[int, str] | None:
        """Return (number of a phase, role or "") for a reference to a phase; None for other models."""
        name, _, role = reference.partition(":")
        numbers = [n for n, phase in enumerate(self.phases, start=1) if phase.name == name]
        return (numbers[0], role) if numbers else None

    def first(self) -> tuple[str, ...]:
        """Return the names of the models that the pipeline begins with; () if it makes them."""
        return self.phases[0].given

    def goes_on(self, number: int) -> bool:
        """Return True if a phase is the last, or a later phase gets a model of it."""
        places = (self.named(model) for phase in self.phases[number:] for model in phase.given)
        return number == len(self.phases) or any(place and place[0] == number for place in places)

    def items_of(self, data: str) -> int | None:
        """Return the number of the phase in "PHASE:items"; None for a path."""
        place = self.named(data)
        return place[0] if place and place[1] == ITEMS else None


def _check(phase: PhaseConfig, before: Set[str], names: Set[str]) -> None:
    """Raise ValueError if a phase refers to a later phase, or to a model that it does not get."""
    items = (entry for entry in phase.data if entry.endswith(f":{ITEMS}"))
    for reference in (*phase.given, *items):
        name = reference.partition(":")[0]
        if name in names and name not in before:
            where = "itself" if name == phase.name else f"phase {name}, which comes later"
            raise ValueError(f"phase {phase.name} is given {reference} of {where}")
    if phase.unchanged is not None and phase.unchanged not in phase.given:
        raise ValueError(
            f"phase {phase.name} is to pass {phase.unchanged} unchanged, which is none of its models"
        )
    if phase.input is None and any(gate.otherwise == "pass unchanged" for gate in phase.gates):
        raise ValueError(
            f"a gate of phase {phase.name} passes its input unchanged: say which model, as `unchanged`"
        )
