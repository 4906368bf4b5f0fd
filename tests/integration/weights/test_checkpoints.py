"""Model folders: what is refused and with which words, digests, and writing that is whole or not."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from agent_forge.runs.errors import SourceError, UnavailableError
from agent_forge.weights.folders import checkpoint
from agent_forge.weights.folders.checkpoint import digest, publish, read_folder, untied, write_weights

WEIGHTS = {
    "lm_head.weight": torch.arange(12.0).view(4, 3),
    "model.embed_tokens.weight": torch.arange(12.0).view(4, 3) / 7,
    "model.norm.weight": torch.ones(3, dtype=torch.bfloat16),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a config and one safetensors file."""
    found = tmp_path / "model"
    found.mkdir()
    (found / "config.json").write_text('{"model_type": "qwen2"}', "utf-8")
    write_weights(found, WEIGHTS, checkpoint.SHARD_BYTES)
    return found


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Equal names, dtypes and values."""
    return list(a) == list(b) and all(a[n].dtype == b[n].dtype and torch.equal(a[n], b[n]) for n in a)


# ---- reading -------------------------------------------------------------------------------


def test_a_folder_is_opened_and_read(folder: Path):
    """Headers first, tensors when asked; in order of name, with the bits that were written."""
    opened = read_folder(folder)
    assert opened.config == {"model_type": "qwen2"}
    assert opened.shapes["model.norm.weight"] == ("BF16", (3,))
    assert opened.parameters == 12 + 12 + 3
    assert not opened.tied
    assert same(opened.tensors(), WEIGHTS)


def test_a_missing_folder_is_named(tmp_path: Path):
    """With what to do."""
    with pytest.raises(SourceError, match=r"gone does not exist\. Check the path"):
        read_folder(tmp_path / "gone")


def test_a_folder_without_a_config_is_no_model(folder: Path):
    """And a file is no folder."""
    (folder / "config.json").unlink()
    with pytest.raises(SourceError, match=r"has no config\.json"):
        read_folder(folder)
    with pytest.raises(SourceError, match=r"has no config\.json"):
        read_folder(folder / "model.safetensors")


@pytest.mark.parametrize("content", [b'{"model_type": ', b"\xff\xfe\x00"])
def test_a_broken_config_is_named(folder: Path, content: bytes):
    """Half a download, or no text at all."""
    (folder / "config.json").write_bytes(content)
    with pytest.raises(SourceError, match=r"config\.json cannot be read as JSON"):
        read_folder(folder)


def test_a_config_that_is_no_object_is_named(folder: Path):
    """A list is JSON and still no config."""
    (folder / "config.json").write_text("[]", "utf-8")
    with pytest.raises(SourceError, match=r"config\.json"):
        read_folder(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth"])
def test_pickled_weights_are_refused_with_the_command_that_converts_them(folder: Path, name: str):
    """Loading them could run anything; the user decides where."""
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(SourceError) as refused:
        read_folder(folder)
    message = str(refused.value)
    assert name in message
    assert "can run code" in message
    assert f"from_pretrained({str(folder)!r}).save_pretrained({str(folder) + '-safe'!r})" in message


def test_pickled_weights_beside_safetensors_are_ignored(folder: Path):
    """Many repositories hold both."""
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    assert same(read_folder(folder).tensors(), WEIGHTS)


@pytest.mark.parametrize("length", [0, 4, 60, -1])
def test_a_truncated_file_is_named(folder: Path, length: int):
    """Nothing, half a length, half a header, or one byte short: a download that was cut off."""
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(SourceError, match=r"model\.safetensors is not a whole safetensors file"):
        read_folder(folder)


def test_a_folder_without_weights_is_named(folder: Path):
    """Neither the single file nor an index; an empty file has no tensors."""
    file = folder / "model.safetensors"
    file.unlink()
    with pytest.raises(SourceError, match=r"has no model\.safetensors and no .*index"):
        read_folder(folder)
    save_file({}, file)
    with pytest.raises(SourceError, match="holds no tensors"):
        read_folder(folder)


# ---- shards --------------------------------------------------------------------------------


@pytest.fixture
def sharded(folder: Path) -> Path:
    """The same model in shards of at most 50 bytes: 48, 48 and 6."""
    (folder / "model.safetensors").unlink()
    write_weights(folder, WEIGHTS, 50)
    return folder


def test_shards_hold_what_the_index_says(sharded: Path):
    """Names as the ecosystem has them, total size in bytes: 48 + 48 + 6 = 102."""
    index = json.loads((sharded / checkpoint.INDEX).read_text("utf-8"))
    names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    assert index["metadata"] == {"total_size": 102}
    assert index["weight_map"] == dict(zip(WEIGHTS, names, strict=True))
    assert sorted(p.name for p in sharded.glob("*.safetensors")) == names
    opened = read_folder(sharded)
    assert {n: f.name for n, f in opened.files.items()} == index["weight_map"]
    assert same(opened.tensors(), WEIGHTS)


def test_tensors_share_a_shard_while_they_fit(folder: Path):
    """48 + 48 fit into 96 exactly; a tensor larger than the limit has a shard of its own."""
    write_weights(folder, WEIGHTS, 96)
    index = json.loads((folder / checkpoint.INDEX).read_text("utf-8"))
    assert list(index["weight_map"].values()) == [
        "model-00001-of-00002.safetensors",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    (folder / checkpoint.SINGLE).unlink()
    write_weights(folder, WEIGHTS, 1)
    assert len(set(read_folder(folder).files.values())) == 3


def test_a_missing_shard_is_named(sharded: Path):
    """The most frequent half-download of all."""
    (sharded / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(SourceError, match=r"lacks the shards model-00002-of-00003\.safetensors"):
        read_folder(sharded)


def test_shards_without_their_index_are_not_guessed(sharded: Path):
    """Which shards belong together is the index's to say."""
    (sharded / checkpoint.INDEX).unlink()
    with pytest.raises(SourceError, match="and no model"):
        read_folder(sharded)


