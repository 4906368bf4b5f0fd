"""`forge decompress`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from agent_forge.cli.main import forge
from agent_forge.runs.errors import ConflictError, TamperedError
from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
from testing.models import coded_files
from testing.models.toys import Toys


def test_a_file_becomes_a_folder(toys: Toys, tmp_path: Path) -> None:
    """The table has bytes and bits by codec, the JSON the digest that the folder has."""
    written = coded_files.write(toys.base, tmp_path / "model.forge")
    file, folder = str(tmp_path / "model.forge"), str(tmp_path / "model")
    done = CliRunner().invoke(forge, ["decompress", file, folder], catch_exceptions=False)
    assert done.exit_code == 0
    assert "rtn@1\t" in done.output
    assert f"from {written.bytes:,} bytes" in done.output
    assert digest(open_checkpoint(tmp_path / "model").tensors()) == written.digest
    done = CliRunner().invoke(forge, ["decompress", file, f"{folder}2", "--json"])
    assert json.loads(done.stdout)["digest"] == written.digest


def test_nothing_is_replaced_and_nothing_altered_is_written(toys: Toys, tmp_path: Path) -> None:
    """A folder with other things stays; of a damaged file no folder appears."""
    coded_files.write(toys.base, tmp_path / "model.forge")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine").touch()
    call = ["decompress", str(tmp_path / "model.forge")]
    done = CliRunner().invoke(forge, [*call, str(tmp_path / "model")])
    assert isinstance(done.exception, ConflictError)
    raw = bytearray((tmp_path / "model.forge").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "model.forge").write_bytes(raw)
    done = CliRunner().invoke(forge, [*call, str(tmp_path / "new")])
    assert isinstance(done.exception, TamperedError)
    assert not (tmp_path / "new").exists()
