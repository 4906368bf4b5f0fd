"""Phases that take the result of an equal run that has ended: when they do, and how it is checked."""

from __future__ import annotations

import json
import shutil
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_forge import PipelineOrchestrator
from agent_forge.api.state import children as api_children
from agent_forge.api.state.run_cache import RunReader as Desk_
from agent_forge.events import Cause, Envelope, canonical_json
from agent_forge.pipeline.events import PipelineState
from agent_forge.runs import kinds
from agent_forge.runs.errors import ForgeError
from agent_forge.runs.history import audit, children, repository
from agent_forge.runs.history.run_cache import RunCache
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import Start
from agent_forge.runs.panels.stages import Strip, Timeline
from agent_forge.runs.record import events
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import delegation as commands_reuse
from agent_forge.worker.commands import fork as forks
from agent_forge.worker.commands.control import control
from agent_forge.worker.exports import archive as archives
from agent_forge.worker.exports import archive as run_archive
from agent_forge.worker.exports.archive import ArchivedLog
from agent_forge.worker.queue.dispatcher import DispatcherCache
from agent_forge.worker.tasks.recorder import TaskExecutor
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_kind import OTHER_ARITHMETIC
from testing.toy.toy_pipelines import TWO, phase
from testing.worlds.runs import was_killed
from testing.worlds.warm_process import Template
from tests.integration.cli.test_forge import call, succeeds
from tests.integration.kinds.test_forgeries import relinked

Streams = dict[str, list[Envelope]]


@pytest.fixture
def ended(honest_home: Home, tmp_path: Path) -> Home:
    """A copy of the home with the undisturbed pipeline `p`."""
    return Home(Path(shutil.copytree(honest_home.folder, tmp_path / "copied")))


def reused(home: Home, phases: list[dict[str, Any]] = TWO, run: str = "q") -> list[str]:
    """Carry a pipeline that may reuse to its end; return the runs of its phases."""
    toy_pipelines.submit(home, phases, run, reuse=True)
    state = toy_runs.finish(home, run)
    assert isinstance(state, PipelineState)
    ends = [state.ended_phase(number) for number in range(1, len(phases) + 1)]
    return [end.child for end in ends if end]


# ---- what is taken ---------------------------------------------------------------------------


def test_equal_phases_take_the_ended_runs_and_nothing_is_begun(
    ended: Home, honest: PipelineState
) -> None:
    """The lineage is that of a pipeline that ran them; every check of a log finds it sound."""
    assert reused(ended) == ["p.1-first", "p.2-second"]
    state = toy_runs.state(ended, "q")
    assert state.lineage_digest() == honest.lineage_digest()
    with closing(ended.open_store()) as store:
        assert [repository.stream_of(store, f"q.{n}") for n in ("1-first", "2-second")] == [None] * 2
        assert list(children.check(store, state)) == []
    assert audit.audit(toy_runs.rows(ended, "q")) == []
    verified = call(ended, "verify", "q", "--origins", "--json")
    assert json.loads(verified.output)["origins"] == ["p.1-first", "p.2-second"]
    shown = call(ended, "show", "q").output
    assert "reused" in shown
    (strip,) = [p for p in kinds.of("pipeline").view.panels(state) if isinstance(p, Strip)]
    assert [stage.runs for stage in strip.stages] == [("p.1-first",), ("p.2-second",)]
    assert {stage.state for stage in strip.stages} == {"reused"}


def test_without_being_asked_a_pipeline_runs_its_phases(ended: Home) -> None:
    toy_pipelines.submit(ended, run="q")
    assert toy_runs.finish(ended, "q").ended_phase(1).child == "q.1-first"


def test_a_run_that_was_no_phase_is_taken_and_only_where_it_is_equal(home: Home) -> None:
    """The second phase has other settings: it runs."""
    toy_runs.submit(home, "alone", seed=1)
    toy_runs.finish(home, "alone")
    assert reused(home) == ["alone", "q.2-second"]


