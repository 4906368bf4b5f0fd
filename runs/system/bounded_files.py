"""Read files that other people made, in bounded time and memory.

A model folder comes from anywhere, so its JSON may be huge, nested without end, or a named pipe.
All code reads such files through this module, and each problem is an error that names the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_forge.runs.errors import ConfigError, ForgeError, SourceError

if TYPE_CHECKING:
    from agent_forge.events.envelope import Json

#: Bytes of the largest file that is read as a whole. The largest tokenizers have about 35 MB.
MOST_BYTES = 64 << 20
#: Lists and objects in one JSON file. A tokenizer with 500,000 merges has one list for each.
MOST_PARTS = 4_000_000
#: Commas in one JSON file, so numbers and texts, too: each takes up to 100 bytes of memory.
MOST_VALUES = 8_000_000
#: Levels of lists and objects in one another.
DEEPEST = 100


def read_text(file: Path, most: int = MOST_BYTES, error: type[ForgeError] = SourceError) -> str:
    """Return a UTF-8 file's text. Raise `error` if it is no ordinary file, too large or not text."""
    try:
        return _read(file, most, error).decode("utf-8")
    except ValueError as problem:
        raise error(f"{file} cannot be read as text: {problem}") from problem


def read_prompt(file: Path) -> str:
    """Return the text of a prompt's file, which may be a pipe of the user's own. Raises ConfigError."""
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"the prompt {file} cannot be read: {error}") from error
    if not text.strip():
        raise ConfigError(f"the prompt {file} has no text.")
    return text


def _read(file: Path, most: int, error: type[ForgeError]) -> bytes:
    """Return a file's bytes. Raise `error` if it is no ordinary file or too large."""
    try:
        check_size(file, most, error)
        with file.open("rb") as opened:
            raw = opened.read(most + 1)  # the file may have grown since
    except OSError as problem:
        raise error(f"{file} cannot be read: {problem}") from problem
    if len(raw) > most:
        raise error(f"{file} has more than {most:,} bytes. Give a smaller file.")
    return raw


def check_size(file: Path, most: int = MOST_BYTES, error: type[ForgeError] = SourceError) -> None:
    """Raise `error` if `file` is no ordinary file or has more than `most` bytes."""
    if not file.exists():
        raise error(f"{file} does not exist.")
    if not file.is_file():
        raise error(f"{file} is not an ordinary file. Put the file itself there.")
    if (size := file.stat().st_size) > most:
        raise error(f"{file} has {size:,} bytes, more than the {most:,} that are read.")


def read_json(file: Path, most: int = MOST_BYTES, error: type[ForgeError] = SourceError) -> Any:
    """Return a JSON file's content. Raise `error` if it is no JSON, too large or nested too deep."""
    raw = _read(file, most, error)
    try:
        return parse_json(raw)
    except UnusualJSONError as problem:
        raise error(f"{file} {problem}: that is no such file.") from problem
    except ValueError as problem:
        raise error(f"{file} cannot be read as JSON: {problem}") from problem


class UnusualJSONError(ValueError):
    """JSON has more values or levels than a file of this kind has."""


def parse_json(raw: bytes, levels: int = DEEPEST) -> Any:
    """Return the content of UTF-8 JSON. Raise ValueError, or UnusualJSONError for too many values.

    Values are counted before the first is made. `levels` is the bound of nested lists and objects.
    """
    if raw.count(b"[") + raw.count(b"{") > MOST_PARTS:
        raise UnusualJSONError(f"holds more than {MOST_PARTS:,} lists and objects")
    if raw.count(b",") > MOST_VALUES:
        raise UnusualJSONError(f"holds more than {MOST_VALUES:,} values")
    too_deep = f"is nested deeper than {levels} levels"
    try:
        content = json.loads(raw.decode("utf-8"))
    except RecursionError as problem:
        raise UnusualJSONError(too_deep) from problem
    if _deeper_than(content, levels):
        raise UnusualJSONError(too_deep)
    return content


def read_object(
    file: Path, most: int = MOST_BYTES, error: type[ForgeError] = SourceError
) -> dict[str, Any]:
    """Return the object in a JSON file as a dictionary. Raise `error` for anything else."""
    content: Json = read_json(file, most, error)
    if not isinstance(content, dict):
        raise error(f"{file} does not hold an object of settings.")
    return content


def _deeper_than(value: Json, levels: int) -> bool:
    """Return True if lists and objects are nested deeper than `levels`; level by level."""
    level: list[Json] = [value]
    for _ in range(levels):
        inner: list[Json] = []
        for node in level:
            entries = (
                node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
            )
            inner += [entry for entry in entries if isinstance(entry, dict | list)]
        if not inner:
            return False
        level = inner
    return True
