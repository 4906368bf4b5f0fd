"""What is unusual about a chat template: files as people have them, and as attackers write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_forge.weights.folders.chat_template import unusual

CHATML = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- generation %}{{- message['content'] }}{% endgeneration %}{{- '<|im_end|>\\n' }}"
    "{%- if loop.index > 99 %}{% break %}{% endif %}{%- endfor %}"
    "{%- set ns = namespace(found=false) %}{%- macro line(x) %}{{ x | tojson }}{% endmacro %}"
    "{{ line(tools) if tools is defined }}"
    "{%- if add_generation_prompt %}<|im_start|>assistant{% endif %}"
    "{{ raise_exception('roles must alternate') if false }}{{ strftime_now('%Y') }}"
)


@pytest.mark.parametrize("name", ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    ("template", "why"),
    [
        (CHATML, None),
        ("{{ messages.__class__.__mro__ }}", "reads '__mro__' (line 1)"),
        ("\n{{ x['__globals__'] }}", "reads '__globals__' (line 2)"),
        ("{{ x | attr('y') }}", "reads 'attr(…)' (line 1)"),
        ("{% include 'other' %}", "reads another template (line 1)"),
        ("{% from 'm' import f %}", "reads another template (line 1)"),
        ("{% for %}", "is no Jinja template"),
    ],
)
def test_what_no_chat_template_needs_is_found(
    tmp_path: Path, name: str, template: str, why: str | None
) -> None:
    """A run warns of it: results carry the template to servers that may lock it in less well."""
    given = json.dumps({"chat_template": template})
    (tmp_path / name).write_text(template if name.endswith(".jinja") else given, "utf-8")
    found = unusual(tmp_path)
    assert [file for file, _ in found] == ([] if why is None else [name])
    assert why is None or found[0][1].startswith(why)


def test_named_templates_are_all_read_and_odd_files_are_none(tmp_path: Path) -> None:
    """The tokenizers of some models have several templates, for tools and for retrieval."""
    named = [{"name": "default", "template": CHATML}, {"name": "rag", "template": "{{ a.__b__ }}"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}), "utf-8")
    assert unusual(tmp_path) == [("tokenizer_config.json", "reads '__b__' (line 1)")]
    for odd in ("[1]", "{", '{"chat_template": 3}', '{"chat_template": [3, {"template": null}]}'):
        (tmp_path / "tokenizer_config.json").write_text(odd, "utf-8")
        assert unusual(tmp_path) == []
