"""Text of a growing reply: token ids in, pieces of text out, none of which cuts a character.

A character may be spread over several tokens: its text ends with U+FFFD until the last of them. And a
token's text may depend on the token before it, as the blank at the beginning of a word does. So tokens
are decoded together with those of the piece before.
"""

from __future__ import annotations

from typing import Any

#: What decoders write for bytes that are no character yet.
REPLACEMENT = "\ufffd"
#: Bytes of the longest character, and so the tokens of one.
LONGEST = 4


class Decoder:
    """Decoder of one reply."""

    def __init__(self, tokenizer: Any, before: list[int]) -> None:
        """Decode tokens that follow `before`, the last ids of the prompt."""
        self._tokenizer = tokenizer
        #: Tokens whose text is out, which those that follow are decoded with; and tokens held back.
        self._before, self._held = list(before), list[int]()

    def push(self, token: int) -> str:
        """Return the text that a token completes; empty if a character still lacks bytes."""
        self._held.append(token)
        text = self._text()
        incomplete = text.endswith(REPLACEMENT) and len(self._held) < LONGEST
        return "" if incomplete else self._out(text)

    def end(self) -> str:
        """Return what is held back, complete or not."""
        return self._out(self._text()) if self._held else ""

    def _out(self, text: str) -> str:
        self._before = self._held if text else [*self._before, *self._held]
        self._held = []
        return text

    def _text(self) -> str:
        """Return the text of the tokens held back."""
        return self._decode([*self._before, *self._held])[len(self._decode(self._before)) :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
