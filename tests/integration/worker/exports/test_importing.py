"""Archives of strangers: what an import takes in, whose it is then, and what it refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from agent_forge.events import ArchiveError, Envelope, EventStore, New, archive, canonical_json, chain
from agent_forge.events.databases.sqlite import open_store
from agent_forge.evomerge.run import events
from agent_forge.runs.errors import ConfigError, ConflictError, UnavailableError
from agent_forge.runs.history import repository
from agent_forge.runs.history.audit import audit_stream
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import plan_of
from agent_forge.runs.kinds.decide import decide
from agent_forge.runs.lists import queries
from agent_forge.runs.streams import stream
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import accounts, user_limits
from agent_forge.worker.commands.control import control
from agent_forge.worker.commands.fork import fork, plan
from agent_forge.worker.commands.submit import submit
from agent_forge.worker.exports.archive import export, inspected, load
from agent_forge.worker.queue.reporting import activity
from agent_forge.worker.tasks.verify_streams import OTHERS
from testing.worlds import fake_runs

Rows = list[Envelope]


def done(state: object) -> bool:
    """The first generation is closed."""
    return getattr(state, "generation") == 1  # noqa: B009


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a finished run `r`, and `half`, which is under way."""
    path = tmp_path_factory.mktemp("there") / "log.db"
    store = open_store(path)
    fake_runs.whole(store, "r")
    fake_runs.submit(store, "half")
    fake_runs.finish(store, "half", done)
    store.close()
    return path


@pytest.fixture
def there(made: Path, tmp_path: Path) -> Iterator[EventStore]:
    """Another home's log, a copy of it."""
    shutil.copy(made, tmp_path / "there.db")
    store = open_store(tmp_path / "there.db")
    yield store
    store.close()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[EventStore]:
    """An empty log."""
    store = open_store(tmp_path / "here.db")
    yield store
    store.close()


@pytest.fixture
def cache(tmp_path: Path) -> Artifacts:
    return Artifacts(tmp_path / "artifacts")


def packed(path: Path, streams: dict[str, Sequence[Envelope]], run: str) -> Path:
    """An archive as somebody with this program's source would write it."""
    archive.write(path, streams, {}, {"run": run})
    return path


def linked(rows: Sequence[Envelope], run: str | None = None) -> Rows:
    """The rows with hashes that fit, under another run's name if one is given."""
    result: Rows = []
    for row in rows:
        if run is not None:
            name = row.stream.removeprefix("evomerge/")
            data = row.data.replace(canonical_json(name), canonical_json(run), 1)
            key = run + row.key.removeprefix(name)
            row = row._replace(stream=stream("evomerge", run), data=data, key=key)
        row = row._replace(prev_hash=result[-1].hash if result else chain.GENESIS)
        result.append(row._replace(hash=chain.link(row._asdict())))
    return result


def changed(row: Envelope, change: Callable[[dict], None]) -> Envelope:
    data = json.loads(row.data)
    change(data)
    return row._replace(data=canonical_json(data).replace('"INF"', "1e999"))


def test_a_run_that_ended_comes_as_it_is(there, here, cache, tmp_path: Path) -> None:
    export(there, cache, "r", tmp_path / "r.forge", False, False)
    brought = load(here, cache, tmp_path / "r.forge", by="bob")
    assert brought.waiting == []
    assert [r.hash for r in here.read("evomerge/r")] == [r.hash for r in there.read("evomerge/r")]


def test_a_run_that_has_not_ended_waits_and_is_the_importers(
    there, here, cache, tmp_path: Path
) -> None:
    """A stranger's archive must start nothing here, in nobody's name and before nobody's runs."""
    rows = there.read("evomerge/half")
    more = {"owner": "ada", "priority": 1_000_000, "output_dir": "/home/ada/.config"}
    rows = linked([changed(rows[0], lambda data: data.update(more)), *rows[1:]])
    file = packed(tmp_path / "x.forge", {"evomerge/half": rows}, "half")
    brought = load(here, cache, file, by="bob")
    assert brought.waiting == ["half"]
    state = repository.load(here, "half")
    assert state.submitted
    assert (state.submitted.owner, state.submitted.output_dir) == ("bob", None)
    assert (state.paused, state.priority) == (True, 0)
    assert not decide(state).tasks
    (entry,) = queries.queue(here)
    assert (entry["owner"], entry["paused"], entry["priority"]) == ("bob", True, 0)
    assert here.read("evomerge/half")[-1].actor == "bob"
    again = load(here, cache, file, by="eve")
    assert (again.new, again.waiting) == ({"half": 0}, [])
    control(here, "half", events.Resumed(), by="bob")
    assert fake_runs.finish(here, "half").completed
    assert (
        repository.load(here, "half").lineage_digest()
        == fake_runs.finish(there, "half").lineage_digest()
    )


def test_the_rows_of_a_run_and_its_pause_are_recorded_together(
    there, here, cache, tmp_path: Path, monkeypatch
) -> None:
    """Between them a dispatcher would see a run that does not wait."""
    export(there, cache, "half", tmp_path / "x.forge", False, False)
    seen: list[int] = []
    commit = here.database.appending
    monkeypatch.setattr(here.database, "appending", lambda: seen.append(1) or commit())
    load(here, cache, tmp_path / "x.forge", by="bob")
    assert len(seen) == 1


