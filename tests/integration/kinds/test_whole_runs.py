"""Whole toy runs: the end, kills, two workers, failures, divergence; nothing of it needs torch."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.events import Cause
from agent_forge.runs.errors import (
    ConfigError,
    RunCancelledError,
    RunFailedError,
    SourceChangedError,
    UnknownKindError,
)
from agent_forge.runs.history import audit, repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from agent_forge.runs.kinds.decide import decide
from agent_forge.runs.lists import queries
from agent_forge.runs.record import events
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands.control import control
from agent_forge.worker.queue.leases import Leases
from agent_forge.worker.tasks import runner
from agent_forge.worker.tasks.recorder import TaskExecutor
from testing.shares import as_slow
from testing.toy import toy_runs
from testing.toy.toy_kind import OTHER_ARITHMETIC
from testing.toy.toy_state import CountTask, ToyState, digest_of
from testing.waiting import PATIENCE, wait_until
from testing.worlds.runs import REPOSITORY, was_killed
from testing.worlds.warm_process import Template

#: Every failpoint that a toy run passes, with its store and its runner.
FAILPOINTS = {
    "append-began",
    "append-inserted",
    "append-committed",
    "facts-appended",
    "facts-decided",
    "projection-applied",
    "projection-made",
    "projection-read",
    "task-appended",
    "task-claimed",
    "task-done",
    "task-released",
    "toy-counted",
}

#: Of these, what a log passes once in its life.
ONCE = {"projection-made"}


def ask(home: Home, event: Any, run: str = "r") -> None:
    """Record what a user asks of a run."""
    with closing(home.open_store()) as store:
        control(store, run, event)


# ---- the end ---------------------------------------------------------------------------------


def test_a_whole_run_ends_with_a_result_and_an_honest_history(
    honest_home: Home, honest: ToyState
) -> None:
    """The total is the sum of what the tasks counted; the audit has nothing to say."""
    assert honest.status == "completed"
    values = [event.value for event in honest.answers.values()]
    assert len(values) == 6
    assert honest.completed.total == honest.total == sum(values) > 0
    assert honest.completed.digest == digest_of(sum(values))
    assert honest.completed.lineage_digest == honest.lineage_digest()
    assert audit.audit(toy_runs.rows(honest_home)) == []


def test_the_same_settings_give_the_same_lineage_and_another_seed_another(
    honest: ToyState, home: Home
) -> None:
    toy_runs.submit(home, "again")
    assert toy_runs.finish(home, "again").lineage_digest() == honest.lineage_digest()
    toy_runs.submit(home, "other", seed=1)
    assert toy_runs.finish(home, "other").lineage_digest() != honest.lineage_digest()


def test_a_whole_run_loads_no_torch_and_no_other_kind(tmp_path: Path) -> None:
    """A kind that computes without torch must not wait seconds for its import."""
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from agent_forge.runs.home import Home\n"
        "from testing.toy import toy_runs\n"
        "home = Home(Path(sys.argv[1]))\n"
        "toy_runs.submit(home)\n"
        "assert toy_runs.finish(home).completed\n"
        "print(sorted({'torch', 'transformers', 'evomerge', 'phases'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_a_kind_that_is_not_known_is_refused_by_name(
    ended: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the variable, its runs are streams of another program."""
    monkeypatch.setenv(FURTHER, "")
    with pytest.raises(UnknownKindError, match="runs of kind 'toy' are not known"):
        toy_runs.submit(ended, "another")
    with closing(ended.open_store()) as store:
        assert repository.stream_of(store, "r") is None


def test_bad_settings_never_reach_the_log(home: Home) -> None:
    with pytest.raises(ConfigError, match="settings of a toy run: width"):
        toy_runs.submit(home, width=0)
    with pytest.raises(ConfigError, match="device 'abacus' is not known"):
        toy_runs.submit(home, device="abacus")
    with closing(home.open_store()) as store:
        assert store.names() == []


# ---- kills and several workers ---------------------------------------------------------------


