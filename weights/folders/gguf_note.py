"""Note in a folder that was made of a GGUF file: which file, and how its weights were rounded."""

from __future__ import annotations

from pathlib import Path

from runs.errors import SourceError
from runs.system import bounded_files

#: The note's file, and its bytes at most.
NOTE = "gguf.json"
MOST_BYTES = 1 << 16


def warnings(folder: Path) -> tuple[str, ...]:
    """Return what users are to know of a folder that was made of a GGUF file; () for any other."""
    if not (folder / NOTE).is_file():
        return ()
    try:
        note = bounded_files.read_object(folder / NOTE, MOST_BYTES)
    except SourceError:
        return ()
    name, rounded = note.get("name"), note.get("rounded")
    words = (name, rounded)
    if not all(isinstance(word, str) and word.isprintable() and len(word) < 300 for word in words):
        return ()
    return (f"{name}: weights were rounded to {_bits(str(rounded))} before they came here.",)


def _bits(type_: str) -> str:
    """Return in words what a type of llama.cpp, as Q4_1, leaves of a weight."""
    digit = next((letter for letter in type_ if letter.isdigit()), "")
    what = "three values" if type_.startswith("TQ") else f"{digit} bit{'s' if digit != '1' else ''}"
    return f"{what} ({type_})"