def test_a_forks_past_waits_too(there, here, cache, tmp_path: Path) -> None:
    """It is a run of its own there, cut in the middle; whoever asks for more takes it over."""
    name = fork(there, plan(there, "r", None, 1, {}))
    fake_runs.finish(there, name)
    export(there, cache, name, tmp_path / "x.forge", False, False)
    brought = load(here, cache, tmp_path / "x.forge", by="bob")
    assert (brought.waiting, brought.failed) == ([], [])
    entry = queries.row(here, "r") or {}
    assert (entry["status"], entry["head"]) == ("paused", here.read("evomerge/r")[-1].hash)
    assert activity.reason(entry, []) == "someone to resume it"
    assert repository.load(here, name).completed
    assert inspected(tmp_path / "x.forge")[2] == []
    control(here, "r", events.PriorityChanged(priority=3), by="bob")
    state = repository.load(here, "r")
    assert state.submitted
    assert (state.paused, state.submitted.owner, state.priority) == (True, "bob", 3)
    control(here, "r", events.Resumed(), by="bob")
    assert fake_runs.finish(here, "r").completed


@pytest.mark.slow
def test_archives_of_forks_and_of_their_parent_come_in_any_order(
    there, here, cache, tmp_path: Path
) -> None:
    """After a fork's import its parent could never be imported, nor another fork of it."""
    names = [fork(there, plan(there, "r", None, generation, {})) for generation in (0, 1)]
    for name in names:
        fake_runs.finish(there, name)
    for run in (*names, "r"):
        export(there, cache, run, tmp_path / f"{run}.forge", False, False)
        assert load(here, cache, tmp_path / f"{run}.forge", by="bob").waiting == []
        entry = queries.row(here, "r") or {}
        assert entry["status"] == ("completed" if run == "r" else "paused")
    for run in (*names, "r"):
        own = stream("evomerge", run)
        assert [r.hash for r in here.read(own)] == [r.hash for r in there.read(own)]
        assert (queries.row(here, run) or {})["status"] == repository.load(here, run).status
    rows = here.everything(repository.STREAM)
    assert [f for f in audit_stream(rows, OTHERS[repository.STREAM]) if f.level == "error"] == []


def test_a_run_that_had_failed_is_said_to_have(there, here, cache, tmp_path: Path) -> None:
    """It waits for a retry and a resume: one alone is refused, or starts nothing."""
    state = repository.load(there, "half")
    failed = New(events.Failed(reason="x"), "half/failed")
    there.append("evomerge/half", state.version, [failed])
    rows = there.read("evomerge/half")
    file = packed(tmp_path / "x.forge", {"evomerge/half": rows}, "half")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "agent_forge.worker.exports.archive.audit", lambda rows: []
        )  # nothing of it had failed
        brought = load(here, cache, file)
    assert (brought.waiting, brought.failed) == (["half"], ["half"])
    for event in (events.Retried(), events.Resumed()):
        control(here, "half", event)
    assert fake_runs.finish(here, "half").completed


def test_streams_of_users_limits_models_and_other_runs_are_refused(
    there, here, cache, tmp_path: Path
) -> None:
    """An archive made an admin whose token its author knows."""
    accounts.add(there, "mallory", "admin")
    user_limits.change(there, weight=2, owner="mallory")
    for extra in ("users", "queue", "evomerge/half"):
        streams = {"evomerge/r": there.read("evomerge/r"), extra: there.read(extra)}
        file = packed(tmp_path / f"{extra.replace('/', '-')}.forge", streams, "r")
        for take in (lambda file=file: load(here, cache, file), lambda file=file: inspected(file)):
            with pytest.raises(ArchiveError, match=r"which is no run's|no part of run r's history"):
                take()
    assert here.names() == []


NAMES = ["..", "../../../x", "", "a/b", "a b", "a\nb", "\x1b[31m", "x" * 101, "аdmin", "-rf", ".hidden"]


@pytest.mark.parametrize("name", NAMES)
def test_runs_have_the_same_names_everywhere(there, here, cache, tmp_path: Path, name: str) -> None:
    """`exports/RUN` left its folder, and lists showed a name's escape sequences."""
    file = packed(
        tmp_path / "x.forge", {stream("evomerge", name): linked(there.read("evomerge/r"), name)}, name
    )
    with pytest.raises(ArchiveError, match="which is no run's"):
        load(here, cache, file)
    with pytest.raises(ConfigError, match="cannot be used"):
        Home(tmp_path).exports(name)
    made = plan_of(repository.load(there, "r").submitted, "evomerge")
    with pytest.raises(ConfigError, match="cannot be used"):
        submit(here, made, name or "\0")


def poisoned(rows: Rows, type_: str, change: Callable[[dict], None]) -> Rows:
    at = next(i for i, row in enumerate(rows) if row.type == type_)
    return linked([*rows[:at], changed(rows[at], change), *rows[at + 1 :]])


