"""Checks of foreign text (names, reasons, notes): refused on input, escaped on output.

A control character steers the terminal that prints the text: it sets a title, fills the clipboard,
rewrites a line. A direction character shows a text in another order than the text has. Neither
character belongs in a name or in a reason. A character that does not show makes two names look alike,
and a language model reads what people do not see: no name has one. Pure; imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast, overload

from agent_forge.runs.errors import ConfigError

#: Characters of a value in a message.
LONGEST = 300
#: Control characters (C0, DEL, C1), line and paragraph separators, direction characters (Unicode's
#: Bidi_Control) and lone surrogates, which are no text.
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
#: The same without tab and line ends, for texts of several lines.
_STEERING_IN_LINES = re.compile(_STEERING.pattern.replace("\x00-\x1f", "\x00-\x08\x0b\x0c\x0e-\x1f"))
#: All but tab and line feed: what a terminal shows as lines.
_STEERING_ON_SCREEN = re.compile(_STEERING.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
#: Characters that do not show. Unicode's category Cf and property Default_Ignorable_Code_Point
#: (DerivedCoreProperties.txt), whole where a block is reserved for such: soft hyphen, joiners, fillers
#: of Hangul, vowels of Khmer, variation selectors, shorthand and hieroglyph controls, musical beams,
#: tag letters; Arabic number signs, which are Cf, too; and blanks of braille and of music.
_UNSEEN = re.compile(
    "[\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
#: Spaces that look like a space and are another character.
_SPACES = re.compile("[\xa0\u1680\u2000-\u200a\u202f\u205f\u3000]")


def check(text: str, what: str) -> str:
    """Return the text as it is. Raises ConfigError if a character in it steers a terminal.

    `what` names the text in the message: "the reason", "the model's name".
    """
    match = _STEERING.search(text)
    if match is not None:
        raise ConfigError(
            f"{what} holds the character U+{ord(match[0]):04X}, which controls how a terminal shows "
            "text: leave it out, and give plain text in one line."
        )
    return text


def check_name(name: str, what: str) -> str:
    """Return the name of a model, run, user, label, session or metric as it is.

    Raises ConfigError if a character in it steers a terminal, does not show, or is an odd space.
    `what` is as for `check`.
    """
    check(name, what)
    match = _UNSEEN.search(name) or _SPACES.search(name)
    if match is not None:
        raise ConfigError(
            f"{what} holds the character U+{ord(match[0]):04X}, which does not show: leave it out."
        )
    return name


@overload
def for_reader(value: str) -> str: ...


@overload
def for_reader(value: object) -> object: ...


def for_reader(value: object) -> object:
    """Return the data with unsafe characters of its texts escaped: its reader is a language model.

    Unsafe are characters that steer a terminal or do not show. Line ends and tabs stay.
    """
    if isinstance(value, str):
        return _UNSEEN.sub(_escape, _STEERING_IN_LINES.sub(_escape, value))
    if isinstance(value, dict):
        members = cast("dict[object, object]", value).items()
        return {for_reader(key): for_reader(inner) for key, inner in members}
    if isinstance(value, list | tuple):
        return [for_reader(inner) for inner in cast("Sequence[object]", value)]
    return value


def shown(value: object) -> str:
    """Return a value's `repr`, cut to `LONGEST` characters, for a message."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def visible(text: str) -> str:
    r"""Return the text in one safe line: steering characters escaped (`\n`, `\x1b`, `\u202e`)."""
    return _STEERING.sub(_escape, text)


def visible_lines(text: str) -> str:
    """Return the text as `visible` does, but with its line feeds and tabs: text of several lines."""
    return _STEERING_ON_SCREEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def escaped(text: str, form: str) -> str:
    """Return the text with steering characters as numbers, in a format such as U+{:04X}."""
    return _STEERING.sub(lambda match: form.format(ord(match[0])), text)
