"""`forge pipeline run`, `forge override` and what other commands say of a pipeline."""

from __future__ import annotations

import io
import json
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agent_forge.cli.runs.progress import ProgressFollower
from agent_forge.runs.home import Home
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.tasks import runner
from testing.toy import toy_pipelines, toy_runs
from testing.worlds.runs import REPOSITORY
from tests.integration.kinds.test_commands import call, told

TWO = """\
# Two phases that count.
[[phase]]
name = "first"
kind = "toy"
settings = { seed = 1 }

    [[phase.gate]]
    metric = "total"
    at_least = 1.0

[[phase]]
name = "second"        # the result
kind = "toy"
settings = { steps = 3 }
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Call from a folder of the test's own: results are written where one is."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline's file."""
    made = tmp_path / "two.toml"
    made.write_text(TWO)
    return made


def test_a_pipeline_runs_to_its_folder_and_the_same_command_means_the_same_run(
    home: Home, file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("pipeline", "run", str(file), "--output-dir", str(out))
    first = told(home, *words)
    assert [phase["state"] for phase in first["phases"]] == ["ended", "ended"]
    assert first["gates"][0]["verdict"] == "pass"
    run = first["run"]
    assert json.loads((out / "pipeline.json").read_text())["run"] == run
    total = toy_runs.state(home, f"{run}.2-second").total
    assert json.loads((out / "second" / "total.json").read_text())["total"] == total
    assert told(home, *words)["run"] == run
    file.write_text(TWO.replace("seed = 1", "seed = 2"))
    assert told(home, *words)["run"] != run


def test_a_folder_is_verified_and_a_forged_report_is_found(
    home: Home, file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    call(home, "pipeline", "run", str(file), "--output-dir", str(out))
    call(home, "verify", str(out))
    report = out / "pipeline.json"
    report.write_text(report.read_text().replace('"verdict": "pass"', '"verdict": "overridden"'))
    found = call(home, "verify", str(out), code=1)
    assert "pipeline.json has another gates than the run" in found.output


def test_a_folder_without_its_result_is_found_and_written_again(
    home: Home, file: Path, tmp_path: Path
) -> None:
    """As a kill between the report and the result leaves it."""
    words = ("pipeline", "run", str(file), "--output-dir", str(tmp_path / "out"))
    call(home, *words)
    total = tmp_path / "out" / "second" / "total.json"
    told_before = total.read_text()
    total.write_text(told_before.replace('"total": ', '"total": 1'))
    assert "the folder says 1" in call(home, "verify", str(tmp_path / "out"), code=1).output
    total.unlink()
    found = call(home, "verify", str(tmp_path / "out"), code=1)
    assert "second is no result of phase second" in found.output
    call(home, *words)
    assert total.read_text() == told_before
    call(home, "verify", str(tmp_path / "out"))


def test_a_check_starts_nothing(home: Home, file: Path) -> None:
    checked = call(home, "pipeline", "run", str(file), "--check")
    assert checked.stdout == "1  first            toy        gates: total\n2  second           toy\n"
    assert not home.database.exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("at_least", "at_leest", "line 9: a gate has no 'at_leest'"),
        (
            'kind = "toy"\nsettings = { steps',
            'kid = "toy"\nsettings = { steps',
            "line 13: a phase has no 'kid'",
        ),
        ("# Two", "speed = 3 # Two", "line 1: a pipeline has no 'speed'"),
        ("seed = 1", "sead = 1", "phase first: settings of a toy run: sead"),
        ("[[phase]]", "[[phase]", "(at line 2, column"),
        (TWO, "[phase]\nname = 'one'\nkind = 'toy'\n", "begin each phase with a line [[phase]]"),
        ('metric = "total"', 'metric = "speed"', "phase first: its gate asks for speed"),
    ],
)
def test_a_wrong_file_says_where(home: Home, file: Path, old: str, new: str, said: str) -> None:
    assert old in TWO
    file.write_text(TWO.replace(old, new, 1))
    refused = call(home, "pipeline", "run", str(file), code=2)
    assert said in str(refused.exception)
    assert not home.database.exists()


