"""Files of coded weights: written, read, decompressed, loaded, and refused."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import blake3
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.runs.errors import (
    ConfigError,
    ForgeError,
    NotFiniteError,
    SourceError,
    TamperedError,
    UnavailableError,
    UnknownAlgorithmError,
)
from agent_forge.runs.system import bounded_files
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import INDEX, digest, open_checkpoint
from agent_forge.weights.formats import coded_file, decompression
from agent_forge.weights.formats.coded_file import CodedFile, CodedTensor
from agent_forge.weights.formats.decompression import decompress, described, load_model
from testing.models import coded_files
from testing.models.toys import Toys

IDS = torch.arange(1, 41)[None]


@pytest.fixture(scope="module")
def file(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toys' base, its matrices by all codecs in turn."""
    place = tmp_path_factory.mktemp("coded") / "model.forge"
    coded_files.write(toys.base, place, recipe={"made": "by hand"})
    return place


def altered(file: Path, **changes: Any) -> bytes:
    """Return the file's bytes with another header, whose digest is right: what a forger can do."""
    raw = file.read_bytes()
    size = int.from_bytes(raw[12:20], "little")
    told = json.loads(zlib.decompress(raw[52 : 52 + size])) | changes
    said = zlib.compress(json.dumps(told).encode())
    head = raw[:12] + len(said).to_bytes(8, "little") + blake3.blake3(said).digest()
    return head + said + raw[52 + size :]


def told(file: Path) -> dict[str, Any]:
    return CodedFile(file).header.model_dump(mode="json")


def read_all(file: Path) -> dict[str, torch.Tensor]:
    opened = CodedFile(file)
    opened.companions()
    return dict(opened.tensors())


def test_a_plain_model_comes_back_bit_for_bit(toys: Toys, tmp_path: Path) -> None:
    """Weights, config and companions: the folder has the digest that the file was written with."""
    written = coded_files.write(toys.base, tmp_path / "plain", [("plain@1", {})])
    decompress(tmp_path / "plain", tmp_path / "model")
    before, after = open_checkpoint(toys.base), open_checkpoint(tmp_path / "model")
    assert digest(after.tensors()) == digest(before.tensors()) == written.digest
    assert after.config == companions.cleaned(before.config)
    assert companions.contents(tmp_path / "model") == companions.contents(toys.base)


def test_two_files_of_one_model_have_the_same_bytes(toys: Toys, file: Path, tmp_path: Path) -> None:
    """So a file's digest names it."""
    coded_files.write(toys.base, tmp_path / "again", recipe={"made": "by hand"})
    assert (tmp_path / "again").read_bytes() == file.read_bytes()


def test_bytes_that_are_reported_are_those_of_the_file(toys: Toys, file: Path) -> None:
    """A file is its parts, its companions and a header: nothing else takes room."""
    written = coded_files.write(toys.base, file.with_name("other"))
    payload = sum(
        part.numel() * part.element_size()
        for tensor in coded_files.coded(toys.base)
        for part in tensor.coded.parts.values()
    )
    raw = file.with_name("other").read_bytes()
    assert written.bytes == len(raw)
    header = 52 + int.from_bytes(raw[12:20], "little")
    assert written.bytes == header + payload + written.companions
    assert sum(s["bytes"] for s in described(CodedFile(file))["codecs"].values()) == payload


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tensors_decode_to_their_own_dtype(toys: Toys, tmp_path: Path, dtype: torch.dtype) -> None:
    """A 16-bit model stays one, and transformers computes the same from file and folder."""
    source = AutoModelForCausalLM.from_pretrained(toys.base, dtype=dtype)
    source.save_pretrained(tmp_path / "source")
    coded_files.write(tmp_path / "source", tmp_path / "coded")
    decompress(tmp_path / "coded", tmp_path / "model")
    from_folder = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype="auto").eval()
    from_file = load_model(tmp_path / "coded")
    assert from_file.dtype == from_folder.dtype == dtype
    assert not from_file.training
    with torch.no_grad():
        assert torch.equal(from_file(IDS).logits, from_folder(IDS).logits)
    assert from_file.generation_config.to_dict() == from_folder.generation_config.to_dict()


