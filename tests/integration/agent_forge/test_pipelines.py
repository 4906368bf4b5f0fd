"""Runs and pipelines from Python: the same script, started again, goes on with the same runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import agent_forge as forge
from agent_forge.runs.errors import ConfigError, NotFoundError, RunFailedError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from testing.models.toys import Toys
from testing.toy import toy_runs
from testing.toy.toy_kind import KNOWN
from testing.toy.toy_pipelines import TWO


@pytest.fixture(autouse=True)
def toy_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the toy kind in the environment."""
    monkeypatch.setenv(FURTHER, KNOWN)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home of the test's own."""
    return Home(tmp_path / "home")


def test_a_setting_that_is_left_out_is_told(
    home: Home, toys: Toys, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(*_: Any) -> None:
        raise InterruptedError

    monkeypatch.setattr("agent_forge.pipelines.runner.finish", stop)
    models = {"base": str(toys.base), "sources": list(map(str, toys.sources))}
    with pytest.raises(InterruptedError):
        forge.run("evomerge", {"num_workers": 4}, models, [toys.data], home=home)
    assert "setting num_workers is left out" in caplog.text
    with pytest.raises(ConfigError, match="setting num_workers is refused"):
        forge.run("evomerge", {"num_workers": 4, "strict": True}, models, [toys.data], home=home)


def test_the_same_call_means_the_same_run(home: Home) -> None:
    made = forge.run("toy", {"steps": 2}, home=home.folder)
    again = forge.run("toy", {"steps": 2}, home=home.folder)
    assert made == again
    assert made.run == again.run
    assert forge.run("toy", {"steps": 3}, home=home.folder).run != made.run
    assert forge.run("toy", {"steps": 2}, home=home.folder, key="b").run != made.run
    assert made.figures["total"].value == toy_runs.state(home, made.run).total
    assert made["total"].startswith(f"{made.run}:")
    with pytest.raises(NotFoundError, match="gives no model 'base'"):
        made["base"]


def test_an_interrupted_script_goes_on_with_its_run(home: Home, monkeypatch) -> None:
    """The first time, the process ends in the middle."""
    from testing.toy.toy_kind import ToyContext

    whole, done = ToyContext.carry_out, []

    def interrupted(self: Any, task: Any) -> Any:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(task.key)
        return whole(self, task)

    monkeypatch.setattr(ToyContext, "carry_out", interrupted)
    with pytest.raises(KeyboardInterrupt):
        forge.run("toy", {"steps": 2}, home=home.folder)
    monkeypatch.setattr(ToyContext, "carry_out", whole)
    ended = forge.run("toy", {"steps": 2}, home=home.folder)
    rows = toy_runs.rows(home, ended.run)
    assert [row.type for row in rows].count("submitted") == 1
    assert [row.type for row in rows].count("counted") == 6


def test_an_orchestrator_runs_a_phase_and_then_the_rest(home: Home) -> None:
    with forge.PipelineOrchestrator({"phases": TWO}, home=home.folder) as pipeline:
        first = pipeline.run_single_phase(1)
        assert first.run == f"{pipeline.run}.1-first"
        assert toy_runs.state(home, pipeline.run).ended_phase(2) is None
    with forge.PipelineOrchestrator({"phases": TWO}, home=home.folder) as again:
        assert again.run == pipeline.run
        told = again.run_full_pipeline()
        assert [phase["state"] for phase in told["phases"]] == ["ended", "ended"]
        assert again.run_single_phase(1) == first
        with pytest.raises(ConfigError, match="there is no phase 3: there are 1 to 2"):
            again.run_single_phase(3)


def test_an_orchestrator_takes_a_file_and_refuses_what_is_wrong(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('[[phase]]\nname = "one"\nkind = "toy"\n')
    with forge.PipelineOrchestrator(str(file), home=home.folder) as pipeline:
        assert pipeline.run_full_pipeline()["phases"][0]["state"] == "ended"
    with pytest.raises(ConfigError, match="within `with"):
        pipeline.run_full_pipeline()
    with (
        pytest.raises(ConfigError, match="at least one phase"),
        forge.PipelineOrchestrator({}, home=home.folder),
    ):
        raise AssertionError("it is refused before")


def test_a_failed_phase_is_said(home: Home) -> None:
    phases = [{"name": "one", "kind": "toy", "settings": {"failing": "count/0/0"}}]
    with (
        forge.PipelineOrchestrator({"phases": phases}, home=home.folder) as pipeline,
        pytest.raises(RunFailedError, match="phase one"),
    ):
        pipeline.run_single_phase(1)


def test_a_phase_that_has_ended_stands_though_a_later_one_has_failed(home: Home) -> None:
    phases = [TWO[0], {"name": "two", "kind": "toy", "settings": {"failing": "count/0/0"}}]
    with forge.PipelineOrchestrator({"phases": phases}, home=home.folder) as pipeline:
        with pytest.raises(RunFailedError, match=r"phase two.* Try again with `forge retry"):
            pipeline.run_full_pipeline()
        assert pipeline.run_single_phase(1).run == f"{pipeline.run}.1-first"


def test_what_a_gate_has_stopped_says_one_way_to_go_on(home: Home) -> None:
    """A retry alone would change no verdict."""
    gate = {"metric": "total", "at_least": 1e12}
    phases = [{"name": "one", "kind": "toy", "gates": [gate]}]
    with (
        forge.PipelineOrchestrator({"phases": phases}, home=home.folder) as pipeline,
        pytest.raises(RunFailedError) as error,
    ):
        pipeline.run_full_pipeline()
    assert "`forge override" in str(error.value)
    assert "Try again" not in str(error.value)
