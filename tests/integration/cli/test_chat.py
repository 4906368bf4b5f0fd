"""`forge chat` as a user and a script meet it: one reply, lines of a pipe, a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent_forge.cli.main import forge
from agent_forge.runs.home import Home
from agent_forge.worker.exports import gguf_export
from testing.models import toy_models
from testing.models.toys import Toys
from testing.waiting import PATIENCE
from tests.integration.cli.test_forge import fails
from tests.integration.evaluation.test_chat import ASKED, chatty, expected

__all__ = ["chatty"]

START = "from agent_forge.cli.main import main; main()"
TEXT = ASKED[1]["content"]


def call(home: Path, *words: str, lines: str = "") -> Result:
    env = {"FORGE_HOME": str(home), "FORGE_DATABASE_URL": ""}
    return CliRunner(env=env).invoke(forge, ["chat", *words], input=lines)


def test_one_reply_alone_is_on_stdout(chatty: Path, tmp_path: Path) -> None:
    words = (str(chatty), "--once", TEXT, "--system", "Be brief.", "--max-tokens", "16")
    told = call(tmp_path, *words)
    reply = expected(chatty, ASKED, 16)
    assert told.exit_code == 0
    as_data = json.loads(call(tmp_path, *words, "--json", "--seed", "3").stdout)
    assert as_data.pop("seconds") > 0
    assert as_data == {"model": "chatty", "reply": reply, "tokens": 16, "reason": "length", "seed": 3}
    assert told.stdout == "".join(_shown(c) for c in reply) + "\n"


def _shown(character: str) -> str:
    """A character as a terminal gets it."""
    plain = character.isprintable() or character in "\n\t" or ord(character) > 0x2FFF
    return character if plain else character.encode("unicode_escape").decode()


def test_lines_of_a_pipe_get_replies_with_what_was_said_before(chatty: Path, tmp_path: Path) -> None:
    told = call(tmp_path, str(chatty), "--max-tokens", "8", lines="one\n\ntwo\n/reset\none\n")
    first = expected(chatty, [{"role": "user", "content": "one"}], 8)
    past: list[Any] = [{"role": "user", "content": "one"}, {"role": "assistant", "content": first}]
    second = expected(chatty, [*past, {"role": "user", "content": "two"}], 8)
    replies = [f"{''.join(_shown(c) for c in text)}\n" for text in (first, second, first)]
    assert told.stdout == "".join(replies)
    assert told.stderr.startswith("chatty: ")
    assert "cut after 8 tokens: --max-tokens" in told.stderr


def test_commands_of_a_session(chatty: Path, tmp_path: Path) -> None:
    lines = "/help\n/what\n/system Be brief.\n" + TEXT + "\n/quit\nnever\n"
    told = call(tmp_path, str(chatty), "--max-tokens", "8", lines=lines)
    reply = expected(chatty, ASKED, 8)
    assert told.stdout == "".join(_shown(c) for c in reply) + "\n"
    assert "/reset" in told.stderr
    assert "there is no command /what" in told.stderr


def test_a_model_without_a_template_continues_each_text(toys: Toys, tmp_path: Path) -> None:
    """A prompt's file stands before each text, as a bake reads it; a long text is refused."""
    long = "word " * 100
    told = call(tmp_path, str(toys.base), lines=f"2 + 2 =\n{long}\n2 + 2 =\n/system x\n")
    assert "It has no chat template: it continues each text that you type." in told.stderr
    assert "and base takes 64 with the reply" in told.stderr
    assert "base has no chat template, so no system prompt" in told.stderr
    half, odd = divmod(len(told.stdout), 2)
    assert told.stdout[:half] == told.stdout[half:]
    assert not odd
    file = tmp_path / "prompt.txt"
    file.write_text("2 + 2")
    before = call(tmp_path, str(toys.base), "--prompt", str(file), "--once", " =")
    whole = call(tmp_path, str(toys.base), "--once", "2 + 2 =")
    assert before.stdout
    assert before.stdout == whole.stdout


def test_a_model_that_says_nothing(toys: Toys, tmp_path: Path) -> None:
    """The end token first: said beside stdout, and in a session in the reply's place."""
    import torch
    from transformers import Qwen2ForCausalLM

    silent = Qwen2ForCausalLM(toy_models.config())
    with torch.no_grad():
        for parameter in silent.parameters():
            parameter.zero_()
    toy_models.save(silent, tmp_path / "silent")
    told = call(tmp_path, str(tmp_path / "silent"), "--once", "Hello?")
    assert (told.exit_code, told.stdout) == (0, "")
    assert "(no reply)" in told.stderr
    assert call(tmp_path, str(tmp_path / "silent"), lines="Hello?\n").stdout == "(no reply)\n"


def test_models_of_runs_reply(finished_run: Callable[..., Any]) -> None:
    home, state = finished_run()
    for name in (state.run, f"{state.run}:champion"):
        told = call(home.folder, name, "--once", "2 + 2 =", "--json", "--max-tokens", "4")
        assert told.exit_code == 0, told.output
        assert json.loads(told.stdout)["tokens"] <= 4


