"""GGUF files of a Hub, which a small server plays: pinned, checked, and here afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.file_download
import pytest
from huggingface_hub import constants

from agent_forge.runs.errors import SourceError, UnavailableError
from agent_forge.weights.folders import made_folders
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.folders.sources import make_again, resolve
from testing.services.hub_files import COMMIT, Files, serving
from tests.integration.weights.formats import test_gguf_source_tokens as words

NAME = "me/toy"


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    names, merges = words.byte_level()
    place = tmp_path_factory.mktemp("w") / "Toy-1.gguf"
    return words.file_of(place, "gpt2", names, merges, pre="smollm").read_bytes()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes) -> Iterator[Files]:
    """A Hub with a repository of two files and one of one; its cache is empty."""
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.file_download.time, "sleep", lambda _: None)
    files = {"in/Toy-1.gguf": content, "other.gguf": content, "README.md": b"words"}
    with serving({NAME: files, "me/single": {"Toy-1.gguf": content}}) as server:
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server


def downloads(hub: Files) -> list[str]:
    return [line for line in hub.seen if line.startswith("GET") and "/resolve/" in line]


def test_a_file_is_pinned_by_commit_and_digest_and_needs_no_hub_again(
    hub: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes
) -> None:
    model = resolve(f"hub:{NAME}/in/Toy-1.gguf")
    assert (model.name, model.hub_id, model.revision) == ("Toy-1", f"{NAME}/in/Toy-1.gguf", COMMIT)
    place = Path(model.path)
    (tmp_path / "same.gguf").write_bytes(content)
    assert made_folders.digest((tmp_path / "same.gguf",))[:32] in place.name
    assert made_folders.origin(place) == f"hub:{NAME}/in/Toy-1.gguf@{COMMIT}"
    assert open_checkpoint(place).parameters
    fetched = downloads(hub)
    assert len(fetched) == 1
    assert resolve(f"{NAME}/in/Toy-1.gguf@{COMMIT}") == model
    assert downloads(hub) == fetched
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.seen.clear()
    assert resolve(f"hub:{NAME}/in/Toy-1.gguf") == model
    shutil.rmtree(place)
    assert make_again(place) == place
    assert hub.seen == []


def test_a_repository_with_one_file_needs_no_name_of_it(hub: Files) -> None:
    assert resolve("hub:me/single").hub_id == "me/single/Toy-1.gguf"


def test_what_the_hub_lacks_is_named(hub: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, why in {
        f"hub:{NAME}": "holds 2 GGUF files: write hub:me/toy/FILE, of in/Toy-1.gguf, other.gguf",
        f"hub:{NAME}/none.gguf": "has no file none.gguf; it has in/Toy-1.gguf, other.gguf",
    }.items():
        with pytest.raises(SourceError, match=why):
            resolve(text)
    for text in ("hub:me/nothing", "hub:me/nothing/x.gguf", f"hub:{NAME}/other.gguf@{'f' * 40}"):
        with pytest.raises(UnavailableError, match="cannot be fetched"):
            resolve(text)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UnavailableError, match="not in the local cache"):
        resolve(f"hub:{NAME}/other.gguf")


def test_bytes_that_are_not_the_hub_s_are_refused_and_fetched_again(hub: Files, content: bytes) -> None:
    hub.sent["other.gguf"] = content[:-1] + bytes([content[-1] ^ 1])
    with pytest.raises(UnavailableError, match=r"is damaged here: its SHA-256 is .* removed"):
        resolve(f"hub:{NAME}/other.gguf")
    del hub.sent["other.gguf"]
    assert resolve(f"hub:{NAME}/other.gguf").revision == COMMIT


def test_a_download_that_breaks_off_is_no_model(hub: Files, content: bytes) -> None:
    """The next attempt goes on from there, or begins again."""
    hub.sent["other.gguf"] = content[: len(content) // 2]
    with pytest.raises(UnavailableError, match=r"file other\.gguf of me/toy .* cannot be fetched"):
        resolve(f"hub:{NAME}/other.gguf")
    del hub.sent["other.gguf"]
    assert open_checkpoint(Path(resolve(f"hub:{NAME}/other.gguf").path)).parameters
