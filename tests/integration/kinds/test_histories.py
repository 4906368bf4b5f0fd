"""Forks, archives and imports of toy runs, and what is made of a run's log."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs.errors import ConfigError, ConflictError, ForgeError, NotFoundError
from agent_forge.runs.history import audit, repository
from agent_forge.runs.history.repository import HistoryReference, cut
from agent_forge.runs.home import Home
from agent_forge.runs.lists import model_registry, queries, tables
from agent_forge.runs.record import events
from agent_forge.weights.storage import model_origin
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands.control import control
from agent_forge.worker.commands.fork import fork, plan
from agent_forge.worker.exports import archive, delivery, parquet
from testing.toy import toy_runs
from testing.toy.toy_state import ToyState


def branch(home: Home, place: int | None = None, step: int | None = None, **changes: Any) -> str:
    """Fork the run `r`; return the new run's name."""
    with closing(home.open_store()) as store:
        return fork(store, plan(store, "r", place, step, changes))


# ---- forks -----------------------------------------------------------------------------------


def test_a_fork_without_changes_ends_as_the_original_from_every_place(
    honest: ToyState, ended: Home
) -> None:
    for place in range(1, honest.place + 1):
        name = branch(ended, place)
        state = toy_runs.state(ended, name)
        assert state.place == place + 1
        if not state.ended:
            state = toy_runs.finish(ended, name)
        assert state.lineage_digest() == honest.lineage_digest(), place
        assert audit.audit(toy_runs.rows(ended, name)) == []