@pytest.mark.parametrize("content", ["{", "{}", '{"weight_map": []}', "[]", '{"weight_map": {"a": 1}}'])
def test_a_broken_index_is_named(sharded: Path, content: str):
    """Cut off, empty, or of another shape."""
    (sharded / checkpoint.INDEX).write_text(content, "utf-8")
    with pytest.raises(SourceError, match="is not a safetensors index"):
        read_folder(sharded)


def test_a_tensor_that_only_the_index_has_is_named(sharded: Path):
    """An index of another download: better refused than a model that lacks a tensor later."""
    index = json.loads((sharded / checkpoint.INDEX).read_text("utf-8"))
    index["weight_map"]["model.extra.weight"] = "model-00001-of-00003.safetensors"
    (sharded / checkpoint.INDEX).write_text(json.dumps(index), "utf-8")
    with pytest.raises(SourceError, match=r"model\.extra\.weight"):
        read_folder(sharded)


def test_an_index_cannot_lead_out_of_its_folder(sharded: Path):
    """Only a file's name is taken from it."""
    index = {"weight_map": {"a": "../../etc/passwd"}}
    (sharded / checkpoint.INDEX).write_text(json.dumps(index), "utf-8")
    with pytest.raises(SourceError, match="lacks the shards passwd"):
        read_folder(sharded)


# ---- digests -------------------------------------------------------------------------------


def test_a_digest_does_not_depend_on_order_or_layout(sharded: Path):
    """Shards, order and strides are how weights are kept, not what they are."""
    wanted = digest(WEIGHTS)
    assert digest(dict(reversed(WEIGHTS.items()))) == wanted
    assert digest(read_folder(sharded).tensors()) == wanted
    turned = {**WEIGHTS, "lm_head.weight": WEIGHTS["lm_head.weight"].t().contiguous().t()}
    assert not turned["lm_head.weight"].is_contiguous()
    assert digest(turned) == wanted


