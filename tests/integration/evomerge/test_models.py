"""The registry of models: what runs bring, what is registered and removed; dropped and made again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_forge.events import EventStore
from agent_forge.events.databases.sqlite import open_store
from agent_forge.events.projection import rebuild
from agent_forge.evomerge.kind import EvoMergeKind
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.views import candidates
from agent_forge.runs.errors import ConfigError, ConflictError, NotFoundError, SourceError
from agent_forge.runs.history import repository
from agent_forge.runs.history.repository import load
from agent_forge.runs.lists import model_registry
from agent_forge.runs.lists import model_registry as reports_model_registry
from agent_forge.runs.record.events import Described
from agent_forge.runs.streams import stream
from agent_forge.weights.storage import model_origin
from agent_forge.worker.commands import model_registry as commands_model_registry
from agent_forge.worker.commands.control import control
from agent_forge.worker.commands.fork import fork, plan
from testing.models.toys import Toys
from testing.worlds import fake_runs
from testing.worlds.fake_world import RUN


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    store = open_store(tmp_path / "log.db")
    yield store
    store.close()


def test_sources_and_champions_come_by_themselves(store: EventStore) -> None:
    state = fake_runs.whole(store)
    assert state.started
    assert state.completed
    rows, total = reports_model_registry.listed(store)
    by_kind = {kind: [m for m in rows if m["kind"] == kind] for kind in ("base", "source", "champion")}
    assert total == len(rows) == sum(map(len, by_kind.values()))
    assert {m["digest"] for m in by_kind["source"]} == {s.digest for s in state.started.sources}
    (champion,) = by_kind["champion"]
    assert champion["digest"] == state.completed.digest
    assert champion["metrics"]["test"] == state.completed.test.scalar
    assert champion["run"] == RUN
    assert champion["lineage"] == [
        reports_model_registry.id_of(s.digest) for s in state.started.sources
    ]
    entry = reports_model_registry.find(store, champion["id"][:6])
    assert entry == champion
    assert reports_model_registry.listed(store, "champion", RUN) == ([champion], 1)


def test_models_of_a_run_are_called_after_its_name(store: EventStore) -> None:
    """Both names find the model: the one with the run's id is in commands that were written down."""
    fake_runs.whole(store)
    control(store, RUN, Described(name="best-of-three"))
    (champion,) = reports_model_registry.listed(store, "champion", "of-three")[0]
    assert (champion["name"], champion["run_name"]) == ("champion of best-of-three", "best-of-three")
    for name in (champion["name"], f"champion of {RUN}"):
        assert reports_model_registry.find(store, name) == champion
    assert reports_model_registry._called("r1-math", "r1", "my-run") == "my-run-math"
    assert reports_model_registry._called("star", "r", "my-run") == "star"


def test_the_folder_of_an_export_is_that_of_the_model_by_every_name(
    store: EventStore, tmp_path: Path
) -> None:
    """A champion may be a fixed merge: two recipes, one model, and the folder of either is its own."""
    state = fake_runs.whole(store)
    assert state.completed
    assert state.champion
    id_ = reports_model_registry.id_of(state.completed.digest)
    assert reports_model_registry.find(store, id_)["path"] is None
    for folder in ("/first", "/second"):
        exported = events.Exported(
            recipe_id=state.champion, folder=folder, digest=state.completed.digest
        )
        control(store, RUN, exported, "ada")
    assert reports_model_registry.find(store, id_)["path"] == "/second"
    state, rows = repository.opened(store, RUN)
    state.built[state.baselines["mean"]] = state.built[state.champion]
    for name in ("mean", "champion"):
        assert candidates.origin(state, rows, name).folders == ("/second", "/first")
    state.submitted = state.submitted.model_copy(update={"output_dir": "/asked"})
    (entry,) = EvoMergeKind().models.registered(state.completed, state)
    assert (entry["digest"], entry["path"]) == (state.completed.digest, "/asked")


def test_an_exported_fixed_merge_is_listed(store: EventStore) -> None:
    """Under its name, and as no champion."""
    state = fake_runs.whole(store)
    recipe_id = state.baselines["mean"]
    digest = state.built[recipe_id][0]
    exported = events.Exported(recipe_id=recipe_id, folder="/mean", digest=digest)
    control(store, RUN, exported, "ada")
    entry = reports_model_registry.find(store, reports_model_registry.id_of(digest))
    named = (entry["name"], entry["kind"], entry["path"], entry["run"])
    assert named == (f"mean of {RUN}", "merge", "/mean", RUN)
    origin = model_origin.find(store, entry["id"])
    assert origin is not None
    assert origin.folders[0] == "/mean"


