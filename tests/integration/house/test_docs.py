"""The generated pages say what the code says, and links between pages lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from markdown import Markdown
from markdown.extensions.toc import TocExtension
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
assert SPEC is not None
assert SPEC.loader is not None
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)
PAGES = [
    page
    for page in (*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md")))
    if page.name not in generate.SITE
]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
#: A benchmark as a page names it: its module, and what follows it in the same line of code.
BENCHMARK = re.compile(r"python -m (benchmarks[.\w]*)([^`\n]*)")


def test_the_kept_generated_page_is_current() -> None:
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
    from agent_forge.cli.main import COMMANDS

    page = generate.commands()
    for name in COMMANDS:
        assert f"### forge {name}\n" in page, name
    readme = (ROOT / "README.md").read_text("utf-8")
    assert set(re.findall(r"`forge ([a-z]+)", readme)) <= set(COMMANDS)
    assert len(readme.splitlines()) < 140


def test_every_name_at_wandb_is_on_its_page() -> None:
    """With its phase, unit and meaning: whoever reads a chart looks there."""
    from agent_forge.runs import kinds
    from agent_forge.runs.kinds.tracking import SETTING

    sections = dict(part.split("\n", 1) for part in generate.metrics().split("\n## ")[1:])
    for name in kinds.KINDS:
        kind, section = kinds.of(name), sections[name]
        assert section.strip().startswith(f"Phase {kind.phase}. ") == (kind.phase is not None)
        for tracked in kind.tracking.names():
            whole = tracked.unit != SETTING
            row = f"| `{tracked.name}` | {tracked.unit} | " if whole else f"`{tracked.name}`"
            assert row in section, tracked


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "CHANGELOG.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_benchmarks_that_a_page_names_exist_with_their_options(page: Path) -> None:
    """The command beside a figure must print it still."""
    for name, rest in BENCHMARK.findall(page.read_text("utf-8")):
        module = ROOT.joinpath(*name.split(".")).with_suffix(".py")
        assert module.is_file(), name
        program = module.read_text("utf-8")
        own = rest.partition("forge ")[0]  # `benchmarks.memory` is followed by another command
        for option in re.findall(r" (--[a-z][a-z-]*)", own):
            known = option in program or f'"{option[2:].replace("-", "_")}"' in program
            assert known, f"{name} {option}"


def test_every_setting_is_on_its_page() -> None:
    """Users of the source documents look there for what became of a setting."""
    from agent_forge.evomerge.config import REFUSED, RENAMED
    from agent_forge.evomerge.settings_table import settings
    from agent_forge.runs import kinds
    from agent_forge.runs.kinds.setting_words import labels_of

    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    merging, _, further = page.partition("\n## Other kinds of run\n")
    for name in set(kinds.KINDS) - {"evomerge"}:
        section = further.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        config = kinds.of(name).config
        for setting in labels_of(config):
            assert f"\n| `{setting}` |" in section, (name, setting)
    for setting in settings():
        assert merging.count(f"\n| `{setting.name}` |") == max(1, len(setting.strategies)), setting
    for name in (*RENAMED, *REFUSED):
        assert f"\n| `{name}` |" in page, name


@cache
def text_of(page: Path) -> str:
    """Return the text of a page; one that only the site has is generated."""
    if page.parent == ROOT / "docs" and page.name in generate.SITE:
        return generate.SITE[page.name]()
    return page.read_text("utf-8")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the names that links into a page can have: its headings, as the site makes them."""
    slugs = slugify(case="lower")
    toc = TocExtension(slugify=lambda text, separator: slugs(text, separator))
    markdown = Markdown(extensions=[toc, "tables", "pymdownx.superfences"])
    return frozenset(re.findall(r'\bid="([^"]+)"', markdown.convert(text_of(page))))


GENERATED = [ROOT / "docs" / name for name in generate.SITE]


@pytest.mark.parametrize("page", [*PAGES, *GENERATED], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    """A page that moved, or a heading with other words, leaves no dead link behind.

    The repository has no generated page, so that what is read there (README) must not link to one.
    """
    inside = page.is_relative_to(ROOT / "docs")
    for link, anchor in LINK.findall(text_of(page)):
        if link.startswith(("http:", "https:")):
            continue
        target = (page.parent / link).resolve() if link else page
        assert target.exists() if target not in GENERATED else inside, link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"
