"""Tool calls as text: how a model writes a call, how it is parsed, how its result is written.

The plain forms put a call and its result between marks, in the model's own turn:

    tags       <call>calc: 17 + 5</call><result>22</result>
    brackets   [[calc: 17 + 5]]{{22}}
    words      call calc : 17 + 5 end result 22 end

The form `chat` is the one that chat templates of tool-using models render (Hermes, Qwen):

    <tool_call>{"name": "calc", "arguments": {"input": "17 + 5"}}</tool_call>

and the result is a message of the role `tool`. `Tool` is the interface of a tool; the sizes of its
input and output are bounded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Call:
    """A call: the tool's name and its arguments."""

    tool: str
    arguments: str


class Form(Protocol):
    """The interface of a form of calls."""

    @property
    def name(self) -> str:
        """The name in settings."""
        ...

    @property
    def close(self) -> str:
        """The text at which a call has ended."""
        ...

    def written(self, call: Call) -> str:
        """Return a call as a model writes it."""
        ...

    def parse(self, reply: str) -> Call | None:
        """Return the last call of a text that ends with one; None if it has none. Raises ToolError."""
        ...

    def result(self, output: str) -> str:
        """Return a tool's output as it is written after a call."""
        ...


@dataclass(frozen=True)
class MarkedCalls:
    """Calls and results between marks."""

    name: str
    open: str
    close: str
    before: str
    after: str

    def written(self, call: Call) -> str:
        """Return a call between its marks."""
        return f"{self.open}{call.tool}: {call.arguments}{self.close}"

    def parse(self, reply: str) -> Call | None:
        """Return the last call of a text, if that has ended. Raises ToolError for a malformed one."""
        inner = _between(reply, self.open.strip(), self.close.strip())
        if inner is None:
            return None
        tool, colon, arguments = inner.partition(":")
        if not colon:
            raise ToolError("a call is TOOL: ARGUMENTS")
        return Call(tool.strip(), arguments.strip())

    def result(self, output: str) -> str:
        """Return an output between its marks."""
        return f"{self.before}{output}{self.after}"


TAGS = MarkedCalls("tags", "<call>", "</call>", "<result>", "</result>")
BRACKETS = MarkedCalls("brackets", "[[", "]]", "{{", "}}")
WORDS = MarkedCalls("words", "call ", " end", " result ", " end ")


@dataclass(frozen=True)
class Chat:
    """Calls as JSON, and results as messages of a chat template."""

    name = "chat"
    open, close = "<tool_call>", "</tool_call>"

    def written(self, call: Call) -> str:
        """Return a call as JSON between its marks."""
        body = {"name": call.tool, "arguments": {"input": call.arguments}}
        return f"{self.open}\n{json.dumps(body)}\n{self.close}"

    def parse(self, reply: str) -> Call | None:
        """Return the last call of a text, if that has ended. Raises ToolError for a malformed one."""
        inner = _between(reply, self.open, self.close)
        if inner is None:
            return None
        try:
            body: Any = json.loads(inner)
            call = Call(str(body["name"]), str(body["arguments"]["input"]))
            f"{call.tool}{call.arguments}".encode()  # JSON can write half a character
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ToolError('a call is {"name": TOOL, "arguments": {"input": TEXT}}') from error
        return call

    def result(self, output: str) -> str:
        """Return an output as it is: the chat template writes what stands around it."""
        return output


CHAT = Chat()
#: Name → form of calls.
FORMS: Mapping[str, Form] = {form.name: form for form in (CHAT, TAGS, BRACKETS, WORDS)}


def _between(reply: str, opened: str, closed: str) -> str | None:
    """Return the text between the last opening mark and the closing one that ends a text."""
    text = reply.rstrip()
    if not text.endswith(closed):
        return None
    _, mark, inner = text[: -len(closed)].rpartition(opened)
    if not mark:
        return None
    if len(inner) > LONGEST_CALL:
        raise ToolError(f"a call has at most {LONGEST_CALL} characters")
    return inner


def description(form: Form, tools: Mapping[str, Tool]) -> str:
    """Return the prompt that tells a model of tools, and how to call them."""
    listed = "\n".join(f"{name}: {tool.usage}" for name, tool in tools.items())
    example = form.written(Call(next(iter(tools)), "..."))
    return (
        f"Tools:\n{listed}\nTo use one, write {example} and its result follows. "
        "Then write the answer alone.\n"
    )


def schemas(tools: Mapping[str, Tool]) -> list[dict[str, object]]:
    """Return tools as chat templates take them: JSON schemas of functions."""
    argument = {"type": "object", "properties": {"input": {"type": "string"}}}
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": tool.usage,
                "parameters": {**argument, "required": ["input"]},
            },
        }
        for name, tool in tools.items()
    ]


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