def test_what_is_shown_of_a_reused_phase_is_no_work_of_this_pipeline(ended: Home) -> None:
    """Its run is named once, and neither timeline nor slider begin with another pipeline's past."""
    reused(ended)
    desk = Desk_(ended)
    try:
        seen, _ = api_children.overview(desk, "q", None, None)
        moments, total = api_children.moments(desk, "q", 0, 1000)
    finally:
        desk.close()
    (strip,) = [panel for panel in seen.panels if isinstance(panel, Strip)]
    assert [stage.runs for stage in strip.stages] == [("p.1-first",), ("p.2-second",)]
    assert not [panel for panel in seen.panels if isinstance(panel, Timeline)]
    assert total == len(toy_runs.rows(ended, "q"))
    assert {moment["run"] for moment in moments} == {"q"}


def test_a_run_that_the_clock_may_have_ended_is_not_taken(home: Home) -> None:
    """Its result depends on how busy the machine was."""
    toy_runs.submit(home, "r", seed=1)
    state = toy_runs.finish(home, "r")
    rows = toy_runs.rows(home, "r")
    own = children.identity(state, rows[0].code_version)
    assert children.wrong(rows, state, own) is None
    config = SimpleNamespace(max_hours=1.0)
    state.submitted = state.submitted.model_copy(update={"config": config})
    assert "by the clock" in str(children.wrong(rows, state, own))


def test_of_several_equal_runs_the_oldest_is_taken(home: Home) -> None:
    for run in ("zebra", "ant"):
        toy_runs.submit(home, run, seed=1)
        toy_runs.finish(home, run)
    assert reused(home)[0] == "zebra"


def test_a_fork_of_a_pipeline_that_reused_runs_its_phase(ended: Home) -> None:
    """A user forks at a phase to run it again."""
    reused(ended)
    with closing(ended.open_store()) as store:
        run = forks.fork(store, forks.plan(store, "q", None, 2, {}))
    state = toy_runs.finish(ended, run)
    assert [state.ended_phase(n).child for n in (1, 2)] == ["p.1-first", f"{run}.2-second"]
    succeeds(ended, "verify", run)


def test_a_device_takes_the_ended_run_and_the_dispatcher_goes_on(ended: Home) -> None:
    """In the queue, a device does the task of submitting a phase; no child comes of it."""
    toy_pipelines.submit(ended, run="q", reuse=True)
    with closing(ended.open_store()) as store:
        context, runs = Cause(actor="device"), RunCache(store)
        hands = TaskExecutor(store, Artifacts.of(ended), context, runs.refresh)
        assert hands.do(runs.get("q"), Start()) == "done"
        desk = DispatcherCache(store, context)
        for number, run in enumerate(("p.1-first", "p.2-second"), start=1):
            desk.bring("q")
            [task] = desk.ready("q")
            assert hands.do(runs.get("q"), task) == "done"
            assert runs.get("q").ended_phase(number).child == run
        assert desk.bring("q").completed


def test_a_command_reuses_with_the_option_only_and_again_means_the_same_run(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "one.toml"
    file.write_text('[[phase]]\nname = "first"\nkind = "toy"\n')
    words = ("pipeline", "run", str(file), "--json")
    first = json.loads(call(home, *words).stdout)
    assert first["phases"][0]["state"] == "ended"
    second = json.loads(call(home, *words, "--reuse").stdout)
    assert second["phases"][0]["state"] == "reused"
    assert second["phases"][0]["run"] == first["phases"][0]["run"]
    again = json.loads(call(home, *words, "--reuse").stdout)
    assert again["run"] == second["run"] != first["run"]


def test_a_script_reuses_when_it_says_so(ended: Home) -> None:
    with PipelineOrchestrator({"phases": TWO}, home=ended.folder, reuse=True) as pipeline:
        told = pipeline.run_full_pipeline()
    assert [one["run"] for one in told["phases"]] == ["p.1-first", "p.2-second"]
    with PipelineOrchestrator({"phases": TWO}, home=ended.folder) as pipeline:
        assert pipeline.run_single_phase(1).run == f"{pipeline.run}.1-first"


# ---- what is not taken -----------------------------------------------------------------------


def _other_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands_reuse, "CODE_VERSION", "agent-forge 99")


