"""Bad input to `forge export --format gguf`: one error, before any work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from testing.models.toys import Toys
from tests.integration.cli.test_forge import fails


@pytest.mark.parametrize(
    ("name", "type_", "said"),
    [
        ("toy.gguf", "", "''"),
        (f"{'n' * 300}.gguf", "F16", "is no name for a file"),
        (
            f"{'n' * 250}.gguf",
            "F16",
            "is no name for a file",
        ),  # the file beside it has a longer one
    ],
)
def test_a_type_or_a_name_that_is_none(
    toys: Toys, tmp_path: Path, name: str, type_: str, said: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    words = ("export", str(toys.base), "--format", "gguf", "--type", type_)
    assert said in fails(tmp_path / "home", 2, *words, "--out", str(out / name))
    assert not list(out.iterdir())


def test_a_model_of_an_unknown_kind_or_with_a_tensor_too_many(toys: Toys, tmp_path: Path) -> None:
    model = Path(shutil.copytree(toys.base, tmp_path / "model"))
    weights = load_file(model / "model.safetensors")
    more = {**weights, "model.more.weight": weights["model.norm.weight"].clone()}
    save_file(more, model / "model.safetensors", metadata={"format": "pt"})
    words = ("export", str(model), "--format", "gguf", "--out", str(tmp_path / "m.gguf"))
    assert "model.more.weight has no place" in fails(tmp_path / "home", 2, *words)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "nothing-like-it"}))
    assert "nothing-like-it" in fails(tmp_path / "home", 2, *words)
    assert not (tmp_path / "m.gguf").exists()
