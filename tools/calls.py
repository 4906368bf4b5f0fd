"""Tool calls as text: how a model writes a call, how it is parsed, how its result is written.

The plain forms put a call and its result between marks, in the model's own turn:

    tags       <call>calc: 17 + 5</call><result>22</result>
    brackets   [[calc: 17 + 5]]{{22}}
    words      call calc : 17 + 5 end result 22 end

The form `chat` is the one that chat templates of tool-using models render (Hermes, Qwen):

    <tool_call>{"name": "calc", "arguments": {"input": "17 + 5"}}</tool_call>

and the result is a message of the role `tool`. `Tool` is the interface of a tool; the lengths of its
input and output are limited.
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
        """The form's name in settings: "chat", "tags", "brackets" or "words"."""
        ...

    @property
    def close(self) -> str:
        """The mark that ends a call."""
        ...

    def written(self, call: Call) -> str:
        """Return the text of a call as a model writes it, with its marks."""
        ...

    def parse(self, reply: str) -> Call | None:
        """Return the call that ends a reply; None if no call ends it. Raises ToolError."""
        ...

    def result(self, output: str) -> str:
        """Return a tool's output as the text that follows a call, with its marks."""
        ...


@dataclass(frozen=True)
class MarkedCalls:
    """Form of calls in which calls and results stand between marks."""

    name: str
    open: str
    close: str
    before: str
    after: str

    def written(self, call: Call) -> str:
        """Return the text `TOOL: ARGUMENTS` between the marks of a call."""
        return f"{self.open}{call.tool}: {call.arguments}{self.close}"

    def parse(self, reply: str) -> Call | None:
        """Return the call that ends a reply, else None. Raises ToolError for a malformed call."""
        inner = _between(reply, self.open.strip(), self.close.strip())
        if inner is None:
            return None
        tool, colon, arguments = inner.partition(":")
        if not colon:
            raise ToolError("a call is TOOL: ARGUMENTS")
        return Call(tool.strip(), arguments.strip())

    def result(self, output: str) -> str:
        """Return the output between the marks of a result."""
        return f"{self.before}{output}{self.after}"


TAGS = MarkedCalls("tags", "<call>", "</call>", "<result>", "</result>")
BRACKETS = MarkedCalls("brackets", "[[", "]]", "{{", "}}")
WORDS = MarkedCalls("words", "call ", " end", " result ", " end ")


@dataclass(frozen=True)
class Chat:
    """Form of calls in which calls are JSON, and results are messages of the chat template."""

    name = "chat"
    open, close = "<tool_call>", "</tool_call>"

    def written(self, call: Call) -> str:
        """Return the call as JSON text between `<tool_call>` marks."""
        body = {"name": call.tool, "arguments": {"input": call.arguments}}
        return f"{self.open}\n{json.dumps(body)}\n{self.close}"

    def parse(self, reply: str) -> Call | None:
        """Return the call that ends a reply, else None. Raises ToolError for a malformed call."""
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
        """Return the output unchanged: the chat template writes its marks."""
        return output


CHAT = Chat()
#: Name → form of calls.
FORMS: Mapping[str, Form] = {form.name: form for form in (CHAT, TAGS, BRACKETS, WORDS)}


def _between(reply: str, opened: str, closed: str) -> str | None:
    """Return the text from the last `opened` to a final `closed`, or None. Raises ToolError."""
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
    """Return the prompt that lists the tools and says how to call them."""
    listed = "\n".join(f"{name}: {tool.usage}" for name, tool in tools.items())
    example = form.written(Call(next(iter(tools)), "..."))
    return (
        f"Tools:\n{listed}\nTo use one, write {example} and its result follows. "
        "Then write the answer alone.\n"
    )


def schemas(tools: Mapping[str, Tool]) -> list[dict[str, object]]:
    """Return the tools as JSON schemas of functions, as chat templates take them."""
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


#: Characters of a call, beyond which it is an error; and of a tool's output, beyond which it is cut.
LONGEST_CALL, LONGEST_OUTPUT = 4_096, 400


class ToolError(Exception):
    """A call that a tool cannot carry out; the model reads the message."""


class Tool(Protocol):
    """The interface of a tool."""

    @property
    def usage(self) -> str:
        """Return "ARGUMENTS: what the tool does" as one line, without the tool's name."""
        ...

    def run(self, arguments: str) -> str:
        """Carry out a call with these arguments; return the tool's output. Raises ToolError."""
        ...


def cut(text: str, limit: int = LONGEST_OUTPUT) -> str:
    """Return `text`, or its first `limit` characters and a note of how many were cut."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} [cut: {len(text) - limit} more characters]"
