"""Controls, actions and forks: what users may ask of a run, with which arguments, and when. Pure.

CLI command, API route, MCP tool and Python call are made from this table: pause, resume, cancel, retry,
change priority, import, export. Each is recorded as an event with an actor. `refusal` says why a
command makes no sense in a state; it is called before the event is recorded, and again by an audit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from agent_forge.events import Envelope, Event
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, NotFoundError
from agent_forge.runs.kinds.capability import Capability, S
from agent_forge.runs.kinds.decide import attempts, deaths
from agent_forge.runs.kinds.state import State
from agent_forge.runs.record import events
from agent_forge.runs.record.events import (
    Cancelled,
    Described,
    Paused,
    PriorityChanged,
    Resumed,
    Retried,
    Wish,
)


@dataclass(frozen=True)
class Control:
    """Something that may be asked of a run."""

    word: str
    #: What it does, and what else is to know.
    line: str
    more: str
    #: What is then true of the run, or asked of it; `{value}` is what was given.
    done: str
    #: Arguments of an example behind the run.
    example: str
    #: The event that asks for it; None: an action of some kinds' own (`Actions.act`).
    event: type[Wish] | None = None
    #: What has to be given beside the run: a field of the event, or what the action is about.
    value: str = ""
    #: What the MCP calls it; empty: by the word.
    tool: str = ""
    needs_reason: bool = False
    takes_reason: bool = True
    #: It cannot be undone.
    destroys: bool = False
    #: A second time does nothing further.
    idempotent: bool = True

    @property
    def tool_name(self) -> str:
        """The name of the MCP's tool: a verb and a noun."""
        return self.tool or f"{self.word}_run"

    def asking(self, value: object, reason: str | None) -> Wish | None:
        """Return the event that asks for it, None for a kind's own action. Raises ConfigError."""
        fields = ({self.value: value} if self.value else {}) | {"reason": reason}
        if not self.takes_reason:
            del fields["reason"]
        try:
            if (value is None) == bool(self.value):
                raise ValueError
            return self.event(**fields) if self.event else None
        except ValueError as error:  # pydantic's are of this class
            words = f"the {self.value}" if self.value else "no value"
            raise ConfigError(f"{self.word} takes {words}, not {value!r}.") from error


CONTROLS = {
    control.word: control
    for control in (
        Control(
            "pause",
            "Pause a run; tasks under way are finished.",
            "No new task starts then.",
            "paused",
            '--reason "the GPU is needed"',
            Paused,
        ),
        Control(
            "resume",
            "Resume a paused run.",
            "The process or the workers that carry it go on.",
            "resumed",
            "",
            Resumed,
        ),
        Control(
            "cancel",
            "Cancel a run for good.",
            "Its results stay in the log, and the run can be forked.",
            "cancelled",
            '--reason "wrong data"',
            Cancelled,
            destroys=True,
        ),
        Control(
            "retry",
            "Retry a run: forget its failed attempts.",
            "They are made again, also after the run has failed.",
            "is tried again",
            "",
            Retried,
            idempotent=False,
        ),
        Control(
            "priority",
            "Change a run's priority.",
            "Of one user's runs, those with the highest number go first.",
            "has priority {value}",
            "10",
            PriorityChanged,
            value="priority",
            tool="set_priority",
        ),
        Control(
            "rename",
            "Call a run by another name.",
            "Its id stays. An empty name: its kind and day again.",
            "is called {value}",
            "first-try",
            Described,
            value="name",
            takes_reason=False,
        ),
        Control(
            "override",
            "Let a pipeline go on behind a gate that has stopped it.",
            "The workers, or `forge start --resume RUN`, go on behind it.",
            "goes on behind the gate of {value}",
            'merge --reason "the lead is within noise"',
            value="phase",
            tool="override_gate",
            needs_reason=True,
        ),
    )
}


def control_of(word: str) -> Control:
    """Return the Control of a word such as "pause". Raises ConfigError for an unknown word."""
    if word not in CONTROLS:
        raise ConfigError(f"a run cannot be asked to {word!r}: there is {', '.join(CONTROLS)}.")
    return CONTROLS[word]


