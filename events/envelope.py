"""Events (what happened) and envelopes (how an event was recorded)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict

#: A JSON value, to be read: a mapping may be a dict, and a sequence a list or a tuple.
Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | float | bool | None"
#: Data of an event of any type and schema, as recorded: who reads a field knows the schema.
Data: TypeAlias = Mapping[str, Any]
#: Plain data as JSON has it, to be written.
Plain: TypeAlias = dict[str, Any]

_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys, no spaces, no NaN: equal values give equal text and hashes."""
    return _encode(value)


def storable(text: str) -> bool:
    """Return True if the text is UTF-8 without a zero byte, so that every database takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def has_zero(data: str) -> bool:
    """Return True if a value in the JSON text has a zero byte, which JSON writes as an escape.

    Every database takes the escape. A table that is made from the event would get the zero byte.
    """
    # Behind an escaped backslash, u0000 is harmless text.
    return "\\u0000" in data and re.search(r"(?<!\\)(?:\\\\)*\\u0000", data) is not None


class Event(BaseModel):
    """A fact in the past tense. Subclasses are frozen pydantic models registered under a name.

    Fields must survive a round trip through JSON unchanged; floats do (shortest repr).
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants"
    )

    type: ClassVar[str] = ""
    schema_version: ClassVar[int] = 1

    def payload(self) -> str:
        """Return the event's data as canonical JSON."""
        return canonical_json(self.model_dump(mode="json"))


@dataclass(frozen=True)
class Cause:
    """The actor and the cause of an append, recorded with each of its events."""

    actor: str = "system"
    correlation: str | None = None
    causation: str | None = None


class Envelope(NamedTuple):
    """One row of the log; fields in the order of the table's columns."""

    #: Place in the whole log; grows, never reused, explicit.
    position: int
    stream: str
    #: Place in the stream: 1, 2, 3, … without gaps.
    version: int
    event_id: str
    type: str
    schema: int
    #: Canonical JSON.
    data: str
    key: str
    actor: str
    causation: str | None
    correlation: str | None
    #: UTC, ISO 8601 with microseconds.
    recorded_at: str
    code_version: str
    prev_hash: str
    hash: str
