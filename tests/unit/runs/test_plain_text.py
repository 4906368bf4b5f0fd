"""Text of others: what is refused where it is accepted, and what a terminal gets of it."""

from __future__ import annotations

import unicodedata

import pytest

from runs.errors import ConfigError
from runs.system.plain_text import check, visible

STEERING = ["\0", "\n", "\t", "\x1b", "\x7f", "\x9b", "\u2028", "\ud800"]
STEERING += ["\u061c", "\u200e", "\u202a", "\u202e", "\u2066", "\u2069"]

#: Values of Unicode's Bidi_Class that embed, override and isolate.
DIRECTIONS = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.parametrize("character", STEERING, ids=lambda c: f"U+{ord(c):04X}")
def test_characters_that_steer_a_terminal_are_refused_and_escaped(character: str) -> None:
    """ESC starts a sequence that writes to the clipboard; U+202E shows a name backwards."""
    with pytest.raises(
        ConfigError, match=rf"the reason holds the character U\+{ord(character):04X}"
    ):
        check(f"well{character}!", "the reason")
    shown = visible(f"well{character}!")
    assert shown.isascii()
    assert shown.isprintable()
    assert visible(shown) == shown


def test_every_control_and_direction_character_of_unicode_is_refused() -> None:
    """The list follows from Unicode's properties, not from attacks that were seen."""
    marks = {0x061C, 0x200E, 0x200F}
    for code in range(0x110000):
        character = chr(code)
        direction = unicodedata.bidirectional(character) in DIRECTIONS
        steers = (
            unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
            or direction
            or code in marks
        )
        assert (visible(character) != character) == steers, hex(code)


def test_plain_text_of_any_script_stays_as_it_is() -> None:
    """People write in their own language; right-to-left scripts need no direction characters."""
    for text in ("", "a better base", "größer — α", "モデル", "مدل تازه", "🧬 one more"):
        assert check(text, "the reason") == text
        assert visible(text) == text
