"""Tasks that share work: one process holds several at once, and lets go of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from agent_forge.events import StoreUnavailableError
from agent_forge.runs.home import Home
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.queue.leases import Leases
from agent_forge.worker.tasks import runner
from testing.toy import toy_runs
from testing.toy.toy_kind import ToyContext
from testing.toy.toy_state import CountTask, ToyState


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The keys of the tasks that were prepared together, while all counting of a step is shared."""
    together: list[list[str]] = []

    def share(_: ToyContext, task: Any, tasks: Sequence[Any]) -> Sequence[Any]:
        return [task, *(t for t in tasks if isinstance(t, CountTask) and t.key != task.key)]

    monkeypatch.setattr(ToyContext, "share", share)
    monkeypatch.setattr(ToyContext, "prepare", lambda _, t: together.append([o.key for o in t]))
    return together


def test_a_step_whose_tasks_share_work_ends_as_if_each_were_done_alone(
    home: Home, honest: ToyState, prepared: list[list[str]]
) -> None:
    """Every task is prepared with the others of its step and recorded by itself."""
    toy_runs.submit(home)
    assert toy_runs.finish(home).lineage_digest() == honest.lineage_digest()
    assert [len(keys) for keys in prepared] == [3, 3]


def test_a_claim_that_fails_leaves_no_task_held(
    home: Home, prepared: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is gone for a moment left leases behind that nobody renewed, for a minute."""
    toy_runs.submit(home)
    toy_runs.carry_until(home, lambda state: state.started is not None)
    claim, claimed = Leases.claim, []

    def failing(self: Leases, task: str, also: Any = None) -> int | None:
        if len(claimed) == 2:
            raise StoreUnavailableError("the log", "gone")
        claimed.append(task)
        return claim(self, task, also)

    with closing(home.open_store()) as store, monkeypatch.context() as patch:
        patch.setattr(Leases, "claim", failing)
        with pytest.raises(StoreUnavailableError):
            runner.WorkerProcess(store, Artifacts(home.artifacts)).run("r")
        assert len(claimed) == 2
        assert Leases(store.database).held() == {}
    assert prepared == []
