"""Runs at W&B: its own client, files and protocol; and a W&B that is not as it should be."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evomerge.reports.outputs import wandb_rows
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, ConflictError, UnavailableError
from agent_forge.runs.home import Home
from agent_forge.runs.system import packages
from agent_forge.worker.exports import wandb as sending
from agent_forge.worker.exports import wandb_follower
from testing.services import wandb_files
from testing.services.wandb_server import Wandb
from testing.waiting import PATIENCE, wait_until
from testing.worlds import fake_runs
from testing.worlds.runs import REPOSITORY, state

#: What merging runs send to a tracker.
TRACKING = kinds.of("evomerge").tracking

#: Nothing of these may ever be written or sent.
SECRETS = {
    "WANDB_API_KEY": "wandb0secret" + "0" * 28,
    "FORGE_ARTIFACT_KEY": "artifact-secret-1",
    "FORGE_ENDPOINT_KEY": "endpoint-secret-2",
    "FORGE_BROKER_URL": "redis://:broker-secret-3@127.0.0.1:1/0",
}


def make(folder: Path) -> Home:
    """A place with the finished run `whole`, and `half`, which has two generations of six."""
    place = Home(folder / "home")
    with closing(place.open_store()) as store:
        fake_runs.whole(store, "whole")
        fake_runs.submit(store, "half", generations=5)
        fake_runs.finish(store, "half", lambda s: len(s.generations) == 2)
    return place


def clean(home: Home, folder: Path) -> dict[str, str]:
    """The environment of processes that use W&B, with every folder of its own below this one."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB_", "FORGE_"))}
    own = {f"WANDB_{n}_DIR": str(folder / n) for n in ("DATA", "CACHE", "CONFIG", "ARTIFACT")}
    return {
        **kept,
        **own,
        "FORGE_HOME": str(home.folder),
        "WANDB_ERROR_REPORTING": "false",
        "PYTHONPATH": str(REPOSITORY),
    }


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A place of this test's own."""
    return make(tmp_path)


@pytest.fixture
def env(home: Home, tmp_path: Path) -> dict[str, str]:
    """The environment for it."""
    return clean(home, tmp_path)


@pytest.fixture
def server() -> Iterator[Wandb]:
    """A W&B server of this test's own."""
    server = Wandb()
    yield server
    server.stop()


