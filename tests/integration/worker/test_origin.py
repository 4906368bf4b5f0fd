"""A champion, a candidate or a registered model as the next run's source."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from agent_forge.api.app import create
from agent_forge.api.options import Options
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.tasks.results.champion import export
from agent_forge.runs.errors import SourceError, UnavailableError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.origin import LogModel
from agent_forge.runs.record.events import Described
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, digest, open_checkpoint, write_weights
from agent_forge.weights.folders.sources import resolve
from agent_forge.weights.storage import inputs, model_origin
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import accounts, model_registry
from agent_forge.worker.commands.control import control
from agent_forge.worker.tasks import runner
from testing.models.toys import Toys
from testing.worlds import runs
from tests.integration.cli.test_forge import fails, succeeds


@pytest.fixture(scope="module")
def made(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunState]:
    """A home with a completed run `first`; not to be written to."""
    home = Home(tmp_path_factory.mktemp("origin") / "home")
    runs.submit(home, toys, "first", generations=1, population_size=4, elite_size=1)
    state = runs.finish(home, "first")
    return home.folder, state


@pytest.fixture
def home(made: tuple[Path, RunState], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A copy of it."""
    folder = Path(shutil.copytree(made[0], tmp_path / "home"))
    monkeypatch.setenv("FORGE_HOME", str(folder))  # for processes that a server starts
    return Home(folder)


class SettledHere:
    """Finds and builds folders as the process does that `Finder` starts, without its start."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def folder(self, origin: LogModel) -> str:
        """Return the folder with the model's weights."""
        return model_origin.settle(self.home, json.loads(origin.request(origin.folders)))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settle models in this process: each test would wait for a process that imports torch."""
    monkeypatch.setattr(model_origin, "_Settler", SettledHere)


@pytest.fixture
def state(made: tuple[Path, RunState]) -> RunState:
    """The run."""
    return made[1]


def named(home: Home, text: str) -> tuple[events.ModelReference, str]:
    """What a text means, and what is told of it."""
    told: list[str] = []
    found = resolve(text, named=model_origin.Finder(home, told.append))
    return found, told[0]


def weights_of(folder: str) -> str:
    """The digest of a folder's weights."""
    return digest(open_checkpoint(Path(folder)).tensors())


def exported(home: Home, state: RunState, folder: Path) -> None:
    """Write the champion and record where."""
    store = home.open_store()
    assert state.champion
    recorded = state.built[state.champion][0]
    try:
        export(state, Artifacts.of(home), folder, state.head)
        event = events.Exported(recipe_id=state.champion, folder=str(folder), digest=recorded)
        control(store, state.run, event)
    finally:
        store.close()


@pytest.mark.slow
def test_a_champion_is_named_by_its_run(home: Home, state: RunState, toys: Toys):
    """Built into a folder that stays: a run records a path, and can be resumed for years."""
    assert state.champion
    found, told = named(home, "first")
    assert found.name == f"first-{state.champion[:8]}"
    assert found.path == str(home.folder / "models" / state.built[state.champion][0])
    assert weights_of(found.path) == state.built[state.champion][0]
    assert told == f"first is the champion {state.champion[:12]} of run first, taken from {found.path}"
    with closing(home.open_store()) as store:
        control(store, "first", Described(name="harbour"))
    assert "of run harbour, taken from" in named(home, "harbour")[1]
    before = (Path(found.path) / "model.safetensors").stat().st_mtime_ns
    for text in ("firs", "first:champion", "first/champion", f"first/{state.champion}"):
        assert named(home, text)[0] == found
    assert (Path(found.path) / "model.safetensors").stat().st_mtime_ns == before, "built once"


@pytest.mark.soak
@pytest.mark.slow
def test_a_champion_is_merged_again(home: Home, state: RunState, toys: Toys):
    """From the terminal, as folders are; the run records a folder and a name, as always."""
    models = ("--base-models", f"first,{toys.sources[0]}", "--base-model", str(toys.base))
    words = (*models, "--data", str(toys.data), "--gens", "1")
    checked = succeeds(home.folder, "check", *words)
    assert "first is the champion" in checked.stderr
    submitted = succeeds(home.folder, "submit", *words, "--json")
    then = runs.state(home, json.loads(submitted.stdout)["run"]).submitted
    assert then
    assert state.champion
    assert [s.name for s in then.sources] == [f"first-{state.champion[:8]}", toys.sources[0].name]
    assert weights_of(then.sources[0].path) == state.built[state.champion][0]