def _other_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OTHER_ARITHMETIC, "sum@2")


def _other_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program would decide the found run otherwise: its steps are of another operation."""
    monkeypatch.setattr(
        commands_reuse, "audit", lambda rows: [audit.Finding("error", "decisions", "x")]
    )


@pytest.mark.parametrize("change", [_other_program, _other_input, _other_decisions])
def test_a_run_of_other_code_or_inputs_is_not_taken(
    ended: Home, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    """Version of the program, what `started` pins, what is decided: each must be the same."""
    change(monkeypatch)
    assert reused(ended) == ["q.1-first", "q.2-second"]


def _unfinished(home: Home) -> None:
    toy_runs.submit(home, "other", seed=1)
    toy_runs.carry_until(home, lambda state: state.place > 3, "other")


def _cancelled(home: Home) -> None:
    _unfinished(home)
    with closing(home.open_store()) as store:
        control(store, "other", events.Cancelled())


def _given_up(home: Home) -> None:
    """A task was quarantined, and the run went on without it."""
    from agent_forge.runs.record.events import TaskDied

    toy_runs.submit(home, "other", "worst-fitness", seed=1)
    state = toy_runs.carry_until(home, lambda state: state.started is not None, "other")
    with closing(home.open_store()) as store:
        from agent_forge.events import New

        for attempt in (1, 2, 3):
            died = TaskDied(task="count/0/1", attempt=attempt, how="signal 9")
            key = f"other/count/0/1/died/{attempt}"
            store.append(state.stream, None, [New(died, key)], Cause(actor="ada"))
    assert toy_runs.finish(home, "other").quarantined


def _forked(home: Home) -> None:
    toy_runs.submit(home, "first", seed=1, steps=1)
    toy_runs.finish(home, "first")
    with closing(home.open_store()) as store:
        run = forks.fork(store, forks.plan(store, "first", 5, None, {}), "other")
    toy_runs.finish(home, run)


@pytest.mark.parametrize("begun", [_unfinished, _cancelled, _given_up, _forked])
def test_only_whole_undisturbed_runs_are_taken(home: Home, begun: Any) -> None:
    begun(home)
    steps = {"steps": 1} if begun is _forked else {}
    taken = reused(home, [phase("first", seed=1, **steps)])
    assert taken == (["first"] if begun is _forked else ["q.1-first"])


def test_where_the_start_fails_the_phase_s_own_run_says_why(
    ended: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ArithmeticError("no start")

    monkeypatch.setattr("testing.toy.toy_kind.ToyContext.carry_out", fails)
    toy_pipelines.submit(ended, run="q", reuse=True)
    with suppress(ForgeError):
        toy_runs.finish(ended, "q")
    [trouble] = toy_runs.state(ended, "q").troubles(1)
    assert "run q.1-first failed" in toy_runs.state(ended, "q").failed.reason
    assert "no start" in trouble.reason


# ---- kills and archives ----------------------------------------------------------------------


def test_killed_between_the_decision_and_its_record_the_phase_is_taken_all_the_same(
    ended: Home, honest: PipelineState, warm: Template
) -> None:
    toy_pipelines.submit(ended, run="q", reuse=True)
    for _ in range(2):
        assert was_killed(warm.start(ended, "q", "kill:child-found:1")), "not reached"
    state = toy_runs.finish(ended, "q")
    assert state.lineage_digest() == honest.lineage_digest()
    assert state.ended_phase(1).child == "p.1-first"
    assert audit.audit(toy_runs.rows(ended, "q")) == []


def test_an_archive_takes_the_reused_runs_along(ended: Home, tmp_path: Path) -> None:
    reused(ended)
    file, there = tmp_path / "q.forge", Home(tmp_path / "there")
    with closing(ended.open_store()) as store:
        archives.export(store, Artifacts(ended.artifacts), "q", file, False, False)
    with closing(there.open_store()) as store:
        taken = archives.load(store, Artifacts(there.artifacts), file, by="bob")
    assert set(taken.new) == {"q", "p.1-first", "p.2-second"}
    succeeds(there, "verify", "q", "--origins")


# ---- forgeries -------------------------------------------------------------------------------


def forged(ended: Home, identity: bool, **settings: Any) -> list[str]:
    """Name another run, of these settings, in the place of the one that was taken; return findings.

    Everything that is recorded of it is made to fit, with `identity` also what it has in common with
    the phase's own run.
    """
    reused(ended)
    toy_runs.submit(ended, "other", **settings)
    other = toy_runs.finish(ended, "other")
    with closing(ended.open_store()) as store:
        streams = run_archive.streams_of(store, "q") | run_archive.streams_of(store, "other")
    rows = streams["pipeline/q"]
    place = next(n for n, row in enumerate(rows) if row.type == "phase_ended")
    kind = toy_runs.state(ended, "q")
    from agent_forge.pipeline import plan
    from agent_forge.runs.kinds.asked import RunRequest
    from agent_forge.runs.kinds.decide import Delegate

    told = plan.returned(kind, Delegate("phase/1", "other", RunRequest("")), other)
    data = json.loads(told.payload())
    before = json.loads(rows[place].data)["reused"]
    data["reused"] = children.identity(other, rows[0].code_version) if identity else before
    rows[place] = rows[place]._replace(data=canonical_json(data))
    streams["pipeline/q"] = relinked(rows)
    state = repository.fold(streams["pipeline/q"])
    return [found.message for found in children.check(ArchivedLog(streams), state)]


def test_a_forged_reuse_of_another_run_is_found(ended: Home) -> None:
    [said] = forged(ended, identity=False, seed=5)
    assert said == "run other: it is not equal to the run that it was taken for"


def test_a_forged_reuse_that_fits_in_itself_is_found_by_the_phase_s_settings(ended: Home) -> None:
    [said] = forged(ended, identity=True, seed=5)
    assert said == (
        "run other: it was taken for a run that it is not equal to: phase first asks for other settings"
    )


def edited(rows: list[Envelope], type_: str, **changes: object) -> list[Envelope]:
    """Return a history with other data in the first event of a type, its chain made to fit."""
    place = next(n for n, row in enumerate(rows) if row.type == type_)
    data = {**json.loads(rows[place].data), **changes}
    rows[place] = rows[place]._replace(data=canonical_json(data))
    return relinked(rows)


@pytest.mark.parametrize(
    ("type_", "changes", "said"),
    [
        ("submitted", {"reuse": False}, "it takes an ended run, and was not asked to"),
        ("phase_ended", {"reused": ""}, "another run has ended than the one that was asked for"),
        ("phase_ended", {"child": "q.1-first"}, "another run has ended than the one that was"),
    ],
)
def test_a_reuse_that_nobody_asked_for_is_found(
    ended: Home, type_: str, changes: dict[str, object], said: str
) -> None:
    reused(ended)
    found = audit.audit(edited(toy_runs.rows(ended, "q"), type_, **changes))
    assert said in found[0].message


def test_a_reused_run_that_was_changed_later_is_found(ended: Home) -> None:
    reused(ended)
    with closing(ended.open_store()) as store:
        streams = run_archive.streams_of(store, "q")
    streams["toy/p.1-first"] = edited(streams["toy/p.1-first"], "started", arithmetic="sum@9")
    found = list(children.check(ArchivedLog(streams), repository.fold(streams["pipeline/q"])))
    assert [one.message for one in found] == ["run p.1-first: it has another history than it had"]
