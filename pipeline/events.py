"""Events and state of a pipeline, and its settings without outside names for the lineage digest. Pure.

Models and data that come from outside are numbered in the order of their first use. Their contents are
pinned by digest in the phases' runs, and the phases' lineages are part of the pipeline's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from typing_extensions import override

from agent_forge.events import Event
from agent_forge.events.envelope import Data, Plain
from agent_forge.pipeline.config import GateConfig, PipelineConfig
from agent_forge.runs.event_types import Count, Digest, Figure, MadeModel, ModelReference
from agent_forge.runs.kinds import state as common_state
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record import events as common
from agent_forge.runs.record.device_setting import on_cpu
from agent_forge.runs.record.events import Wish

#: The runs of a phase: the phase itself, and the measurement of what it made.
Work = Literal["phase", "measure"]


class Submitted(common.Submitted):
    """A pipeline was asked for."""

    schema_version = 3

    config: PipelineConfig
    #: Model of no phase, as the settings name it → where it was found.
    given: dict[str, ModelReference] = {}
    #: Phase → its data with absolute paths, in order; PHASE:items as the settings have it.
    places: dict[str, tuple[str, ...]] = {}
    #: The items that results are measured on, likewise.
    test: tuple[str, ...] = ()
    #: Ended runs may take the place of phases that would be equal to them.
    reuse: bool = False


class Forked(common.Forked):
    """A pipeline was branched from another."""

    schema_version = 3

    config: PipelineConfig


class Started(common.Started):
    """The pipeline has begun: every phase was checked again where it is carried out."""


class PhaseEnded(common.ChildEnded):
    """The run of a phase has completed."""

    type = "phase_ended"

    #: From 1.
    phase: Count
    name: str
    #: Lineage digest of the phase's run: what equal runs share.
    lineage: Digest
    #: Role → model.
    models: dict[str, MadeModel]
    figures: dict[str, Figure]


class PhaseMeasured(common.ChildEnded):
    """A phase's model was measured beside those that it was made of."""

    type = "phase_measured"

    phase: Count
    name: str
    #: Lineage digest of the measurement.
    lineage: Digest
    figures: dict[str, Figure]


class PhaseFailed(common.ChildEnded):
    """The run or the measurement of a phase has ended without a result, or could not be begun."""

    type = "phase_failed"

    phase: Count
    name: str
    #: refused: the run could not be submitted; `child_version` is 0 then.
    status: Literal["failed", "cancelled", "refused"]
    reason: str
    #: How often users had asked the pipeline for a retry.
    retries: Count


class GateDecided(Event):
    """A figure of a phase was compared with its limit."""

    type = "gate_decided"
    schema_version = 2

    phase: Count
    gate: GateConfig
    #: None: the run has no such figure.
    figure: Figure | None
    verdict: Literal["pass", "pass unchanged", "stop"]
    #: The figure of the phase's best input, on the same items; None if the measurement does not say it.
    baseline: float | None = None


class PassedThrough(Event):
    """A phase's input goes on in the place of its result."""

    type = "passed_through"

    phase: Count
    #: The model that goes on, as the phase was given it.
    reference: str


class GateOverridden(Wish):
    """A user's decision that a pipeline goes on although a gate has stopped it."""

    type = "gate_overridden"

    phase: Count
    reason: str


class Completed(common.Completed):
    """All phases have ended."""

    #: Role → the last phase's models; "" for one that was passed through.
    models: dict[str, MadeModel]


#: Kind → settings whose default has changed: a phase that leaves them out was asked for with these.
_DEFAULTS_OF_2 = {"experts": {"lora": True}}


def _with_defaults_of_2(data: Plain) -> Plain:
    """Return the data of schema 3 from those of 2, with defaults that have changed written out."""
    phases = [
        {**phase, "settings": {**_DEFAULTS_OF_2.get(phase["kind"], {}), **phase.get("settings", {})}}
        for phase in data["config"]["phases"]
    ]
    changed = {"phases": phases} if "phases" in data.get("changes", ()) else {}
    more = {"changes": {**data["changes"], **changed}} if changed else {}
    return {**data, "config": {**data["config"], "phases": phases}, **more}


REGISTRY = common.registry(
    (
        Submitted,
        Forked,
        Started,
        PhaseEnded,
        PhaseMeasured,
        PhaseFailed,
        GateDecided,
        PassedThrough,
        GateOverridden,
        Completed,
    ),
    {
        (GateDecided.type, 1): dict,
        (Submitted.type, 1): on_cpu,
        (Forked.type, 1): on_cpu,
        (Submitted.type, 2): _with_defaults_of_2,
        (Forked.type, 2): _with_defaults_of_2,
    },
)


def _decided(state: PipelineState, event: GateDecided) -> None:
    state.gates[event.phase] = (*state.gates.get(event.phase, ()), event)


