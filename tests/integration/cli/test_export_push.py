"""`forge export --push`, to a server that plays the Hub."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testing.models.toys import Toys
from testing.services.hub import Hub
from tests.integration.cli.test_forge import fails, finished, run_of, succeeds
from tests.integration.worker.exports.test_hub import NAME, TOKEN, server

__all__ = ["finished", "server"]
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


def test_a_gguf_file_goes_with_its_modelfile(toys: Toys, server: Hub, tmp_path: Path) -> None:
    (tmp_path / "else.gguf").write_text("GGUF of another model")
    words = ("export", str(toys.base), "--format", "gguf", "--ollama", "--push", NAME)
    done = succeeds(tmp_path / "home", *words, "--out", str(tmp_path / "toy.gguf"))
    assert f"hub:      {server.url}/{NAME} (private)" in done.output
    assert TOKEN not in done.output
    assert set(server.repositories[NAME].files) == {"toy.gguf", "Modelfile", ".gitattributes"}
    file = (tmp_path / "toy.gguf").read_bytes()
    assert server.repositories[NAME].files["toy.gguf"] == file


@pytest.mark.slow
def test_a_champion_s_folder_goes(finished, server: Hub, tmp_path: Path) -> None:
    words = ("export", run_of(finished), "--out", str(tmp_path / "out"), "--push", NAME)
    done = succeeds(finished[0], *words, "--public", "--json")
    told = json.loads(done.stdout)["hub"]
    assert told == {
        "repository": NAME,
        "url": f"{server.url}/{NAME}",
        "commit": f"{1:040x}",
        "private": False,
    }
    sent = server.repositories[NAME].files
    weights = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert sent["model.safetensors"] == weights
    assert {"config.json", "tokenizer.json"} <= set(sent)


def test_what_lacks_a_part_is_refused_before_any_work(toys: Toys, server: Hub, tmp_path) -> None:
    base, out = str(toys.base), str(tmp_path / "out")
    home = tmp_path / "home"
    assert "add --push" in fails(home, 2, "export", base, "--out", out, "--public")
    assert "give --out" in fails(home, 2, "export", base, "--parquet", out, "--push", NAME)
    words = ("--format", "gguf", "--out", out, "--push", "nobody")
    assert "not OWNER/NAME" in fails(home, 2, "export", base, *words)
    assert not (tmp_path / "out").exists()
    assert server.seen == []


def test_the_export_stays_if_the_hub_refuses(toys: Toys, server: Hub, tmp_path: Path) -> None:
    server.trouble["/api/repos/create"] = 403
    out = tmp_path / "toy.gguf"
    words = ("export", str(toys.base), "--format", "gguf", "--push", NAME, "--out", str(out))
    assert f"The export is whole in {out}" in fails(tmp_path / "home", 3, *words)
    assert out.read_bytes()[:4] == b"GGUF"
    server.trouble.clear()
    succeeds(tmp_path / "home", *words)
