"""Interface of a tool, and the bounds on what one is given and gives back."""

from __future__ import annotations

from typing import Protocol

#: Characters of a call's arguments, and of a tool's output: what is beyond is cut, and said.
LONGEST_CALL, LONGEST_OUTPUT = 4_096, 400


class ToolError(Exception):
    """A tool cannot do what a call asks for; the message is what the model reads."""


class Tool(Protocol):
    """The interface of a tool."""

    @property
    def usage(self) -> str:
        """The arguments and what the tool does, on one line."""
        ...

    def run(self, arguments: str) -> str:
        """Return the tool's output. Raises ToolError."""
        ...


def cut(text: str, limit: int = LONGEST_OUTPUT) -> str:
    """Return a text of at most `limit` characters and a note of how many were cut."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} [cut: {len(text) - limit} more characters]"
