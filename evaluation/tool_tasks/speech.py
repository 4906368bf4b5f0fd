"""Dialogues with tools in a tokenizer's ids: how a session begins, and what follows a call.

Without a chat template a session is the prompt, the question and a line break. With one, the prompt is
the system message and the question the user's; in the form `chat` the template also writes the tools
and their results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agent_forge.evaluation.tool_tasks.base import ToolItem
from agent_forge.evaluation.tools import calls
from agent_forge.evaluation.tools.calls import FORMS, Form, Tool
from agent_forge.evaluation.trajectories.contexts import Beginnings
from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights.folders import template_rendering
from agent_forge.weights.training.windows import Ids


class Speech:
    """The writing of sessions with a tokenizer and a form of calls."""

    def __init__(self, tokenizer: Any, form: Form, chat: bool, tools: Mapping[str, Tool]) -> None:
        """Write calls in a form; `chat` is True if sessions go through the chat template.

        Raises ConfigError for a template that cannot do it.
        """
        self.tokenizer, self.form, self._chat = tokenizer, form, chat
        self.tools = tools
        self._beginnings = Beginnings(tokenizer, chat)
        self._native = form.name == calls.CHAT.name
        if self._native and not (chat and self._renders_tools()):
            raise ConfigError("the tokenizer has no chat template that takes tools.")

    def text(self, ids: Iterable[int]) -> str:
        """Return token ids as text, without special tokens."""
        return self.tokenizer.decode(
            [*ids], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def begin(self, prompt: str, question: str, tools: bool = False) -> Ids:
        """Return the ids of a session's beginning; with an empty prompt, of the question alone.

        With `tools`, the chat template writes the tools too, in the form `chat`.
        """
        if self._native:
            messages = [{"role": "system", "content": prompt.strip()}] if prompt else []
            messages.append({"role": "user", "content": question})
            return self._ids(self._rendered(messages, tools))
        text = question if self._chat else f"{question}\n"
        context = self._ids(text)
        if prompt:
            return self._beginnings.prompted([prompt], context)
        return self._beginnings.plain(context)

    def after(self, output: str) -> Ids:
        """Return the ids that follow a call: its result, as the model reads it."""
        if not self._native:
            return self._ids(self.form.result(output))
        question = {"role": "user", "content": "q"}
        reply = {"role": "assistant", "content": "a"}
        result = {"role": "tool", "content": output}
        before = self._rendered([question], False)
        whole = self._rendered([question, reply, result], False)
        return self._ids(whole[len(before) + 1 :])

    def prompt(self) -> str:
        """Return the standard prompt of the tools; in the form `chat` the template lists them."""
        if self._native:
            return "Use the tools. Then write the answer alone."
        return calls.description(self.form, self.tools)

    def _renders_tools(self) -> bool:
        """Return True if the template lists tools, and writes what was said before a result."""
        messages = [{"role": "user", "content": "q"}]
        if self._rendered(messages, True) == self._rendered(messages, False):
            return False
        talk = [
            *messages,
            {"role": "assistant", "content": "a"},
            {"role": "tool", "content": "result"},
        ]
        begun, whole = self._rendered(messages, False), self._rendered(talk, False)
        return whole.startswith(f"{begun}a") and "result" in whole[len(begun) :]

    def _rendered(self, messages: Sequence[Mapping[str, str]], tools: bool) -> str:
        schemas = calls.schemas(self.tools) if tools else None
        try:
            return template_rendering.rendered(self.tokenizer, messages, schemas)
        except template_rendering.TemplateFailedError as error:
            raise ConfigError(f"the tokenizer's chat template fails: {error}") from error

    def _ids(self, text: str) -> Ids:
        return np.asarray(self.tokenizer.encode(text, add_special_tokens=False), np.int32)


def chosen(
    tokenizer: Any,
    name: str,
    chat: bool | None,
    tools: Mapping[str, Tool],
    items: Sequence[ToolItem],
) -> Speech:
    """Return the speech of a form by its name, or of the first that the tokenizer can write.

    `auto` tries chat, tags, brackets and words, in this order. `items` are some of the tasks. Raises
    ConfigError if the tokenizer can write none; SourceError for a template without bounds.
    """
    templated = bool(tokenizer.chat_template) if chat is None else chat
    whys: list[str] = []
    for form in FORMS.values() if name == "auto" else [FORMS[name]]:
        try:
            speech = Speech(tokenizer, form, templated, tools)
            check_written(speech, items)
            return speech
        except SourceError:  # the template itself: no other form helps
            raise
        except ConfigError as error:
            whys.append(f"{form.name}: {error}")
    raise ConfigError(
        f"the model's tokenizer cannot write the calls of tools ({'; '.join(whys)}) Take a model with "
        "another tokenizer."
    )


def check_written(speech: Speech, items: Sequence[ToolItem]) -> None:
    """Raise ConfigError unless the tokenizer writes questions, calls, results and answers of items."""
    texts: list[str] = []
    for item in items:
        written = [speech.form.written(call) for session in item.calls for call in session]
        texts += [*item.questions, *written, speech.form.result(item.answer or "changed")]
    ids = [speech.tokenizer.encode(text, add_special_tokens=False) for text in texts]
    for text, token_ids in zip(texts, ids, strict=True):
        again = speech.text(token_ids)
        if "".join(again.split()) != "".join(text.split()):
            raise ConfigError(f"of {text[:60]!r} it keeps {again[:60]!r}.")
