"""Chat templates are rendered in bounded time and memory, and as transformers renders them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders import chat_template, template_rendering
from testing import house_counts

TALK = [{"role": "system", "content": "Be short. é \ud7ff"}, {"role": "user", "content": " 1 + 1?\n"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
SPECIAL: Any = {"bos_token": "<s>", "eos_token": "</s>"}


class Tokenizer:
    """What `rendered` asks of a tokenizer."""

    special_tokens_map = SPECIAL
    name_or_path = "strangers/model"

    def __init__(self, template: str) -> None:
        self._template = template

    def get_chat_template(self, name: str | None, tools: list[Any] | None) -> str:
        """Return the template."""
        return self._template


@pytest.mark.parametrize(
    "template",
    [
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}\n{% endfor %}",
        "{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}{{ eos_token }}",
        "{%- for m in messages -%}\n {% generation %}{{ m.content }}{% endgeneration %}\n{% endfor %}",
        "{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
        "{% set n = namespace(i=0) %}{% for m in messages %}{% set n.i = n.i+1 %}{% endfor %}{{ n.i }}",
        "{{ 'yes' if add_generation_prompt else 'no' }}",
    ],
)
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_the_text_is_that_of_transformers(template: str, tools: list[Any] | None) -> None:
    expected, _ = render_jinja_template(
        [TALK], tools, chat_template=template, add_generation_prompt=True, **SPECIAL
    )
    assert template_rendering.rendered(Tokenizer(template), TALK, tools) == expected[0]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for", "TemplateSyntaxError"),
        ("{{ raise_exception('no system message') }}", "no system message"),
        ("{{ messages[7]['content'] }}", "UndefinedError"),
        ("{{ 1 // 0 }}", "ZeroDivisionError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ range(10 ** 9) | list }}", "OverflowError"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "Error"),
    ],
)
def test_an_error_of_a_template_is_said(template: str, words: str) -> None:
    with pytest.raises(template_rendering.TemplateFailedError, match=words):
        template_rendering.rendered(Tokenizer(template), TALK)


LOOPS = "{% for i in range(99999) %}" * 3 + "{% endfor %}" * 3


@pytest.mark.parametrize(
    "template",
    [
        LOOPS,
        "{{ 'a' * 10 ** 10 }}",
        "{% set x = 'a' * 10 ** 8 %}{{ x }}",
        "{{ '%0*d' % (10 ** 10, 1) }}",
    ],
    ids=["loops", "a product", "a long text", "a wide number"],
)
def test_a_template_without_bounds_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    """The first ran for years; the others filled the memory. The next model is rendered as before."""
    monkeypatch.setattr(template_rendering, "SECONDS", 1)
    words = r"strangers/model: its chat template \('.*', SHA-256 [0-9a-f]{12}\) needs more than"
    with pytest.raises(SourceError, match=words.replace("'", ".")):
        template_rendering.rendered(Tokenizer(template), TALK)
    assert template_rendering.rendered(Tokenizer("{{ messages[0].role }}"), TALK) == "system"


def test_a_template_that_was_refused_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each form of calls would take its seconds again."""
    template = "{{ 'b' * 10 ** 10 }}"
    with pytest.raises(SourceError):
        template_rendering.rendered(Tokenizer(template), TALK)
    monkeypatch.setattr(template_rendering, "_answer", None)
    with pytest.raises(SourceError):
        template_rendering.rendered(Tokenizer(template), TALK[1:])


def test_templates_are_rendered_at_one_place() -> None:
    """Another place would have no bounds."""
    callers = {
        file.name
        for file in house_counts.files(*house_counts.PRODUCT)
        if re.search(r"\.(apply_chat_template|from_string)\(", file.read_text("utf-8"))
    }
    assert callers == set()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ " + "1+" * 20_000 + "1 }}", "is no Jinja template"),
        ("a" * ((1 << 20) + 1), "has 1,048,577 characters, more than 1,048,576"),
    ],
)
def test_a_template_that_is_too_deep_or_long_is_unusual(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "chat_template.jinja").write_text(text)
    ((name, why),) = chat_template.unusual(tmp_path)
    assert name == "chat_template.jinja"
    assert words in why
