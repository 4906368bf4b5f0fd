"""A run that was given models of further roles, such as the students of a compression, in the form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs.home import Home
from agent_forge.worker import append
from agent_forge.worker.commands import accounts
from testing.miniatures import compression_runs
from testing.models.toys import Toys
from testing.worlds.dashboard_world import Site


@pytest.fixture
def site(toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server whose log has a compression `t` with a student; no worker carries it on."""
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    home, small = Home(tmp_path / "home"), compression_runs.student(tmp_path)
    submitted = (toys.sources[0], compression_runs.data(tmp_path), "t", [small])
    compression_runs.submit(home, *submitted)
    store = home.open_store()
    accounts.add(store, "ada", "admin")
    tokens = {"ada": accounts.issue(store, "ada", "laptop")[1]}
    append.project(store)
    store.close()
    found = Site(home.folder, tokens, (tmp_path, toys.sources[0].parent))
    yield found
    found.close()


@pytest.mark.slow
def test_students_are_asked_for_again(visit: Callable[..., Any], site: Site, tmp_path: Path) -> None:
    """The form shows them, and the new run has them; another one may be added or removed."""
    page = visit("/runs/t")
    page.get_by_role("link", name="Again with changes").click()
    page.get_by_role("heading", name="New run").wait_for()
    student = page.get_by_label("Student 1", exact=True)
    student.wait_for()
    assert student.input_value() == str(tmp_path / "small")
    page.get_by_role("button", name="Student", exact=True).click()
    page.get_by_role("button", name="Remove student 2").click()
    page.get_by_role("button", name="Submit the run").click()
    page.wait_for_url("**/runs/20*")  # the new one is named by its date
    made = page.url.rpartition("/")[2]
    before, again = (site.get(f"runs/{run}/asked") for run in ("t", made))
    assert again == before
    assert again["models"]["students"] == [str(tmp_path / "small")]
