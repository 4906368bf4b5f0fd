"""Hostile GGUF files end in a SourceError, in bounded memory and time."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_forge.runs.errors import ForgeError, SourceError
from agent_forge.weights.folders.gguf_source import conversion, header
from tests.integration.weights.formats import test_gguf_source_tokens as words

HUGE = (1 << 64) - 1
STRING, ARRAY, UINT32 = 8, 9, 4


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A whole file of a model of one layer."""
    names, merges = words.byte_level()
    file = tmp_path_factory.mktemp("good") / "m.gguf"
    return words.file_of(file, "gpt2", names, merges, pre="smollm").read_bytes()


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def head(tensors: int = 0, entries: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries)


def entry(key: str, type_: int, content: bytes) -> bytes:
    return text(key) + struct.pack("<I", type_) + content


def tensor(name: str, shape: tuple[int, ...], type_: int = 0, offset: int = 0) -> bytes:
    axes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + axes + struct.pack("<IQ", type_, offset)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "no GGUF file"),
    "another format": (b"GGML" + bytes(40), "no GGUF file"),
    "version 1": (head(version=1), "its version is 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 1, 1), "big-endian"),
    "many tensors": (head(tensors=HUGE) + bytes(99), "announces"),
    "many entries": (head(entries=HUGE) + bytes(99), "announces"),
    "a long key": (head(entries=1) + struct.pack("<Q", HUGE), "a key has"),
    "a long text": (head(entries=1) + entry("k", STRING, struct.pack("<Q", HUGE)), "has 18,446"),
    "a long array": (
        head(entries=1) + entry("k", ARRAY, struct.pack("<IQ", UINT32, HUGE)),
        "has 18,446",
    ),
    "an array that the file has no room for": (
        head(entries=1) + entry("k", ARRAY, struct.pack("<IQ", UINT32, 1_000_000)),
        "the file ends",
    ),
    "texts that the file has no room for": (
        head(entries=1) + entry("k", ARRAY, struct.pack("<IQ", STRING, 1_000_000)),
        "more than the file has room for",
    ),
    "nested arrays": (
        head(entries=1) + entry("k", ARRAY, struct.pack("<IQ", ARRAY, 1)),
        "array of arrays",
    ),
    "an unknown type of a value": (head(entries=1) + entry("k", 77, b""), "77 is no type"),
    "a key twice": (head(entries=2) + 2 * entry("k", UINT32, bytes(4)), "is there twice"),
    "a key that steers a terminal": (head(entries=1) + entry("\x1b[2J", UINT32, bytes(4)), "printable"),
    "a name like a path": (head(tensors=1) + tensor("../../etc/x", (1,)), "is named '../../etc/x'"),
    "a long name": (head(tensors=1) + tensor("x" * 64, (1,)), "a tensor's name has 64"),
    "many axes": (head(tensors=1) + tensor("x", (1,) * 9), "9 axes"),
    "a giant shape": (head(tensors=1) + tensor("x", (1 << 40, 1 << 40)), "has the shape"),
    "a shape that overflows to few": (
        head(tensors=1) + tensor("x", (1 << 32, 1 << 32)),
        "has the shape",
    ),
    "a shape of nothing": (head(tensors=1) + tensor("x", (0, 4)), "has the shape"),
    "a shape larger than the file": (head(tensors=1) + tensor("x", (1 << 20,)), "would end at byte"),
    "an offset beyond the file": (
        head(tensors=1) + tensor("x", (1,), offset=HUGE - 31),
        "would end at byte",
    ),
    "an odd offset": (head(tensors=1) + tensor("x", (1,), offset=1) + bytes(99), "is not aligned"),
    "an unknown type of a tensor": (head(tensors=1) + tensor("x", (32,), type_=4), "unknown type 4"),
    "a row that is no block": (head(tensors=1) + tensor("x", (31,), type_=8), "cut into blocks"),
    "a tensor twice": (head(tensors=2) + 2 * tensor("x", (1,)) + bytes(99), "is there twice"),
    "tensors of the same bytes": (
        head(tensors=2) + tensor("x", (1,)) + tensor("y", (1,)) + bytes(99),
        "begins within another",
    ),
    "an alignment of 3": (
        head(tensors=1, entries=1)
        + entry("general.alignment", UINT32, struct.pack("<I", 3))
        + tensor("x", (1,)),
        "its alignment is 3",
    ),
    "no tensors": (head(), "no tensors"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_forged_header_is_refused_before_memory_is_taken_for_it(tmp_path: Path, case: str) -> None:
    """Counts, lengths, shapes and offsets are compared with the file's size first."""
    content, why = HOSTILE[case]
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with pytest.raises(SourceError, match=why):
        header.read(file)


def test_a_file_that_ends_anywhere_is_refused(good: bytes, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    for end in [*range(400), *range(400, len(good), 997), len(good) - 33]:
        file.write_bytes(good[:end])
        with pytest.raises(SourceError):
            header.read(file)


def read(file: Path) -> None:
    """Read a file as a source is read, but for writing."""
    conversion.prepared(header.read(file))


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 1, exclude_max=True),
            st.sampled_from([b"\0", b"\xff", b"\x80", b"\xff" * 8, b"\xff\xff\xff\x7f", b"../"])
            | st.binary(min_size=1, max_size=9),
        ),
        min_size=1,
        max_size=3,
    )
)
@pytest.mark.slow
def test_any_changed_bytes_are_read_or_refused(
    good: bytes, tmp_path: Path, changes: list[tuple[float, bytes]]
) -> None:
    """Changes are of the header: those of the tensors are other numbers."""
    content = bytearray(good)
    most = good.index(b"token_embd.weight") + 60
    for share, piece in changes:
        at = int(share * most)
        content[at : at + len(piece)] = piece
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with contextlib.suppress(ForgeError):
        read(file)