def forge(env: dict[str, str], *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """`forge WORDS` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", "from agent_forge.cli.main import main; main()", *words],
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=REPOSITORY,
        timeout=PATIENCE,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def offline(env: dict[str, str], *words: str) -> tuple[dict[str, Any], wandb_files.Written]:
    """What `forge wandb sync WORDS --offline` said, and what it wrote."""
    told = json.loads(forge(env, "wandb", "sync", *words, "--offline", "--json").stdout)
    return told, wandb_files.read(Path(told["place"]))


def history(found: RunState) -> list[tuple[int, dict[str, Any]]]:
    """The rows that W&B should have of a run."""
    return [(step, dict(row)) for step, row in TRACKING.rows(found)]


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], RunState]:
    """(folder with everything that was written, what was said, the state) of a whole run."""
    folder = tmp_path_factory.mktemp("sent")
    home = make(folder)
    environment = {**clean(home, folder), **SECRETS, "WANDB_MODE": "offline"}
    words = ["whole", "--project", "merges", "--entity", "team", "--json"]
    said = forge(environment, "wandb", "sync", *words).stdout
    return folder, json.loads(said), state(home, "whole")


@pytest.mark.slow
def test_every_key_and_value_of_the_file_is_the_logs(sent: Any) -> None:
    _, told, found = sent
    written = wandb_files.read(Path(told["place"]))
    assert written.history == history(found)
    assert written.summary == TRACKING.summary(found)
    assert written.config == TRACKING.config(found)
    assert (written.run_id, written.group) == ("whole", "whole")
    assert (written.project, written.entity) == ("merges", "team")
    assert written.metrics["*"] == "generation"
    assert written.exit_code == 0
    assert told == {
        "run": "whole",
        "status": "completed",
        "generations": 3,
        "new": 3,
        "place": told["place"],
        "offline": True,
    }


def test_the_champion_goes_along_as_its_recipe(sent: Any) -> None:
    """Enough to rebuild it; its weights only if their folder is named."""
    _, told, final = sent
    found = wandb_rows.champion(final)
    assert found is not None
    ((name, metadata, files),) = wandb_files.read(Path(told["place"])).artifacts
    assert name == "whole-champion"
    assert json.loads(files["evomerge_recipe.json"]) == found
    assert metadata["recipe"] == found["recipes"][found["candidate"]]
    assert metadata["digest"] == found["digest"]
    assert metadata["lineage"] == found["lineage"]


def test_no_secret_is_written(sent: Any) -> None:
    """Neither keys nor addresses nor the paths of models, in any file that W&B leaves."""
    folder, _, _ = sent
    files = [p for p in folder.rglob("*") if p.is_file() and "forge.db" not in p.name]
    assert any(path.suffix == ".wandb" for path in files)
    hidden = [*SECRETS.values(), "broker-secret", "/models/a", "/models/base"]
    for path in files:
        data = path.read_bytes()
        assert not [secret for secret in hidden if secret.encode() in data], path


@pytest.mark.slow
def test_the_champions_folder_goes_along_where_it_is_named(
    home: Home, env: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "champion"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    refused = ["wandb", "sync", "whole", "--offline", "--model", str(folder)]
    assert "not the folder of the champion" in forge(env, *refused, code=2).stderr
    mark = {"candidate": state(home, "whole").champion}
    (folder / "evomerge_recipe.json").write_text(json.dumps(mark))
    _, written = offline(env, "whole", "--model", str(folder))
    ((_, _, files),) = written.artifacts
    assert files["model.safetensors"] == b"weights"
    assert not list((home.folder / "wandb").glob("*half*"))


@pytest.mark.slow
def test_a_resumed_run_gets_only_what_is_new(home: Home, env: dict[str, str], server: Wandb) -> None:
    """Under our run id; a third time there is nothing to send, and what is there stays as it is."""
    env = {**env, **server.env}
    first = json.loads(forge(env, "wandb", "sync", "half", "--json").stdout)
    assert (first["new"], first["generations"]) == (2, 2)
    assert first["place"].endswith("/evomerge/runs/half")
    assert [line["_step"] for line in server.runs["half"].history] == [0, 1]
    with closing(home.open_store()) as store:
        fake_runs.finish(store, "half")
    second = json.loads(forge(env, "wandb", "sync", "half", "--json").stdout)
    assert (second["new"], second["generations"]) == (4, 6)
    third = json.loads(forge(env, "wandb", "sync", "half", "--json").stdout)
    assert (third["new"], third["generations"]) == (0, 6)
    kept, found = server.runs["half"], state(home, "half")
    own = [{k: v for k, v in line.items() if not k.startswith("_")} for line in kept.history]
    assert list(enumerate(own)) == history(found)
    summary = {k: v for k, v in kept.summary.items() if not k.startswith("_")}
    assert summary == TRACKING.summary(found)
    assert (kept.group, kept.exit_code) == ("half", 0)
    assert [len(versions) for versions in server.artifacts.values()] == [1]


@pytest.mark.slow
def test_offline_files_of_one_run_add_up_to_it(home: Home, env: dict[str, str], server: Wandb) -> None:
    """`wandb sync` appends: a file has what was not synced, and takes the place of what never was."""
    first, early = offline(env, "half")
    assert early.history == history(state(home, "half"))
    assert early.summary["status"] == "running"
    assert not early.artifacts, "there is no final champion yet"
    second, again = offline(env, "half")
    assert again.history == early.history
    assert not Path(first["place"]).exists()
    upload(env, server, second["place"])
    with closing(home.open_store()) as store:
        fake_runs.finish(store, "half")
    third, late = offline(env, "half")
    assert [step for step, _ in late.history] == [2, 3, 4, 5]
    assert late.summary == TRACKING.summary(state(home, "half"))
    upload(env, server, third["place"])
    assert [line["generation"] for line in server.runs["half"].history] == list(range(6))
    assert Path(second["place"]).exists()


def upload(env: dict[str, str], server: Wandb, place: str) -> None:
    """`wandb sync`, as its users call it."""
    done = subprocess.run(
        [sys.executable, "-m", "wandb", "sync", place],
        env={**env, **server.env},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=place,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_live_run_is_followed_until_it_has_ended(
    home: Home, env: dict[str, str], server: Wandb
) -> None:
    """What was there, what comes, and the end."""
    command = [
        sys.executable,
        "-c",
        "from agent_forge.cli.main import main; main()",
        "wandb",
        "sync",
        "half",
        "--follow",
        "--json",
    ]
    process = subprocess.Popen(
        command,
        env={**env, **server.env},
        cwd=REPOSITORY,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until(lambda: "half" in server.runs and len(server.runs["half"].history) == 2, "W&B has it")
    with closing(home.open_store()) as store:
        fake_runs.finish(store, "half", lambda s: len(s.generations) == 4)
        wait_until(lambda: len(server.runs["half"].history) == 4, "W&B has it")
        assert process.poll() is None
        fake_runs.finish(store, "half")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert json.loads(out)["new"] == 6
    assert len(server.runs["half"].history) == 6
    assert server.runs["half"].summary["final/generations"] == 5


def test_only_one_process_sends_a_run(home: Home) -> None:
    """Two would give W&B every step twice."""
    lock = home.folder / "tracking" / "whole.lock"
    lock.parent.mkdir()
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ConflictError, match="another process"):
            sending.sync(home, "whole", sending.WandbTarget.of(home, offline=True))


@pytest.mark.slow
def test_a_server_that_is_not_there_is_said(env: dict[str, str]) -> None:
    """And that nothing is lost by it."""
    said = forge({**env, "WANDB_MODE": "online"}, "wandb", "sync", "whole", code=3).stderr
    assert "W&B did not take run whole" in said
    assert "The run is not touched" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("given", "flag", "is_wanted"),
    [("", False, False), ("0", False, False), ("1", False, True), ("", True, True), ("0", True, True)],
)
def test_who_is_followed(
    monkeypatch: pytest.MonkeyPatch, given: str, flag: bool, is_wanted: bool
) -> None:
    monkeypatch.setenv("FORGE_WANDB", given)
    assert wandb_follower.wanted(flag, pytest.fail) is is_wanted


def test_a_variable_without_sense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_WANDB", "online")
    with pytest.raises(ConfigError, match="FORGE_WANDB is 'online'"):
        wandb_follower.wanted(False, pytest.fail)


def test_without_wandb_the_flag_is_an_error_and_the_variable_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one was asked for now; the other stands there for every run."""
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'wandb>="):
        wandb_follower.wanted(True, pytest.fail)
    warnings: list[str] = []
    monkeypatch.setenv("FORGE_WANDB", "1")
    assert wandb_follower.wanted(False, warnings.append) is False
    assert "pip install" in warnings[0]


# ---- beside a run --------------------------------------------------------------------------

RAISES = "def __getattr__(name):\n    raise RuntimeError('the tracker is on fire')\n"
HANGS = "import time\nwhile True:\n    time.sleep(1)\n"


def fake(folder: Path, code: str) -> str:
    """A package `wandb` before the real one; the path that finds it."""
    (folder / "fakes" / "wandb").mkdir(parents=True)
    (folder / "fakes" / "wandb" / "__init__.py").write_text(code)
    return os.pathsep.join((str(folder / "fakes"), str(REPOSITORY)))


def beside(
    home: Home, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], patience: float
) -> list[str]:
    """The warnings of a run that ends while W&B follows it."""
    for name in [n for n in os.environ if n.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    warnings: list[str] = []
    with wandb_follower.beside(home, "half", warnings.append, patience):
        with closing(home.open_store()) as store:
            assert fake_runs.finish(store, "half").completed
    return warnings


@pytest.mark.slow
def test_a_run_is_followed_beside(
    home: Home, env: dict[str, str], server: Wandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process begins where the run is and has the end although the run was faster."""
    assert beside(home, monkeypatch, {**env, **server.env}, PATIENCE) == []
    assert len(server.runs["half"].history) == 6
    assert server.runs["half"].summary["status"] == "completed"


@pytest.mark.slow
def test_a_tracker_that_raises_is_one_warning(
    home: Home, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fake(tmp_path, RAISES)
    (said,) = beside(home, monkeypatch, {**env, "PYTHONPATH": path}, PATIENCE)
    assert "the tracker is on fire" in said
    assert "`forge wandb sync half`" in said
    assert "\n" not in said


@pytest.mark.slow
def test_a_tracker_that_hangs_is_ended(
    home: Home, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would never end by itself; the run waits as long as it was told to."""
    path = fake(tmp_path, HANGS)
    (said,) = beside(home, monkeypatch, {**env, "PYTHONPATH": path}, 2)
    assert "within 2 seconds" in said
    assert "`forge wandb sync half`" in said


@pytest.mark.slow
def test_a_process_whose_parent_is_gone_comes_to_an_end(
    home: Home, env: dict[str, str], server: Wandb
) -> None:
    """It sends what is there: nobody is left who would tell it to."""
    code = (
        "import os, signal, sys\n"
        "from agent_forge.worker.exports import wandb_follower as follower\n"
        "from agent_forge.runs.home import Home\n"
        "with follower.beside(Home.default(), 'half', print):\n"
        "    sys.stdin.readline()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**env, **server.env},
        cwd=REPOSITORY,
        text=True,
        stdin=subprocess.PIPE,
    )
    wait_until(lambda: "half" in server.runs and len(server.runs["half"].history) == 2, "W&B has it")
    assert parent.stdin
    parent.communicate("now\n", timeout=PATIENCE)
    wait_until(lambda: server.runs["half"].exit_code is not None, "W&B has it")
    assert server.runs["half"].summary["status"] == "running"
