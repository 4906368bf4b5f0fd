"""Checks of foreign text (names, reasons, notes): refused on input, escaped on output.

A control character steers the terminal that prints the text: it sets a title, fills the clipboard,
rewrites a line. A direction character shows a text in another order than the text has. Neither
character belongs in a name or in a reason. Pure; imports no torch.
"""

from __future__ import annotations

import re

from runs.errors import ConfigError

#: Characters of a value in a message.
LONGEST = 300
#: Control characters (C0, DEL, C1), line and paragraph separators, direction characters (Unicode's
#: Bidi_Control) and lone surrogates, which are no text.
_STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def check(text: str, what: str) -> str:
    """Return the text as it is. Raises ConfigError if a character in it steers a terminal.

    `what` names the text in the message: "the reason", "the model's name".
    """
    found = _STEERING.search(text)
    if found is not None:
        raise ConfigError(
            f"{what} holds the character U+{ord(found[0]):04X}, which controls how a terminal shows "
            "text: leave it out, and give plain text in one line."
        )
    return text


def shown(value: object) -> str:
    """Return a value as Python writes it, cut to what a message can hold."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def visible(text: str) -> str:
    r"""Return the text in one safe line: steering characters escaped (`\n`, `\x1b`, `\u202e`)."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def escaped(text: str, form: str) -> str:
    """Return the text with steering characters as numbers, in a format such as U+{:04X}."""
    return _STEERING.sub(lambda found: form.format(ord(found[0])), text)
