"""Bad input to `forge export --format gguf`: one error, before any work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from testing.models.toys import Toys
from tests.integration.cli.test_forge import fails, succeeds


@pytest.mark.parametrize(
    ("name", "type_", "said"),
    [
        ("toy.gguf", "", "''"),
        (f"{'n' * 300}.gguf", "F16", "is no name for a file"),
        (f"{'n' * 250}.gguf", "F16", "is no name for a file"),  # the file beside it has a longer one
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--type", "IQ2_XS"), "IQ2_XS needs an importance matrix: add --imatrix DATA"),
        (("--imatrix", "missing.txt"), "--imatrix is for quantised types, and F16 is none of them"),
        (("--imatrix-out", "i.gguf"), "--imatrix-out keeps what --imatrix DATA measures"),
        (("--type", "Q8_0,F16", "--ollama"), "--ollama writes a Modelfile beside one file"),
    ],
)
def test_options_of_quantised_files_that_do_not_fit(
    toys: Toys, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    out = tmp_path / "out"
    words = ("export", str(toys.base), "--format", "gguf", *options, "--out", str(out))
    assert said in fails(tmp_path / "home", 2, *words)
    assert not out.exists()


@pytest.mark.parametrize("option", ["--imatrix", "--measure", "--imatrix-out"])
def test_options_of_gguf_files_are_of_no_other_format(toys: Toys, tmp_path, option: str) -> None:
    words = ("export", str(toys.base), "--out", str(tmp_path / "out"), option, "x")
    assert f"{option} is of another format" in fails(tmp_path / "home", 2, *words)
    words = (*words, "--format", "compressed-tensors", "--type", "int8")
    assert f"{option} is of a GGUF file" in fails(tmp_path / "home", 2, *words)


def test_several_types_are_written_into_a_folder(toys: Toys, tmp_path: Path) -> None:
    """Types without the library; matrices of rows of 16 are F16 beside Q8_0, and are counted."""
    out = tmp_path / "out"
    words = ("export", str(toys.base), "--format", "gguf", "--type", "F16,Q8_0", "--out", str(out))
    done = succeeds(tmp_path / "home", *words)
    name = toys.base.name
    assert {file.name for file in out.iterdir()} == {f"{name}-F16.gguf", f"{name}-Q8_0.gguf"}
    assert "F16:" in done.output
    assert f"{name}-Q8_0.gguf ({(out / f'{name}-Q8_0.gguf').stat().st_size:,} bytes" in done.output
