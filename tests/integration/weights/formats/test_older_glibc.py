"""Copies of libraries for an older glibc: which bytes change, and that the copy loads and computes."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from agent_forge.weights.formats import libllama


def package() -> Path:
    spec = find_spec(libllama.PACKAGE)
    if spec is None or spec.origin is None or sys.platform != "linux":
        pytest.skip("llama-cpp-py-sync is not installed")
    return Path(spec.origin).parent


def test_a_copy_loads_in_a_process_of_its_own(tmp_path: Path) -> None:
    """On any glibc: on a new one the plain names are there, too."""
    libllama.copy(package(), tmp_path)
    code = f"import ctypes; ctypes.CDLL({str(tmp_path / 'libllama.so')!r}).llama_max_devices()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_symbols_versions_and_needs_change(tmp_path: Path) -> None:
    """Three numbers a function at most, and a flag a library."""
    file = package() / "libllama.so"
    before, after = file.read_bytes(), bytearray(file.read_bytes())
    libllama.rebind(after)
    assert len(after) == len(before)
    changed = sum(one != other for one, other in zip(before, after, strict=True))
    names = before.count(libllama.PREFIX)
    assert 0 < changed <= 6 * names + 2
    assert before.count(b"GLIBC_2.38\0") == after.count(b"GLIBC_2.38\0"), "names stay"
    again = bytearray(after)
    libllama.rebind(again)
    assert again == after


def test_a_library_that_needs_nothing_new_stays_as_it_is() -> None:
    libraries = [*Path("/lib/x86_64-linux-gnu").glob("libz.so.1"), Path(sys.executable).resolve()]
    for file in libraries:
        data = file.read_bytes()
        if data[:4] == b"\x7fELF" and libllama.VERSION not in data:
            changed = bytearray(data)
            libllama.rebind(changed)
            assert changed == data


@pytest.mark.parametrize("data", [b"", b"\x7fELF\x01\x01" + bytes(64), b"MZ" + bytes(64)])
def test_what_is_no_library_of_64_bits_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no ELF file of 64 bits"):
        libllama.rebind(bytearray(data))