def test_every_run_tells_what_it_measured_of_a_model(store: EventStore) -> None:
    """Values, intervals and items: of the champion that it made, and of a source that it was given."""
    state = fake_runs.whole(store)
    assert state.started
    assert state.completed
    name = fork(store, plan(store, RUN, None, 0, {"generations": 3, "seed": 9}))
    fake_runs.finish(store, name)

    def across(digest: str) -> model_registry.ModelFigures:
        return model_registry.of_digest(
            store, digest, lambda r: model_registry.of_state(load(store, r), digest)
        )

    source = across(state.started.sources[0].digest)
    assert [(one.run, one.made) for one in source.runs] == [(RUN, False)], "a fork starts nothing"
    runs = across(state.completed.digest).runs
    assert [(one.run, one.made) for one in runs] == [(name, True), (RUN, True)]
    own, parent = runs
    assert parent.again
    assert not set(map(repr, parent.measurements)) & set(map(repr, own.measurements)), "each once"
    (test,) = [m for m in own.measurements if (m.name, m.slice) == ("score", "test")]
    assert test.figure.value == state.completed.test.scalar
    names = {m.name for m in own.measurements if m.slice == "test"}
    assert {"score", "perplexity", "bits per byte"} <= names
    for one in own.measurements:
        assert one.figure.low is not None
        assert one.figure.high is not None
        assert one.figure.low <= one.figure.value <= one.figure.high, one
        assert one.figure.n, one
    assert across("0" * 64) == model_registry.ModelFigures((), 0)


def test_a_fork_brings_its_own_champion_and_no_second_sources(store: EventStore) -> None:
    fake_runs.whole(store)
    before = reports_model_registry.listed(store, "source")
    name = fork(store, plan(store, RUN, None, 0, {"generations": 3, "seed": 9}))
    state = fake_runs.finish(store, name)
    assert state.completed
    assert reports_model_registry.listed(store, "source") == before
    assert state.completed.digest in {
        m["digest"] for m in reports_model_registry.listed(store, "champion")[0]
    }


def test_the_tables_follow_from_the_log_alone(store: EventStore, toys: Toys) -> None:
    fake_runs.whole(store)
    id_ = commands_model_registry.register(store, toys.base, kind="base", by="ada")
    commands_model_registry.register(store, toys.sources[0], "first", lineage=[id_])
    commands_model_registry.remove(store, id_, "a test", by="bob")
    before = reports_model_registry.listed(store)
    rebuild(store, reports_model_registry.RegisteredModels())
    assert reports_model_registry.listed(store) == before
    told = [(row.type, row.actor) for row in store.iterate(reports_model_registry.STREAM)][::2]
    assert told == [("model_registered", "ada"), ("model_removed", "bob")]


def test_a_model_is_called_as_its_user_wants(store: EventStore, toys: Toys) -> None:
    """A champion's name is that of its run and a hash; another one stands for it from then on."""
    state = fake_runs.whole(store)
    assert state.completed
    commands_model_registry.rename(store, RUN, "best-25m", by="ada")
    found = model_origin.find(store, "best-25m")
    assert found
    assert found.digest == state.completed.digest
    commands_model_registry.rename(store, "best-25m", "better", by="ada")
    assert model_origin.find(store, "best-25m") is None
    assert reports_model_registry.find(store, "better")["digest"] == state.completed.digest
    rebuild(store, reports_model_registry.RegisteredModels())
    assert reports_model_registry.find(store, "better")["digest"] == state.completed.digest
    commands_model_registry.register(store, toys.base, "mine")
    for taken, error in (
        ("mine", ConflictError),
        (RUN, ConflictError),
        ("a:b", ConfigError),
        ("a/b", ConfigError),
        ("a,b", ConfigError),
        ("qwen2", ConfigError),
        ("0123456789abcdef-1", ConfigError),
        ("", ConfigError),
    ):
        with pytest.raises(error):
            commands_model_registry.rename(store, "better", taken)
    with pytest.raises(NotFoundError):
        commands_model_registry.rename(store, "nobody", "x")


def test_a_model_is_registered_by_its_weights(store: EventStore, toys: Toys) -> None:
    """Twice is once; what is removed may come again; names and beginnings of ids find it."""
    id_ = commands_model_registry.register(store, toys.base, "mine", "base")
    assert commands_model_registry.register(store, toys.base, "mine too", "base") == id_
    (found,) = reports_model_registry.listed(store)[0]
    assert (found["name"], found["kind"], found["path"]) == ("mine too", "base", str(toys.base))
    assert found["bytes"] == 4 * found["parameters"]
    assert reports_model_registry.find(store, "mine too") == found
    commands_model_registry.remove(store, id_[:5])
    for gone in (id_, "mine too", ""):
        with pytest.raises(NotFoundError):
            reports_model_registry.find(store, gone)
    commands_model_registry.register(store, toys.base)
    assert reports_model_registry.find(store, id_)["name"] == toys.base.name
    with pytest.raises(SourceError):
        commands_model_registry.register(store, toys.data)
    with pytest.raises(NotFoundError):
        commands_model_registry.register(store, toys.sources[0], lineage=["nobody"])