def test_a_stopped_pipeline_goes_on_after_an_override(home: Home, file: Path) -> None:
    file.write_text(TWO.replace("at_least = 1.0", "at_least = 1e9"))
    stopped = call(home, "pipeline", "run", str(file), code=1)
    assert "forge override" in str(stopped.exception)
    run = next(one["run"] for one in told(home, "runs") if one["kind"] == "pipeline")
    call(home, "override", run, "third", "--reason", "x", code=5)
    call(home, "override", run, "second", "--reason", "x", code=6)
    call(home, "override", run, "first", code=2)  # a reason is needed
    call(home, "override", run, "first", "--reason", "good enough")
    call(home, "start", "--resume", run)
    shown = call(home, "show", run, "--all")
    assert "not met: first: total (overridden)" in shown.output
    assert "good enough" in call(home, "show", run, "--panel", "gates").output


def test_a_file_edited_after_the_start_changes_nothing_of_the_run(home: Home, file: Path) -> None:
    """The run goes on as submitted: its second phase has the settings of then."""
    file.write_text(TWO.replace("at_least = 1.0", "at_least = 1e9"))
    call(home, "pipeline", "run", str(file), code=1)
    run = next(one["run"] for one in told(home, "runs") if one["kind"] == "pipeline")
    file.write_text(TWO.replace("steps = 3", "steps = 5"))
    call(home, "override", run, "first", "--reason", "good enough")
    call(home, "start", "--resume", run)
    assert toy_runs.state(home, run).completed is not None
    assert toy_runs.state(home, f"{run}.2-second").submitted.config.steps == 3


def test_a_pipeline_may_be_started_like_any_kind(home: Home, file: Path) -> None:
    call(home, "start", "pipeline", "--config", str(file))
    assert "phases" in call(home, "settings", "pipeline").output
    assert "pipeline" in call(home, "kinds").output


def test_a_file_to_start_from_is_written_and_passes_the_check(home: Home) -> None:
    """Without models it is the example; nothing is overwritten."""
    call(home, "pipeline", "init")
    call(home, "pipeline", "run", "pipeline.toml", "--check")
    example = tomllib.loads((REPOSITORY / "examples" / "speedrun.toml").read_text())
    assert tomllib.loads(Path("pipeline.toml").read_text()) == example
    assert "exists already" in str(call(home, "pipeline", "init", code=2).exception)
    call(home, "pipeline", "init", "x.toml", "--base-model", "b", code=2)
    words = ("--base-models", 'a,c"d', "--base-model", "b", "--data", "items")
    call(home, "pipeline", "init", "merge.toml", *words)
    [phase] = tomllib.loads(Path("merge.toml").read_text())["phase"]
    assert phase["models"] == {"base": "b", "sources": ["a", 'c"d']}
    assert phase["data"] == ["items"]
    assert "phase merge" in str(call(home, "pipeline", "run", "merge.toml", code=2).exception)


def test_a_terminal_shows_the_run_that_is_under_way(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pipeline and phase are of different kinds, and each is drawn by its own view."""
    toy_pipelines.submit(home)
    progress, drawn = ProgressFollower(), []
    monkeypatch.setattr(progress, "_live", object())
    console = Console(record=True, width=100, height=24, file=io.StringIO())

    def watch(state: Any, rows: list[Any]) -> None:
        progress.watch(state, rows)
        drawn.append(state.run)
        console.print(progress._draw(console))

    with closing(home.open_store()) as store:
        runner.finish(runner.WorkerProcess(store, Artifacts.of(home), watch), "p")
    text = console.export_text()
    assert set(drawn) == {"p", "p.1-first", "p.2-second"}
    for words in ("run p  ", "run p.1-first  ", "run p.2-second  ", "Phases", "Totals"):
        assert words in text


def test_lines_say_which_run_they_are_about(home: Home, file: Path) -> None:
    done = call(home, "pipeline", "run", str(file))
    lines = [line for line in done.stderr.splitlines() if not line.startswith("run key-")]
    assert lines[-1] == "phase 2 done, 2 in all"
    assert [line for line in lines if "step" in line] == [
        "step 0 done, 2 in all",
        "step 1 done, 2 in all",
        "step 0 done, 3 in all",
        "step 1 done, 3 in all",
        "step 2 done, 3 in all",
    ]
    told = [line.partition(".")[2] for line in done.stderr.splitlines() if line.endswith(":")]
    assert told == ["1-first:", "", "2-second:", ""]