def test_the_failpoints_of_a_run_are_those_that_are_walked(
    home: Home, warm: Template, tmp_path: Path
) -> None:
    """A new failpoint must be killed at, too."""
    toy_runs.submit(home)
    out, err = warm.start(home, failpoints=f"trace:{tmp_path / 'trace'}").communicate(PATIENCE)
    assert out, err
    assert set((tmp_path / "trace").read_text().split()) == FAILPOINTS


#: Failpoints of the quick lane: before, in and after an append.
QUICK = ("append-began", "append-committed", "task-appended")


@pytest.mark.parametrize(
    "name", [*QUICK, *(as_slow(name) for name in sorted(FAILPOINTS.difference(QUICK)))]
)
def test_killed_at_a_failpoint_a_run_ends_as_if_undisturbed(
    honest: ToyState, home: Home, warm: Template, name: str
) -> None:
    """Twice in one run: SIGKILL at the first passage, and at the second of the process after."""
    toy_runs.submit(home)
    for count in (1,) if name in ONCE else (1, 2):
        assert was_killed(warm.start(home, failpoints=f"kill:{name}:{count}")), "not reached"
    assert toy_runs.finish(home).lineage_digest() == honest.lineage_digest()
    assert audit.audit(toy_runs.rows(home)) == []


@pytest.mark.slow
def test_killed_at_every_passage_of_any_failpoint_a_run_ends_as_if_undisturbed(
    honest: ToyState, home: Home, warm: Template
) -> None:
    """One run each for the 1st, 2nd, … passage, until a process comes through."""
    for count in range(1, 200):
        run = toy_runs.submit(home, f"r{count}", steps=1, width=2)
        killed = was_killed(warm.start(home, run, f"kill:{count}"))
        state = toy_runs.finish(home, run)
        if count == 1:
            digest = state.lineage_digest()
        assert state.lineage_digest() == digest
        if not killed:
            break
    assert 20 < count < 199


