"""`forge pipeline run FILE --dry-run`: what phases cost, and that no number is a guess."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.pipeline.submission import dry_run
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.runs.kinds.forecast import Amount, Forecast
from agent_forge.runs.system.durations import duration, size
from agent_forge.worker.commands import submit
from testing.toy import toy_runs
from testing.toy.toy_kind import Toy
from testing.toy.toy_pipelines import TWO, phase
from tests.integration.kinds.test_commands import call

ONE = '[[phase]]\nname = "first"\nkind = "toy"\nsettings = { seed = 1 }\n'
UNKNOWN = "its kind of run cannot tell before it has run"


def tried(phases: list[dict[str, Any]], log: Any = None) -> list[dry_run.PhaseCost]:
    """Return the costs of a pipeline's phases."""
    plan = submit.plan(RunRequest("pipeline", {"phases": phases}))
    return list(dry_run.costs(plan, lambda name: None, log))


def test_what_is_not_known_is_said_to_be_so_and_nothing_is_recorded(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text(ONE)
    said = call(home, "pipeline", "run", str(file), "--dry-run").stdout
    lines = said.splitlines()
    assert re.split(" {2,}", lines[0])[2:] == ["time", "on disk at the end", "memory at once"]
    assert re.split(" {2,}", lines[1]) == ["first", "toy", *["not known"] * 3]
    assert lines.count(f"first: {UNKNOWN}") == 1, "a reason is said once"
    assert all(len(line) <= 80 for line in lines[:3])
    assert not home.database.exists()
    found = json.loads(call(home, "pipeline", "run", str(file), "--dry-run", "--json").stdout)
    assert found["costs"][0]["seconds"] == {"value": None, "from": UNKNOWN}
    assert found["in_all"]["seconds"] == {"value": None, "without": ["first"]}


def test_a_run_with_the_same_settings_tells_how_long_it_took(home: Home, tmp_path: Path) -> None:
    """And no other: its seconds are measured, and the text names it."""
    toy_runs.submit(home, "other", seed=2)
    toy_runs.submit(home, "alike", seed=1)
    toy_runs.finish(home, "other")
    took = toy_runs.finish(home, "alike").spent.device
    file = tmp_path / "one.toml"
    file.write_text(ONE)
    words = ("pipeline", "run", str(file), "--dry-run", "--json")
    [found] = json.loads(call(home, *words).stdout)["costs"]
    assert found["seconds"] == {"value": took, "from": "as run alike took, with the same settings"}
    assert found["disk"]["value"] is None


def test_a_run_of_another_machine_tells_nothing(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its seconds are those of another processor or of other threads."""
    toy_runs.submit(home, "alike", seed=1)
    toy_runs.finish(home, "alike")
    monkeypatch.setattr("testing.toy.toy_state.Started.machine", "another|4|m|t|t|n")
    file = tmp_path / "one.toml"
    file.write_text(ONE)
    words = ("pipeline", "run", str(file), "--dry-run", "--json")
    [found] = json.loads(call(home, *words).stdout)["costs"]
    assert found["seconds"]["value"] is None


def known(self: Toy, submitted: Any, cache: Any, folder: Path) -> Forecast:
    """Return a forecast that tells all three amounts, from the settings."""
    steps = submitted.config.steps
    return Forecast(Amount(steps, "timed"), Amount(2e6, "counted"), Amount(steps * 1e6, "counted"))


def test_time_and_disk_add_up_and_memory_is_the_most_at_once(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Phases run one after another; the first has 2 steps, the second 3."""
    monkeypatch.setattr(Toy, "forecast", known)
    monkeypatch.setattr(Forecast, "held", lambda forecast, peak: forecast)  # a test's process has more
    told = dry_run.told(tried(TWO))["in_all"]
    assert {name: one["value"] for name, one in told.items()} == {
        "seconds": 5,
        "disk": 4e6,
        "memory": 3e6,
    }
    file = tmp_path / "one.toml"
    file.write_text(ONE)
    lines = call(home, "pipeline", "run", str(file), "--dry-run").stdout.splitlines()
    assert re.split(" {2,}", lines[1]) == ["first", "toy", "2.0 s", "1.91 MiB", "1.91 MiB"]
    assert re.split(" {2,}", lines[2]) == ["in all", "2.0 s", "1.91 MiB", "1.91 MiB"]


def test_what_a_kind_measures_itself_is_not_replaced_by_an_earlier_run(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was measured now, on what there is; the earlier run may have had other inputs."""
    toy_runs.submit(home, "alike", seed=1)
    toy_runs.finish(home, "alike")
    monkeypatch.setattr(Toy, "forecast", known)
    with closing(home.open_store()) as store:
        [cost] = tried([phase("first", seed=1)], store)
    assert cost.forecast.seconds == Amount(2, "timed")


def test_a_sum_with_a_part_that_is_not_known_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    def partly(self: Toy, submitted: Any, cache: Any, folder: Path) -> Forecast:
        if submitted.config.seed == 1:
            return known(self, submitted, cache, folder)
        nothing = Amount(None, "no")
        return Forecast(nothing, nothing, nothing)

    monkeypatch.setattr(Toy, "forecast", partly)
    told = dry_run.told(tried(TWO))["in_all"]
    assert told["seconds"] == {"value": 2, "without": ["second"]}


def test_a_phase_over_models_without_a_known_shape_is_not_guessed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tried on stand-ins, and of a toy run there are none."""
    second = {"name": "second", "kind": "measure", "models": {"model": "first"}, "data": ["x.jsonl"]}
    [_, found] = tried([phase("first"), second])
    assert found.forecast.seconds == Amount(
        None, "it builds on phase first, whose result has no known shape yet"
    )


def test_a_phase_is_tried_on_stand_ins_for_what_the_phases_before_will_make(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By their folders, under the roles that the pipeline's file names."""
    asked: list[Any] = []

    def made(self: Toy, submitted: Any, cache: Any, folder: Path) -> Forecast:
        return Forecast(*[Amount(1, "counted")] * 3, {"total": tmp_path / "total"})

    def weighed(self: Any, wanted: RunRequest, lookup: Any) -> Any:
        asked.append([lookup.named(name).path for name in wanted.models["model"]])
        return real(self, RunRequest("measure"), lookup)

    from agent_forge.phases.measure import Measure

    real = Measure.plan
    monkeypatch.setattr(Toy, "forecast", made)
    monkeypatch.setattr(Measure, "plan", weighed)
    second = {"name": "second", "kind": "measure", "models": {"model": "first:total"}}
    plan = replaced([phase("first"), second], weighed, monkeypatch, real)
    [_, found] = dry_run.costs(plan, lambda name: None, None)
    assert asked == [[str(tmp_path / "total")]]
    assert found.forecast.seconds.how.startswith("it could not be tried here: a measurement is of")


def replaced(
    phases: list[dict[str, Any]], weighed: Any, monkeypatch: pytest.MonkeyPatch, real: Any
) -> Any:
    """Return the plan of a pipeline, made with the measurement's own way of planning."""
    from agent_forge.phases.measure import Measure

    monkeypatch.setattr(Measure, "plan", real)
    plan = submit.plan(RunRequest("pipeline", {"phases": phases}))
    monkeypatch.setattr(Measure, "plan", weighed)
    return plan


def test_a_check_measures_nothing(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise AssertionError("tried")

    monkeypatch.setattr(Toy, "forecast", refuses)
    file = tmp_path / "one.toml"
    file.write_text(ONE)
    call(home, "pipeline", "run", str(file), "--check")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(5.64, "5.6 s"), (64, "1 min 04 s"), (3720, "1 h 02 min"), (59.96, "1 min 00 s")],
)
def test_durations_are_said_in_the_unit_that_fits(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 B"), (1023, "1,023 B"), (5600, "5.47 KiB"), (3.4e7, "32.4 MiB"), (1.2e9, "1.12 GiB")],
)
def test_sizes_are_said_in_the_unit_that_fits(count: float, said: str) -> None:
    assert size(count) == said