POISON = [
    ("generation_completed", lambda data: data.update(generation=10**30)),
    ("seeded", lambda data: data.update(slot=-1)),
    ("started", lambda data: data["base"].update(parameters=10**40)),
    ("submitted", lambda data: data.update(priority=10**12)),
    ("profiled", lambda data: data["speed"].update(tokens_per_second="INF")),
    ("champion_changed", lambda data: data.update(score=99.0)),
    ("submitted", lambda data: data.update(reason="a\0b")),
    # Caches name folders by digests, and remove what does not fit its name.
    ("started", lambda data: data["base"].update(model="/home/ada")),
    ("started", lambda data: data["sources"][0].update(files={"config.json": "../x"})),
    ("started", lambda data: data["sources"][0].update(digest="../../x")),
    ("started", lambda data: data.update(data_digest="/home/ada")),
    ("baseline_built", lambda data: data.update(digest="/home/ada")),
    ("seeded", lambda data: data.update(digest="../../x")),
]


@pytest.mark.parametrize(("type_", "change"), POISON, ids=range(len(POISON)))
def test_what_is_not_so_or_fits_no_column_is_refused_before_anything_is_recorded(
    there, here, cache, tmp_path: Path, type_: str, change
) -> None:
    """A number beyond 64 bits stopped lists, queue and dispatcher for good."""
    rows = poisoned(there.read("evomerge/r"), type_, change)
    file = packed(tmp_path / "x.forge", {"evomerge/r": rows}, "r")
    with pytest.raises(Exception, match=r"is refused|cannot be recorded"):
        load(here, cache, file)
    assert here.names() == []


def test_an_unfinished_run_goes_its_own_way_where_it_was_imported(
    there, here, cache, tmp_path: Path
) -> None:
    export(there, cache, "half", tmp_path / "x.forge", False, False)
    load(here, cache, tmp_path / "x.forge")
    fake_runs.finish(there, "half")
    export(there, cache, "half", tmp_path / "y.forge", False, False)
    with pytest.raises(ConflictError, match="has another history"):
        load(here, cache, tmp_path / "y.forge")


def test_weights_that_cannot_be_kept_are_an_error_and_nothing_is_recorded(
    there, here, tmp_path: Path, monkeypatch
) -> None:
    """A home that cannot be written gave a warning, and exit code 0."""
    import torch

    from agent_forge.weights.folders.checkpoint import digest, write_weights

    weights = {"x": torch.zeros(3)}
    made = tmp_path / "made"
    made.mkdir()
    write_weights(made, weights, 1 << 30)
    blobs = [(f"{digest(weights)}/{file.name}", file) for file in made.glob("*.safetensors")]
    file = tmp_path / "x.forge"
    archive.write(file, {"evomerge/r": there.read("evomerge/r")}, {}, {"run": "r"}, blobs)
    # The invented champion has no weights; these are taken for its own.
    monkeypatch.setattr("agent_forge.worker.exports.archive.check_weights", lambda *given: None)
    (tmp_path / "artifacts").write_text("no folder")
    with pytest.raises(UnavailableError, match="cannot be kept"):
        load(here, Artifacts(tmp_path / "artifacts"), file)
    assert here.names() == []
    (tmp_path / "artifacts").unlink()
    brought = load(here, Artifacts(tmp_path / "artifacts"), file)
    assert (brought.weights, here.names()) == (1, ["evomerge/r"])


def test_files_that_are_not_the_champions_are_refused(there, here, cache, tmp_path: Path) -> None:
    """`forge verify FILE` said verified, and the import took them for weights of another name."""
    blob = tmp_path / "x.safetensors"
    blob.write_bytes(b"weights")
    champion = repository.load(there, "r")
    digest = champion.built[champion.champion or ""][0]
    for name in (f"{digest}/x.safetensors", "other/x.safetensors", f"{digest}/run.py", "x"):
        file, rows = tmp_path / "x.forge", there.read("evomerge/r")
        archive.write(file, {"evomerge/r": rows}, {}, {"run": "r"}, [(name, blob)])
        with pytest.raises(ArchiveError, match=r"no file of the run's result|are not those"):
            load(here, cache, file)
        with pytest.raises(ArchiveError, match=r"no file of the run's result|are not those"):
            inspected(file)
    assert here.names() == []


def test_a_run_that_measures_with_a_task_file_is_taken_only_if_that_is_allowed(
    there, here, cache, tmp_path: Path
) -> None:
    """Its author names a file of this machine, and `forge evo --resume` ran its Python."""
    first, *rest = there.read("evomerge/half")
    evil = changed(first, lambda data: data.update(data=["lm-eval:/tmp/evil.yaml"]))
    file = packed(tmp_path / "x.forge", {"evomerge/half": linked([evil, *rest])}, "half")
    with pytest.raises(ConfigError, match=r"evil.yaml.* can run code.*--allow-task-files"):
        load(here, cache, file)
    assert here.names() == []
    (found,) = inspected(file)[2]
    assert (found.level, found.check) == ("unchecked", "files")
    assert "evil.yaml" in found.message
    assert load(here, cache, file, task_files=True).waiting == ["half"]
