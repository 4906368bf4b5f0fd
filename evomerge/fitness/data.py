"""Items: what fitness is measured on. One JSONL format, or plain text files.

A line of JSONL is a text or a multiple-choice question:

    {"id": "a", "text": "…", "domain": "code", "slice": "test"}
    {"id": "b", "prompt": "2 + 2 =", "choices": [" 4", " 5"], "answer": 0, "domain": "math"}

`domain` is the file's stem by default. `slice` is train (calibration), search, selection or test;
where it is missing the item falls into one by the hash of its id. `id` must be unique; where it is
missing it is made from the file's name and the line. A `.txt` file becomes one item for every two
thousand characters or so, cut at paragraphs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from events import canonical_json
from evomerge.corpus.documents import MEASURING_SHARES, SLICES, Slice, slice_of
from evomerge.errors import DataError

#: Characters of one item cut from a text file.
PARAGRAPHS = 2000


class _Item(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(min_length=1)]
    domain: Annotated[str, Field(min_length=1)]
    slice: Slice


class Text(_Item):
    """Running text, scored by perplexity and next-token accuracy."""

    text: Annotated[str, Field(min_length=1)]


class Question(_Item):
    """A prompt and its possible continuations, scored by log-likelihood."""

    prompt: str
    choices: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=2)]
    answer: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _answer_exists(self) -> Question:
        if self.answer >= len(self.choices):
            raise ValueError(f"answer {self.answer} is not one of {len(self.choices)} choices")
        return self


Item = Text | Question


def load(paths: Sequence[Path]) -> list[Item]:
    """All items of files and folders of `.jsonl` and `.txt`, sorted by id.

    Raises DataError naming the file and the line.
    """
    items: dict[str, Item] = {}
    for file in _files(paths):
        for where, item in _read(file):
            if item.id in items:
                raise DataError(f"{where}: id {item.id!r} is used twice. Ids must be unique.")
            items[item.id] = item
    check(items.values())
    return [items[id_] for id_ in sorted(items)]


def check(items: Iterable[Item]) -> None:
    """Raise DataError where a slice that a run needs has no text."""
    filled = {item.slice for item in items if isinstance(item, Text)}
    empty = [s for s in SLICES if s not in filled]
    if empty:
        raise DataError(
            f"the data has no text in the slice{'s' if len(empty) > 1 else ''} "
            f"{', '.join(empty)}. Give more text (a few dozen items), or name the slice of each "
            'item with "slice".'
        )


def digest(items: Sequence[Item]) -> str:
    """SHA-256 of the items in their order: what a run was measured on."""
    hasher = hashlib.sha256()
    for item in items:
        hasher.update(canonical_json(item.model_dump(mode="json")).encode() + b"\n")
    return hasher.hexdigest()


def from_rows(rows: Iterable[dict[str, Any]]) -> list[Item]:
    """Items from dictionaries of the same format, sorted by id."""
    items = [_parse(row, "built-in", number, "text") for number, row in enumerate(rows)]
    return sorted(items, key=lambda item: item.id)


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for s in ("*.jsonl", "*.txt") for p in path.glob(s))
            if not inside:
                raise DataError(f"data folder {path} has no .jsonl and no .txt file.")
            found += inside
        elif not path.exists():
            raise DataError(f"data file {path} does not exist.")
        elif path.suffix not in (".jsonl", ".txt"):
            raise DataError(f"data file {path} is neither .jsonl nor .txt.")
        else:
            found.append(path)
    return found


def _read(file: Path) -> Iterator[tuple[str, Item]]:
    try:
        content = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"data file {file} is not UTF-8 text (byte {error.start}). Is it a binary file?"
        ) from error
    except OSError as error:
        raise DataError(f"data file {file} cannot be read: {error.strerror}.") from error
    if not content.strip():
        raise DataError(f"data file {file} is empty.")
    if "\0" in content:
        raise DataError(f"data file {file} has NUL bytes: it is a binary file, not text.")
    if file.suffix == ".txt":
        yield from _paragraphs(file, content)
        return
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            where = f"{file}:{number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}: not JSON ({error}).") from error
            if not isinstance(row, dict):
                raise DataError(f"{where}: a line must be a JSON object.")
            yield where, _parse(row, where, number, file.name)


def _parse(row: dict[str, Any], where: str, number: int, file: str) -> Item:
    row = {"id": f"{file}:{number}", "domain": Path(file).stem, **row}
    try:
        if "slice" not in row:
            row["slice"] = slice_of(str(row["id"]), MEASURING_SHARES)
        return (Text if "text" in row else Question).model_validate(row)
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: id is not Unicode text ({error.reason}).") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{where}: {key + ': ' if key else ''}{first['msg']}.") from error


def _paragraphs(file: Path, content: str) -> Iterator[tuple[str, Item]]:
    piece: list[str] = []
    number = 0
    for paragraph in [*content.split("\n\n"), None]:
        if paragraph is not None:
            piece.append(paragraph)
        if piece and (paragraph is None or sum(map(len, piece)) >= PARAGRAPHS):
            text = "\n\n".join(piece)
            if text.strip():
                row = {"text": text}
                yield f"{file} (piece {number})", _parse(row, str(file), number, file.name)
            piece, number = [], number + 1
