"""A Modelfile: what Ollama is told of a GGUF file beside it.

Ollama's templates are Go's, a tokenizer's are Jinja's. One kind is translated, ChatML, and only if the
tokenizer's template gives the same text for every conversation tried here. Otherwise the Modelfile has
no template; Ollama then looks in the GGUF file, and takes one of its own if it resembles it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

#: First line of a Modelfile of ours, which may be replaced.
FIRST = "# Written by `forge export --ollama`."
#: Go's template for ChatML.
CHATML = (
    "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}"
    "<|im_start|>assistant\n"
)
_OPEN = (
    "No template: the tokenizer's is not ChatML. Ollama takes one of its own if it finds it alike."
)
#: Conversations: roles and contents. Spaces at ends would be lost by a template that strips them.
_TRIED: tuple[tuple[tuple[str, str], ...], ...] = (
    (("user", "Hello"),),
    (("user", " two\n\nlines \n"),),
    (("system", "Be short. "), ("user", "Hello")),
    (("user", "1 + 1?"), ("assistant", " 2\n"), ("user", "And {{ x }} + 1?")),
    (
        ("system", ""),
        ("user", ""),
        ("assistant", "a"),
        ("user", "b"),
        ("assistant", "c"),
        ("user", ""),
    ),
)


@dataclass(frozen=True)
class Modelfile:
    """The text, and a sentence for people on its template."""

    text: str
    note: str


def of(tokenizer: Any, file: str, positions: int, begins: bool) -> Modelfile:
    """Return the Modelfile of `file`, which lies beside it; `begins`: llama.cpp puts bos in front."""
    lines = [FIRST, f"FROM ./{file}"]
    template, system, note = _template(tokenizer, begins)
    if template is not None:
        lines.append(f"TEMPLATE {_quoted(template)}")
    if system is not None:
        lines.append(f"SYSTEM {_quoted(system)}")
    stops = [tokenizer.eos_token, "<|im_end|>" if template and CHATML in template else None]
    lines += [f"PARAMETER stop {_quoted(stop)}" for stop in dict.fromkeys(stops) if stop]
    lines.append(f"PARAMETER num_ctx {positions}")
    return Modelfile("\n".join(lines) + "\n", note)


def _quoted(text: str) -> str:
    """Return an argument in one quote a side, or in three if it has lines or quotes itself."""
    return f'"""{text}"""' if '"' in text or "\n" in text else f'"{text}"'


def _template(tokenizer: Any, begins: bool) -> tuple[str | None, str | None, str]:
    """Return Go's template, the system prompt if one is always there, and a note."""
    if not tokenizer.chat_template:
        return "{{ .Prompt }}", None, "No chat template: texts are continued as they are."
    told = [_rendered(tokenizer, messages) for messages in _TRIED]
    if any(text is None for text in told):
        return None, None, _OPEN
    bos = tokenizer.bos_token or ""
    front = bos if bos and all(str(text).startswith(bos) for text in told) else ""
    if begins and not front:
        return None, None, _OPEN  # llama.cpp would put bos in front, the template does not
    system = _always(str(told[0])[len(front) :])
    for text, messages in zip(told, _TRIED, strict=True):
        if text != front + _chatml(messages, system):
            return None, None, _OPEN
    template = CHATML if begins else front + CHATML
    if '"""' in template + (system or ""):  # cannot be quoted
        return None, None, _OPEN
    return template, system, "ChatML, as the tokenizer has it."


def _rendered(tokenizer: Any, messages: Sequence[tuple[str, str]]) -> str | None:
    """Return a conversation as the tokenizer writes it; None if its template fails."""
    given = [{"role": role, "content": content} for role, content in messages]
    try:
        return tokenizer.apply_chat_template(given, tokenize=False, add_generation_prompt=True)
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _always(text: str) -> str | None:
    """Return the system prompt that a template adds to a conversation without one; None for none."""
    begin, end = "<|im_start|>system\n", "<|im_end|>\n"
    if not text.startswith(begin) or end not in text:
        return None
    return text[len(begin) : text.index(end)]


def _chatml(messages: Sequence[tuple[str, str]], system: str | None) -> str:
    """Return a conversation in ChatML, with a system prompt in front if it has none."""
    if system is not None and messages[0][0] != "system":
        messages = [("system", system), *messages]
    said = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages)
    return f"{said}<|im_start|>assistant\n"
