"""Names of runs: by kind and day, by users, by a pipeline; unique in a log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_forge.events import Cause, EventStore, New
from agent_forge.events.databases.sqlite import open_store
from agent_forge.events.projection import rebuild
from agent_forge.runs.errors import ConfigError, ConflictError, NotFoundError
from agent_forge.runs.history import audit, repository
from agent_forge.runs.kinds.state import fold_into
from agent_forge.runs.lists import finding, projections, queries
from agent_forge.runs.lists.projections import Runs
from agent_forge.runs.record.events import Described
from agent_forge.runs.streams import stream
from agent_forge.worker.commands import submit
from agent_forge.worker.commands.control import control
from agent_forge.worker.commands.fork import fork, plan
from testing.worlds import fake_runs
from testing.worlds.fake_world import RUN, World, small

DAY = "evomerge-1128"
A, B, C = "20261128-aaaaaa", "20261128-bbbbbb", "20261128-cccccc"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    opened = open_store(tmp_path / "log.db")
    store = EventStore(opened.database, lambda: datetime(2026, 11, 28, 9, tzinfo=UTC))
    yield store
    store.close()


def names(store: EventStore) -> dict[str, str]:
    """Run → name, as the list has them and as a list that is made again has them."""
    listed = {row["run"]: row["name"] for row in queries.page(store, None)[0]}
    rebuild(store, Runs())
    assert listed == {row["run"]: row["name"] for row in queries.page(store, None)[0]}
    assert len(set(listed.values())) == len(listed)
    return listed


def part(store: EventStore, parent: str, run: str) -> None:
    """Submit a run that another one has asked for."""
    submitted = World(small()).state.submitted
    assert submitted
    event = submitted.model_copy(update={"run": run})
    (first, *_) = store.read(stream("evomerge", parent), upto=1)
    cause = Cause(causation=first.event_id)
    store.append(stream("evomerge", run), 0, [New(event, f"{run}/submitted")], cause)


def test_runs_without_a_name_are_called_by_kind_and_day(store: EventStore) -> None:
    """Or by their ids, if somebody chose them."""
    runs = ["20261128-aaaaaa", "key-bbbbbbbbbbbb", "20261128-cccccccccccc", "mine"]
    for run in runs:
        fake_runs.submit(store, run)
    assert names(store) == dict(zip(runs, [DAY, f"{DAY}-2", f"{DAY}-3", "mine"], strict=True))


def test_a_name_stands_wherever_a_run_does(store: EventStore) -> None:
    fake_runs.submit(store, "20261128-aaaaaa")
    control(store, "20261128-aaaaaa", Described(name="first-try"))
    assert finding.full_name(store, "first-try") == "20261128-aaaaaa"
    assert finding.load(store, "first-try").run == "20261128-aaaaaa"
    assert finding.full_name(store, "20261128-a") == "20261128-aaaaaa"
    control(store, "first-try", Described(name="second-try"))
    with pytest.raises(NotFoundError, match="did you mean second-try"):
        finding.full_name(store, "second-tri")
    with pytest.raises(NotFoundError, match="'x' is not known; the newest runs are second-try"):
        finding.full_name(store, "x")


def test_a_name_that_is_taken_is_refused_and_one_that_was_given_up_is_free(store: EventStore) -> None:
    for run in (A, B):
        fake_runs.submit(store, run)
    control(store, A, Described(name="best"))
    for taken in ("best", A, DAY + "-2"):  # a name, an id, a name by kind and day
        with pytest.raises(ConflictError, match=f"is called {taken} already"):
            submit.check_words(store, "c", Described(name=taken))
    control(store, A, Described(name="better"))
    control(store, B, Described(name="best"))
    assert names(store) == {A: "better", B: "best"}
    control(store, B, Described(name=""))
    assert names(store) == {A: "better", B: DAY}


def test_two_that_take_a_name_at_the_same_time_have_two_names(store: EventStore) -> None:
    """Each was free when it was checked; the later one in the log has a number."""
    for run in ("a", "b", "c"):
        fake_runs.submit(store, run)
        store.append(stream("evomerge", run), 1, [New(Described(name="best"), f"{run}/described")])
    assert names(store) == {"a": "best", "b": "best-2", "c": "best-3"}


def test_numbers_of_users_count(store: EventStore) -> None:
    fake_runs.submit(store, A)
    control(store, A, Described(name=f"{DAY}-7"))
    fake_runs.submit(store, B)
    fake_runs.submit(store, C)
    assert names(store)[B] == DAY  # given up by the first
    assert names(store)[C] == f"{DAY}-8"


def test_parts_are_called_after_the_run_that_asked_for_them(store: EventStore) -> None:
    fake_runs.submit(store, "p")
    part(store, "p", "p.1-base")
    part(store, "p.1-base", "p.1-base.2-test")
    assert names(store)["p.1-base"] == "p.1-base"
    control(store, "p.1-base.2-test", Described(name="mine"))
    part(store, "p", "p.2-merge")
    control(store, "p", Described(name="mini"))
    assert names(store) == {
        "p": "mini",
        "p.1-base": "mini.1-base",
        "p.1-base.2-test": "mine",
        "p.2-merge": "mini.2-merge",
    }


def test_a_fork_has_a_name_of_its_own_and_words_leave_a_run_as_it_is(store: EventStore) -> None:
    """Lineage, cost and audit of a run are those without the words; its past has no say in a fork."""
    fake_runs.whole(store)
    state = repository.load(store, RUN)
    control(store, state.run, Described(name="best", note="with care", tags=("paper",)))
    after = repository.load(store, state.run)
    assert after.lineage_digest() == state.lineage_digest()
    assert after.spent == state.spent
    rows = list(repository.history(store, state.run))
    assert list(audit.audit(rows)) == []
    assert fold_into(repository.empty(rows[0].stream), rows) == after
    fake_runs.submit(store, "half")
    control(store, "half", Described(name="half-way", note="no more", tags=("paper",)))
    half = fake_runs.finish(store, "half", lambda state: state.generation == 1)
    branch = fork(store, plan(store, "half-way", half.place, None, {}))
    row = queries.row(store, branch)

    assert row
    assert (row["name"], row["note"], row["tags"]) == (DAY, "", "")


def test_runs_are_found_by_their_words(store: EventStore) -> None:
    for run in ("a", "b"):
        fake_runs.submit(store, run)
    control(store, "a", Described(note="warm restarts", tags=("paper", "old")))
    control(store, "a", Described(tags=submit.retagged(store, "a", ["new"], ["old"])))
    for chosen in ({"tag": "paper"}, {"tag": "new"}, {"text": "restarts"}):
        assert [row["run"] for row in queries.page(store, 10, **chosen)[0]] == ["a"]
    for none in ({"tag": "old"}, {"tag": "pap"}, {"text": "cold"}):
        assert queries.page(store, 10, **none) == ([], 0)


@pytest.mark.parametrize("name", ["no blank", "a/b", "a:b", ".a", "a" * 101, "é"])
def test_a_name_that_a_command_could_not_read_is_refused(store: EventStore, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be called"):
        submit.check_words(store, "a", Described(name=name))


def test_notes_and_tags_have_bounds(store: EventStore) -> None:
    with pytest.raises(ConfigError, match="U\\+001B"):
        submit.check_words(store, "a", Described(note="\x1b[2J"))
    with pytest.raises(ConfigError, match="at most 2,000"):
        submit.check_words(store, "a", Described(note="a" * 2001))
    with pytest.raises(ConfigError, match="no blanks"):
        submit.check_words(store, "a", Described(tags=("two words",)))
    with pytest.raises(ConfigError, match="at most 20 tags"):
        submit.check_words(store, "a", Described(tags=tuple(map(str, range(21)))))


def test_names_of_files() -> None:
    day = "2026-11-28T09:00:00"
    assert projections.dated("my run (1)", day) == "my-run-1-1128"
    assert projections.dated("…", day) == "run-1128"
    assert projections.check(projections.dated("x" * 300, day))
    assert projections.split("mini-1128-2") == ("mini-1128", 2)
    assert projections.split("mini-1") == ("mini-1", 1)
    assert projections.split("mini-02") == ("mini-02", 1)
    assert projections.split("mini-9999999999") == ("mini-9999999999", 1)
