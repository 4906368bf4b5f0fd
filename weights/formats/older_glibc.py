"""Copies of shared libraries that load on a glibc older than 2.38 (Debian 12, Ubuntu 22.04).

A compiler beside glibc 2.38 binds strtol, sscanf and their like to `__isoc23_strtol`, …: the same
functions, which read binary numbers such as 0b11, too (C23). Older ones have the plain names only.
A copy is bound to those, and its need for that version of glibc (ELF's .gnu.version_r, LSB 5) becomes
weak.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

#: The version, and the beginning of the names that are new in it.
VERSION, PREFIX = b"GLIBC_2.38", b"__isoc23_"
#: Types of sections: symbols, versions of symbols, needed versions.
DYNSYM, VERSYM, VERNEED = 11, 0x6FFFFFFF, 0x6FFFFFFE
#: Version of a symbol that has none; flag of a needed version that may be missing.
GLOBAL, WEAK = 1, 2
#: Where a section is, its length, and the number of the section that it refers to.
Section = tuple[int, int, int]


def copy(folder: Path, target: Path) -> None:
    """Copy the libraries of a folder to another one, bound to the plain names.

    Raises ValueError for a file that is no ELF of 64 bits in little-endian order.
    """
    for file in sorted(folder.glob("*.so*")):
        data = bytearray(file.read_bytes())
        rebind(data)
        (target / file.name).write_bytes(data)
        shutil.copymode(file, target / file.name)


def rebind(data: bytearray) -> None:
    """Change a library in place. Raises ValueError as `copy` does."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no ELF file of 64 bits, little-endian")
    sections = _sections(data)
    if not {DYNSYM, VERSYM, VERNEED} <= sections.keys():
        return
    symbols, length, strings = sections[DYNSYM]
    versions, names = sections[VERSYM][0], _place(data, strings)
    for number in range(length // 24):
        at = symbols + 24 * number
        name, defined = struct.unpack_from("<I2xH", data, at)
        if not defined and data.startswith(PREFIX, names + name):
            struct.pack_into("<I", data, at, name + len(PREFIX))  # the end of a string is a string
            struct.pack_into("<H", data, versions + 2 * number, GLOBAL)
    for at, name in _needed(data, sections[VERNEED]):
        if name == VERSION:
            (flags,) = struct.unpack_from("<H", data, at + 4)
            struct.pack_into("<H", data, at + 4, flags | WEAK)


def _headers(data: bytearray) -> tuple[int, int, int]:
    """Return where section headers are, the length of one, and how many there are."""
    (begin,) = struct.unpack_from("<Q", data, 40)
    length, count = struct.unpack_from("<HH", data, 58)
    return begin, length, count


def _sections(data: bytearray) -> dict[int, Section]:
    """Return type → the section, of the types that a library has once."""
    begin, length, count = _headers(data)
    sections = {}
    for number in range(count):
        type_, place, size, link = struct.unpack_from("<4xI16xQQI", data, begin + length * number)
        sections[type_] = place, size, link
    return sections


def _place(data: bytearray, number: int) -> int:
    """Return where the section of a number is."""
    begin, length, _ = _headers(data)
    return struct.unpack_from("<Q", data, begin + length * number + 24)[0]


def _needed(data: bytearray, section: Section) -> Iterator[tuple[int, bytes]]:
    """Yield where each needed version is described, and its name."""
    at, _, link = section
    names, more = _place(data, link), True
    while more:
        count, first, step = struct.unpack_from("<2xH4xII", data, at)
        entry = at + first
        for _ in range(count):
            name, following = struct.unpack_from("<8xII", data, entry)
            yield entry, bytes(data[names + name : data.index(0, names + name)])
            entry += following
        at, more = at + step, step > 0
