"""The example of docs/architecture.md: a phase in one file, which everything that is generic serves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from testing.miniatures import student_runs
from testing.miniatures.bitnet_runs import texts
from testing.miniatures.pipeline_runs import submit as submit_pipeline
from testing.models.toys import Toys
from testing.verification import verified_again
from tests.integration.cli.test_forge import call, succeeds
from tests.integration.kinds.test_forgeries import edit, relinked

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "phase" / "two_rates.py"
SETTINGS = ("tokens=1300", "batch=4", "context=32", "fast=0.02", "slow=0.002")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind is named by the environment alone, as in the guide."""
    monkeypatch.setenv("FORGE_KINDS", "two-rates=two_rates:TwoRates")
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE.parent))


def test_the_guide_has_the_example_as_it_is() -> None:
    text = EXAMPLE.read_text("utf-8")
    assert text in (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert text.count("\n") < 120


def test_it_is_started_shown_verified_and_written(toys: Toys, tmp_path: Path) -> None:
    """By the commands of every kind, and nothing of it stands anywhere else."""
    home, out = Home(tmp_path / "home"), tmp_path / "out"
    sets = [word for one in SETTINGS for word in ("--set", one)]
    data = [word for one in texts(tmp_path / "texts") for word in ("--data", one)]
    model = ("--model", f"model={toys.base}")
    told = succeeds(home.folder, "start", "two-rates", *model, *data, *sets, "--out", str(out))
    assert "bits per byte (lower is better), test slice:" in told.stdout
    assert "as a model: " in told.stdout
    (run,) = [row["run"] for row in json.loads(call(home.folder, "runs", "--json").stdout)]
    rows, state = student_runs.rows(home, run), student_runs.state(home, run)
    assert audit.audit(rows) == []
    gain = state.completed.figures["gain"]
    assert (state.completed.chosen != "given") == (gain.low is not None and gain.low > 0)
    assert digest(open_checkpoint(out / "model").tensors()) == (state.completed.models["model"].digest)
    shown = call(home.folder, "show", run, "--all")
    for words in ("Two rates beside the given model", "tokens of a training", "Models"):
        assert words in shown.stdout
    found, said = verified_again(home, run)
    assert found == []
    assert len([line for line in said if "as recorded" in line]) == 3
    forged = relinked(edit("completed", chosen="slow", figures={})(rows))
    assert any("the figures are not those" in one.message for one in audit.audit(forged))


def test_a_pipeline_goes_on_with_its_model(toys: Toys, tmp_path: Path) -> None:
    """Its figures are what a gate may ask for, and its role is what a phase may take."""
    home, settings = Home(tmp_path), dict(one.split("=") for one in SETTINGS)
    numbers = {name: float(value) if "." in value else int(value) for name, value in settings.items()}
    first = {
        "name": "rates",
        "kind": "two-rates",
        "models": {"model": str(toys.base)},
        "data": texts(tmp_path / "texts"),
        "settings": numbers,
        "gates": [{"metric": "retention", "at_least": 0.5}],
    }
    second = {
        "name": "student",
        "kind": "student",
        "models": {"model": "rates:model"},
        "data": texts(tmp_path / "texts"),
        "settings": {"tokens": 1_300, "batch": 4, "context": 32},
        "gates": [{"metric": "retention", "at_least": 0.1}, {"metric": "regression", "at_most": 9}],
    }
    submit_pipeline(home, [first, second])
    state = student_runs.finish(home, "p")
    assert state.status == "completed"
    child = student_runs.state(home, "p.2-student")
    made = student_runs.state(home, "p.1-rates").completed.models["model"].digest
    assert child.started.model.digest == made