def test_a_model_whose_head_is_its_own_comes_back(toys: Toys, tmp_path: Path) -> None:
    """Tied or not, the config says; both heads are loaded."""
    model: Any = AutoModelForCausalLM.from_pretrained(toys.base, tie_word_embeddings=False)
    torch.nn.init.normal_(model.lm_head.weight)
    model.save_pretrained(tmp_path / "untied")
    coded_files.write(tmp_path / "untied", tmp_path / "coded", [("plain@1", {})])
    found = load_model(tmp_path / "coded", torch.float64)
    assert torch.equal(found.lm_head.weight.float(), model.lm_head.weight)
    assert found.lm_head.weight.dtype == torch.float64


def test_the_tokenizer_is_in_the_file(toys: Toys, file: Path) -> None:
    """A model that cannot read text is half a model."""
    text = "12 + 30 = 42"
    assert decompression.load_tokenizer(file)(text) == load_tokenizer(str(toys.base))(text)


def test_shards_are_written_with_an_index(toys: Toys, file: Path, tmp_path: Path) -> None:
    """Large models have several files; the weights are the same."""
    decompress(file, tmp_path / "one")
    decompress(file, tmp_path / "many", shard_bytes=20_000)
    assert (tmp_path / "many" / INDEX).is_file()
    found = [digest(open_checkpoint(tmp_path / name).tensors()) for name in ("one", "many")]
    assert found[0] == found[1] == CodedFile(file).header.digest


