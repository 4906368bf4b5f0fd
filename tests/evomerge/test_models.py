"""The registry of models: what runs bring, what is registered and removed; dropped and made again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from events import EventStore
from events.projection import rebuild
from events.sqlite import open_store
from evomerge import facts, log, models
from evomerge.errors import ConfigError, ConflictError, NotFoundError, SourceError
from tests.conftest import Toys
from tests.evomerge import fake_runs
from tests.evomerge.fake_world import RUN
from worker import catalogue
from worker.fork import fork, plan


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    store = open_store(tmp_path / "log.db")
    yield store
    store.close()


def test_sources_and_champions_come_by_themselves(store: EventStore) -> None:
    state = fake_runs.whole(store)
    assert state.started
    assert state.completed
    rows, total = models.listed(store)
    by_kind = {
        kind: [m for m in rows if m["kind"] == kind] for kind in ("base", "source", "champion")
    }
    assert total == len(rows) == sum(map(len, by_kind.values()))
    assert {m["digest"] for m in by_kind["source"]} == {s.digest for s in state.started.sources}
    (champion,) = by_kind["champion"]
    assert champion["digest"] == state.completed.digest
    assert champion["metrics"]["test"] == state.completed.test.scalar
    assert champion["run"] == RUN
    assert champion["lineage"] == [models.id_of(s.digest) for s in state.started.sources]
    assert models.find(store, champion["id"][:6]) == champion
    assert models.listed(store, "champion", RUN) == ([champion], 1)


def test_a_fork_brings_its_own_champion_and_no_second_sources(store: EventStore) -> None:
    fake_runs.whole(store)
    before = models.listed(store, "source")
    name = fork(store, plan(store, RUN, None, 0, {"generations": 3, "seed": 9}))
    state = fake_runs.finish(store, name)
    assert state.completed
    assert models.listed(store, "source") == before
    assert state.completed.digest in {m["digest"] for m in models.listed(store, "champion")[0]}


def test_the_tables_follow_from_the_log_alone(store: EventStore, toys: Toys) -> None:
    fake_runs.whole(store)
    id_ = catalogue.register(store, toys.base, kind="base", by="ada")
    catalogue.register(store, toys.sources[0], "first", lineage=[id_])
    catalogue.remove(store, id_, "a test", by="bob")
    before = models.listed(store)
    rebuild(store, models.Models())
    assert models.listed(store) == before
    told = [(row.type, row.actor) for row in store.iterate(models.STREAM)][::2]
    assert told == [("model_registered", "ada"), ("model_removed", "bob")]


def test_a_model_is_registered_by_its_weights(store: EventStore, toys: Toys) -> None:
    """Twice is once; what is removed may come again; names and beginnings of ids find it."""
    id_ = catalogue.register(store, toys.base, "mine", "base")
    assert catalogue.register(store, toys.base, "mine too", "base") == id_
    (found,) = models.listed(store)[0]
    assert (found["name"], found["kind"], found["path"]) == ("mine too", "base", str(toys.base))
    assert found["bytes"] == 4 * found["parameters"]
    assert models.find(store, "mine too") == found
    catalogue.remove(store, id_[:5])
    for gone in (id_, "mine too", ""):
        with pytest.raises(NotFoundError):
            models.find(store, gone)
    catalogue.register(store, toys.base)
    assert models.find(store, id_)["name"] == toys.base.name
    with pytest.raises(SourceError):
        catalogue.register(store, toys.data)
    with pytest.raises(NotFoundError):
        catalogue.register(store, toys.sources[0], lineage=["nobody"])


def test_what_a_run_says_of_a_model_stays_when_it_is_registered(
    store: EventStore, toys: Toys
) -> None:
    """The folder becomes known; kind, run, metrics and name are the run's."""
    from events import New
    from evomerge.checkpoints import digest, open_checkpoint

    state = fake_runs.whole(store)
    assert state.completed
    own = digest(open_checkpoint(toys.base).tensors())
    version = store.version(log.stream(RUN))
    again = state.completed.model_copy(update={"digest": own})
    store.append(log.stream("again"), 0, [New(state.submitted, "again/submitted")])
    store.append(log.stream("again"), 1, [New(state.started, "again/start")])
    store.append(log.stream("again"), 2, [New(again, "again/completed")])
    assert store.version(log.stream(RUN)) == version
    before = models.find(store, models.id_of(own))
    catalogue.register(store, toys.base, "mine", "base", {"test": 9.0})
    after = models.find(store, models.id_of(own))
    assert after == {**before, "path": str(toys.base), "bytes": after["bytes"]}
    assert (after["kind"], after["run"]) == ("champion", "again")


def test_an_entry_of_a_run_is_its_owners(store: EventStore, toys: Toys) -> None:
    """A submitter gave the champion of another's run a path of their own."""
    state = fake_runs.whole(store)
    assert state.submitted
    assert state.completed
    id_ = models.id_of(state.completed.digest)
    owner, began = models.owner(store, id_) or ("", 0)
    assert began == store.read(log.stream(RUN))[0].position
    assert owner == state.submitted.owner
    assert models.owner(store, "0" * 16) is None
    measured = catalogue.Measured(str(toys.base), state.completed.digest, 1, 1)
    given = (store, measured, "mine", "base", {}, ())
    with pytest.raises(ConflictError, match=f"is {owner}'s"):
        catalogue.record(*given, by="eve", only_own=True)
    assert catalogue.record(*given, by=owner, only_own=True) == id_
    assert catalogue.record(*given, by="admin") == id_


def test_an_entry_of_a_run_that_was_imported_is_the_importers(store: EventStore) -> None:
    """The archive's owner, or a later user of the importer's name, gave the champion another path."""
    from events import New

    fake_runs.submit(store, RUN)
    state = fake_runs.finish(store, RUN, lambda state: state.generation == 1)
    taken = [facts.Imported(owner="bob", head=state.head), facts.Resumed()]
    store.append(log.stream(RUN), None, [New(event, f"{RUN}/{event.type}") for event in taken])
    state = fake_runs.finish(store, RUN)
    assert state.completed
    measured = catalogue.Measured("/m", state.completed.digest, 1, 1)
    given = (store, measured, "mine", "base", {}, ())
    with pytest.raises(ConflictError, match="is bob's: only bob"):
        catalogue.record(*given, by="ada", only_own=True)
    with pytest.raises(ConflictError, match="an earlier user bob's"):
        catalogue.record(*given, by="bob", only_own=True, since=store.end())
    catalogue.record(*given, by="bob", only_own=True)


def test_a_name_hides_no_other_model(store: EventStore, toys: Toys) -> None:
    id_ = catalogue.register(store, toys.base)
    with pytest.raises(ConfigError, match="looks like"):
        catalogue.register(store, toys.sources[0], id_)
    catalogue.register(store, toys.sources[0], id_[:6])
    assert models.find(store, id_)["name"] == toys.base.name
    assert models.find(store, id_[:6])["name"] == id_[:6]


def test_a_damaged_event_does_not_hide_the_others(store: EventStore) -> None:
    from events import New
    from evomerge.wishes import Paused

    fake_runs.submit(store, "odd")
    store.append(log.stream("odd"), 1, [New(Paused(), "odd/x")])
    fake_runs.whole(store)
    assert models.listed(store, "champion")[1] == 1
