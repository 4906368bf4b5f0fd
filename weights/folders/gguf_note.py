"""Note in a folder that was converted from a GGUF file: the file's name, and its type of weights."""

from __future__ import annotations

from pathlib import Path

from agent_forge.runs.errors import SourceError
from agent_forge.runs.system import bounded_files

#: The note's file, and its bytes at most.
NOTE = "gguf.json"
#: The note in a folder of BASE+ADAPTER, with the same facts about its base.
ADAPTED = "adapted.json"
MOST_BYTES = 1 << 16


def facts(folder: Path) -> dict[str, str]:
    """Return {"name": GGUF file, "rounded": type, if it had codes} of a converted folder; else {}.

    A folder of BASE+ADAPTER has the facts of its base.
    """
    for file in (NOTE, ADAPTED):
        if (folder / file).is_file():
            return _read(folder / file)
    return {}


def _read(file: Path) -> dict[str, str]:
    try:
        note = bounded_files.read_object(file, MOST_BYTES)
    except SourceError:
        return {}
    words = {key: note.get(key) for key in ("name", "rounded")}
    return {
        key: word
        for key, word in words.items()
        if isinstance(word, str) and word.isprintable() and len(word) < 300
    }


def warnings(folder: Path) -> tuple[str, ...]:
    """Return a warning that weights were rounded if a folder's GGUF file had codes; () otherwise."""
    note = facts(folder)
    if len(note) < 2:
        return ()
    bits = _bits(note["rounded"])
    return (f"{note['name']}: weights were rounded to {bits} before they came here.",)


def _bits(type_: str) -> str:
    """Return the bits of a type of llama.cpp in words: "4 bits (Q4_1)"."""
    digit = next((letter for letter in type_ if letter.isdigit()), "")
    what = "three values" if type_.startswith("TQ") else f"{digit} bit{'s' if digit != '1' else ''}"
    return f"{what} ({type_})"