def test_a_gguf_file_replies_in_llama_cpp(chatty: Path, tmp_path: Path) -> None:
    file = tmp_path / "chatty.gguf"
    gguf_export.export(Home(tmp_path), str(chatty), file, "F32", lambda text: None)
    words = ("--once", TEXT, "--system", "Be brief.", "--max-tokens", "16", "--json")
    told = json.loads(call(tmp_path, str(file), *words).stdout)
    assert told["reply"] == expected(chatty, ASKED, 16)
    assert told["model"] == "chatty.gguf"


def test_llama_cpp_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = fails(tmp_path, 3, "chat", str(tmp_path / "m.gguf"), "--once", "x")
    assert "pip install xllamacpp" in said


def test_bad_input_is_refused_before_any_work(toys: Toys, chatty: Path, tmp_path: Path) -> None:
    base = str(toys.base)
    assert "add --once" in fails(tmp_path, 2, "chat", base, "--json")
    assert "not both" in fails(tmp_path, 2, "chat", base, "--system", "a", "--prompt", "b")
    assert "--once is empty" in fails(tmp_path, 2, "chat", base, "--once", " ")
    assert "no chat template" in fails(tmp_path, 2, "chat", base, "--system", "a", "--once", "b")
    assert "cannot be read" in fails(tmp_path, 2, "chat", base, "--prompt", str(tmp_path / "x"))
    assert "neither a folder" in fails(tmp_path, 2, "chat", "nothing", "--once", "x")
    assert "temperature" in fails(tmp_path, 2, "chat", base, "--temperature", "-1", "--once", "x")
    bare = Path(shutil.copytree(chatty, tmp_path / "bare"))
    for file in bare.glob("tokenizer*"):
        file.unlink()
    assert "tokenizer" in fails(tmp_path, 2, "chat", str(bare), "--once", "x")


class Terminal:
    """Our end of a terminal."""

    def __init__(self, fd: int) -> None:
        self._fd, self._shown = fd, b""

    def until(self, text: str) -> None:
        """Read up to a text."""
        while text.encode() not in self._shown:
            self.read()
        self._shown = self._shown.partition(text.encode())[2]

    def read(self) -> int:
        """Read more; return how many bytes have not been looked for."""
        assert select.select([self._fd], [], [], PATIENCE)[0], self._shown
        self._shown += os.read(self._fd, 1 << 16)
        return len(self._shown)


def test_ctrl_c_stops_a_reply_and_ctrl_d_ends(chatty: Path, tmp_path: Path) -> None:
    """The reply would take hours: only Ctrl-C, sent to all processes of the terminal, ends it."""
    model = Path(shutil.copytree(chatty, tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    config |= {"max_position_embeddings": 1 << 20, "eos_token_id": None}
    (model / "config.json").write_text(json.dumps(config))
    (model / "generation_config.json").unlink()
    tokens = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**tokens, "eos_token": None}))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", START, "chat", str(model), "--max-tokens", "1000000"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "FORGE_HOME": str(tmp_path), "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        terminal = Terminal(ours)
        terminal.until("> ")
        os.write(ours, b"Hello\n")
        terminal.until("Hello")
        while terminal.read() < 40:  # the reply has begun
            pass
        os.killpg(process.pid, signal.SIGINT)
        terminal.until("(stopped)")
        terminal.until("> ")
        os.write(ours, b"/reset\n")
        terminal.until("> ")
        os.write(ours, b"\x04")
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.parametrize("option", ["--temperature", "--top-p"])
def test_what_is_no_number_is_refused_before_a_model_is_read(tmp_path: Path, option: str) -> None:
    words = ("chat", "nowhere", "--once", "hi", option, "nan")
    assert f"{option} is no number" in fails(tmp_path, 2, *words)


def test_bytes_that_are_no_text_are_refused_and_the_conversation_goes_on(
    chatty: Path, tmp_path: Path
) -> None:
    """As a pipe and an argument may hold them."""
    words = (str(chatty), "--max-tokens", "4")
    assert "no UTF-8" in fails(tmp_path, 2, "chat", *words, "--once", "a\udcff")
    process = subprocess.run(
        [sys.executable, "-c", START, "chat", *words],
        input=b"a\xff\xfeb\none\n",
        capture_output=True,
        env={**os.environ, "FORGE_HOME": str(tmp_path), "PYTHONIOENCODING": "utf-8:surrogateescape"},
        timeout=PATIENCE,
    )
    assert process.returncode == 0
    assert b"no UTF-8" in process.stderr
    assert process.stdout.strip()


def test_a_closed_standard_input_is_an_empty_one(
    chatty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_HOME", str(tmp_path))
    process = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", START, "chat", str(chatty)],
        capture_output=True,
        timeout=PATIENCE,
    )
    assert (process.returncode, process.stdout) == (0, b"")
