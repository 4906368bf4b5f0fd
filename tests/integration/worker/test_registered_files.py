"""GGUF files in the registry: the converted folder, and where it came from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest

from agent_forge.weights.folders import made_folders
from agent_forge.weights.folders.sources import resolve
from tests.integration.cli.test_forge import call, succeeds
from tests.integration.weights.formats import test_gguf_source_tokens as words


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def rounded(writer: gguf.GGUFWriter, rows: int) -> None:
    """As `words.hyperparameters`, with the matrices of the block in Q4_1."""
    plain = writer.add_tensor

    def add(name: str, values: np.ndarray) -> None:
        if name.startswith("blk.") and values.ndim == 2:
            values = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q4_1)
            plain(name, values, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
        else:
            plain(name, values)

    writer.add_tensor = add  # pyright: ignore[reportAttributeAccessIssue]
    plain_hyperparameters(writer, rows)


plain_hyperparameters = words.hyperparameters


def test_a_gguf_file_is_registered_with_its_origin(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder may be evicted from the cache: it is made again when the model is used."""
    monkeypatch.setattr(words, "hyperparameters", rounded)
    names, merges = words.byte_level()
    file = words.file_of(tmp_path / "Toy-1.gguf", "gpt2", names, merges, pre="smollm")
    done = succeeds(home, "models", "register", str(file), "--json")
    id_ = json.loads(done.stdout)["id"]
    (row,) = json.loads(call(home, "models", "list", "--json").stdout)
    digest = made_folders.digest((file,))[:32]
    assert row["name"] == "Toy-1"
    assert row["origin"] == {"file": "Toy-1.gguf", "digest": digest, "type": "Q4_1"}
    assert row["path"] == resolve(str(file)).path
    assert "GGUF Q4_1" in call(home, "models", "list").stdout
    assert f"GGUF Q4_1, Toy-1.gguf, {digest}" in call(home, "models", "show", id_).stdout
    shutil.rmtree(row["path"])
    succeeds(home, "export", id_, "--format", "gguf", "--out", str(tmp_path / "out.gguf"))
    assert Path(row["path"]).is_dir()


def test_a_folder_has_no_origin(home: Path, toys) -> None:
    call(home, "models", "register", str(toys.base))
    (row,) = json.loads(call(home, "models", "list", "--json").stdout)
    assert (row["name"], row["origin"]) == (toys.base.name, {})
