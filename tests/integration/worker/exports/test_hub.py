"""Uploads of exports, to a server that plays the Hub."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from agent_forge.runs.errors import ConfigError, ConflictError, ForgeError, UnavailableError
from agent_forge.worker.exports import hub
from testing.services.hub import Hub, Repository, serving

# Said by httpx of the way in which huggingface_hub sends a large file.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

TOKEN = "hf_secretsecretsecret"
NAME = "me/model"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The Hub's place, by the environment; large files by Git LFS, not by Xet, which has no player."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with serving({TOKEN: {"me"}, "hf_reader": set()}) as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "champion"
    place.mkdir()
    (place / "config.json").write_text("{}")
    (place / "README.md").write_text("# A model\n")
    (place / ".mark").write_text("ours")
    for name in ("a", "b"):
        (place / f"{name}.safetensors").write_bytes(name.encode() * 5_000)
    return place


def sent(folder: Path, public: bool = False, name: str = NAME) -> dict[str, object]:
    return hub.send(hub.target(name, public), hub.files_of(folder), folder)


def test_a_folder_becomes_a_private_repository(server: Hub, folder: Path) -> None:
    told = sent(folder)
    there = server.repositories[NAME]
    assert there.private
    files = {p.name: p.read_bytes() for p in folder.iterdir() if p.name != ".mark"}
    assert {k: v for k, v in there.files.items() if k != ".gitattributes"} == files
    assert told == {
        "repository": NAME,
        "url": f"{server.url}/{NAME}",
        "commit": f"{1:040x}",
        "private": True,
    }


def test_public_is_asked_for(server: Hub, folder: Path) -> None:
    sent(folder, public=True)
    assert not server.repositories[NAME].private
    with pytest.raises(ConflictError, match="is there and public: repeat the command with --public"):
        sent(folder)
    server.repositories[NAME].private = True
    with pytest.raises(ConflictError, match=r"is there and private: .* without --public"):
        sent(folder, public=True)


def test_again_sends_what_has_changed(server: Hub, folder: Path) -> None:
    sent(folder)
    assert sent(folder)["commit"] == f"{1:040x}", "no empty commit"
    (folder / "config.json").write_text('{"a": 1}')
    objects = [what for what, _ in server.seen if what.startswith("PUT")]
    assert sent(folder)["commit"] == f"{2:040x}"
    assert server.repositories[NAME].files["config.json"] == b'{"a": 1}'
    assert [what for what, _ in server.seen if what.startswith("PUT")] == objects


def test_an_upload_that_was_cut_off_goes_on(server: Hub, folder: Path) -> None:
    """The large file that arrived stays at the Hub; no commit was made of half of them."""
    server.room = 1
    with pytest.raises(UnavailableError, match="answers 507") as raised:
        sent(folder)
    assert f"whole in {folder}; what has arrived is not sent again" in str(raised.value)
    assert server.repositories[NAME].commits == 0
    arrived = set(server.objects)
    assert len(arrived) == 1
    server.room, server.seen = None, []
    sent(folder)
    assert server.repositories[NAME].commits == 1
    puts = {what.rsplit("/", 1)[1] for what, _ in server.seen if what.startswith("PUT")}
    assert len(puts) == 1
    assert not puts & arrived


def test_others_files_are_never_mixed_with(server: Hub, folder: Path) -> None:
    server.repositories[NAME] = Repository(True, {"thesis.tex": b"", "config.json": b"old"})
    with pytest.raises(ConflictError, match=r"other files, such as thesis\.tex"):
        sent(folder)
    assert server.repositories[NAME].files["config.json"] == b"old"


@pytest.mark.parametrize(
    ("path", "status", "match"),
    [
        ("/api/models/me/model", 401, "answers 401 .*does not accept the token"),
        ("/api/repos/create", 403, "answers 403 .*needs the right to write"),
        ("/preupload/", 403, "answers 403 .*needs the right to write"),
        ("/commit/", 500, "answers 500 .*cannot do that now"),
        ("/api/repos/create", 429, "answers 429 .*takes no more requests"),
    ],
)
def test_what_the_hub_refuses_is_said_without_the_token(
    server: Hub, folder: Path, path: str, status: int, match: str
) -> None:
    """Even if the server says the token back."""
    server.trouble[path] = status
    with pytest.raises(UnavailableError, match=match) as raised:
        sent(folder)
    assert TOKEN not in str(raised.value)
    assert f"whole in {folder}" in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_token_without_rights(server: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_reader")
    with pytest.raises(UnavailableError, match="answers 403"):
        sent(folder)
    monkeypatch.setenv("HF_TOKEN", "hf_unknown")
    with pytest.raises(UnavailableError, match="answers 401"):
        sent(folder)


def test_a_hub_that_is_not_there(folder: Path, server: Hub, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(UnavailableError, match=r"was not uploaded to http://127\.0\.0\.1:1: .*refused"):
        sent(folder)


def test_the_token_s_file_serves_if_the_environment_has_none(
    server: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(ConfigError, match="needs a token of the Hub"):
        hub.target(NAME, False)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    sent(folder)
    assert {token for what, token in server.seen if not what.startswith("PUT")} == {TOKEN}
    assert "" in {token for what, token in server.seen if what.startswith("PUT")}
    assert TOKEN not in repr(hub.target(NAME, False))


BAD = {
    "no owner": ("model", {}, "is not OWNER/NAME"),
    "two slashes": ("me/model/x", {}, "is not OWNER/NAME"),
    "dots": ("me/..", {}, "is not OWNER/NAME"),
    "no URL": (NAME, {"HF_ENDPOINT": "hub"}, "HF_ENDPOINT is no URL"),
    "clear text": (NAME, {"HF_ENDPOINT": "http://hub.example"}, "would go in clear text"),
    "two words": (NAME, {"HF_TOKEN": "secret words"}, "one word of plain letters"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_sent_is_said_before_anything_is(
    server: Hub, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, more, match = BAD[case]
    for key, value in more.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(ForgeError, match=match) as raised:
        hub.target(name, False)
    assert "secret" not in str(raised.value)
    assert server.seen == []


def test_an_environment_without_a_network(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE is set"):
        hub.target(NAME, False)


def test_one_file_and_what_is_beside_it(server: Hub, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF" + bytes(2_000))
    (tmp_path / "else.txt").write_text("not sent")
    hub.send(hub.target(NAME, False), hub.files_of(file), file)
    assert set(server.repositories[NAME].files) == {"m.gguf", ".gitattributes"}
    assert json.dumps(sorted(server.objects)) != "[]"
