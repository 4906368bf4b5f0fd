"""`forge evo --wandb`, FORGE_WANDB, `forge wandb sync`: a run whose tracker fails is a run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_forge.cli.main import forge
from agent_forge.runs import kinds
from agent_forge.runs.home import Home
from agent_forge.worker.exports import wandb_follower
from testing.models.toys import Toys
from testing.services import wandb_files
from testing.waiting import PATIENCE
from testing.worlds import runs
from testing.worlds.runs import REPOSITORY
from tests.integration.cli.test_forge import fails

#: What merging runs send to a tracker.
TRACKING = kinds.of("evomerge").tracking

RAISES = "def __getattr__(name):\n    raise RuntimeError('the tracker is on fire')\n"
HANGS = "import time\nwhile True:\n    time.sleep(1)\n"


def evolve(toys: Toys, folder: Path, *words: str, **env: str):
    """`forge evo` for generation 0, small, with W&B's folders below `folder`."""
    settings = folder / "settings.toml"
    settings.write_text(
        "search_windows = 3\nsearch_questions = 2\npopulation_size = 4\nelite_size = 1\n"
    )
    own = {f"WANDB_{n}_DIR": str(folder / n) for n in ("DATA", "CACHE", "CONFIG", "ARTIFACT")}
    given = {"FORGE_HOME": str(folder / "home"), "WANDB_MODE": "offline", **own, **env}
    changes = ("--gens", "0", "--config", str(settings))
    out = ("--output-dir", str(folder / "champion"), "--json")
    return CliRunner(env=given).invoke(forge, ["evo", *toys.words, *changes, *out, *words])


@pytest.mark.slow
def test_a_run_that_is_followed_is_in_the_file_with_its_end(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline, by the real client, in a process beside the run."""
    monkeypatch.setattr(wandb_follower, "PATIENCE", PATIENCE)
    result = evolve(toys, tmp_path, "--wandb")
    assert result.exit_code == 0, result.output
    assert "warning: W&B" not in result.stderr
    run = json.loads(result.stdout)["run"]
    found = runs.state(Home(tmp_path / "home"), run)
    (folder,) = (tmp_path / "home" / "wandb").glob(f"offline-run-*-{run}")
    written = wandb_files.read(folder)
    assert written.history == TRACKING.rows(found)
    assert [step for step, _ in written.history] == [0]
    assert written.summary == TRACKING.summary(found)
    assert written.summary["final/test_fitness"] == json.loads(result.stdout)["test"]["score"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "why"),
    [(RAISES, "on fire"), pytest.param(HANGS, "within 1 seconds", marks=pytest.mark.soak)],
)
def test_a_run_whose_tracker_fails_ends_as_ever(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    """One that raises and one that hangs: the champion is there, and one warning."""
    (tmp_path / "fakes" / "wandb").mkdir(parents=True)
    (tmp_path / "fakes" / "wandb" / "__init__.py").write_text(code)
    path = os.pathsep.join((str(tmp_path / "fakes"), str(REPOSITORY)))
    monkeypatch.setattr(wandb_follower, "PATIENCE", 1.0 if code is HANGS else PATIENCE)
    result = evolve(toys, tmp_path, FORGE_WANDB="1", PYTHONPATH=path)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["status"] == "completed"
    assert (tmp_path / "champion" / "model.safetensors").is_file()
    warnings = [line for line in result.stderr.splitlines() if "W&B" in line]
    assert len(warnings) == 1, result.stderr
    assert why in warnings[0]


def test_what_follows_nothing_is_refused(toys: Toys, tmp_path: Path) -> None:
    """An option that is parsed and then dropped is a lie."""
    words = ["evo", "--base-models", toys.names, "--wandb"]
    for also in ("--detach", "--dry-run"):
        said = fails(tmp_path, 2, *words, also)
        assert "`forge wandb sync RUN --follow`" in said


def test_a_variable_without_sense_stops_before_anything_is_recorded(toys: Toys, tmp_path: Path) -> None:
    result = evolve(toys, tmp_path, FORGE_WANDB="offline")
    assert getattr(result.exception, "exit_code", None) == 2
    assert "WANDB_MODE says online or offline" in str(result.exception)
    assert not (tmp_path / "home" / "forge.db").exists()


def test_a_run_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert "is not known" in fails(tmp_path, 5, "wandb", "sync", "nobody", "--offline")
