"""Toy pipelines: the toy kind is known to this process and to those that it starts."""

from __future__ import annotations

import pytest

from agent_forge.pipeline.events import PipelineState
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_kind import KNOWN
from tests.integration.kinds.conftest import home, toy_is_known

__all__ = ["home", "toy_is_known"]


@pytest.fixture(scope="session")
def honest_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with the undisturbed pipeline `p`. Nobody writes to it."""
    home = Home(tmp_path_factory.mktemp("pipeline") / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FURTHER, KNOWN)
        toy_pipelines.submit(home)
        toy_runs.finish(home, "p")
    return home


@pytest.fixture
def honest(honest_home: Home) -> PipelineState:
    """The undisturbed pipeline's state."""
    found = toy_runs.state(honest_home, "p")
    assert isinstance(found, PipelineState)
    return found
