"""Modelfiles: what Ollama is told of a GGUF file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.runs.errors import ConflictError
from agent_forge.runs.home import Home
from agent_forge.worker.exports import gguf_export, modelfile
from testing.models.toys import Toys

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}"
)
#: As Qwen2's does: a system prompt for conversations that have none.
QWEN = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}"
    "{% endif %}" + CHATML
)
TALK = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": " 1 + 1?"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "Why?\n"},
]


def parsed(text: str) -> list[tuple[str, str]]:
    """The instructions of a Modelfile by its grammar: NAME ARGUMENT, or three quotes over lines."""
    argument = r'(?:"""(.*?)"""|"([^"\n]*)"|([^"\n]+))'
    instruction = rf"(FROM|TEMPLATE|SYSTEM|PARAMETER (?:stop|num_ctx)) {argument}\n|#[^\n]*\n"
    found, at = [], 0
    while at < len(text):
        match = re.compile(instruction, re.DOTALL).match(text, at)
        assert match, f"no instruction: {text[at : at + 40]!r}"
        if match[1]:
            found.append((match[1], next(group for group in match.groups()[1:] if group is not None)))
        at = match.end()
    return found


def go(template: str, messages: list[dict[str, str]]) -> str:
    """Render as Go's text/template does; only the few words that are used are known."""
    match = re.fullmatch(r"(.*?)\{\{ range \.Messages \}\}(.*?)\{\{ end \}\}(.*)", template, re.DOTALL)
    assert match
    one = match[2]
    said = (
        one.replace("{{ .Role }}", m["role"]).replace("{{ .Content }}", m["content"]) for m in messages
    )
    return match[1] + "".join(said) + match[3]


def of(toys: Toys, template: str | None, begins: bool = False) -> dict[str, str]:
    tokenizer = load_tokenizer(str(toys.base))
    tokenizer.chat_template = template
    made = modelfile.of(tokenizer, "m.gguf", 256, begins)
    told = parsed(made.text)
    assert told[0] == ("FROM", "./m.gguf")
    assert ("PARAMETER num_ctx", "256") in told
    return dict(told) | {"note": made.note, "eos": tokenizer.eos_token, "bos": tokenizer.bos_token}


def expected(toys: Toys, template: str, messages: list[dict[str, str]]) -> str:
    tokenizer = load_tokenizer(str(toys.base))
    return tokenizer.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=True
    )


def test_chatml_is_translated(toys: Toys) -> None:
    told = of(toys, CHATML)
    assert go(told["TEMPLATE"], TALK) == expected(toys, CHATML, TALK)
    assert told["PARAMETER stop"] == "<|im_end|>", "the last one"
    assert "SYSTEM" not in told
    assert told["note"].startswith("ChatML")


def test_a_system_prompt_that_is_always_there_is_told(toys: Toys) -> None:
    """Ollama puts SYSTEM before a conversation that has none of its own."""
    told = of(toys, QWEN)
    assert told["SYSTEM"] == "Be kind."
    assert go(told["TEMPLATE"], TALK) == expected(toys, QWEN, TALK)
    said = [{"role": "system", "content": told["SYSTEM"]}, *TALK[1:]]
    assert go(told["TEMPLATE"], said) == expected(toys, QWEN, TALK[1:])


def test_bos_comes_once(toys: Toys) -> None:
    """From llama.cpp if it puts one in front of every text, else from the template."""
    with_bos = "{{ bos_token }}" + CHATML
    once, plain = of(toys, with_bos, begins=True), of(toys, with_bos)
    assert once["TEMPLATE"] == modelfile.CHATML
    assert plain["TEMPLATE"] == plain["bos"] + modelfile.CHATML
    assert "TEMPLATE" not in of(toys, CHATML, begins=True), "llama.cpp would add one"


@pytest.mark.parametrize(
    "template",
    [
        CHATML.replace("message['content']", "message['content'].strip()"),
        CHATML.replace("im_end", "end"),
        "{{ raise_exception('no') }}",
        "{{ messages[7]['content'] }}",
        "{% for",
    ],
)
def test_other_templates_are_left_out_and_said(toys: Toys, template: str) -> None:
    told = of(toys, template)
    assert "TEMPLATE" not in told
    assert told["note"].startswith("No template")
    assert told["PARAMETER stop"] == told["eos"]


def test_a_model_that_does_not_chat_continues_texts(toys: Toys) -> None:
    assert of(toys, None)["TEMPLATE"] == "{{ .Prompt }}"


def test_it_lies_beside_the_file_and_replaces_only_its_own(toys: Toys, tmp_path: Path) -> None:
    home, out = Home(tmp_path / "home"), tmp_path / "toy.gguf"

    def exported() -> dict[str, Any]:
        return gguf_export.export(home, str(toys.base), out, "F32", lambda text: None, True)

    assert exported()["modelfile"] == str(tmp_path / "Modelfile")
    assert exported()["template"].startswith("No chat template")
    assert parsed((tmp_path / "Modelfile").read_text())[0] == ("FROM", "./toy.gguf")
    (tmp_path / "Modelfile").write_text("FROM mine\n")
    out.unlink()
    with pytest.raises(ConflictError, match="was not written here"):
        exported()
    assert (tmp_path / "Modelfile").read_text() == "FROM mine\n"
    assert not out.exists()