def _forked(state: PipelineState, event: Forked) -> None:
    """Apply `forked` to a state: failed phases are tried again, in runs of the fork.

    A fork runs all its phases: it takes over no ended runs.
    """
    common_state.on_forked(state, event)
    state.submitted = state.submitted.model_copy(update={"reuse": False})
    for key in [k for k, answer in state.answers.items() if isinstance(answer, PhaseFailed)]:
        del state.answers[key]


@dataclass
class PipelineState(State):
    """State of a pipeline. The ends of phases are in `answers`, under their tasks' keys."""

    kind: ClassVar[str] = "pipeline"
    registry = REGISTRY
    handlers = common_state.handlers(Submitted, Forked, Started, Completed) | {
        Forked: _forked,
        GateDecided: _decided,
        PassedThrough: common_state.put("passed", "phase"),
        GateOverridden: common_state.put("overridden", "phase"),
    }
    outside = frozenset({PhaseFailed.type, GateOverridden.type})

    #: Phase → its gates' verdicts, in their order.
    gates: dict[int, tuple[GateDecided, ...]] = field(default_factory=dict)
    #: Phase → what goes on in the place of its result.
    passed: dict[int, PassedThrough] = field(default_factory=dict)
    #: Phase → the user's decision to go on.
    overridden: dict[int, GateOverridden] = field(default_factory=dict)

    @classmethod
    @override
    def shared(cls, type_: str, data: dict[str, object], rule: int, device: str) -> dict[str, object]:
        part = super().shared(type_, data, rule, device)
        if rule > 1 and type_ == Submitted.type:
            return {"config": settings(part["config"])}
        if rule > 1 and type_ == PassedThrough.type:  # the settings say which model that is
            return {name: value for name, value in part.items() if name != "reference"}
        return part

    @property
    def numbers(self) -> range:
        """The numbers of its phases, from 1; empty before it is submitted."""
        return range(1, len(self.submitted.config.phases) + 1 if self.submitted else 1)

    def named(self, number: int) -> str:
        """Return the name of a phase."""
        return self.submitted.config.phase(number).name

    def ended_phase(self, number: int) -> PhaseEnded | None:
        """Return the `phase_ended` event of a phase; None if its run has not completed."""
        answers = (self.answers.get(key) for key in self.keys(number))
        return next((event for event in answers if isinstance(event, PhaseEnded)), None)

    def measured_phase(self, number: int) -> PhaseMeasured | None:
        """Return the `phase_measured` event of a phase; None if it is not measured."""
        answers = (self.answers.get(key) for key in self.keys(number, "measure"))
        return next((event for event in answers if isinstance(event, PhaseMeasured)), None)

    def figures(self, number: int) -> dict[str, Figure]:
        """Return name → figure of a phase; figures of its run replace those of its measurement."""
        events = (self.measured_phase(number), self.ended_phase(number))
        return {name: figure for event in events if event for name, figure in event.figures.items()}

    def maker(self, number: int) -> int | None:
        """Return the phase whose model goes on after phase `number`; None: a model of no phase."""
        phase: int | None = number
        while phase is not None and (passed := self.passed.get(phase)) is not None:
            named = self.submitted.config.named(passed.reference)
            phase = named[0] if named else None
        return phase

    def troubles(self, number: int, what: Work = "phase") -> list[PhaseFailed]:
        """Return the `phase_failed` events of a phase's run or measurement, in order."""
        answers = (self.answers.get(key) for key in self.keys(number, what))
        return [event for event in answers if isinstance(event, PhaseFailed)]

    def keys(self, number: int, what: Work = "phase") -> list[str]:
        """Return the keys of a phase's answered tasks, in order, and last the key of the next one."""
        first, answer_keys = f"{what}/{number}", []
        while (key := first + (f"/{len(answer_keys)}" if answer_keys else "")) in self.answers:
            answer_keys.append(key)
        return [*answer_keys, key]


def settings(config: Data) -> Plain:
    """Return recorded settings, with numbers in place of names of models and data of no phase."""
    phases: Sequence[Data] = config.get("phases", ())
    names = {phase["name"] for phase in phases}
    model, entry = _numbering("model", names), _numbering("data", names)

    def phase(phase_settings: Data) -> Plain:
        roles = sorted(phase_settings.get("models", {}).items())
        unchanged = phase_settings.get("unchanged")
        return {
            **phase_settings,
            "models": {role: [model(name) for name in models] for role, models in roles},
            "data": [entry(name) for name in phase_settings.get("data", ())],
            "unchanged": None if unchanged is None else model(unchanged),
        }

    numbered = [phase(table) for table in phases]
    return {**config, "phases": numbered, "test": [entry(name) for name in config.get("test", ())]}


def _numbering(word: str, phases: set[str]) -> Callable[[str], str]:
    """Return a function that numbers references, except references to `phases`."""
    numbers: dict[str, int] = {}

    def named(reference: str) -> str:
        if reference.partition(":")[0] in phases:
            return reference
        return f"{word} {numbers.setdefault(reference, len(numbers) + 1)}"

    return named
