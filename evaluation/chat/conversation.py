"""Conversations: messages, settings of a reply, a reply as it grows, and how much of the past fits.

A speaker (`Speaker`) is a model that replies: `evaluation.chat.resident` holds it in this process,
`evaluation.chat.llama_cpp` in llama.cpp. Messages have the form of chat templates: `role` and
`content`. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Literal, Protocol

from agent_forge.runs.errors import ConfigError

Message = Mapping[str, str]
#: Why a reply ended: the model's end token, `max_tokens`, the end of the context, or `Reply.stop`.
Reason = Literal["end", "length", "context", "stopped"]


@dataclass(frozen=True)
class ReplySettings:
    """Settings by which a reply's tokens are chosen."""

    #: Tokens of the longest reply.
    max_tokens: int = 512
    #: 0: always the likeliest token; None: as the model's own settings say, or else 0.
    temperature: float | None = None
    #: Draw among the likeliest tokens that together have this probability; None: as the model says.
    top_p: float | None = None
    #: Part of the key of all random numbers.
    seed: int = 0


@dataclass(frozen=True)
class Piece:
    """Piece that a reply grew by: text, tokens, and why it has ended if this is its last piece."""

    text: str = ""
    tokens: int = 0
    reason: Reason | None = None


class Reply(Iterator[str]):
    """A reply as it grows: an iterator of pieces of text, none of which cuts a character.

    `text`, `tokens` and, after the last piece, `reason` say what has been written so far.
    """

    def __init__(self, pieces: Iterator[Piece], stopping: Event) -> None:
        """Take a speaker's pieces; the speaker ends them once `stopping` is set."""
        self._pieces, self._stopping = pieces, stopping
        self.text, self.tokens = "", 0
        self.reason: Reason = "stopped"

    def __next__(self) -> str:
        """Return the next piece of text, which is never empty."""
        for piece in self._pieces:
            self.tokens += piece.tokens
            self.reason = piece.reason or self.reason
            self.text += piece.text
            if piece.text:
                return piece.text
        raise StopIteration

    def stop(self) -> None:
        """Let the reply end after its current token. May be called from a handler of signals."""
        self._stopping.set()


class Speaker(Protocol):
    """Interface of a model that replies."""

    name: str
    #: One line for people: what is loaded, and where it is computed.
    described: str
    #: Tokens of a conversation with its reply; None: no limit is known.
    positions: int | None
    #: True if the model has a chat template; else it continues texts.
    templated: bool

    def ids(self, messages: Sequence[Message]) -> list[int]:
        """Return a list of the token ids of a conversation, up to where the reply begins.

        Without a template: the texts of all messages, one directly behind another.
        Raise ConfigError if the template refuses the conversation.
        """
        ...

    def reply(self, ids: Sequence[int], settings: ReplySettings) -> Reply:
        """Return a `Reply` that grows as it is read; model, ids and settings alone decide its text."""
        ...


def fitting(
    speaker: Speaker, messages: Sequence[Message], settings: ReplySettings
) -> tuple[list[Message], list[int]]:
    """Return (messages that fit into the model's context with a reply, their token ids).

    The oldest turns are dropped (a user's message and its reply); a system message and the newest
    message stay. At most half of the context is kept free for the reply. Raise ConfigError if the
    newest message alone leaves no token for a reply.
    """
    remaining = list(messages)
    ids = speaker.ids(remaining)
    if speaker.positions is None:
        return remaining, ids
    first = 1 if remaining[0]["role"] == "system" else 0
    room = speaker.positions - min(settings.max_tokens, speaker.positions // 2)
    while len(ids) > room and len(remaining) > first + 1:
        del remaining[first : first + 2]
        ids = speaker.ids(remaining)
    if len(ids) >= speaker.positions:
        raise ConfigError(
            f"this has {len(ids):,} tokens, and {speaker.name} takes {speaker.positions:,} with the "
            "reply. Shorten it."
        )
    return remaining, ids


def limit(speaker: Speaker, ids: Sequence[int], settings: ReplySettings) -> tuple[int, Reason]:
    """Return (most tokens that the reply may have, reason of its end once it has them all)."""
    left = settings.max_tokens if speaker.positions is None else speaker.positions - len(ids)
    return (left, "context") if left < settings.max_tokens else (settings.max_tokens, "length")
