"""Chat templates that write functions and calls: a model's own, or `tools.jinja` beside this file.

`tools.jinja` is for models without a chat template, and for those whose template writes no functions
and calls: ChatML's turns with calls in the form of Hermes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent_forge.weights.folders.template_rendering import TemplateFailedError, rendered_by
from agent_forge.weights.folders.vocabularies import Tokenizer

OWN = Path(__file__).with_name("tools.jinja")
#: Names in a conversation that shows whether a template writes functions, calls and their results.
PROBED = ("probe_function", "probe_argument", "probe_result")
CALLED, CALL_ID = "probe_called", "probe1234"  # some templates want nine letters


def own() -> str:
    """Return the program's own chat template."""
    return OWN.read_text("utf-8")


def special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    """Return {name: special token} of those that a template may name."""
    return {name: str(token) for name, token in tokenizer.special_tokens_map.items()}


def chosen(tokenizer: Tokenizer, name: str, uses_tools: bool) -> str:
    """Return the tokenizer's chat template, or else our own; `name` is the model's, for messages.

    Our own is taken, too, if a template for conversations with functions writes none. Raises
    SourceError for a template without bound.
    """
    with contextlib.suppress(ValueError):  # it has none
        template = tokenizer.get_chat_template(None, [{}] if uses_tools else None)
        if not uses_tools or _writes_tools(template, tokenizer, name):
            return template
    return own()


def question(tokenizer: Tokenizer, prompt: str, functions: Sequence[Mapping[str, object]]) -> str:
    """Return the text before the reply to a user who gives these functions.

    Raises TemplateFailedError, SourceError.
    """
    name = str(tokenizer.name_or_path or "the model")
    messages = [{"role": "user", "content": prompt}]
    template = chosen(tokenizer, name, True)
    return rendered_by(template, special_tokens(tokenizer), name, messages, functions)


def _writes_tools(template: str, tokenizer: Tokenizer, name: str) -> bool:
    """Return True if a template writes a function's schema, a call, and its result."""
    schema = {"name": PROBED[0], "description": "", "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "function", "function": schema}]
    try:
        text = rendered_by(template, special_tokens(tokenizer), name, probe(), tools)
    except TemplateFailedError:
        return False
    return all(part in text for part in (*PROBED, CALLED))


def probe() -> list[dict[str, object]]:
    """Return the messages of a conversation with a call and its result."""
    function = {"name": CALLED, "arguments": {PROBED[1]: 1}}
    return [
        {"role": "user", "content": "?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"type": "function", "id": CALL_ID, "function": function}],
        },
        {"role": "tool", "tool_call_id": CALL_ID, "name": CALLED, "content": PROBED[2]},
    ]
