"""The way of a model out of the server: exported, listed, downloaded, with the digest of the log."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

from agent_forge.api.app import create
from agent_forge.api.options import LOOPBACK, Options
from agent_forge.cli.main import forge
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.panels import report_html
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from agent_forge.weights.formats import gguf_file
from agent_forge.worker.commands import accounts
from testing.waiting import wait_until
from testing.worlds.finished_run import FinishedRun

RUN = "r"


class Taken:
    """A server over a finished run of real models, and its user's token."""

    def __init__(self, client: TestClient, home: Home, token: str) -> None:
        self.client, self.home = client, home
        self._headers = {"Authorization": f"Bearer {token}"}
        store = home.open_store()
        self.state: Any = repository.load(store, RUN)
        store.close()

    def ask(self, method: str, path: str, **more: Any) -> Any:
        """Return the answer to a request of the user."""
        return self.client.request(method, path, headers=self._headers, **more)

    def get(self, path: str) -> Any:
        """Return the body of an answer."""
        return self.ask("GET", path).json()

    def exported(self, model: str | None = None) -> dict[str, Any]:
        """Export the result, or a model, and wait for it."""
        answer = self.ask("POST", f"/runs/{RUN}/export", json={"model": model})
        assert answer.status_code == 202, answer.text
        path = f"/runs/{RUN}/export" + (f"?model={model}" if model else "")
        wait_until(lambda: self.get(path)["status"] in ("done", "failed"), "the export ends")
        return self.get(path)

    def ggufs(self, id_: str) -> dict[str, Any]:
        """Return the GGUF files of a model, and how far the writing of another is."""
        return self.get(f"/models/{id_}/files")["gguf"]

    def downloaded(self, id_: str, where: Path) -> Path:
        """Return the folder of a model's zip, downloaded as a browser does it: without a header."""
        ticket = self.ask("POST", f"/models/{id_}/tickets").json()
        address = f"{ticket['path']}zip?ticket={ticket['ticket']}"
        answer = self.client.get(address)
        assert answer.status_code == 200, answer.text
        assert self.client.get(address).status_code == 401, "a ticket is for one download"
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            assert archive.testzip() is None
            archive.extractall(where)
        (folder,) = where.iterdir()
        return folder


@pytest.fixture
def taken(
    finished_run: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Taken]:
    home, _ = finished_run()
    folder = Path(shutil.copytree(home.folder, tmp_path / "home"))
    monkeypatch.setenv("FORGE_HOME", str(folder))  # for processes that the server starts
    own = Home(folder)
    store = own.open_store()
    accounts.add(store, "ada", "admin")
    token = accounts.issue(store, "ada")[1]
    store.close()
    hosts = (*LOOPBACK, "testserver")
    with TestClient(create(own, Options((tmp_path,), rate=1e5, burst=100_000, hosts=hosts))) as client:
        yield Taken(client, own, token)


def weights_of(folder: Path) -> str:
    return digest(open_checkpoint(folder).tensors())


def test_an_exported_champion_is_downloaded_with_the_digest_of_the_log(
    taken: Taken, tmp_path: Path
) -> None:
    assert taken.state.completed
    (id_,) = taken.get(f"/runs/{RUN}")["results"].values()
    assert taken.get(f"/models/{id_}/files")["folder"] is None
    told = taken.exported()
    assert (told["status"], told["model"]) == ("done", id_), told
    files = taken.get(f"/models/{id_}/files")
    assert files["folder"] == told["folder"] == taken.get(f"/models/{id_}")["path"]
    weights = [file for file in files["files"] if file["name"].endswith(".safetensors")]
    assert files["bytes"] == sum(file["bytes"] for file in weights)
    assert taken.get(f"/models/{id_}")["bytes"] == files["bytes"]
    folder = taken.downloaded(id_, tmp_path / "away")
    assert weights_of(folder) == taken.state.completed.digest
    assert {file.name for file in folder.iterdir()} == {file["name"] for file in files["files"]}
    assert files["load"][1] == (f'model = AutoModelForCausalLM.from_pretrained("{folder.name}")')


def test_a_champion_is_written_as_gguf_of_a_type_that_it_can_have(taken: Taken) -> None:
    """The exporter says which; a merge's weights are not ternary. An unknown type fails in words."""
    id_ = taken.exported()["model"]
    types = taken.get(f"/models/{id_}/gguf-types")["types"]
    assert types == [type_ for type_ in gguf_file.TYPES if type_ not in gguf_file.TERNARY]
    for type_ in ("Q8_0", "no"):
        answer = taken.ask("POST", f"/models/{id_}/gguf?type={type_}")
        assert answer.status_code == 202, answer.text
        wait_until(lambda: taken.ggufs(id_)["status"] != "running", "the file is written")
    told = taken.ggufs(id_)
    assert "GGUF type 'no' is not known" in told["error"]
    (file,) = told["files"]
    content = taken.ask("GET", f"/models/{id_}/gguf?type=Q8_0").content
    assert (file["type"], file["bytes"], content[:4]) == ("Q8_0", len(content), b"GGUF")
    assert taken.ask("GET", f"/models/{id_}/gguf").status_code == 404


def test_the_report_of_a_page_is_that_beside_the_champion(taken: Taken) -> None:
    """With its picture, and with the run's name in its heading."""
    taken.ask("PATCH", f"/runs/{RUN}", json={"name": "best-of-three"})
    page = taken.ask("GET", f"/runs/{RUN}/report.html")
    assert page.status_code == 200, page.text
    folder = Path(taken.exported()["folder"])
    beside = (folder / "report.html").read_bytes()
    assert report_html.embedded(page.content) == report_html.embedded(beside) is not None
    assert f"<h1>Run best-of-three ({RUN})</h1>" in page.text
    assert page.text.count("<h2") == beside.decode().count("<h2")


def test_a_fixed_merge_is_exported_and_downloaded(taken: Taken, tmp_path: Path) -> None:
    """The verdict may say that it is the better model."""
    name, recipe_id = next(iter(taken.state.baselines.items()))
    told = taken.exported(name)
    assert told["status"] == "done", told
    entry = taken.get(f"/models/{told['model']}")
    assert (entry["name"], entry["kind"]) == (f"{name} of {RUN}", "merge")
    folder = taken.downloaded(told["model"], tmp_path / "away")
    assert weights_of(folder) == taken.state.built[recipe_id][0]
    assert taken.ask("POST", f"/runs/{RUN}/export", json={"model": "no"}).status_code == 404


def test_a_fixed_merge_is_exported_at_a_terminal(taken: Taken, tmp_path: Path) -> None:
    name, recipe_id = next(iter(taken.state.baselines.items()))
    told = CliRunner().invoke(forge, ["export", f"{RUN}:{name}", "--out", str(tmp_path / "out")])
    assert told.exit_code == 0, told.output
    weights = taken.state.built[recipe_id][0]
    assert weights_of(tmp_path / "out") == weights
    assert taken.get(f"/models/{weights[:16]}")["path"] == str(tmp_path / "out")