def test_what_a_run_says_of_a_model_stays_when_it_is_registered(store: EventStore, toys: Toys) -> None:
    """The folder becomes known; kind, run, metrics and name are the run's."""
    from agent_forge.events import New
    from agent_forge.weights.folders.checkpoint import digest, open_checkpoint

    state = fake_runs.whole(store)
    assert state.completed
    own = digest(open_checkpoint(toys.base).tensors())
    version = store.version(stream("evomerge", RUN))
    again = state.completed.model_copy(update={"digest": own})
    store.append(stream("evomerge", "again"), 0, [New(state.submitted, "again/submitted")])
    store.append(stream("evomerge", "again"), 1, [New(state.started, "again/start")])
    store.append(stream("evomerge", "again"), 2, [New(again, "again/completed")])
    assert store.version(stream("evomerge", RUN)) == version
    before = reports_model_registry.find(store, reports_model_registry.id_of(own))
    commands_model_registry.register(store, toys.base, "mine", "base", {"test": 9.0})
    after = reports_model_registry.find(store, reports_model_registry.id_of(own))
    assert after == {**before, "path": str(toys.base), "bytes": after["bytes"]}
    assert (after["kind"], after["run"]) == ("champion", "again")


def test_an_entry_of_a_run_is_its_owners(store: EventStore, toys: Toys) -> None:
    """A submitter gave the champion of another's run a path of their own."""
    state = fake_runs.whole(store)
    assert state.submitted
    assert state.completed
    id_ = reports_model_registry.id_of(state.completed.digest)
    owner, began = reports_model_registry.owner(store, id_) or ("", 0)
    assert began == store.read(stream("evomerge", RUN))[0].position
    assert owner == state.submitted.owner
    assert reports_model_registry.owner(store, "0" * 16) is None
    measured = commands_model_registry.ModelFacts(str(toys.base), state.completed.digest, 1, 1)
    given = (store, measured, "mine", "base", {}, ())
    with pytest.raises(ConflictError, match=f"is {owner}'s"):
        commands_model_registry.record(*given, by="eve", only_own=True)
    assert commands_model_registry.record(*given, by=owner, only_own=True) == id_
    assert commands_model_registry.record(*given, by="admin") == id_


def test_an_entry_of_a_run_that_was_imported_is_the_importers(store: EventStore) -> None:
    """The archive's owner, or a later user of the importer's name, gave the champion another path."""
    from agent_forge.events import New

    fake_runs.submit(store, RUN)
    state = fake_runs.finish(store, RUN, lambda state: state.generation == 1)
    taken = [events.Imported(owner="bob", head=state.head), events.Resumed()]
    store.append(stream("evomerge", RUN), None, [New(event, f"{RUN}/{event.type}") for event in taken])
    state = fake_runs.finish(store, RUN)
    assert state.completed
    measured = commands_model_registry.ModelFacts("/m", state.completed.digest, 1, 1)
    given = (store, measured, "mine", "base", {}, ())
    with pytest.raises(ConflictError, match="is bob's: only bob"):
        commands_model_registry.record(*given, by="ada", only_own=True)
    with pytest.raises(ConflictError, match="an earlier user bob's"):
        commands_model_registry.record(*given, by="bob", only_own=True, since=store.end())
    commands_model_registry.record(*given, by="bob", only_own=True)


def test_a_name_hides_no_other_model(store: EventStore, toys: Toys) -> None:
    id_ = commands_model_registry.register(store, toys.base)
    with pytest.raises(ConfigError, match="looks like"):
        commands_model_registry.register(store, toys.sources[0], id_)
    commands_model_registry.register(store, toys.sources[0], id_[:6])
    assert reports_model_registry.find(store, id_)["name"] == toys.base.name
    assert reports_model_registry.find(store, id_[:6])["name"] == id_[:6]


def test_a_damaged_event_does_not_hide_the_others(store: EventStore) -> None:
    from agent_forge.events import New
    from agent_forge.runs.record.events import Paused

    fake_runs.submit(store, "odd")
    store.append(stream("evomerge", "odd"), 1, [New(Paused(), "odd/x")])
    fake_runs.whole(store)
    assert reports_model_registry.listed(store, "champion")[1] == 1