def test_two_processes_share_one_run(
    honest: ToyState, home: Home, warm: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both work, nothing is recorded twice, and the end is that of one process.

    Each waits in its first task until the other one has a task, too.
    """
    toy_runs.submit(home, "alone", steps=2, width=6)
    alone = toy_runs.finish(home, "alone").lineage_digest()
    toy_runs.submit(home, steps=2, width=6, slow=0.01)
    hold, both = home.folder / "hold", []
    hold.touch()
    for name in ("ada", "bob"):
        monkeypatch.setenv("FORGE_USER", name)
        both.append(warm.start(home, failpoints=f"hold:{hold}:toy-counted"))
    with closing(home.open_store()) as store:
        leases = Leases(store.database)
        wait_until(lambda: len(set(leases.held().values())) == 2, "both have a task")
    hold.unlink()
    for one in both:
        out, err = one.communicate(PATIENCE)
        assert one.returncode == 0, err
        digests = out.strip()
    rows = [row for row in toy_runs.rows(home) if row.type == "counted"]
    assert len(rows) == 12
    assert {row.actor for row in rows} == {"ada", "bob"}
    state = toy_runs.state(home)
    assert digests == state.lineage_digest() != alone, "`slow` is a setting, and so in the lineage"
    assert state.total == toy_runs.state(home, "alone").total
    assert audit.audit(toy_runs.rows(home)) == []


def test_a_second_result_that_disagrees_is_a_divergence_and_one_that_agrees_is_nothing(
    home: Home,
) -> None:
    """Both processes were at the task; the first result stands."""
    toy_runs.submit(home, divergent="count/0/0", steps=1)
    toy_runs.carry_until(home, lambda state: state.started is not None)
    late = toy_runs.state(home)
    toy_runs.finish(home)
    with closing(home.open_store()) as store:
        hands = TaskExecutor(store, Artifacts(home.artifacts), Cause(actor="late"), lambda run: None)
        before = toy_runs.state(home).answers["count/0/0"]
        assert hands.do(late, CountTask(0, 1)) == "known"
        assert toy_runs.state(home).divergences == []
        assert hands.do(late, CountTask(0, 0)) == "known"
    state = toy_runs.state(home)
    assert [(d.task, d.recorded) for d in state.divergences] == [("count/0/0", before.digest)]
    assert state.divergences[0].found != before.digest
    assert state.answers["count/0/0"] == before
    assert audit.audit(toy_runs.rows(home)) == []


# ---- what goes wrong -------------------------------------------------------------------------


def test_a_task_that_always_fails_ends_the_run_and_a_retry_tries_it_again(home: Home) -> None:
    """After three attempts; three more after the retry."""
    toy_runs.submit(home, failing="count/1/0")
    with pytest.raises(RunFailedError, match="count/1/0 failed 3 times: ArithmeticError"):
        toy_runs.finish(home)
    ask(home, events.Retried())
    with pytest.raises(RunFailedError, match="failed 3 times"):
        toy_runs.finish(home)
    state = toy_runs.state(home)
    assert state.failures["count/1/0"].attempt == 6
    assert audit.audit(toy_runs.rows(home)) == []


def test_a_process_that_is_not_the_pinned_one_is_refused_and_changes_nothing(
    honest: ToyState, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_runs.submit(home)
    toy_runs.carry_until(home, lambda state: len(state.answers) == 1)
    monkeypatch.setenv(OTHER_ARITHMETIC, "sum@2")
    before = toy_runs.rows(home)
    with pytest.raises(SourceChangedError, match=r"sum@1, and this process by sum@2"):
        toy_runs.finish(home)
    assert toy_runs.rows(home) == before
    monkeypatch.delenv(OTHER_ARITHMETIC)
    assert toy_runs.finish(home).lineage_digest() == honest.lineage_digest()


def test_a_paused_run_waits_and_goes_on_to_the_same_end(honest: ToyState, home: Home) -> None:
    toy_runs.submit(home)
    toy_runs.carry_until(home, lambda state: len(state.answers) == 2)
    ask(home, events.Paused(reason="lunch"))
    before = toy_runs.rows(home)
    state = toy_runs.carry_until(home, lambda state: True)
    assert (state.status, decide(state).tasks) == ("paused", ())
    assert toy_runs.rows(home) == before
    ask(home, events.Resumed())
    assert toy_runs.finish(home).lineage_digest() == honest.lineage_digest()
    assert audit.audit(toy_runs.rows(home)) == []


def test_a_cancelled_run_ends_where_it_was(home: Home) -> None:
    toy_runs.submit(home)
    toy_runs.carry_until(home, lambda state: len(state.steps) == 1)
    ask(home, events.Cancelled(reason="enough"))
    with pytest.raises(RunCancelledError, match="enough"):
        toy_runs.finish(home)
    assert toy_runs.state(home).status == "cancelled"
    assert audit.audit(toy_runs.rows(home)) == []


def test_priority_and_totals_are_in_the_run_list(ended: Home) -> None:
    """The list's row is made by the kind; what is common by everybody's code."""
    toy_runs.submit(ended, "waiting")
    ask(ended, events.PriorityChanged(priority=7), "waiting")
    with closing(ended.open_store()) as store:
        rows, total = queries.page(store, None)
        queue = queries.queue(store)
    assert (total, [row["kind"] for row in rows]) == (2, ["toy", "toy"])
    assert [(row["run"], row["priority"]) for row in queue] == [("waiting", 7)]
    done = rows[1]
    state = toy_runs.state(ended)
    assert (done["generation"], done["value"]) == (1, float(state.total))
    assert done["champion"] == digest_of(state.total)
    assert done["curve"] == str([one.total for one in state.steps])


def test_a_worker_of_two_runs_keeps_them_apart(home: Home) -> None:
    """One process, two runs of one kind with other settings, carried on in turn."""
    toy_runs.submit(home, "a", seed=1)
    toy_runs.submit(home, "b", seed=2)
    with closing(home.open_store()) as store:
        worker = runner.WorkerProcess(store, Artifacts(home.artifacts))
        totals = [runner.finish(worker, run).total for run in ("a", "b")]
    assert totals == [toy_runs.state(home, run).total for run in ("a", "b")]
    assert totals[0] != totals[1]
