"""The toy kind of run, made known to this process and to those that it starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from testing.toy import toy_runs
from testing.toy.toy_kind import KNOWN
from testing.toy.toy_state import ToyState


@pytest.fixture(scope="session")
def honest_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with the undisturbed run `r`: 2 steps of 3 tasks. Nobody writes to it."""
    home = Home(tmp_path_factory.mktemp("toy") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FURTHER, KNOWN)
        toy_runs.submit(home)
        toy_runs.finish(home)
    return home


@pytest.fixture(autouse=True)
def toy_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the toy kind in the environment, as an installation names a kind of its own."""
    monkeypatch.setenv(FURTHER, KNOWN)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))  # where `testing` lies


@pytest.fixture
def honest(honest_home: Home) -> ToyState:
    """The undisturbed run's state."""
    return toy_runs.state(honest_home)


@pytest.fixture
def ended(honest_home: Home, tmp_path: Path) -> Home:
    """A copy of the undisturbed run's home, to do anything with."""
    return Home(Path(shutil.copytree(honest_home.folder, tmp_path / "ended")))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home."""
    return Home(tmp_path / "home")
