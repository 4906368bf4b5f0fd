"""Nothing of a model adds a line to a Modelfile: what is written is read back as what was meant."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.runs.errors import ConfigError
from agent_forge.worker.exports import modelfile

#: Texts of what steers a Modelfile, and of what does not.
_TEXTS = st.lists(
    st.sampled_from(
        ['"', '""', '"""', "\n", "\r", " ", "\t", "a", "#", "\\", "\0", "\u2028", "{{", "}}"]
    )
    | st.sampled_from(["FROM /root/x.gguf", "PARAMETER stop", "<|im_end|>", "</s>", "é"]),
    max_size=6,
).map("".join)


def ollama(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Modelfile as Ollama's `parser.ParseFile` reads them.

    Source: ollama/parser/parser.go, its states and `unquote`: a value ends at the first line break
    where it is quoted whole.
    """
    commands: list[tuple[str, str]] = []
    state, name, buffer = "nil", "", ""
    for rune in text:
        new_line, space = rune in "\r\n", rune in " \t"
        if state == "comment":
            state = "nil" if new_line else "comment"
        elif state == "nil":
            if rune == "#":
                state = "comment"
            elif not (new_line or space):
                state, buffer = "name", rune
        elif state == "name":
            if space:
                name, buffer = buffer.upper(), ""
                assert name in ("FROM", "TEMPLATE", "SYSTEM", "PARAMETER"), f"no command {name}"
                state = "parameter" if name == "PARAMETER" else "value"
            else:
                assert rune.isalpha(), f"{rune!r} in a command"
                buffer += rune
        elif state == "parameter":
            if space:
                name, buffer, state = f"PARAMETER {buffer}", "", "value"
            else:
                assert rune.isalnum() or rune == "_", f"{rune!r} in a parameter"
                buffer += rune
        elif new_line and (value := unquoted(buffer.strip())) is not None:
            commands.append((name, value))
            state, buffer = "nil", ""
        else:
            buffer += rune
    assert state == "nil", "the last value has no end"
    return commands


def unquoted(text: str) -> str | None:
    """Return what stands in quotes; None if the quotes are not closed. As Ollama's `unquote`."""
    if text.startswith('"""'):
        return text[3:-3] if len(text) >= 6 and text.endswith('"""') else None
    if text.startswith('"'):
        return text[1:-1] if len(text) >= 2 and text.endswith('"') else None
    return text


def written(
    monkeypatch: pytest.MonkeyPatch, eos: str, bos: str, system: str | None, file: str
) -> modelfile.Modelfile:
    """The Modelfile of a model whose template is ChatML after bos, perhaps with a system prompt."""
    monkeypatch.setattr(
        modelfile, "_rendered", lambda tokenizer, messages: bos + modelfile._chatml(messages, system)
    )
    tokenizer = SimpleNamespace(eos_token=eos, bos_token=bos, chat_template="x")
    return modelfile.of(tokenizer, file, 256, begins=False)


@given(eos=_TEXTS, bos=_TEXTS, system=st.none() | _TEXTS, file=_TEXTS.filter(bool))
@settings(max_examples=400, deadline=None)
def test_what_is_written_is_read_back_as_what_was_meant(
    eos: str, bos: str, system: str | None, file: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        try:
            text = written(patch, eos, bos, system, file).text
        except ConfigError:
            assert not file.isprintable() or '"' in file
            return
    commands = ollama(text)
    names = [name for name, _ in commands]
    assert commands[0] == ("FROM", f"./{file}")
    assert commands[-1] == ("PARAMETER num_ctx", "256")
    assert names[1:-1] == sorted(names[1:-1], key=["TEMPLATE", "SYSTEM", "PARAMETER stop"].index)
    meant = {"TEMPLATE": {bos + modelfile.CHATML}, "SYSTEM": {system}}
    for name, value in commands[1:-1]:
        assert value in meant.get(name, {eos, "<|im_end|>"})


ATTACK = 'x"""\nADAPTER /etc/passwd\nFROM /root/secret.gguf\nPARAMETER stop """y'


def test_a_stop_token_with_lines_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gave the user an adapter and another base."""
    result = written(monkeypatch, ATTACK, "", None, "m.gguf")
    assert ollama(result.text) == [
        ("FROM", "./m.gguf"),
        ("TEMPLATE", modelfile.CHATML),
        ("PARAMETER stop", "<|im_end|>"),
        ("PARAMETER num_ctx", "256"),
    ]
    assert result.note.startswith('ChatML, as the tokenizer has it. No stop token \'x"""\\nADAPTER')


@pytest.mark.parametrize("stop", ["</s>", "<|end of text|>", 'a"b', "a'b", "é", "\\n", "#"])
def test_a_stop_token_in_one_line_is_kept(monkeypatch: pytest.MonkeyPatch, stop: str) -> None:
    result = written(monkeypatch, stop, "", None, "m.gguf")
    assert ("PARAMETER stop", stop) in ollama(result.text)


def test_a_template_never_has_actions_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go would carry out what stands in braces in a bos token."""
    result = written(monkeypatch, "</s>", "{{ .Suffix }}", None, "m.gguf")
    assert [name for name, _ in ollama(result.text)] == ["FROM", "PARAMETER stop", "PARAMETER num_ctx"]


@pytest.mark.parametrize("file", ["a\nFROM x", 'a"b.gguf', "a\x1b.gguf", "a\u200b.gguf"])
def test_a_file_s_name_that_a_modelfile_cannot_hold_is_refused(file: str) -> None:
    with pytest.raises(ConfigError, match="choose another name"):
        modelfile.file_argument(file)


def test_a_file_s_name_with_spaces_is_quoted() -> None:
    assert modelfile.file_argument("my model.gguf") == '"./my model.gguf"'
