"""Files of a model's folder: what is listed, what is given, and what stays where it is."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from agent_forge.worker.commands import model_registry
from tests.integration.api.conftest import Served


@pytest.fixture
def folder(served: Served, tmp_path: Path) -> Path:
    """A registered model's folder below the server's roots, with a link out of them."""
    made = tmp_path / "models" / "tiny"
    made.mkdir()
    (made / "config.json").write_bytes(b"{}")
    (made / "model.safetensors").write_bytes(bytes(range(200)))
    (made / ".token").write_bytes(b"secret")
    (made / "sub").mkdir()
    (tmp_path / "outside.txt").write_bytes(b"secret")
    (made / "notes.txt").symlink_to(tmp_path / "outside.txt")
    record(served, made, "tiny", "1" * 64)
    return made


def record(served: Served, folder: Path, name: str, digest: str) -> None:
    """Register a folder as a model."""
    found = model_registry.ModelFacts(str(folder), digest, 202, 50)
    with closing(served.home.open_store()) as store:
        model_registry.record(store, found, name, "source", None, ())


def test_files_are_listed_and_given(served: Served, folder: Path) -> None:
    """By name and by id; a range of bytes, too."""
    told = served.get("/models/tiny/files").json()
    assert told["folder"] == str(folder)
    assert told["files"] == [
        {"name": "config.json", "bytes": 2},
        {"name": "model.safetensors", "bytes": 200},
    ]
    assert told["bytes"] == served.get("/models/tiny").json()["bytes"] == 200
    id_ = served.get("/models/tiny").json()["id"]
    answer = served.get(f"/models/{id_}/files/model.safetensors", "submitter")
    assert answer.content == bytes(range(200))
    assert answer.headers["content-disposition"] == 'attachment; filename="model.safetensors"'
    assert answer.headers["content-type"] == "application/octet-stream"
    part = {"Range": "bytes=10-19"}
    some = served.get(f"/models/{id_}/files/model.safetensors", headers=part)
    assert (some.status_code, some.content) == (206, bytes(range(10, 20)))


@pytest.mark.parametrize(
    "name", ["notes.txt", ".token", "sub", "nothing", "..%2Foutside.txt", "%2Fetc%2Fpasswd"]
)
def test_what_is_no_file_of_the_folder_is_not_given(served: Served, folder: Path, name: str) -> None:
    answer = served.get(f"/models/tiny/files/{name}")
    assert answer.status_code == 404, answer.text
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    "rest",
    [
        "anything",
        "files/sub/x",
        "files/model.safetensors/x",
        "files/..%2f..%2fetc%2fpasswd",
        "lineage/x",
        "measurements/x",
        "lineage%2fx",
        "%2f",
    ],
)
def test_a_path_below_a_model_that_is_no_route_is_not_found(
    served: Served, folder: Path, rest: str
) -> None:
    """By id, by digest and by name alike: a client that saves the answer must not save an entry."""
    id_ = served.get("/models/tiny").json()["id"]
    for name in (id_, id_[:6], "1" * 64, "tiny"):
        assert served.get(f"/models/{name}").json()["name"] == "tiny"
        answer = served.get(f"/models/{name}/{rest}")
        assert answer.status_code == 404, (name, answer.text)
    assert served.get(f"/models/{id_}anything").status_code == 404


def test_a_folder_that_the_server_may_not_read_is_not_told(served: Served, tmp_path: Path) -> None:
    """Nor one that is gone, nor one that is a link out of the roots."""
    away, gone, link = tmp_path / "away", tmp_path / "models" / "gone", tmp_path / "models" / "link"
    away.mkdir()
    (away / "config.json").write_bytes(b"{}")
    link.symlink_to(away)
    for number, place in enumerate((away, gone, link)):
        record(served, place, f"m{number}", str(number + 2) * 64)
        told = served.get(f"/models/m{number}/files").json()
        assert (told["folder"], told["files"], told["bytes"], told["load"]) == (None, [], None, [])
        assert served.get(f"/models/m{number}/zip").status_code == 404
        assert served.get(f"/models/m{number}/files/config.json").status_code == 404
    assert served.get("/models/nobody/files").status_code == 404


def test_a_zip_has_the_files_and_a_ticket_opens_it_once(served: Served, folder: Path) -> None:
    """A ticket lets a browser save a file by opening an address: of one model, and for reading."""
    ticket = served.ask("POST", "/models/tiny/tickets", "submitter").json()
    address = f"{ticket['path']}zip?ticket={ticket['ticket']}"
    assert served.get("/models/tiny/zip", None, params={"ticket": ticket["ticket"]}).status_code == 401
    assert served.get(address, None).status_code == 401, "the wrong address has used it up"
    ticket = served.ask("POST", "/models/tiny/tickets", "submitter").json()["ticket"]
    answer = served.get(f"{address.partition('?')[0]}?ticket={ticket}", None)
    assert answer.headers["content-disposition"] == 'attachment; filename="tiny.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["tiny/config.json", "tiny/model.safetensors"]
        assert archive.read("tiny/model.safetensors") == bytes(range(200))
    assert served.ask("POST", "/models/tiny/tickets", "viewer").status_code == 403


def test_a_folder_that_a_later_result_has_replaced_is_not_given(served: Served, folder: Path) -> None:
    """Its own document has the digest of other weights."""
    (folder / "evomerge_recipe.json").write_text(json.dumps({"digest": "2" * 64}))
    assert served.get("/models/tiny/files").json()["folder"] is None
    (folder / "evomerge_recipe.json").write_text(json.dumps({"digest": "1" * 64}))
    assert served.get("/models/tiny/files").json()["folder"] == str(folder)
