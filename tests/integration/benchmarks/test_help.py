"""Benchmarks that are run as programs: each tells with --help what it does, and starts nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = sorted(
    path.relative_to(ROOT)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if "__main__" in path.read_text("utf-8")
)


@pytest.mark.parametrize("path", PROGRAMS, ids=str)
def test_every_program_has_options_that_a_parser_reads(path: Path) -> None:
    """Without a parser --help begins to work, or is taken for a path."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }
    assert called & {"parse_args", "parse_known_args"}


def test_a_command_s_memory_is_told_only_if_there_is_one() -> None:
    """Its own --help is not the command's; this module imports no torch."""
    call = [sys.executable, "-m", "benchmarks.memory"]
    told = subprocess.run([*call, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0
    assert "Most memory that a command" in told.stdout
    bare = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert (bare.returncode, "give a command" in bare.stderr) == (2, True)
