"""Packages that only some settings need: advice that can be followed."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from agent_forge.runs.errors import UnavailableError
from agent_forge.runs.system import packages

ROOT = Path(__file__).resolve().parents[3]


def test_what_is_advised_is_what_the_project_asks_for() -> None:
    """As plain dependency or in an extra: the same versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = {Requirement(text) for text in project["dependencies"]}
    declared |= {Requirement(t) for n, some in extras.items() if n != "dev" for t in some}
    advised = {Requirement(t) for some in packages.REQUIREMENTS.values() for t in some}
    assert advised <= declared


def test_the_sentence_names_package_reason_and_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError) as error:
        packages.require("the codec uniform-0.4", "constriction")
    assert str(error.value) == (
        "the codec uniform-0.4 needs the package constriction, which is not installed: "
        "pip install 'constriction>=0.5,<0.6'."
    )
    words = shlex.split(packages.command("mcp"))
    assert words == ["pip", "install", "mcp>=2.3,<3", "mcp-types>=2.3,<3"]


def test_a_folder_of_the_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb_of_runs").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not packages.installed("wandb_of_runs")
    assert packages.installed("json")


def test_no_text_advises_the_project_from_an_index_where_it_is_not() -> None:
    """The project is in no index: `agent-forge[EXTRA]` would be a stranger's package, or none."""
    files = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Dockerfile", "Makefile")]
    for folder in ("docs", "examples", "dashboard/src"):
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    for package in shipped["tool"]["setuptools"]["packages"]["find"]["include"]:
        files += (ROOT / package.removesuffix("*")).rglob("*.py")
    advice = re.compile(rb"agent[-_]forge\[|pip install [^\n]*\bagent-forge(?![\w./:-])")
    found = [str(file) for file in files if advice.search(file.read_bytes())]
    assert found == []
