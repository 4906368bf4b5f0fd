"""The table of words that ask something of a run. Pure.

Command, route, MCP tool and Python call are made from this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runs.errors import ConfigError
from runs.record.user_events import (
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
    #: The event that asks for it; None: an action of some kinds' own (`Kind.act`).
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

    def asking(self, value: Any, reason: str | None) -> Wish | None:
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
    """Return what is asked by a word. Raises ConfigError."""
    if word not in CONTROLS:
        raise ConfigError(f"a run cannot be asked to {word!r}: there is {', '.join(CONTROLS)}.")
    return CONTROLS[word]
