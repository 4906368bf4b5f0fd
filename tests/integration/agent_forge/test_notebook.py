"""`agent_forge.Run`: a notebook reads runs of any kind."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

import agent_forge
from agent_forge import evomerge
from agent_forge.phases.cognate.script import Cognate
from agent_forge.runs.errors import ConfigError, NotFoundError
from agent_forge.runs.home import Home
from testing.worlds.finished_run import FinishedTraining


@pytest.fixture(scope="module")
def home(finished_training: FinishedTraining) -> Home:
    """A place with the cognate run `r`."""
    return finished_training()


@pytest.mark.slow
def test_a_run_of_another_kind_is_read_whole(home: Home) -> None:
    """Tables, every panel as a picture, the report, and the family of a model."""
    run = agent_forge.Run("r", home)
    steps = sum(recipe.upto for recipe in Cognate().trainings(run.state).values())
    assert repr(run) == f"<Run 'r': a cognate run, completed, {steps} of {steps} steps>"
    frame = run.frame()
    assert set(frame["model"]) == {"base", "code", "math", "data"}
    assert len(run.frame("events")) == len(run.rows)
    names = [panel.name for panel in run.overview.panels]
    assert all(isinstance(run.plot(name), Figure) for name in names)
    assert run.plot().get_suptitle() == run.panel(names[0]).title
    assert run.report()["run"] == "r"
    told = repr(run.lineage("code")).splitlines()
    assert told[0] == "run r:"
    assert told[-1].split()[1] == "untrained"


@pytest.mark.slow
def test_what_a_run_does_not_have_is_named(home: Home) -> None:
    run = agent_forge.Run("r", home)
    with pytest.raises(NotFoundError, match=r"no panel 'x'. It has .*loss"):
        run.plot("x")
    with pytest.raises(ConfigError, match="training, figures, events"):
        run.frame("x")
    with pytest.raises(NotFoundError, match=r"a cognate run: agent_forge.Run"):
        evomerge.Run("r", home)
