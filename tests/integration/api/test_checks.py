"""Checks of a run's history: recorded beside it, told by the API, and not hidden by later ones."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner

from agent_forge.cli.main import forge as command
from agent_forge.runs.history import repository
from agent_forge.runs.lists import checks
from agent_forge.worker.tasks import verify_run
from testing.waiting import wait_until
from testing.worlds.fake_world import RUN
from tests.integration.api.conftest import Served
from tests.integration.worker.test_streams import tamper


@pytest.fixture
def own(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """The server, whose home is that of this process's commands, too."""
    monkeypatch.setenv("FORGE_HOME", str(served.home.folder))
    monkeypatch.setenv("FORGE_USER", "linus")
    return served


def told(served: Served) -> dict[str, Any]:
    """Return the answer of the API about the run's checks."""
    return served.get(f"/runs/{RUN}/checks", "viewer").json()


def change(served: Served, statement: str) -> None:
    """Write to the log's database as somebody with its file would."""
    with closing(served.home.open_store()) as store:
        tamper(store, statement)


def test_a_check_is_asked_for_and_its_outcome_stays_in_the_log(own: Served) -> None:
    """The run itself does not change: its chain, its state and its digests are as before."""
    before = own.get(f"/runs/{RUN}").json()
    nothing = {"checks": [], "broken": None, "reproduced": None, "changed": None}
    assert told(own) == {**nothing, "running": False, "error": None}
    assert own.ask("POST", f"/runs/{RUN}/checks", "viewer", json={}).status_code == 403
    assert own.ask("POST", f"/runs/{RUN}/checks", "submitter", json={}).status_code == 202
    wait_until(lambda: not told(own)["running"], lambda: str(told(own)))
    (check,) = told(own)["checks"]
    assert (check["by"], check["outcome"], check["errors"]) == ("submitter", "intact", 0), told(own)
    assert (check["version"], check["rebuilt"], check["reproduced"]) == (before["version"], None, False)
    assert own.get(f"/runs/{RUN}").json() == before
    verified = CliRunner().invoke(command, ["verify", checks.stream_of(RUN)])
    assert verified.exit_code == 0, verified.output


def test_a_broken_history_is_said_and_stays_said(own: Served) -> None:
    """An earlier intact check does not hide it, nor does a later one after the log was mended."""
    runner = CliRunner()
    assert runner.invoke(command, ["verify", RUN]).exit_code == 0
    assert [c["outcome"] for c in told(own)["checks"]] == ["intact"]
    with closing(own.home.open_store()) as store:
        stream = repository.named_stream(store, RUN)
        row = store.read(stream)[4]
    for owner in ("mallory", row.actor):
        change(own, f"UPDATE events SET actor = '{owner}' WHERE position = {row.position}")
        assert runner.invoke(command, ["verify", RUN]).exit_code == (owner == "mallory")
        body = told(own)
        assert body["broken"]["by"] == "linus"
        assert "event 5" in body["broken"]["findings"][0]["message"]
    assert [c["outcome"] for c in body["checks"]] == ["intact", "broken", "intact"]


def test_a_history_that_was_cut_since_a_check_is_found(own: Served) -> None:
    """Even if whoever cut it has cut the run list, too: the check knows the last event."""
    assert verify_run.main(RUN, "ada") == 0
    with closing(own.home.open_store()) as store:
        stream = repository.named_stream(store, RUN)
        last = store.version(stream)
    change(own, f"DELETE FROM events WHERE stream = '{stream}' AND version = {last}")
    change(own, f"DELETE FROM runs WHERE run = '{RUN}'")
    assert f"event {last} is gone from the end of stream {stream}" in told(own)["changed"]
    assert verify_run.main(RUN, "ada") == 0
    newest = told(own)["checks"][0]
    assert newest["outcome"] == "broken"
    assert any("the check of" in finding["message"] for finding in newest["findings"])


def test_a_check_leaves_the_log_as_it_is_on_demand(own: Served) -> None:
    with closing(own.home.open_store()) as store:
        end = store.end()
    told_ = CliRunner().invoke(command, ["verify", RUN, "--no-record", "--json"])
    assert told_.exit_code == 0, told_.output
    assert CliRunner().invoke(command, ["verify", "--all", "--no-record"]).exit_code == 0
    with closing(own.home.open_store()) as store:
        assert store.end() == end
    assert CliRunner().invoke(command, ["verify", "--all"]).exit_code == 0
    assert len(told(own)["checks"]) == 1


def test_a_forged_check_proves_nothing(own: Served) -> None:
    """A changed row, and what comes after it, is not told."""
    assert verify_run.main(RUN, "ada") == 0
    assert verify_run.main(RUN, "grace") == 0
    change(own, "UPDATE events SET actor = 'root' WHERE stream LIKE 'checks/%' AND version = 2")
    assert [check["by"] for check in told(own)["checks"]] == ["ada"]
