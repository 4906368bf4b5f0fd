"""A Modelfile, which describes a GGUF file beside it to Ollama.

Ollama's templates are Go's, a tokenizer's are Jinja's. One kind is translated, ChatML, and only if the
tokenizer's template gives the same text for every conversation tried here. Otherwise the Modelfile has
no template; Ollama then looks in the GGUF file, and takes one of its own if it resembles it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.system import plain_text
from agent_forge.weights.folders import template_rendering
from agent_forge.weights.folders.vocabularies import Tokenizer

#: First line of a Modelfile of ours, which may be replaced.
FIRST = "# Written by `forge export --ollama`."
#: Go's template for ChatML.
CHATML = (
    "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}"
    "<|im_start|>assistant\n"
)
#: Characters that a text in quotes cannot hold: they end a line, or are not printable.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_OPEN = "No template: the tokenizer's is not ChatML. Ollama takes one of its own if it finds it alike."
#: Conversations: roles and contents. Spaces at ends would be lost by a template that strips them.
_TRIED: tuple[tuple[tuple[str, str], ...], ...] = (
    (("user", "Hello"),),
    (("user", " two\n\nlines \n"),),
    (("system", "Be short. "), ("user", "Hello")),
    (("user", "1 + 1?"), ("assistant", " 2\n"), ("user", "And {{ x }} + 1?")),
    (("system", ""), ("user", ""), ("assistant", "a"), ("user", "b"), ("assistant", "c"), ("user", "")),
)


@dataclass(frozen=True)
class Modelfile:
    """The text of a Modelfile, and a sentence for people on its template."""

    text: str
    note: str


def of(tokenizer: Tokenizer, file: str, positions: int, begins: bool) -> Modelfile:
    """Return the Modelfile for `file`, which lies beside it; `begins`: llama.cpp puts bos in front.

    Raise ConfigError if a Modelfile cannot hold the file's name; SourceError for a chat template
    without bounds.
    """
    lines = [FIRST, f"FROM {file_argument(file)}"]
    template, system, note = _template(tokenizer, begins)
    notes = [note]
    if template is not None:
        lines.append(f"TEMPLATE {_quoted(template)}")
    if system is not None:
        lines.append(f"SYSTEM {_quoted(system)}")
    stops = [tokenizer.eos_token, "<|im_end|>" if template and CHATML in template else None]
    for stop in dict.fromkeys(stops):
        argument = _quoted(str(stop)) if stop and str(stop).isprintable() else None
        if argument is not None:
            lines.append(f"PARAMETER stop {argument}")
        elif stop:
            shown = plain_text.shown(str(stop))
            notes.append(f"No stop token {shown}: a Modelfile cannot hold it in one line.")
    lines.append(f"PARAMETER num_ctx {int(positions)}")
    return Modelfile("\n".join(lines) + "\n", " ".join(notes))


def file_argument(file: str) -> str:
    """Return the text that names a file beside the Modelfile for FROM. Raises ConfigError."""
    if re.fullmatch(r"[\w.+-]+", file):
        return f"./{file}"
    argument = _quoted(f"./{file}") if file.isprintable() and '"' not in file else None
    if argument is None:
        raise ConfigError(f"{file!r} cannot be named in a Modelfile: choose another name.")
    return argument


def _quoted(text: str) -> str | None:
    """Return a text in double quotes, tripled if needed; None if Ollama cannot read it back.

    Ollama ends a text in quotes at the first line that ends with them, and in three quotes nothing is
    escaped. So a text with three quotes, or with a quote at an end, is not written; nor are control
    characters other than tab and line feed.
    """
    rest = text.replace("\n", "").replace("\t", "")
    if '"""' in text or text.startswith('"') or text.endswith('"') or _CONTROL.search(rest):
        return None
    return f'"""{text}"""' if '"' in text or "\n" in text else f'"{text}"'


def _template(tokenizer: Tokenizer, begins: bool) -> tuple[str | None, str | None, str]:
    """Return (Go's template, fixed system prompt, note); None for what there is not."""
    if not tokenizer.chat_template:
        return "{{ .Prompt }}", None, "No chat template: texts are continued as they are."
    renderings = [_rendered(tokenizer, messages) for messages in _TRIED]
    if any(text is None for text in renderings):
        return None, None, _OPEN
    bos = str(tokenizer.bos_token or "")
    front = bos if bos and all(str(text).startswith(bos) for text in renderings) else ""
    if begins and not front:
        return None, None, _OPEN  # llama.cpp would put bos in front, the template does not
    if "{{" in front or "}}" in front:
        return None, None, _OPEN  # Go would carry it out
    system = _always(str(renderings[0])[len(front) :])
    for text, messages in zip(renderings, _TRIED, strict=True):
        if text != front + _chatml(messages, system):
            return None, None, _OPEN
    template = CHATML if begins else front + CHATML
    if _quoted(template) is None or (system is not None and _quoted(system) is None):
        return None, None, _OPEN
    return template, system, "ChatML, as the tokenizer has it."


def _rendered(tokenizer: Tokenizer, messages: Sequence[tuple[str, str]]) -> str | None:
    """Return a conversation as text by the tokenizer's template; None if the template fails."""
    conversation = [{"role": role, "content": content} for role, content in messages]
    try:
        return template_rendering.rendered(tokenizer, conversation)
    except template_rendering.TemplateFailedError:
        return None


def _always(text: str) -> str | None:
    """Return the system prompt that a template adds by itself; None if it adds none."""
    begin, end = "<|im_start|>system\n", "<|im_end|>\n"
    if not text.startswith(begin) or end not in text:
        return None
    return text[len(begin) : text.index(end)]


def _chatml(messages: Sequence[tuple[str, str]], system: str | None) -> str:
    """Return a conversation as ChatML text, with a system prompt in front if it has none."""
    if system is not None and messages[0][0] != "system":
        messages = [("system", system), *messages]
    turns = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages)
    return f"{turns}<|im_start|>assistant\n"
