"""A merging run over a cognate run, on a second machine that has neither folders nor weights."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent_forge.cli.main import forge
from agent_forge.phases.cognate.script import Cognate
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from testing.miniatures import cognate_runs
from testing.models.toys import Toys

ROLES = ("code", "math", "data")


@pytest.mark.slow
def test_specialists_are_merged_elsewhere_and_the_lineage_goes_back_to_their_training(
    toys: Toys, tmp_path: Path
) -> None:
    """The store has what the first machine put there; the log says whose weights they are."""
    store = f"file://{tmp_path / 'store'}"
    first = Home(tmp_path / "first", store=store)
    cognate_runs.submit(first, "train")
    trained = cognate_runs.finish(first, "train")
    shutil.rmtree(first.artifacts)
    words = ("--gens", "0", "--data", str(toys.data), "--output-dir", str(tmp_path / "champ"))
    models = ("--base-models", ",".join(f"train:{r}" for r in ROLES), "--base-model", "train:base")
    config = tmp_path / "small.toml"
    config.write_text("search_windows = 2\nsearch_questions = 2\n")
    small = ("--config", str(config))
    done = forge_(tmp_path / "second", tmp_path, "evo", *models, *words, *small, "--json")
    assert done.exit_code == 0, done.output
    run = json.loads(done.stdout)["run"]
    with closing(first.open_store()) as log:
        merged: Any = repository.load(log, run)
    made = {role: trained.made[r.id].digest for role, r in Cognate().named(trained).items()}
    assert [s.digest for s in merged.started.sources] == [made[role] for role in ROLES]
    told = forge_(tmp_path / "second", tmp_path, "lineage", run).stdout
    assert "run train:" in told
    assert "untrained" in told
    assert all(f"  {role} " in told.partition("run train:")[2] for role in ROLES)
    verified = forge_(tmp_path / "second", tmp_path, "verify", run, "--origins")
    assert verified.exit_code == 0, verified.output
    assert "origins are runs train" in verified.stdout
    unknown = forge_(tmp_path / "second", tmp_path, "verify", "train", "--origins")
    assert unknown.exit_code == 0, unknown.output
    forge_digest(first)
    forged = forge_(tmp_path / "second", tmp_path, "verify", run, "--origins")
    assert forged.exit_code == 1
    assert "origins: run train: chain" in forged.stdout
    itself = forge_(tmp_path / "second", tmp_path, "verify", "train", "--origins")
    assert itself.exit_code == 1
    assert "error: chain" in itself.stdout
    assert "unchecked: origins: the run cannot be read" in itself.stdout


def forge_digest(home: Home) -> None:
    """Alter a digest in the log of the training, behind the program's back."""
    with sqlite3.connect(home.database) as log:
        for (name,) in log.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            log.execute(f"DROP TRIGGER {name}")
        changed = log.execute(
            'UPDATE events SET data = replace(data, \'"digest":"\', \'"digest":"0\') '
            "WHERE stream = 'cognate/train' AND type = 'trained'"
        )
    assert changed.rowcount > 0


def forge_(home: Path, shared: Path, *words: str) -> Result:
    """`forge WORDS` on a machine with its own home, and the log and the store of the first."""
    env = {
        "FORGE_HOME": str(home),
        "FORGE_DATABASE_URL": f"sqlite:///{shared / 'first' / 'forge.db'}",
        "FORGE_ARTIFACT_STORE": f"file://{shared / 'store'}",
    }
    return CliRunner(env=env).invoke(forge, list(words))
