"""The docs as a site: every page has its place, every link leads somewhere, commands are ones."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from agent_forge.cli.main import forge

ROOT = Path(__file__).resolve().parents[3]
#: Words in a command that stand for something that a path or a name would.
NUMBERS = {"N": "1"}
#: Pages that the build makes from the code.
GENERATED = ("map.md", "cli.md", "metrics.md")


def built(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """The result of building the site of a folder, strictly."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(out)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copy the site's settings and the pages of the repository; the code is the repository's."""
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    left_out = shutil.ignore_patterns("__pycache__", *GENERATED)
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=left_out)
    for package in ROOT.glob("*/__init__.py"):
        (tmp_path / package.parent.name).symlink_to(package.parent)
    return tmp_path


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_foreign(tree: Path) -> None:
    """Every page is in the navigation, and every link and anchor exists: `strict`.

    The build makes the generated pages itself and writes nothing into docs/.
    """
    out = tree / "site"
    done = built(tree, out)
    assert done.returncode == 0, done.stderr
    for page in sorted((ROOT / "docs").rglob("*.md")):
        assert (out / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page
    for page in GENERATED:
        assert (out / page).with_suffix(".html").exists(), page
        assert not (tree / "docs" / page).exists(), page
    for file in out.rglob("*.html"):
        text = file.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"?(https?:[^\" >]+)", text)
        loaded += re.findall(r"<link[^>]*rel=\"?stylesheet\"?[^>]*href=\"?(https?:[^\" >]+)", text)
        assert loaded == [], file


@pytest.mark.slow
def test_a_link_that_leads_nowhere_ends_the_build(tree: Path) -> None:
    """Also a page that the navigation lacks."""
    page = tree / "docs" / "tutorial.md"
    page.write_text(page.read_text("utf-8") + "\n[a](settings.md#nowhere)\n", "utf-8")
    (tree / "docs" / "lost.md").write_text("# Lost\n", "utf-8")
    done = built(tree, tree / "site")
    assert done.returncode != 0
    assert "anchor '#nowhere'" in done.stderr
    assert "lost.md" in done.stderr


def commands() -> list[str]:
    """Return the commands of `forge` in README and on the pages that a new user follows."""
    pages = (ROOT / "README.md", ROOT / "docs" / "tutorial.md", ROOT / "docs" / "your-models.md")
    text = "\n".join(page.read_text("utf-8") for page in pages)
    return re.findall(r"^    forge (.+)$", text, re.MULTILINE) + re.findall(r"`forge ([^`]+)`", text)


@pytest.mark.parametrize("line", commands())
def test_a_command_for_new_users_is_one(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options and their values, as the command line takes them; nothing is carried out."""
    monkeypatch.chdir(ROOT)
    words = [NUMBERS.get(word, word) for word in shlex.split(line, comments=True)]
    if words[0].isupper():
        return  # `forge COMMAND --help`
    context = click.Context(forge, info_name="forge", **forge.context_settings)
    command = forge.get_command(context, words.pop(0))
    assert command is not None
    while isinstance(command, click.Group) and words:
        command = command.get_command(context, words.pop(0))
        assert command is not None
    if words or not any(one.required for one in command.params):
        command.make_context(command.name, words, parent=context)
