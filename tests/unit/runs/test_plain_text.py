"""Text of others: what is refused where it is accepted, and what a terminal gets of it."""

from __future__ import annotations

import unicodedata

import pytest

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.system.plain_text import check, check_name, for_reader, visible

STEERING = ["\0", "\n", "\t", "\x1b", "\x7f", "\x9b", "\u2028", "\ud800"]
STEERING += ["\u061c", "\u200e", "\u202a", "\u202e", "\u2066", "\u2069"]

#: Values of Unicode's Bidi_Class that embed, override and isolate.
DIRECTIONS = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


@pytest.mark.parametrize("character", STEERING, ids=lambda c: f"U+{ord(c):04X}")
def test_characters_that_steer_a_terminal_are_refused_and_escaped(character: str) -> None:
    """ESC starts a sequence that writes to the clipboard; U+202E shows a name backwards."""
    with pytest.raises(ConfigError, match=rf"the reason holds the character U\+{ord(character):04X}"):
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
            unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or direction or code in marks
        )
        assert (visible(character) != character) == steers, hex(code)


def test_plain_text_of_any_script_stays_as_it_is() -> None:
    """People write in their own language; right-to-left scripts need no direction characters."""
    for text in ("", "a better base", "größer — α", "モデル", "مدل تازه", "🧬 one more"):
        assert check(text, "the reason") == text
        assert visible(text) == text


#: Ranges of Unicode's property Default_Ignorable_Code_Point (DerivedCoreProperties.txt, 15.1).
IGNORABLE = [(0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5)]
IGNORABLE += [(0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F)]
IGNORABLE += [(0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0)]
IGNORABLE += [(0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)]


def test_every_character_that_does_not_show_is_refused_in_a_name() -> None:
    """By Unicode's properties; every other character of a script is taken."""
    ignorable = {code for first, last in IGNORABLE for code in range(first, last + 1)}
    blanks = {0x2800, 0x1D159}  # a cell of braille without dots, a note head that is not drawn
    for code in range(0x110000):
        category = unicodedata.category(chr(code))
        hidden = code in ignorable or code in blanks or category in ("Cf", "Zl", "Zp", "Cc", "Cs")
        hidden |= category == "Zs" and code != 0x20
        try:
            taken = check_name(f"a{chr(code)}b", "the name") != ""
        except ConfigError:
            taken = False
        if category != "Cn" and not 0x13430 <= code <= 0x1345F:
            assert taken != hidden, hex(code)


@pytest.mark.parametrize("character", ["\xad", "\u200b", "\ufeff", "\U000e0041", "\u3164", "\xa0"])
def test_the_error_names_the_character_that_does_not_show(character: str) -> None:
    code = f"{ord(character):04X}"
    with pytest.raises(ConfigError, match=rf"the model's name holds the character U\+{code}, which"):
        check_name(f"my{character}model", "the model's name")


def test_a_reader_sees_what_people_do_not_see() -> None:
    """In names of old logs, reasons, samples: keys and values, lines and tabs as they are."""
    data = {"na\u200bme": ["a\U000e0041b", 1, None, {"x": "one\n\ttwo\x1b[31m"}], "é": "größer"}
    expected = {"na\\u200bme": ["a\\U000e0041b", 1, None, {"x": "one\n\ttwo\\x1b[31m"}], "é": "größer"}
    assert for_reader(data) == expected
    assert for_reader(expected) == expected