@pytest.mark.parametrize(
    ("key", "change", "why"),
    [
        ("llama.block_count", lambda w: w.add_block_count(1_000_000), "announces 1,000,000 blocks"),
        ("llama.embedding_length", lambda w: w.add_embedding_length(1 << 30), "hidden_size"),
        ("llama.attention.head_count", lambda w: w.add_head_count(0), "no width"),
        ("llama.context_length", lambda w: w.add_context_length(1 << 31), "cannot be"),
        ("llama.feed_forward_length", lambda w: w.add_feed_forward_length(64), "is expected"),
    ],
)
def test_numbers_that_do_not_fit_the_tensors_are_refused(
    good: bytes, tmp_path: Path, key: str, change: Callable[[gguf.GGUFWriter], None], why: str
) -> None:
    """Before a model is built for them."""
    content, at = bytearray(good), good.index(key.encode()) + len(key)
    writer = gguf.GGUFWriter(tmp_path / "x", "llama")
    change(writer)
    value = writer.kv_data[0][key].value
    content[at : at + 8] = struct.pack("<II", UINT32, value)
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(SourceError, match=why):
        read(tmp_path / "m.gguf")


def test_numbers_that_are_not_finite_are_refused(good: bytes, tmp_path: Path) -> None:
    """And nothing is left of the folder that was begun."""
    content = bytearray(good)
    content[-8:] = np.array([np.nan, np.inf], np.float32).tobytes()
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ForgeError, match="NaN or Inf"):
        conversion.folder(tmp_path / "m.gguf", tmp_path / "cache", "x")
    assert not [place for place in (tmp_path / "cache").iterdir() if place.is_dir()]


def test_hostile_files_take_little_memory(tmp_path: Path) -> None:
    """All of them in a process that may have no more than 1 GiB beside what it begins with."""
    for number, (content, _) in enumerate(HOSTILE.values()):
        (tmp_path / f"{number}.gguf").write_bytes(content)
    program = (
        "import resource, sys; from pathlib import Path\n"
        "from agent_forge.runs.errors import SourceError\n"
        "from agent_forge.weights.folders.gguf_source import header\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))\n"
        "for file in Path(sys.argv[1]).iterdir():\n"
        "    try: header.read(file)\n"
        "    except SourceError: continue\n"
        "    raise SystemExit(file.name)\n"
    )
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=root, check=False)
    assert done.returncode == 0
