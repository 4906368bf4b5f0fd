"""`forge --help`: sections, examples that can be typed as they stand, and completion by the shell."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from agent_forge.cli.main import COMMANDS, SECTIONS, forge
from agent_forge.cli.runs.start import KINDS
from agent_forge.runs import kinds
from testing.services.cluster import FORGE
from testing.toy import toy_kind
from testing.worlds.runs import REPOSITORY


def every_command(
    group: click.Group = forge, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Words and command, groups and what is in them."""
    yield words, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from every_command(command, (*words, name))
        else:
            yield (*words, name), command


def examples(command: click.Command) -> list[str]:
    """The command lines of a help text, continued lines joined and comments left out."""
    text = (command.help or "").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    found = [line.partition("  #")[0] for line in lines if line.startswith("forge ")]
    return [re.split(r" (?:\||&&|>>?) ", line)[0] for line in found]


ALL = [(" ".join(words), line) for words, command in every_command() for line in examples(command)]


@pytest.mark.parametrize(("command", "line"), ALL)
def test_an_example_is_taken_by_the_commands_and_options_that_there_are(
    command: str, line: str
) -> None:
    """An option that was renamed, or a value out of range, would be a user's first experience."""
    found: click.Command = forge
    words = shlex.split(line)[1:]
    name = "forge"
    while isinstance(found, click.Group) and words:
        with found.make_context(name, list(words), resilient_parsing=False) as context:
            name, found, words = found.resolve_command(
                context, [*context._protected_args, *context.args]
            )
        assert found is not None
    with found.make_context(name or "", list(words)):
        pass


def test_the_first_example_names_what_cognate_writes() -> None:
    """`forge --help` named a folder that nothing makes."""
    line = next(line for line in examples(forge) if line.startswith("forge evo"))
    words = shlex.split(line)
    given = words[words.index("--base-models") + 1].split(",")
    given += [words[words.index(name) + 1] for name in ("--base-model", "--data")]
    known = {f"models/{name}" for name in ("base", "code", "math", "data", "items")}
    assert set(given) <= known


def test_every_command_stands_in_one_section() -> None:
    """A flat list of 45 commands is not read."""
    named = [name for names in SECTIONS.values() for name in names]
    assert sorted(named) == sorted(COMMANDS)
    told = CliRunner().invoke(forge, ["--help"]).output
    for section, names in SECTIONS.items():
        part = told.partition(f"\n{section}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines() if line[2] != " "] == list(names)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("ev", "there is no command 'ev' (did you mean events or evo?)."),
        ("qietstar", "(did you mean quietstar or start?)"),
        ("pipeline rn", "there is no command 'rn' (did you mean run?)."),
        ("evo --base-modle x", "--base-model"),
        ("start quietsta", "(did you mean quietstar?)"),
        ("start toy --set step=1", "there is no such setting (did you mean steps?)"),
        ("evo --base-models a,b --set generatons=1", "is not known (did you mean generations?)."),
    ],
)
def test_a_misspelt_name_is_answered_with_the_ones_it_is_like(
    line: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands, options, kinds of run and settings alike."""
    monkeypatch.setenv(kinds.FURTHER, toy_kind.KNOWN)
    done = CliRunner(env={"FORGE_HOME": str(tmp_path)}).invoke(forge, line.split())
    assert done.exit_code != 0
    assert hint in f"{done.output}{done.exception}"


def test_every_kind_is_a_command_of_its_own_or_of_forge_start(tmp_path: Path) -> None:
    """`forge KIND` takes what `forge start KIND` takes; some kinds have a command for people."""
    own = {"evomerge": "evo", "compression": "compress"}
    assert {own.get(kind, kind) for kind in kinds.KINDS} <= set(COMMANDS)
    started = [name for name, (module, _) in COMMANDS.items() if module == "agent_forge.cli.runs.start"]
    assert {KINDS.get(name, name) for name in started} - {"start", "kinds", "settings"} <= set(
        kinds.KINDS
    )
    words = ["--set", "tokens=x", "--model", "model=nowhere"]
    env = {"FORGE_HOME": str(tmp_path)}
    first, second = (
        CliRunner(env=env).invoke(forge, [*command, *words])
        for command in (["quietstar"], ["start", "quietstar"])
    )
    assert str(first.exception) == str(second.exception)
    assert "settings of a quietstar run: tokens" in str(first.exception)


#: Shell → how a suggestion is printed for it, and whether it gives the word's number or the word.
SHELLS = {
    "bash": ("plain,{word}\n", "number"),
    "zsh": ("plain\n{word}\n", "number"),
    "fish": ("plain,{word}\t", "word"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_printed_for_each_shell(shell: str) -> None:
    """The script that a shell sources asks `forge` in the way that the next test asks it."""
    result = CliRunner().invoke(forge, ["completion", shell])
    assert result.exit_code == 0
    assert f"_FORGE_COMPLETE={shell}_complete" in result.output
    assert {"COMP_WORDS", "COMP_CWORD"} <= set(re.findall(r"COMP_C?WORDS?", result.output))


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "expected"), [("forge pri", "priority"), ("forge submit --prio", "--priority")]
)
def test_a_shell_is_told_commands_and_options(
    shell: str, words: str, expected: str, tmp_path: Path
) -> None:
    """As each shell asks for them; the shells themselves are not needed."""
    link = tmp_path / "forge"
    link.write_text(f"#!{sys.executable}\n{FORGE[-1].replace('; ', chr(10))}\n")
    link.chmod(0o755)
    printed, current = SHELLS[shell]
    env = {
        **os.environ,
        "_FORGE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")) if current == "number" else words.split()[-1],
        "PYTHONPATH": str(REPOSITORY),
    }
    done = subprocess.run([str(link)], env=env, capture_output=True, text=True, check=False)
    assert printed.format(word=expected) in done.stdout, done.stderr
