"""Regular expressions of strangers, matched in time linear in the text (RE2, github.com/google/re2).

Python's `re` may need time exponential in the length of a text, and holds the interpreter's lock
meanwhile; a limit in seconds would make a score depend on the machine. RE2 never tries a way twice. So
it has no groups that look around and no back-references, and its `\\d`, `\\w`, `\\s` and `\\b` mean
ASCII (`\\pL` is any letter). All patterns that come from outside this program are matched here.
"""

from __future__ import annotations

from typing import Any

import re2  # pyright: ignore[reportMissingTypeStubs]  # there are none

_RE2: Any = re2

#: Characters of the longest pattern, and bytes of memory of a compiled one.
MOST_PATTERN, MOST_MEMORY = 4096, 8 << 20


class Matcher:
    """A compiled pattern."""

    def __init__(self, pattern: str, dot_all: bool = False) -> None:
        """Compile a pattern; with `dot_all` a dot is a line's end, too.

        Raises ValueError that says what of it cannot be matched.
        """
        if len(pattern) > MOST_PATTERN:
            raise ValueError(f"it has more than {MOST_PATTERN:,} characters")
        options = _RE2.Options()
        options.dot_nl, options.max_mem, options.log_errors = dot_all, MOST_MEMORY, False
        try:
            self._compiled = _RE2.compile(pattern, options)
        except (_RE2.error, UnicodeEncodeError) as error:
            reason = error.args[0] if error.args else ""
            words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)
            raise ValueError(f"RE2 cannot match it: {words}") from error

    def search(self, text: str) -> bool:
        """Return True if the pattern matches a part of the text."""
        return self._compiled.search(_encodable(text)) is not None

    def fullmatch(self, text: str) -> bool:
        """Return True if the pattern matches the whole text."""
        return self._compiled.fullmatch(_encodable(text)) is not None


def _encodable(text: str) -> str:
    """Return a text with U+FFFD in place of halves of surrogates, which UTF-8 has not."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text