def test_memory_is_that_of_a_tensor(tmp_path: Path) -> None:
    """Twenty tensors of 1 MB are written and read with far less than all of them in memory."""

    def tensors():
        for i in range(20):
            values = np.random.default_rng(i).standard_normal((512, 512)).astype(np.float32)
            yield coded_file.code(f"t{i:02}", torch.from_numpy(values), "plain@1", {})

    tracemalloc.start()
    try:
        coded_file.write(tmp_path / "large", tensors(), {})
        for _, tensor in CodedFile(tmp_path / "large").tensors():
            assert tensor.shape == (512, 512)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_cut_file_is_refused(file: Path, tmp_path: Path, data: st.DataObject) -> None:
    """At any byte, with that byte or what is missing in the error."""
    raw = file.read_bytes()
    cut = tmp_path / "cut"
    size = data.draw(st.integers(0, len(raw) - 1))
    cut.write_bytes(raw[:size])
    with pytest.raises((TamperedError, SourceError), match=r"cut|no file of coded weights"):
        CodedFile(cut)


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_flipped_bit_is_refused(file: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Any bit of the file: in front, in the header, in a tensor, in a companion."""
    raw = bytearray(file.read_bytes())
    head = 52 + int.from_bytes(raw[12:20], "little")
    place = data.draw(st.integers(0, head - 1) | st.integers(0, len(raw) - 1))
    raw[place] ^= 1 << data.draw(st.integers(0, 7))
    (tmp_path / "flipped").write_bytes(raw)
    with pytest.raises((TamperedError, SourceError)):
        read_all(tmp_path / "flipped")


def test_errors_name_the_tensor_and_its_bytes(file: Path, tmp_path: Path) -> None:
    """A cut download and a damaged disk are told apart, and where."""
    opened = CodedFile(file)
    entry, place = list(opened.places.values())[3]
    raw = bytearray(file.read_bytes())
    bad = tmp_path / "bad"
    bad.write_bytes(raw[: place + 1])
    with pytest.raises(TamperedError, match=f"cut at byte {place + 1:,}, within tensor '{entry.name}'"):
        CodedFile(bad)
    raw[place] ^= 1
    bad.write_bytes(raw)
    with pytest.raises(TamperedError, match=f"'{entry.name}', bytes {place:,} to .* was altered"):
        read_all(bad)
    bad.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(TamperedError, match="1 bytes behind its end"):
        CodedFile(bad)
    with pytest.raises(TamperedError, match="altered"):
        decompress_altered(file, tmp_path)
    assert not (tmp_path / "model").exists()


def decompress_altered(file: Path, folder: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[CodedFile(file).places["model.norm.weight"][1]] ^= 1
    (folder / "altered").write_bytes(raw)
    decompress(folder / "altered", folder / "model")


def test_other_files_and_versions_are_refused(file: Path, tmp_path: Path) -> None:
    """Each with its own words."""
    raw = file.read_bytes()
    bad = tmp_path / "bad"
    for content, said in (
        (b"GGUF" + raw[4:], "no file of coded weights"),
        (raw[:8] + (2).to_bytes(4, "little") + raw[12:], "version 2 .* reads version 1"),
        (raw[:12] + (1 << 40).to_bytes(8, "little") + raw[20:], "a header of"),
    ):
        bad.write_bytes(content)
        with pytest.raises(SourceError, match=said):
            CodedFile(bad)
    for place in (tmp_path / "missing", tmp_path):
        with pytest.raises(SourceError, match="cannot be read"):
            CodedFile(place)


def test_forged_headers_are_refused(file: Path, tmp_path: Path) -> None:
    """With a right digest: nothing in a header is believed before it is checked."""
    bad = tmp_path / "bad"
    tensors = told(file)["tensors"]
    first = tensors[0]

    def with_first(**changes: Any) -> dict[str, Any]:
        return {"tensors": [first | changes, *tensors[1:]]}

    part = first["parts"][0]
    for changes, said in (
        (with_first(shape=[1 << 20, 1 << 20]), "shape"),
        (with_first(shape=[1 << 15, 1 << 15]), "only .* bytes"),
        (with_first(shape=[0, 4]), "shape"),
        (with_first(shape=["a"]), "shape"),
        (with_first(dtype="I8"), "dtype"),
        (with_first(name="z"), "order"),
        (with_first(name="a\nb"), "name"),
        (with_first(parts=[part, *first["parts"]]), "twice"),
        (with_first(parts=[part | {"dtype": "F4"}]), "dtype"),
        (with_first(parts=[part | {"shape": [-1]}]), "shape"),
        (with_first(parts=[part | {"shape": [1 << 40]}]), "cut"),
        (with_first(typo=1), "typo"),
        ({"tensors": []}, "tensors"),
        ({"tensors": tensors[1:]}, "behind its end"),
        ({"config": {"hidden_size": 10**9}}, "hidden_size"),
        ({"companions": [{"name": "../x", "bytes": 0, "digest": "0" * 32}]}, "companions"),
        ({"digest": "0" * 64}, "forged"),
        (with_first(codec="uniform@9"), "uniform@9"),
        (with_first(header={}), "header"),
        (with_first(shape=[first["shape"][1], first["shape"][0] + 1]), "decoded|side"),
    ):
        bad.write_bytes(altered(file, **changes))
        with pytest.raises(ForgeError, match=said):
            read_all(bad)


@pytest.mark.parametrize(
    ("before", "piece", "times", "words"),
    [
        ('{"config": {"x": [1.5', ",1.5", 8_000_001, "holds more than 8,000,000 values"),
        ('{"config": {"x": "', "a" * 1024, 1 << 16, "it has more than 67,108,864 bytes"),
        ('{"config": ', " " * 1024, 1 << 16, "it has more than 67,108,864 bytes"),
        ('{"config": ', "[" * 1024, 1 << 12, "more than 4,000,000 lists and objects"),
    ],
    ids=["numbers", "a long text", "blanks", "levels"],
)
def test_a_header_that_unpacks_to_too_much_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, piece: str, times: int, words: str
) -> None:
    """A file of under 2 MB took gigabytes, and minutes of a processor."""
    text = zlib.compress((before + piece * times).encode(), 1)
    sizes = coded_file.VERSION.to_bytes(4, "little") + len(text).to_bytes(8, "little")
    bad = tmp_path / "bad"
    bad.write_bytes(coded_file.MAGIC + sizes + blake3.blake3(text).digest() + text)
    monkeypatch.setattr("agent_forge.runs.system.bounded_files.json", None)
    with pytest.raises(SourceError, match=words):
        CodedFile(bad)


def test_a_header_that_would_not_be_read_again_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coded_file, "MOST_BYTES", 1000)
    weights = coded_file.code("one", torch.ones(2, 2), "rtn@1", {})
    with pytest.raises(SourceError, match="more than the 1,000 of a header"):
        coded_file.write(tmp_path / "bad", [weights], {"long": "a" * 1000})
    assert list(tmp_path.iterdir()) == []


def test_a_companion_that_unpacks_to_too_much_is_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is packed: 64 KiB of a file stand for 64 MiB of zeros."""
    monkeypatch.setattr(bounded_files, "MOST_BYTES", 100)
    with pytest.raises(SourceError, match=r"model\.forge: \S+\.json is cut, or too large"):
        decompress(file, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_forged_number_is_refused_or_decodes(
    file: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """A decoder that is told nonsense says so: no other error, no endless work."""
    tensors = told(file)["tensors"]
    entry = data.draw(st.sampled_from(tensors))
    value = data.draw(st.integers(-5, 5) | st.integers(-(2**40), 2**40) | st.none() | st.text())
    field = data.draw(st.sampled_from(["shape", "header", "part", "codec"]))
    if field == "shape":
        entry["shape"][data.draw(st.integers(0, len(entry["shape"]) - 1))] = value
    elif field == "header":
        entry["header"][data.draw(st.sampled_from([*entry["header"], "low", "group"]))] = value
    elif field == "part":
        part = data.draw(st.sampled_from(entry["parts"]))
        part["shape"] = [value] if data.draw(st.booleans()) else [*part["shape"], 1]
    else:
        entry["codec"] = data.draw(st.sampled_from(["rtn@1", "uniform@1", "ternary@1", "plain@1"]))
    (tmp_path / "forged").write_bytes(altered(file, tensors=tensors))
    with contextlib.suppress(ForgeError):
        read_all(tmp_path / "forged")


def test_what_cannot_be_written_is_said(toys: Toys, tmp_path: Path) -> None:
    """Whole numbers, NaN, tensors out of order or of nothing; nothing stays of the file."""
    for tensor, error in (
        (torch.ones(2, 2, dtype=torch.int64), ConfigError),
        (torch.ones(0, 2), ConfigError),
        (torch.tensor([[float("nan")]]), NotFiniteError),
    ):
        with pytest.raises(error, match="tensor head"):
            coded_file.code("head", tensor, "plain@1", {})
    one = coded_file.code("one", torch.ones(2, 2), "rtn@1", {})
    two = replace(one, name="two")
    for tensors in ([two, one], [one, one], []):
        with pytest.raises(ConfigError):
            coded_file.write(tmp_path / "bad", tensors, {})
    broken = replace(one, coded=replace(one.coded, header={}))
    with pytest.raises(SourceError, match="tensor one cannot be decoded"):
        coded_file.write(tmp_path / "bad", [broken], {})
    with pytest.raises(UnknownAlgorithmError):
        coded_file.write(tmp_path / "bad", [replace(one, codec="rtn@7")], {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG])
def test_a_full_disk_leaves_what_was_there(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The file appears whole or not at all; a limit on a file's size is a full disk, too."""
    place = tmp_path / "model.forge"
    place.write_bytes(b"before")

    def full(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(UnavailableError, match=os.strerror(number)):
        coded_files.write(toys.base, place)
    assert place.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [place]


def test_a_file_that_is_no_model_of_its_config_is_not_loaded(toys: Toys, tmp_path: Path) -> None:
    """A tensor too many, one too few, and an architecture that transformers does not have."""
    tensors = list(coded_files.coded(toys.base))
    config = open_checkpoint(toys.base).config
    more = [*tensors, CodedTensor("z", "F32", (1, 1), "plain@1", tensors[-1].coded)]
    more[-1] = coded_file.code("z", torch.ones(1, 1), "plain@1", {})
    for chosen, told_, said in (
        (more, config, "'z' has no place"),
        (tensors[:-1], config, f"lacks the tensor '{tensors[-1].name}'"),
        (tensors, {**config, "model_type": "nothing"}, "has no class for"),
    ):
        coded_file.write(tmp_path / "bad", chosen, told_)
        with pytest.raises(SourceError, match=said):
            load_model(tmp_path / "bad")
    with pytest.raises(SourceError, match="tokenizer"):
        decompression.load_tokenizer(tmp_path / "bad")


def test_keys_that_name_code_do_not_leave_the_file(toys: Toys, tmp_path: Path) -> None:
    """A config's `auto_map` would have loaders run a stranger's program."""
    config = {**open_checkpoint(toys.base).config, "auto_map": {"AutoModel": "evil.Model"}}
    coded_file.write(tmp_path / "coded", coded_files.coded(toys.base), config)
    decompress(tmp_path / "coded", tmp_path / "model")
    assert "auto_map" not in json.loads((tmp_path / "model" / "config.json").read_text())


def test_the_header_of_a_file_is_recorded(tmp_path: Path) -> None:
    """Version 1 for ever: the bytes of a small file, by its digest."""
    tensor = torch.arange(12.0).reshape(3, 4)
    coded_file.write(tmp_path / "a", [coded_file.code("w", tensor, "rtn@1", {"bits": 4})], {})
    raw = (tmp_path / "a").read_bytes()
    size = int.from_bytes(raw[12:20], "little")
    assert raw[:8] == coded_file.MAGIC
    said = json.loads(zlib.decompress(raw[52 : 52 + size]))
    assert said["tensors"][0]["parts"] == [
        {"dtype": "U8", "name": "codes", "shape": [6]},
        {"dtype": "F16", "name": "scale", "shape": [3, 1]},
    ]
    assert len(raw) == 52 + size + 6 + 6
