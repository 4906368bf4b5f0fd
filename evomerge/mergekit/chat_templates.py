"""Chat templates of a merge's result: by name, the models' own, from a file; and how a turn ends.

The names are mergekit's; the templates are written here after the formats that their models document.
A turn ends with a token, and a model stops at the tokens that `eos_token_id` lists: if the two differ,
the result talks on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runs.errors import ConfigError
from runs.system import bounded_files
from weights.folders import model_config

_CHATML = """\
{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_LLAMA3 = """\
{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>

{{ message['content'] | trim }}<|eot_id|>{% endfor %}\
{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
_MISTRAL = """\
{{ bos_token }}{% set system = namespace(text='') %}{% for message in messages %}\
{% if message['role'] == 'system' %}{% set system.text = message['content'] + '\\n\\n' %}\
{% elif message['role'] == 'user' %}[INST] {{ system.text + message['content'] }} [/INST]\
{% set system.text = '' %}\
{% else %} {{ message['content'] | trim }}{{ eos_token }}{% endif %}{% endfor %}"""
_ALPACA = """\
{% for message in messages %}{% if message['role'] == 'user' %}### Instruction:
{{ message['content'] }}

{% elif message['role'] == 'assistant' %}### Response:
{{ message['content'] }}{{ eos_token }}

{% else %}{{ message['content'] }}

{% endif %}{% endfor %}{% if add_generation_prompt %}### Response:
{% endif %}"""
_EXAONE = """\
{% for message in messages %}[|{{ message['role'] }}|]{{ message['content'] }}\
{% if message['role'] != 'user' %}[|endofturn|]{% endif %}{{ '\\n' }}{% endfor %}\
{% if add_generation_prompt %}[|assistant|]{% endif %}"""
NAMED = {
    "alpaca": _ALPACA,
    "chatml": _CHATML,
    "exaone": _EXAONE,
    "llama3": _LLAMA3,
    "mistral": _MISTRAL,
}
#: What special tokens look like.
_TOKEN = re.compile(r"<\|[\w.-]{1,60}\|>|\[\|[\w.-]{1,60}\|\]|</?[a-z]{1,20}>")


def chosen(setting: str | None, folders: Sequence[Path]) -> str | None:
    """Return the template that the config asks for; None: the donor's. Raise ConfigError.

    `folders` are the models', of which `auto` takes the most common template.
    """
    if setting is None:
        return None
    if setting == "auto":
        return _most_common([text for folder in folders if (text := of_folder(folder))])
    if setting in NAMED:
        return NAMED[setting]
    is_path = setting.endswith(".jinja") and setting.isprintable() and len(setting) < 4096
    if is_path and Path(setting).is_file():
        return bounded_files.read_text(Path(setting), model_config.MOST_BYTES, ConfigError)
    if "{" in setting and len(setting) >= 20:
        return setting
    raise ConfigError(
        f"chat_template {setting!r} is no template: give auto, {', '.join(NAMED)}, a .jinja file, or a "
        "Jinja template."
    )


def _most_common(texts: Sequence[str]) -> str | None:
    """Return the template that most models have; of equals the first; None without templates."""
    return max(texts, key=lambda text: (texts.count(text), -texts.index(text)), default=None)


def of_folder(folder: Path) -> str | None:
    """Return a model's chat template: a file of its own, or in tokenizer_config.json."""
    if (folder / "chat_template.jinja").is_file():
        return bounded_files.read_text(
            folder / "chat_template.jinja", model_config.MOST_BYTES
        ).strip()
    if not (folder / "tokenizer_config.json").is_file():
        return None
    template = bounded_files.read_object(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):
        named = [t for t in template if isinstance(t, dict) and t.get("name") == "default"]
        template = named[0].get("template") if named else None
    return template.strip() if isinstance(template, str) and template.strip() else None


def stop_warning(
    template: str,
    ids: Mapping[str, int],
    tokenizer: Mapping[str, Any],
    settings: Iterable[Mapping[str, Any]],
) -> str | None:
    """Return a warning if a template writes none of the tokens at which a model stops.

    `ids`: token → id of the result's tokenizer; `tokenizer`: its tokenizer_config.json; `settings`: the
    result's config.json and generation_config.json. The template is read, not run.
    """
    ends: set[int] = set()
    for part in settings:
        named = part.get("eos_token_id")
        ends |= {n for n in (named if isinstance(named, list) else [named]) if isinstance(n, int)}
    stops = sorted(token for token, number in ids.items() if number in ends)
    written = template.replace("eos_token", _content(tokenizer.get("eos_token")))
    if not stops or any(token in written for token in stops):
        return None
    tokens = list(dict.fromkeys(_TOKEN.findall(template)))[:6]
    there = [
        f"{token} ({ids[token]})" if token in ids else f"{token} (unknown)" for token in tokens
    ]
    return (
        f"the chat template does not write {', '.join(stops)}, at which the result stops "
        f"(eos_token_id {', '.join(map(str, sorted(ends)))}): its replies will not end. Add the token "
        "that ends a turn to eos_token_id in generation_config.json of the result"
        + (f"; the template writes {', '.join(there)}." if there else ".")
    )


def _content(token: Any) -> str:
    """Return the text of a special token, which tokenizer_config.json may describe as an object."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""
