"""Rendering of untrusted chat templates in bounded time and memory.

A chat template is a program: three nested loops can run for years, and a multiplication can fill the
memory. So another process renders templates, with SECONDS of processor time and BYTES of memory for
each text. All code that needs a rendered conversation calls `rendered`. The process is started for the
first conversation and stays, so a further one takes about a millisecond.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import resource
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from agent_forge.runs.errors import ConfigError, SourceError, UnavailableError
from agent_forge.runs.system.child_environment import child_environment
from agent_forge.runs.system.line_process import Respondent
from agent_forge.runs.system.process_limits import memory
from agent_forge.weights.folders.vocabularies import Tokenizer

#: Processor seconds and further bytes of memory for one text; characters of the longest text.
SECONDS, BYTES, LONGEST = 5, 512 << 20, 16 << 20
#: Seconds to wait for an answer, enough for a very busy machine.
PATIENCE = 300.0
#: Number of cached texts.
REMEMBERED = 1024

_lock = threading.Lock()
#: The process, once it is started.
_process: list[Respondent] = []
#: Digests of templates that exceeded a limit: they are not tried again.
_unbounded: set[str] = set()


class TemplateFailedError(Exception):
    """A chat template that raises an error for a conversation, or is no template."""


def rendered(
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, str]],
    tools: Sequence[Mapping[str, object]] | None = None,
) -> str:
    """Return the conversation's text by the tokenizer's chat template, up to the assistant's turn.

    The text is that of `tokenizer.apply_chat_template`. Raises TemplateFailedError, UnavailableError,
    and SourceError, with the template's name, if it needs more than SECONDS, BYTES or LONGEST.
    """
    listed = None if tools is None else [dict(tool) for tool in tools]
    try:
        template = tokenizer.get_chat_template(None, listed)
    except ValueError as error:  # several templates, and none for this
        raise TemplateFailedError(str(error)) from error
    special = {k: str(v) for k, v in tokenizer.special_tokens_map.items()}
    name = str(tokenizer.name_or_path or "the model")
    return rendered_by(template, special, name, messages, listed)


def rendered_by(
    template: str,
    special: Mapping[str, str],
    name: str,
    messages: Sequence[Mapping[str, object]],
    tools: Sequence[Mapping[str, object]] | None = None,
    begins_reply: bool = True,
) -> str:
    """Return the conversation's text by this chat template, up to the assistant's turn.

    `special` are the special tokens that the template may name, such as `bos_token`; `name` is the
    model's in messages. `begins_reply`: the next turn is the assistant's, and its beginning is written.
    Raises the errors of `rendered`.
    """
    variables = {"tools": tools, "special": dict(special), "begins_reply": begins_reply}
    conversation = json.dumps([dict(message) for message in messages])
    if len(conversation) > LONGEST:
        raise TemplateFailedError(f"it has {len(conversation):,} characters, more than {LONGEST:,}")
    return _rendered(name, template, json.dumps(variables), conversation)


def refused(name: str, error: TemplateFailedError) -> ConfigError:
    """Return a ConfigError that says that a model's chat template refuses the conversation."""
    return ConfigError(
        f"the chat template of {name} refuses the conversation ({error}). If it takes no system "
        "prompt, leave that out."
    )


@functools.lru_cache(maxsize=REMEMBERED)
def _rendered(name: str, template: str, variables: str, conversation: str) -> str:
    digest = hashlib.sha256(template.encode("utf-8", "surrogatepass")).hexdigest()
    answer: dict[str, Any] = {"bound": True}
    if digest not in _unbounded:
        with _lock:
            answer = _answer([template, json.loads(variables), json.loads(conversation)])
    if "failed" in answer:
        raise TemplateFailedError(answer["failed"])
    if "text" in answer:
        return answer["text"]
    _unbounded.add(digest)
    raise SourceError(
        f"{name}: its chat template ({template.strip()[:60]!r}, SHA-256 {digest[:12]}) needs more than "
        f"{SECONDS} s of processor time, {BYTES >> 20} MiB of memory or {LONGEST:,} characters for one "
        "conversation: no template needs that. Replace it, or take another model."
    )


def _answer(question: object) -> dict[str, object]:
    """Return the process's answer, of `_one`; {"bound": True} if the process ended.

    Raises UnavailableError if the process cannot be started, or does not answer for PATIENCE.
    """
    try:
        if not _process or not _process[0].living:
            start = [sys.executable, "-P", "-c", f"from {__name__} import serve; serve()"]
            # In a group of its own: Ctrl-C at a terminal is not for it.
            _process[:] = [Respondent(start, env=child_environment("scorer"), process_group=0)]
            _process[0].ask([SECONDS, None], PATIENCE)  # it has started
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"the process that renders chat templates cannot be started: {error}. Try again when the "
            "machine has memory and processes free."
        ) from error
    try:
        return _process[0].ask([SECONDS, question], PATIENCE)
    except TimeoutError as error:
        raise UnavailableError(
            f"the process that renders chat templates gave no answer in {PATIENCE:g} s: try again."
        ) from error
    except (OSError, ValueError):  # it ended
        return {"bound": True}


def serve() -> None:
    """Answer each line of stdin by a line on stdout, in the process; libraries print to stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    from transformers.utils.chat_template_utils import render_jinja_template

    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_DATA, memory("VmData") + BYTES)
    for line in sys.stdin:
        number, (seconds, question) = json.loads(line)
        _limit(resource.RLIMIT_CPU, math.ceil(time.process_time()) + seconds)
        answer = {} if question is None else _one(render_jinja_template, *question)
        out.write(json.dumps([number, answer]) + "\n")
        out.flush()


def _one(
    render: Any, template: str, variables: dict[str, Any], conversation: list[object]
) -> dict[str, object]:
    """Return {"text": the conversation}, {"failed": reason}, or {"bound": True} beyond a limit."""
    try:
        texts, _ = render(
            conversations=[conversation],
            tools=variables["tools"],
            chat_template=template,
            add_generation_prompt=variables["begins_reply"],
            **variables["special"],
        )
    except MemoryError:
        return {"bound": True}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"[:300]}
    return {"text": texts[0]} if len(texts[0]) <= LONGEST else {"bound": True}


def _limit(what: int, bound: int) -> None:
    """Set this process's soft limit of the resource `what` to `bound`, or to a lower hard limit."""
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard))
