"""The generated pages of docs/ say what the code says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
assert SPEC is not None
assert SPEC.loader is not None
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)


def test_the_generated_pages_are_current() -> None:
    """In a process of its own, as `make docs` is: click remembers how help was last asked for."""
    words = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_module_is_on_the_map() -> None:
    """A module without a docstring would be a row without a word."""
    rows = [line for line in generate.module_map().splitlines() if line.startswith("| `")]
    assert len(rows) > 250
    assert not [row for row in rows if row.endswith("|  |")]


def test_every_command_is_on_its_page_and_the_readme_names_only_commands_that_exist() -> None:
    """A command that nobody can find does not exist; one that does not exist is worse."""
    from cli.main import COMMANDS

    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    for name in COMMANDS:
        assert f"### forge {name}\n" in page, name
    readme = (ROOT / "README.md").read_text("utf-8")
    assert set(re.findall(r"`forge ([a-z]+)", readme)) <= set(COMMANDS)
    assert len(readme.splitlines()) < 140


def test_every_setting_is_on_its_page() -> None:
    """Users of the source documents look there for what became of a setting."""
    from evomerge.config import REFUSED, RENAMED
    from evomerge.settings_table import settings

    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    for setting in settings():
        assert page.count(f"\n| `{setting.name}` |") == max(1, len(setting.strategies)), setting
    for name in (*RENAMED, *REFUSED):
        assert f"\n| `{name}` |" in page, name


@pytest.mark.parametrize("page", [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"])
def test_links_lead_to_files(page: Path) -> None:
    """A page that moved leaves no dead link behind."""
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if not link.startswith(("http:", "https:")):
            assert (page.parent / link).exists(), link
