"""Conversations: text that grows by tokens, the part of the past that fits, a reply that is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.evaluation.chat.conversation import (
    Message,
    Piece,
    Reply,
    ReplySettings,
    fitting,
    limit,
)
from agent_forge.evaluation.chat.resident import REPLACEMENT, Decoder
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.system.plain_text import visible_lines


class Bytes:
    """A tokenizer with a token for each byte; 256 is a special token, which no text shows."""

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return bytes(token for token in ids if token < 256).decode("utf-8", "replace")


def pieces(ids: Sequence[int]) -> list[str]:
    decoder = Decoder(Bytes(), [*b"before"])
    return [*(decoder.push(token) for token in ids), decoder.end()]


@given(st.text())
def test_no_piece_cuts_a_character(text: str) -> None:
    """Each token is one byte of up to four."""
    grown = pieces([*text.encode("utf-8", "replace")])
    assert "".join(grown) == text.encode("utf-8", "replace").decode()
    assert all(len(piece) <= 1 for piece in grown[:-1])


@given(st.lists(st.integers(0, 256)))
def test_bytes_that_are_no_text_neither_stop_the_text_nor_get_lost(ids: list[int]) -> None:
    """A model may write any bytes: what follows them is shown, four tokens later at the latest."""
    grown = pieces([*ids, *b"then plain text"])
    assert "".join(grown).endswith("plain text")
    assert not grown[-1]


def test_a_character_is_shown_with_its_last_byte_and_a_half_one_at_the_end() -> None:
    first = "é😀".encode()
    assert pieces([*first, 256]) == ["", "é", "", "", "", "😀", "", ""]
    assert pieces(first[:-1]) == ["", "é", "", "", "", REPLACEMENT]


class Counting:
    """A speaker whose conversation has as many tokens as letters, and 2 for each message."""

    name, described, templated = "counting", "", True

    def __init__(self, positions: int | None) -> None:
        self.positions = positions

    def ids(self, messages: Sequence[Message]) -> list[int]:
        return [0] * sum(len(message["content"]) + 2 for message in messages)

    def reply(self, ids: Sequence[int], settings: ReplySettings) -> Reply:
        raise NotImplementedError


def turns(*texts: str) -> list[Message]:
    return [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)]


SYSTEM: list[Message] = [{"role": "system", "content": "system"}]


def test_the_oldest_turns_are_dropped_and_the_system_prompt_stays() -> None:
    """32 of 64 tokens are for the reply: 8 of the system prompt leave 24, two turns of 12."""
    said = turns("12345678", "12345678", "12345678", "12345678", "last")
    kept, ids = fitting(Counting(64), [*SYSTEM, *said], ReplySettings(max_tokens=500))
    assert kept == [*SYSTEM, *said[4:]]
    assert len(ids) == 8 + 6
    kept, ids = fitting(Counting(64), [*SYSTEM, *said], ReplySettings(max_tokens=8))
    assert kept == [*SYSTEM, *said]  # 8 + 40 + 6 tokens and a reply of 8 need 62
    assert fitting(Counting(None), said, ReplySettings())[0] == said


def test_a_message_that_leaves_no_room_is_refused_and_one_that_leaves_little_is_not() -> None:
    whole, _ = fitting(Counting(64), turns("x" * 60), ReplySettings())
    assert limit(Counting(64), [0] * 62, ReplySettings()) == (2, "context")
    assert limit(Counting(64), [0] * 2, ReplySettings(max_tokens=5)) == (5, "length")
    assert len(whole) == 1
    with pytest.raises(ConfigError, match="has 64 tokens, and counting takes 64"):
        fitting(Counting(64), turns("x" * 62), ReplySettings())


def test_a_reply_counts_what_it_has_written_and_ends_when_asked() -> None:
    stopping = Event()

    def written() -> Any:
        for text in ("a", "", "b", "c"):
            if stopping.is_set():
                yield Piece(reason="stopped")
                return
            yield Piece(text, 1)
        yield Piece(reason="end")

    reply = Reply(written(), stopping)
    assert [next(reply), next(reply)] == ["a", "b"]
    assert (reply.text, reply.tokens) == ("ab", 3)
    reply.stop()
    assert list(reply) == []
    assert (reply.text, reply.reason) == ("ab", "stopped")


def test_a_reply_cannot_steer_the_terminal() -> None:
    """Lines and tabs stay; a carriage return would rewrite the line that stands there."""
    assert visible_lines("a\n\tb\r\x1b]0;title\x07\u202e") == "a\n\tb\\r\\x1b]0;title\\x07\\u202e"
