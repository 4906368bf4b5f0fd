"""Conversations to train on: rows of JSONL, JSON, CSV or Parquet in the forms that data sets have.

    messages, tools                 OpenAI's: role, content, tool_calls; a `weight` of 0 is not learned
    conversations                   ShareGPT's: from, value
    instruction, input, output      Alpaca's, with `system` and `history`
    prompt, completion              texts, or lists of messages

A conversation's content decides its slice, unless the row names it: no content is in two slices.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import cast

from agent_forge.evaluation.data import file_formats, training_texts
from agent_forge.evaluation.data.items import Reading
from agent_forge.evaluation.data.slices import SLICES, TRAINING_SHARES, Slice, slice_of
from agent_forge.events import canonical_json
from agent_forge.runs.errors import DataError
from agent_forge.runs.system.plain_text import shown

#: A turn, or a function's schema, as chat templates take them.
Json = dict[str, object]
Row = Mapping[str, object]

#: Names of roles → those of chat templates.
ROLES = {
    **{name: name for name in ("system", "user", "assistant", "tool")},
    "developer": "system",
    "human": "user",
    "gpt": "assistant",
    "model": "assistant",
    "function": "tool",
    "observation": "tool",
    "function_response": "tool",
}
#: Role of ShareGPT whose text is a call.
CALL = "function_call"
NO_FORM = (
    "it is no conversation: give messages (role, content), conversations (from, value), instruction "
    "and output, or prompt and completion"
)


@dataclass(frozen=True)
class Conversation:
    """Turns between a user and an assistant, and the functions that the assistant may call."""

    #: FILE:LINE, or the row's own id.
    id: str
    domain: str
    slice: Slice
    messages: Sequence[Json]
    tools: Sequence[Json] = ()


def read(
    data: Sequence[str], further: Iterable[tuple[str, str, Row]] = ()
) -> tuple[list[Conversation], list[str]]:
    """Return (conversations in the order of places and rows, notes). `data`: PATH or DOMAIN=PATH.

    `further` are (name, domain, row) of others, which stand first. Equal conversations count once.
    Raises DataError naming file and line, or a domain without any in a slice.
    """
    notes, twice = list[str](), 0
    conversations: dict[str, Conversation] = {}
    for name, domain, row in further:
        content, conversation = _read(name, name, domain, domain, row)
        conversations.setdefault(content, conversation)
    for argument in data:
        for file, reading in training_texts.files_of(argument, Reading(notes.append)):
            place = reading.domain, file_formats.domain(file)
            file_formats.check_size(file)
            if file_formats.kind(file) == ".txt":
                raise DataError(f"data file {file} is plain text: {NO_FORM}.")
            for where, number, row in file_formats.rows(file, notes.append, from_program=True):
                content, conversation = _read(where, f"{file.name}:{number}", *place, row)
                twice += content in conversations
                conversations.setdefault(content, conversation)
    every = [*conversations.values()]
    if twice:
        notes.append(f"equal conversations count once: {twice:,} left out.")
    if not every:
        raise DataError("the data has no conversations.")
    for domain in dict.fromkeys(conversation.domain for conversation in every):
        counts = Counter(each.slice for each in every if each.domain == domain)
        if lacking := [on for on in ("train", "selection", "test") if not counts[on]]:
            raise DataError(
                f"domain {domain} has {counts.total()} conversations, and none in the slice "
                f"{lacking[0]}: give more (some dozens, which fall into slices by the hash of their "
                'content), or name slices with "slice".'
            )
    return every, notes


def _read(
    where: str, name: str, domain: str | None, file_domain: str, row: Row
) -> tuple[str, Conversation]:
    """Return (digest of content and weights, conversation) of a row. Raises DataError with `where`."""
    try:
        messages, tools = conversation(row)
        parts = [
            (m["role"], m["content"], m.get("reasoning_content"), [*_functions(m)]) for m in messages
        ]
        content = sha256(canonical_json([parts, tools]).encode()).hexdigest()
        weights = [m.get("weight") for m in messages]
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: it has half a character (a lone surrogate).") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: {error}.") from error
    on = row.get("slice") or slice_of(content, TRAINING_SHARES)
    if on not in SLICES:
        raise DataError(f"{where}: its slice is {shown(on)}: one of {', '.join(SLICES)}.")
    id_, of = row.get("id") or name, domain or str(row.get("domain") or file_domain)
    return f"{content}{weights}", Conversation(str(id_), of, cast("Slice", on), messages, tools)


def _functions(message: Json) -> Iterator[object]:
    """Yield {"name", "arguments"} of the calls in a message."""
    for call in cast("list[Json]", message.get("tool_calls", [])):
        yield call["function"]


def conversation(row: Row) -> tuple[list[Json], list[Json]]:
    """Return (messages, tools) of a row in any form. Raises ValueError, which says what is wrong."""
    for key, form in FORMS.items():
        if row.get(key) not in (None, "", []):
            messages = form(row)
            break
    else:
        raise ValueError(NO_FORM)
    if not any(m["role"] == "assistant" and m.get("weight") != 0 for m in messages):
        raise ValueError("no message is the assistant's, or all weigh 0: there is nothing to learn")
    return messages, [
        _tool(tool) for tool in _listed("tools", row.get("tools") or row.get("functions") or [])
    ]


# ---- forms ---------------------------------------------------------------------------------------


def _sharegpt(row: Row) -> list[Json]:
    messages = _messages("conversations", row["conversations"])
    system = row.get("system")
    return [{"role": "system", "content": _text("system", system)}, *messages] if system else messages


def _alpaca(row: Row) -> list[Json]:
    """Return the messages of an instruction with its input, after the pairs of its history."""
    pairs = _listed("history", row.get("history") or [])
    question = "\n\n".join(_text(n, row[n]) for n in ("instruction", "input") if row.get(n))
    turns: list[Json] = []
    if system := row.get("system"):
        turns.append({"role": "system", "content": _text("system", system)})
    for pair in pairs:
        if not isinstance(pair, list) or len(cast("list[object]", pair)) != 2:
            raise ValueError("its history is not a list of pairs of question and answer")
        turns += _exchange(_text("history", pair[0]), _text("history", pair[1]))
    return turns + _exchange(question, _text("output", row.get("output")))


def _completion(row: Row) -> list[Json]:
    prompt, completion = row["prompt"], row.get("completion")
    if isinstance(prompt, str):
        return _exchange(prompt, _text("completion", completion))
    asked_turns = [{**turn, "weight": 0} for turn in _messages("prompt", prompt)]
    return [*asked_turns, *_messages("completion", completion)]


#: Key of a form → messages of a row.
FORMS: Mapping[str, Callable[[Row], list[Json]]] = {
    "messages": lambda row: _messages("messages", row["messages"]),
    "conversations": _sharegpt,
    "instruction": _alpaca,
    "prompt": _completion,
}


def _exchange(question: str, answer: str) -> list[Json]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _messages(key: str, turns: object) -> list[Json]:
    """Return a list of a row's messages as chat templates take them. Raises ValueError."""
    if not (listed := _listed(key, turns)):
        raise ValueError(f"its {key} are empty")
    return [_message(n, turn) for n, turn in enumerate(listed)]