def test_a_digest_changes_with_any_bit_name_shape_or_dtype():
    """It pins sources and proves rebuilt champions."""
    tensor = WEIGHTS["model.embed_tokens.weight"]
    flipped = tensor.clone()
    flipped.view(torch.int32)[1, 1] ^= 1
    others = [
        {**WEIGHTS, "model.embed_tokens.weight": flipped},
        {**WEIGHTS, "model.embed_tokens.weight": tensor.view(3, 4)},
        {**WEIGHTS, "model.embed_tokens.weight": tensor.view(torch.int32)},
        {("model.x" if n == "model.norm.weight" else n): t for n, t in WEIGHTS.items()},
        {n: t for n, t in WEIGHTS.items() if n != "model.norm.weight"},
        {**WEIGHTS, "empty": torch.zeros(0)},
    ]
    found = {digest(weights) for weights in (WEIGHTS, *others)}
    assert len(found) == 1 + len(others)


def test_scalars_and_empty_tensors_have_digests():
    """Some architectures keep a scalar; −0.0 and 0.0 are other bits."""
    assert digest({"a": torch.tensor(0.0)}) != digest({"a": torch.tensor(-0.0)})
    assert digest({"a": torch.zeros(0)}) != digest({"a": torch.zeros(0, 2)})


# ---- untying -------------------------------------------------------------------------------


def test_untying_gives_the_head_a_copy_of_the_embedding():
    """A copy: safetensors refuses shared memory, and the two may part ways."""
    tied = {n: t for n, t in WEIGHTS.items() if n != "lm_head.weight"}
    found = untied(tied)
    embedding = tied["model.embed_tokens.weight"]
    assert torch.equal(found["lm_head.weight"], embedding)
    assert found["lm_head.weight"].data_ptr() != embedding.data_ptr()
    assert list(found) == sorted(found)
    assert same(untied(WEIGHTS), WEIGHTS)


def test_a_model_without_a_known_embedding_cannot_be_untied():
    """Better an error than a head of noise."""
    with pytest.raises(SourceError, match="cannot be untied"):
        untied({"model.norm.weight": torch.ones(3)})


# ---- publishing ----------------------------------------------------------------------------


def note(name: str) -> Callable[[Path], None]:
    """Fill a folder with one text file that holds its own name."""

    def fill(folder: Path) -> None:
        (folder / f"{name}.txt").write_text(name, "utf-8")

    return fill


@pytest.fixture
def umask() -> Iterator[int]:
    """027: the group may read, others nothing."""
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def test_modes_follow_the_umask(tmp_path: Path, umask: int):
    """Safetensors writes 0600, and then a colleague cannot read the champion."""

    def fill(folder: Path) -> None:
        write_weights(folder, WEIGHTS, checkpoint.SHARD_BYTES)
        (folder / "sub").mkdir()
        (folder / "sub" / "note.txt").write_text("x", "utf-8")

    publish(tmp_path / "out", fill)
    for name in ("model.safetensors", "sub/note.txt"):
        mode = stat.S_IMODE((tmp_path / "out" / name).stat().st_mode)
        assert mode == 0o666 & ~umask


def test_publishing_makes_parents_and_replaces_what_was_there(tmp_path: Path):
    """Nothing of the old folder stays."""
    target = tmp_path / "deep" / "out"
    publish(target, note("old"))
    publish(target, note("new"))
    assert [p.name for p in target.iterdir()] == ["new.txt"]
    assert [p.name for p in target.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_nothing_half_written_is_left(tmp_path: Path, error: BaseException):
    """Existing content stays whole; no hidden folder remains; the error is the caller's own."""
    target = tmp_path / "out"
    publish(target, note("old"))

    def fill(folder: Path) -> None:
        (folder / "half.txt").write_text("half", "utf-8")
        raise error

    with pytest.raises(type(error)):
        publish(target, fill)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (target / "old.txt").read_text("utf-8") == "old"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path):
    """A full disk, or a file where a folder should be: exit code 3, the run is intact."""

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(UnavailableError, match=r"No space left.*can be resumed"):
        publish(tmp_path / "out", full)
    (tmp_path / "file").write_text("x", "utf-8")
    with pytest.raises(UnavailableError, match="cannot be written"):
        publish(tmp_path / "file" / "out", lambda _: None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]