def test_a_fork_with_more_steps_shares_the_past_and_goes_on(honest: ToyState, ended: Home) -> None:
    """The step is closed again by the fork: `step 1` is the end of the second of two."""
    name = branch(ended, step=1, steps=4)
    state = toy_runs.finish(ended, name)
    assert [done.total for done in state.steps][:2] == [done.total for done in honest.steps]
    assert len(state.steps) == 4
    assert state.lineage_digest() != honest.lineage_digest()
    assert audit.audit(toy_runs.rows(ended, name)) == []
    again = toy_runs.finish(ended, branch(ended, step=0, steps=4))
    assert again.lineage_digest() == state.lineage_digest(), "wherever it was changed"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 1}, "setting seed cannot change"),
        ({"steps": 1}, "2 steps are done"),
        ({"steps": -1}, "steps"),
        ({"colour": 1}, "colour"),
    ],
)
def test_a_fork_is_refused_what_its_past_contradicts(
    ended: Home, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        branch(ended, place=10, **changes)


# ---- archives --------------------------------------------------------------------------------


def carried(home: Home, there: Home, run: str, file: Path) -> archive.ImportResult:
    """Export a run of one home and import it in another."""
    with closing(home.open_store()) as store:
        archive.export(store, Artifacts(home.artifacts), run, file, False, False)
    with closing(there.open_store()) as store:
        return archive.load(store, Artifacts(there.artifacts), file, by="bob")


def test_a_whole_run_travels_and_verifies_elsewhere(
    honest: ToyState, ended: Home, home: Home, tmp_path: Path
) -> None:
    done = carried(ended, home, "r", tmp_path / "r.forge")
    assert (done.new, done.waiting) == ({"r": honest.place}, [])
    assert toy_runs.state(home).lineage_digest() == honest.lineage_digest()
    assert audit.audit(toy_runs.rows(home)) == []
    assert carried(ended, home, "r", tmp_path / "again.forge").new == {"r": 0}


def test_an_unfinished_run_travels_waits_and_ends_the_same(
    honest: ToyState, ended: Home, home: Home, tmp_path: Path
) -> None:
    toy_runs.submit(ended, "half")
    toy_runs.carry_until(ended, lambda state: len(state.steps) == 1, "half")
    done = carried(ended, home, "half", tmp_path / "half.forge")
    assert done.waiting == ["half"]
    state = toy_runs.state(home, "half")
    assert (state.status, state.submitted.owner) == ("paused", "bob")
    with closing(home.open_store()) as store:
        control(store, "half", events.Resumed(), "bob")
    assert toy_runs.finish(home, "half").lineage_digest() == honest.lineage_digest()
    assert audit.audit(toy_runs.rows(home, "half")) == []


def test_a_fork_travels_with_its_past(ended: Home, home: Home, tmp_path: Path) -> None:
    name = branch(ended, place=5)
    digest = toy_runs.finish(ended, name).lineage_digest()
    done = carried(ended, home, name, tmp_path / "fork.forge")
    assert set(done.new) == {"r", name}
    assert toy_runs.state(home, name).lineage_digest() == digest
    with closing(home.open_store()) as store:
        rows, _ = queries.page(store, None)
    assert {row["run"]: row["status"] for row in rows} == {"r": "paused", name: "completed"}


def test_another_history_of_the_same_name_is_not_overwritten(
    ended: Home, home: Home, tmp_path: Path
) -> None:
    toy_runs.submit(home, seed=9)
    toy_runs.finish(home)
    before = toy_runs.rows(home)
    with pytest.raises(ConflictError, match="has another history from event 1 on"):
        carried(ended, home, "r", tmp_path / "r.forge")
    assert toy_runs.rows(home) == before


# ---- what is made of the log -----------------------------------------------------------------


def test_places_are_cut_at_events_and_at_ends_of_steps(ended: Home) -> None:
    rows = toy_runs.rows(ended)
    assert len(cut(rows, HistoryReference("r", place=4))) == 4
    assert cut(rows, HistoryReference("r", generation=0))[-1].type == "step_completed"
    with pytest.raises(ConfigError, match="step 7 is not closed"):
        cut(rows, HistoryReference("r", generation=7))


def test_the_result_is_delivered_and_that_is_recorded(ended: Home, tmp_path: Path) -> None:
    state, written = delivery.deliver(ended, "r", tmp_path / "out", "a look")
    told = json.loads((tmp_path / "out" / "total.json").read_text())
    assert told["total"] == written["total"] == state.total
    last = toy_runs.rows(ended)[-1]
    assert last.type == "exported"
    assert json.loads(last.data)["digest"] == state.completed.digest
    assert audit.audit(toy_runs.rows(ended)) == []


def test_a_run_that_has_not_completed_delivers_nothing(home: Home, tmp_path: Path) -> None:
    toy_runs.submit(home)
    with pytest.raises(ForgeError, match="run r is submitted and has no result"):
        delivery.deliver(home, "r", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tables_are_the_kinds_and_the_events(ended: Home, tmp_path: Path) -> None:
    from pyarrow import parquet as files

    rows = toy_runs.rows(ended)
    state = toy_runs.state(ended)
    counts = parquet.write(tmp_path / "tables", state, rows)
    assert counts == {"steps": 2, "events": len(rows)}
    read = files.read_table(tmp_path / "tables" / "steps.parquet").to_pylist()
    assert read == [{"step": one.step, "total": one.total} for one in state.steps]
    with pytest.raises(ConfigError, match="there is no table 'candidates'"):
        tables.table("candidates", state, rows)


def test_a_run_that_makes_no_models_brings_none_and_is_none(ended: Home) -> None:
    """`forge evo --base-models r` must say so, not fail."""
    with closing(ended.open_store()) as store:
        assert model_registry.listed(store) == ([], 0)
        with pytest.raises(ConfigError, match="run r is a toy run, which makes no models"):
            model_origin.find(store, "r")


def test_a_toy_run_is_refused_where_a_merging_run_is_needed(ended: Home) -> None:
    from agent_forge.evomerge.run.state import RunState

    with closing(ended.open_store()) as store:
        with pytest.raises(ConfigError, match=r"run r is a toy run: this needs a merging run\."):
            repository.load_of(RunState, store, "r")
        with pytest.raises(NotFoundError, match="run 'x' is not known"):
            repository.load(store, "x")