def refusal(state: State, event: Event) -> str | None:
    """Return why the run refuses this event in its present state; None if the run accepts it."""
    match event:
        case events.Wish() if type(event) not in events.WISHES:
            return kinds.of(state.kind).actions.refuses(state, event)
        case events.Retried():
            return _no_retry(state)
        case events.Imported():
            return _no_import(state, event)
        case events.Described():
            return None
        case events.Exported():
            return None if state.completed else _no_result(state)
        case events.Cancelled() if kinds.of(state.kind).actions.decision(state) is not None:
            return None  # the user gives it up
        case _ if state.ended:
            return ended(state)
        case events.Paused() if state.paused:
            return "it is paused already"
        case events.Resumed() if not state.paused:
            return "it is not paused"
        case _:
            return None


def _no_result(state: State) -> str:
    """Return why there is nothing to export yet."""
    result = kinds.of(state.kind).result_name
    if state.ended:
        return f"{ended(state)} and has no {result}"
    return f"it is {state.status} and has no {result} yet"


def ended(state: State) -> str:
    """Return how a run has ended, in words: "it is cancelled", "it has failed"."""
    return "it is cancelled" if state.cancelled else f"it has {state.status}"


def _no_import(state: State, event: events.Imported) -> str | None:
    if state.completed or state.cancelled:
        return ended(state)
    return None if event.head == state.head else "its last event is another than was imported"


def _no_retry(state: State) -> str | None:
    if state.failed and not state.cancelled:
        return None
    if state.ended:
        return ended(state)
    failed = [t for t in state.failures if attempts(state, t)]
    died = [t for t in state.deaths if deaths(state, t)]
    return None if failed or died or state.quarantined else "nothing of it has failed"


@dataclass(frozen=True)
class UserDecision:
    """A decision of a user on which it depends how a stopped run goes on."""

    #: What `POST /runs/RUN/actions/override` is about, such as a phase.
    about: str
    #: Why the run has stopped, in a sentence.
    says: str

    def words(self, run: str) -> str:
        """Return a text on why the run has stopped, with the commands by which it goes on."""
        override = f"`forge override {run} {self.about} --reason WHY` and `forge start --resume {run}`"
        return f"{self.says} Go on nevertheless with {override}, or fork it with other settings."


class Actions(Capability[S]):
    """The actions that users may ask of a kind's runs beside those of every run; by default none."""

    def decision(self, state: S) -> UserDecision | None:
        """Return the UserDecision that a stopped run waits for; by default None: it waits for none."""
        return None

    def act(self, state: S, action: str, about: str, reason: str | None) -> list[Event]:
        """Raise NotFoundError; a kind with actions of its own, as `override`, returns their events.

        `about` names the part of the run that is meant. Raises NotFoundError, ConfigError.
        """
        raise NotFoundError(f"run {state.run} is {self.kind.title}, for which there is no {action!r}.")

    def refuses(self, state: S, event: Event) -> str | None:
        """Return why a user's event of the kind's own makes no sense now; by default None: it does."""
        return None


class Forks(Capability[S]):
    """The rules of a kind's forks."""

    def check(self, state: S, changes: Mapping[str, object]) -> None:
        """Raise ConfigError if a fork may not change these settings: by default any after a start."""
        if changes and state.started:
            raise ConfigError(
                f"setting {next(iter(changes))} cannot change in a fork of a run that has started. "
                "Start a new run instead."
            )

    def fields(self, config: BaseModel, changes: Mapping[str, object]) -> dict[str, object]:
        """Return further fields of the kind's `forked` event; by default {}."""
        return {}

    def wrong(self, state: S, fork: events.Forked) -> str | None:
        """Return why the kind's own fields of `forked` do not follow; None, the default, if they do."""
        return None

    def place_of(self, rows: Sequence[Envelope], unit: int) -> int:
        """Raise ConfigError; a kind with units returns the place where a fork redoes a unit's end."""
        raise ConfigError(f"{self.kind.title} is forked at an event: give --at POSITION.")

    def end_of(self, rows: Sequence[Envelope], unit: int) -> int:
        """Raise ConfigError; a kind with generations returns the place right after `unit` has ended."""
        raise ConfigError(f"{self.kind.title} has no generations: name an event, RUN@57.")