def _message(number: int, turn: object) -> Json:
    """Return a message with role, content, tool_calls, weight. Raises ValueError with its number."""
    if not isinstance(turn, Mapping):
        raise ValueError(f"message {number} (from 0) is {shown(turn)}: it has role and content")
    message = cast("Row", turn)
    name = message.get("role", message.get("from"))
    text, calls = message.get("content", message.get("value")), message.get("tool_calls") or []
    if name == CALL or message.get(CALL):  # ShareGPT's, or OpenAI's earlier form
        parsed = _parsed(CALL, message.get(CALL) or text)
        name, text, calls = "assistant", None, parsed if isinstance(parsed, list) else [parsed]
    if not isinstance(name, str) or name not in ROLES:
        raise ValueError(f"message {number} (from 0) is of {shown(name)}: {', '.join(ROLES)}")
    role, calls = ROLES[name], [_call(number, call) for call in _listed("tool_calls", calls)]
    content = _content(number, text, bool(calls) or role == "tool")
    extra = {
        k: message[k]
        for k in ("name", "tool_call_id", "weight", "reasoning_content")
        if message.get(k) is not None
    }
    if calls and role != "assistant":
        raise ValueError(f"message {number} (from 0) has calls, and is the {role}'s")
    return {"role": role, "content": content, **({"tool_calls": calls} if calls else {}), **extra}


def _content(number: int, content: object, empty: bool) -> str:
    """Return a message's text, which may be `empty`; of a list of parts, the texts joined.

    Raises ValueError.
    """
    if content is None and empty:
        return ""
    if isinstance(content, list):
        texts = [
            part.get("text") if isinstance(part, dict) else part
            for part in cast("list[dict[str, object] | str]", content)
        ]
        if all(isinstance(text, str) for text in texts):
            content = "".join(cast("list[str]", texts))
    if not isinstance(content, str) or not (content.strip() or empty):
        raise ValueError(f"the content of message {number} (from 0) is {shown(content)}: it is a text")
    return content


def _call(number: int, call: object) -> Json:
    """Return a call as {"type", "function": {"name", "arguments": object}}. Raises ValueError."""
    inner = call.get("function", call) if isinstance(call, dict) else None  # pyright: ignore
    name = inner.get("name") if isinstance(inner, dict) else None  # pyright: ignore
    if not isinstance(inner, dict) or not isinstance(name, str) or not name:
        raise ValueError(f"a call in message {number} (from 0) has no name")
    arguments = _parsed("arguments", cast("Row", inner).get("arguments") or {})
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {name} in message {number} (from 0) are no object")
    id_ = {"id": call["id"]} if isinstance(call, dict) and call.get("id") else {}  # pyright: ignore
    return {"type": "function", **id_, "function": {"name": name, "arguments": arguments}}


def _tool(tool: object) -> Json:
    """Return a function's schema as {"type": "function", "function": {…}}. Raises ValueError."""
    inner = cast("Row", tool).get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(cast("Row", inner).get("name"), str):
        raise ValueError(f"a tool is {shown(tool)}: it is an object with a name")
    return {"type": "function", "function": dict(cast("Row", inner))}


def _parsed(key: str, value: object) -> object:
    """Return a value that may be written as JSON text. Raises ValueError naming `key`."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its {key} are no JSON: {shown(value)}") from error


def _listed(key: str, value: object) -> list[object]:
    """Return a value that is a list, or a list's JSON text. Raises ValueError naming `key`."""
    listed = _parsed(key, value)
    if not isinstance(listed, list):
        raise ValueError(f"its {key} are {shown(listed)}: write them as a list")
    return cast("list[object]", listed)


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"its {key} is {shown(value)}: it is a text")
    return value