@pytest.mark.slow
@pytest.mark.soak
def test_a_champion_is_scored_by_its_run(home: Home, state: RunState, toys: Toys):
    """And gets the score that its run recorded."""
    done = succeeds(home.folder, "score", "first", "--data", str(toys.data), "--json")
    assert state.champion
    event = state.evaluations[state.champion, "test", None]
    assert event.components
    (found,) = json.loads(done.stdout)
    assert found["components"]["perplexity"] == event.components.perplexity


@pytest.mark.slow
def test_a_folder_that_hides_a_run_is_told_of(
    home: Home, toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The user may have meant either; what else is a folder is no news."""
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    find = model_origin.Finder(home, told.append)
    for name in ("first/champion", "other/champion"):
        shutil.copytree(toys.base, tmp_path / name)
        assert resolve(name, named=find).path == str(tmp_path / name)
    assert told == [
        f"first/champion is the folder {tmp_path}/first/champion, not the model of run first: "
        "write first:champion for that"
    ]


@pytest.mark.usefixtures("here")
@pytest.mark.slow
def test_any_candidate_is_named_by_the_beginning_of_its_id(home: Home, state: RunState):
    """A loser may be what the next run needs."""
    other = next(
        c.recipe_id
        for c in state.candidates.values()
        if c.recipe_id != state.champion and not state.is_source(c.recipe_id)
    )
    found, told = named(home, f"first:{other[:20]}")
    assert weights_of(found.path) == state.built[other][0]
    assert f"candidate {other[:12]} of run first" in told
    assert not (Path(found.path) / "README.md").exists(), "the card is the champion's"


@pytest.mark.usefixtures("here")
@pytest.mark.slow
def test_an_exported_folder_is_taken_while_it_has_the_weights(
    home: Home, state: RunState, tmp_path: Path
):
    """Nothing is built twice; what somebody changed is not the champion any more."""
    exported(home, state, tmp_path / "champion")
    assert named(home, "first")[0].path == str(tmp_path / "champion")
    tensors = open_checkpoint(tmp_path / "champion").tensors()
    changed = {name: tensor + 1 for name, tensor in tensors.items()}
    write_weights(tmp_path / "champion", changed, SHARD_BYTES)
    assert named(home, "first")[0].path.startswith(str(home.folder / "models"))


@pytest.mark.usefixtures("here")
@pytest.mark.slow
def test_a_source_of_a_run_is_itself(home: Home, state: RunState, toys: Toys):
    """Its folder is there already."""
    assert state.started
    found, _ = named(home, f"first:{state.started.sources[1].recipe_id}")
    assert found.path == str(toys.sources[1])


@pytest.mark.usefixtures("here")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_model_of_a_run_has_the_config_and_tokenizer_of_the_run(
    home: Home, state: RunState, tmp_path: Path, name: str
):
    """They decide what it computes and says: the same weights beside others are another model."""
    assert state.started
    source = state.started.sources[1]
    copy = home.artifacts / "models" / source.model
    mine = Path(shutil.copytree(copy, tmp_path / "source"))
    (mine / inputs.ORIGIN).unlink(missing_ok=True)
    exported(home, state, tmp_path / "champion")

    def settled(text: str, folder: Path) -> str:
        store = home.open_store()
        found = model_origin.find(store, text)
        store.close()
        assert found
        return model_origin.settle(home, json.loads(found.request([str(folder)])))

    merge = f"first:{state.champion}"
    for text, folder in ((f"first:{source.recipe_id}", mine), (merge, tmp_path / "champion")):
        assert settled(text, folder) == str(folder)
        settings = json.loads((folder / name).read_text("utf-8"))
        (folder / name).write_text(json.dumps({**settings, "model_max_length": 7}), "utf-8")
        assert settled(text, folder) != str(folder)
    assert settled(f"first:{source.recipe_id}", mine) == str(copy)
    built = settled(merge, tmp_path / "champion")
    assert built.startswith(str(home.folder / "models"))
    (Path(built) / name).write_text("{}", "utf-8")
    assert settled(merge, tmp_path / "champion") == built, "built again"
    assert (Path(built) / name).read_text("utf-8") != "{}"


@pytest.mark.usefixtures("here")
@pytest.mark.slow
def test_a_registered_model_is_named_by_id_or_name(home: Home, toys: Toys, tmp_path: Path):
    """While its weights are those that were registered."""
    place = Path(shutil.copytree(toys.base, tmp_path / "mine"))
    write_weights(
        place, {n: t * 2 for n, t in open_checkpoint(toys.base).tensors().items()}, SHARD_BYTES
    )
    store = home.open_store()
    id_ = model_registry.register(store, place, "good-one")
    store.close()
    for text in (id_, id_[:9], "good-one"):
        found, told = named(home, text)
        assert (found.name, found.path) == ("good-one", str(place))
        assert f"registered model {id_}" in told
    tensors = {n: torch.zeros_like(t) for n, t in open_checkpoint(place).tensors().items()}
    write_weights(place, tensors, SHARD_BYTES)
    with pytest.raises(SourceError, match=r"its weights have changed.*Register it again"):
        named(home, "good-one")


@pytest.mark.usefixtures("here")
@pytest.mark.slow
def test_a_champion_of_the_registry_is_that_of_its_run(home: Home, state: RunState):
    """The registry has no folder of it."""
    assert state.champion
    found, _ = named(home, "champion of first")
    assert weights_of(found.path) == state.built[state.champion][0]


@pytest.mark.slow
def test_what_is_nobody_s_name_is_said_with_all_that_may_be(home: Home, toys: Toys):
    """One message each, with what to do."""
    runs.submit(home, toys, "second")
    runs.submit(home, toys, "first-too")
    for text, words in (
        ("second", "run second has no champion yet"),
        ("second:abc", "candidate 'abc' is not known in run second"),
        ("first:zz", "candidate 'zz' is not known in run first"),
        ("first/zz", "'zz' is not known in run first. It has champion, .*first/zz@main"),
        ("nothing:abc", "run 'nothing' is not known.*List them with `forge runs`"),
        ("firs", "beginning of first, first-too"),
        ("nothing", r"neither a folder here.*nor a run \(RUN, .*\), nor a registered"),
    ):
        with pytest.raises(SourceError, match=words):
            named(home, text)
    store = home.open_store()
    for hub_id in ("firs/champion", "first/champion@main", "first/"):
        assert model_origin.find(store, hub_id) is None
    store.close()
    assert "no champion yet" in fails(home.folder, 2, "check", "--base-models", "second,first")


# ---- over the API --------------------------------------------------------------------------


@pytest.fixture
def client(home: Home, toys: Toys) -> Any:
    """A server over it that may read the toys, and a submitter who owns no run."""
    store = home.open_store()
    accounts.add(store, "ada", "submitter")
    token = accounts.issue(store, "ada")[1]
    store.close()
    app = create(home, Options((toys.base.parent, toys.data.parent), rate=1e5, burst=1000))
    head = {"Authorization": f"Bearer {token}"}
    with TestClient(app, "http://127.0.0.1", headers=head) as opened:
        yield opened


def asked(client: TestClient, path: str, body: dict[str, Any]) -> Any:
    """The answer, asked for again while the server says that the model is being prepared."""
    for _ in range(100):
        answer = client.post(path, json=body)
        if answer.status_code != 503:
            break
        assert answer.headers["Retry-After"] == "2"
        assert "model 1 of 1 (" in answer.json()["detail"]
    return answer


@pytest.mark.slow
def test_a_run_of_another_s_champion_is_started_over_the_api(
    client: TestClient, home: Home, state: RunState, toys: Toys, tmp_path: Path
):
    """Every user may read every run. A folder outside of the roots is not read, whoever wrote it."""
    exported(home, state, tmp_path / "outside")
    body = {
        "models": ["first/champion", toys.sources[0].name],
        "base": toys.base.name,
        "data": [str(toys.data)],
        "config": {"generations": 1},
    }
    answer = asked(client, "/runs/check", body)
    assert answer.status_code == 200, answer.text
    made = asked(client, "/runs", body)
    assert made.status_code == 201, made.text
    then = runs.state(home, made.json()["run"]).submitted
    assert then
    assert state.champion
    assert then.sources[0].name == f"first-{state.champion[:8]}"
    assert then.sources[0].path == str(home.folder / "models" / state.built[state.champion][0])


@pytest.mark.slow
def test_a_run_that_was_not_checked_is_checked_by_the_worker(
    client: TestClient, home: Home, state: RunState, toys: Toys, tmp_path: Path
):
    """It is recorded at once. The worker builds its models; what it refuses fails the run."""
    assert state.champion
    folder = home.folder / "models" / state.built[state.champion][0]
    small = Path(shutil.copytree(toys.base, toys.base.parent / "small"))
    (small / "config.json").write_text("{}")
    body = {
        "models": ["first/champion", toys.sources[0].name],
        "base": toys.base.name,
        "data": [str(toys.data)],
        "config": {"generations": 1},
        "checked": False,
    }
    answers = [
        client.post("/runs", json={**body, "models": ["first/champion", name]})
        for name in (toys.sources[0].name, "small")
    ]
    assert [answer.status_code for answer in answers] == [201, 201], answers[0].text
    good, bad = (answer.json()["run"] for answer in answers)
    then = runs.state(home, good).submitted
    assert then
    assert (then.sources[0].path, folder.exists()) == (str(folder), False)
    store = home.open_store()
    started: list[str] = []

    def watch(state: Any, _rows: Any) -> None:
        if state.started is not None:
            started.append(state.run)

    worker = runner.WorkerProcess(store, Artifacts.of(home), watch, lambda: bool(started))
    begun = worker.run(good)
    assert begun.started.sources[0].digest == state.built[state.champion][0]
    with pytest.raises(SourceError, match="small"):
        runs.finish(home, bad)
    store.close()
    shutil.rmtree(small)
    failed = runs.state(home, bad)
    assert failed.status == "failed"
    assert failed.failed
    assert "small" in failed.failed.reason


@pytest.mark.slow
def test_a_model_that_a_server_may_not_read_is_refused(
    client: TestClient, home: Home, toys: Toys, tmp_path: Path
):
    """Registered at the terminal, outside of the roots: the API gives nobody its weights."""
    outside = Path(shutil.copytree(toys.base, tmp_path / "outside"))
    tensors = {n: t * 3 for n, t in open_checkpoint(toys.base).tensors().items()}
    write_weights(outside, tensors, SHARD_BYTES)
    store = home.open_store()
    id_ = model_registry.register(store, outside, "secret")
    store.close()
    for text, words in (
        (id_, "no folder that may be read"),
        ("first:zz", "candidate 'zz'"),
        ("nothing", "in none of this server's folders"),
    ):
        body = {"models": [text, toys.sources[0].name], "data": [str(toys.data)]}
        answer = asked(client, "/runs/check", body)
        assert answer.status_code == 422, answer.text
        assert words in answer.json()["detail"]


@pytest.mark.slow
def test_a_process_that_dies_while_it_looks_is_told_of_and_replaced(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of memory, say: the error names the model, and the next look-up works."""
    dies = "import os, sys; sys.stdin.readline(); os.write(2, b'no memory'); os._exit(9)"
    find = model_origin.Finder(home, lambda told: None)
    with monkeypatch.context() as patch:
        patch.setattr(model_origin, "COMMAND", (sys.executable, "-c", dies))
        with pytest.raises(SourceError, match=r"model first-.*: no memory"):
            find("first")
    assert find("first") is not None


@pytest.mark.slow
def test_a_log_that_is_away_while_the_folder_is_made_is_no_fault_of_the_model(home: Home) -> None:
    """A refusal would be kept; what is only away is asked for again."""
    find = model_origin.Finder(home, lambda told: None)
    find._settler._env["FORGE_DATABASE_URL"] = "postgresql://nobody@127.0.0.1:1/none"
    with pytest.raises(UnavailableError, match=r"model first-.*: the log at .* is not available"):
        find("first")
