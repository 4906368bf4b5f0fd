"""Headers read by plain reads: the same verdict as the library's on every file, and nothing mapped."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open

from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders import safetensors_header

GOOD = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [0], "data_offsets": [24, 24]},
    "c": {"dtype": "U8", "shape": [], "data_offsets": [24, 25]},
}


def written(file: Path, header: bytes, body: int, length: int | None = None) -> Path:
    """Write a file with this header and so many bytes of tensors."""
    size = len(header) if length is None else length
    file.write_bytes(struct.pack("<Q", size) + header + bytes(body))
    return file


def library(file: Path) -> dict[str, tuple[str, tuple[int, ...]]] | None:
    """Return what the library reads, or None if it refuses the file."""
    try:
        with safe_open(file, framework="pt") as opened:  # pyright: ignore[reportCallIssue]
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {n: (s.get_dtype(), tuple(s.get_shape())) for n, s in slices.items()}
    except (SafetensorError, OSError):
        return None


def ours(file: Path) -> dict[str, tuple[str, tuple[int, ...]]] | None:
    try:
        return {name: (e.dtype, e.shape) for name, e in safetensors_header.read(file).items()}
    except SourceError:
        return None


def test_a_good_header_is_read_as_the_library_reads_it(tmp_path: Path) -> None:
    """Places are the file's: 8 bytes, the header, then the tensors."""
    text = json.dumps({"__metadata__": {"format": "pt"}, **GOOD}).encode() + b"   "
    file = written(tmp_path / "x", text, 25)
    assert ours(file) == library(file)
    assert safetensors_header.read(file)["c"] == safetensors_header.HeaderEntry(
        "U8", (), 8 + len(text) + 24, 8 + len(text) + 25
    )


SMALL = st.integers(-1, 4)
ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "U8", "F4", "X", [], {}, None, 1]),
        "shape": st.lists(SMALL, max_size=2) | st.sampled_from(["", "1", None, {}]),
        "data_offsets": st.lists(st.integers(-1, 20), min_size=1, max_size=3),
    },
    optional={"more": st.just(1)},
)
ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.integers(), st.lists(SMALL, max_size=2), st.dictionaries(st.text("ab"), SMALL)
)


def test_a_field_that_is_not_known_is_ignored_as_the_library_ignores_it(tmp_path: Path) -> None:
    header = {"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0], "more": 1}}
    file = written(tmp_path / "x", json.dumps(header).encode(), 0)
    assert ours(file) == library(file) == {"a": ("F32", (0,))}


@pytest.mark.slow
@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    st.dictionaries(st.sampled_from(["a", "b", "__metadata__"]), ENTRY | ODD, max_size=3),
    st.integers(0, 24),
)
def test_any_header_gets_the_verdict_of_the_library(
    tmp_path: Path, header: dict[str, Any], body: int
) -> None:
    """What one reader takes and the other refuses would be found out in the middle of a run."""
    file = written(tmp_path / "x", json.dumps(header).encode(), body)
    assert ours(file) == library(file)


@pytest.mark.parametrize(
    ("header", "body", "length"),
    [
        (b"", 0, 0),
        (b"{}", 0, 1 << 40),
        (b"{}", 0, 10),
        (b"[]", 0, None),
        (b"{}", 1, None),
        (b'{"a": ' * 50_000, 0, None),
        (b"\xff{}", 0, None),
        (json.dumps(GOOD).encode(), 24, None),
        (json.dumps(GOOD).encode(), 26, None),
    ],
)
def test_a_file_that_is_not_whole_is_refused_by_name(
    tmp_path: Path, header: bytes, body: int, length: int | None
) -> None:
    """Cut, too long, another format: said before any work, in bounded time."""
    file = written(tmp_path / "odd.safetensors", header, body, length)
    assert library(file) is None
    with pytest.raises(SourceError, match=r"odd\.safetensors is not a whole safetensors file"):
        safetensors_header.read(file)


def test_a_shape_of_a_million_axes_takes_no_time(tmp_path: Path) -> None:
    """The product of its sizes would be a number of millions of digits."""
    shape = [1 << 62] * 1_000_000
    header = {"a": {"dtype": "U8", "shape": shape, "data_offsets": [0, 0]}}
    with pytest.raises(SourceError, match="no whole number"):
        safetensors_header.read(written(tmp_path / "x", json.dumps(header).encode(), 0))
