"""Items that fitness is measured on: one JSONL format (docs/fitness.md), or plain text files.

A line of JSONL is a text, a multiple-choice question or a problem whose reply is verified:

    {"id": "a", "text": "…", "domain": "code", "slice": "test"}
    {"id": "b", "prompt": "2 + 2 =", "choices": [" 4", " 5"], "answer": 0, "domain": "math"}
    {"id": "c", "prompt": "2 + 2 =", "check": {"kind": "number", "answer": 4}, "domain": "math"}

`domain` is the file's stem by default. `slice` is train (calibration), search, selection or test;
if `slice` is missing, the hash of the item's id decides. `id` must be unique; a missing id is made
from the file's name and the line. A `.txt` file becomes one item for every two thousand characters
or so, cut at paragraphs. `file_formats.py` reads other files and rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from agent_forge.evaluation.data import bfcl, domains, file_formats
from agent_forge.evaluation.data.slices import MEASURING_SHARES, SLICES, Slice, slice_of
from agent_forge.evaluation.lm_eval import spec
from agent_forge.evaluation.verifiers.program import Program, no_truth
from agent_forge.evaluation.verifiers.scorer import Scored
from agent_forge.evaluation.verifiers.verifier import AnyCheck
from agent_forge.events import canonical_json
from agent_forge.runs import home
from agent_forge.runs.errors import DataError

#: Characters of one item cut from a text file.
PARAGRAPHS = 2000
#: A text with too few paragraphs for all slices is cut into about `PIECES` pieces, each of at least
#: `SHORTEST` characters.
PIECES, SHORTEST = 40, 200
#: Kinds of files read in a folder without .jsonl and .txt; a .json file beside data is often not data.
IN_FOLDERS = (".jsonl", ".txt", ".csv", ".parquet")
#: The most names of files in a note about a folder.
LISTED = 5
#: The slices of such pieces in turn: of ten, one for train, four for search, three for selection
#: and two for test, the nearest to `MEASURING_SHARES`.
IN_TURN: tuple[Slice, ...] = (
    "search",
    "selection",
    "test",
    "train",
    "search",
    "selection",
    "test",
    "search",
    "selection",
    "search",
)


class _Item(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(min_length=1)]
    domain: Annotated[str, Field(min_length=1)]
    slice: Slice


class Text(_Item):
    """Running text, scored by perplexity and next-token accuracy."""

    text: Annotated[str, Field(min_length=1)]


#: How log-likelihoods of choices are made comparable: divided by bytes, divided by tokens, not at
#: all, or minus the choice's log-likelihood without the prompt (mutual information).
Normalise = Literal["bytes", "tokens", "none", "mutual"]

#: How texts become tokens: each alone, without special tokens; or as in lm-evaluation-harness.
Encoding = Literal["plain", "harness"]

Whole = Annotated[int, BeforeValidator(no_truth)]
Grade = Annotated[Whole, Field(ge=0, le=9)]


class Question(_Item):
    """A prompt and its possible continuations, scored by log-likelihood."""

    prompt: str
    choices: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=2)]
    answer: Annotated[Whole, Field(ge=0)]
    normalise: Normalise = "bytes"
    #: The divisors of the choices' log-likelihoods, instead of those that `normalise` says.
    sizes: tuple[Annotated[Whole, Field(ge=1)], ...] = ()
    encoding: Encoding = "plain"
    #: How hard the question is; a draw takes from every grade its share.
    grade: Grade = 0

    @model_validator(mode="after")
    def _answer_exists(self) -> Question:
        if self.answer >= len(self.choices):
            raise ValueError(f"answer {self.answer} is not one of {len(self.choices)} choices")
        if self.sizes and len(self.sizes) != len(self.choices):
            raise ValueError(f"there are {len(self.sizes)} sizes of {len(self.choices)} choices")
        return self


def _has_name(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a function's schema as it is. Raises ValueError if it is not in OpenAI's form."""
    function = schema.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError('a function is {"type": "function", "function": {"name": …, …}}')
    return schema


class Problem(_Item):
    """A prompt whose greedy reply is verified by a program."""

    prompt: Annotated[str, Field(min_length=1)]
    check: AnyCheck
    #: The reply ends after `max_tokens` tokens, at the end token, or before one of `stop`.
    max_tokens: Annotated[Whole, Field(ge=1, le=4096)] = 64
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    encoding: Encoding = "plain"
    grade: Grade = 0
    #: Schemas of functions that the model may call, in OpenAI's form. With some, the prompt is a
    #: user's message, and the model's chat template writes both.
    functions: tuple[Annotated[dict[str, JsonValue], AfterValidator(_has_name)], ...] = ()


Item = Text | Question | Problem


@dataclass(frozen=True)
class Reading:
    """Rules by which files become items."""

    #: Takes a sentence about how a file was read that is not written as items.
    note: file_formats.Note = lambda words: None
    #: The files were written by this program.
    ours: bool = False
    #: Text files are cut into smaller pieces, whose slices come in turn.
    finer: bool = False
    #: Slice → share of the items that name no slice, and the slices of smaller pieces in turn.
    shares: Mapping[Slice, float] = field(default_factory=lambda: MEASURING_SHARES)
    turn: tuple[Slice, ...] = IN_TURN
    #: The domain of all items; None: what a row says, else the file's name.
    domain: str | None = None
    #: The beginning of the ids that are made; empty: the file's name.
    name: str = ""


def absolute(place: str | Path) -> str:
    """Return a place of data as text: the name of built-in items or of a task, else an absolute path.

    The file of a task and the folder of a benchmark get an absolute path too; links are resolved.
    Raises DataError.
    """
    if str(place) == domains.NAME:
        return str(place)
    if spec.is_task(place):
        return spec.absolute(str(place))
    if bfcl.is_place(place):
        return bfcl.PREFIX + absolute(str(place).removeprefix(bfcl.PREFIX))
    try:
        return str(home.expanded(place, DataError).resolve())
    except RuntimeError as error:
        raise DataError(f"data file {place} is a link to itself.") from error
    except OSError as error:
        raise DataError(f"data {str(place)[:200]!r} is no path: {error.strerror}.") from error


def load(
    paths: Sequence[Path],
    more: Iterable[dict[str, object]] = (),
    from_program: bool = False,
    note: file_formats.Note = lambda words: None,
    needed: Sequence[Slice] = SLICES,
) -> list[Item]:
    """Return a list, sorted by id, of all items of files, folders (`file_formats.KINDS`) and `more`.

    `from_program`: the files were written by this program. In other files no item may name a task of
    lm-evaluation-harness: a task is code, and data is not. `note` is told how files were read that are
    not written as items. Each slice of `needed` must have text. Raises DataError naming file and line.
    """
    data_files, more = files(paths, note), list(more)
    notes: list[str] = []
    items = _items(data_files, more, Reading(notes.append, from_program))
    texts = [file for file in data_files if file_formats.kind(file) == ".txt"]
    if texts and empty(items.values(), needed):
        notes = []
        finer = _items(data_files, more, Reading(notes.append, from_program, finer=True))
        if not empty(finer.values(), needed):
            items = finer
            names = ", ".join(file.name for file in texts)
            notes.append(
                f"{names}: too few paragraphs for every slice, so cut at line ends, slices in turn."
            )
    check(items.values(), needed)
    notes += [] if from_program else uneven(items.values(), needed)
    for words in notes:
        note(words)
    return [items[id_] for id_ in sorted(items)]


def _items(files: Sequence[Path], more: Iterable[dict[str, object]], how: Reading) -> dict[str, Item]:
    """Return {id: item} of files and of `more` rows. Raises DataError for an id used twice."""
    task = Path("task")
    rows = ((str(row.get("id")), _parse(row, str(row.get("id")), 0, task, how)) for row in more)
    return by_id(chain((pair for file in files for pair in read(file, how)), rows))


def by_id(read: Iterable[tuple[str, Item]]) -> dict[str, Item]:
    """Return {id: item} from (file and line, item). Raises DataError for an id used twice."""
    items: dict[str, Item] = {}
    for where, item in read:
        if item.id in items:
            raise DataError(f"{where}: id {item.id!r} is used twice. Ids must be unique.")
        items[item.id] = item
    return items


def empty(items: Iterable[Item], needed: Sequence[Slice] = SLICES) -> list[str]:
    """Return a list of the slices of `needed` that have no text."""
    filled = {item.slice for item in items if isinstance(item, Text)}
    return [s for s in needed if s not in filled]


def uneven(items: Iterable[Item], needed: Sequence[Slice] = SLICES) -> list[str]:
    """Return one sentence per domain that has items, but none in a slice of `needed`.

    The slice train does not count: text of any domain will do for calibration.
    """
    slices: dict[str, set[Slice]] = {}
    for item in items:
        if item.slice != "train":
            slices.setdefault(item.domain, set()).add(item.slice)
    sentences = []
    for domain, there in sorted(slices.items()):
        if lacking := [s for s in needed if s != "train" and s not in there]:
            sentences.append(
                f"domain {domain} has no items in the slice{'s' if len(lacking) > 1 else ''} "
                f"{', '.join(lacking)}: models are not measured on it there. Give more items of it, "
                'or name the slice of each with "slice".'
            )
    return sentences


def check(items: Iterable[Item], needed: Sequence[Slice] = SLICES) -> None:
    """Raise DataError if a slice that a run needs has no text."""
    items = list(items)
    if lacking := empty(items, needed):
        characters = sum(len(item.text) for item in items if isinstance(item, Text))
        shares = ", ".join(f"{slice_} {share:.0%}" for slice_, share in MEASURING_SHARES.items())
        raise DataError(
            f"the data has no text in the slice{'s' if len(lacking) > 1 else ''} "
            f"{', '.join(lacking)}: it has {len(items)} items, {characters} characters of text. Give "
            f"more text: a .txt file needs {len(SLICES) * SHORTEST} characters, .jsonl some dozens, "
            f"which fall into slices by the hash of their ids ({shares}). Or name the slice of each "
            'item with "slice". Tasks of lm-evaluation-harness need text beside them: another --data.'
        )


def runs_code(item: Item) -> bool:
    """Return True if measuring the item runs a program that a model wrote."""
    return isinstance(item, Problem) and isinstance(item.check, Program)


def of_task(item: Item) -> bool:
    """Return True if the item comes from a task of lm-evaluation-harness."""
    return not isinstance(item, Text) and item.encoding == "harness"


def digest(items: Sequence[Item]) -> str:
    """Return the hex SHA-256 of the items in their order; it says what a run was measured on."""
    hasher = hashlib.sha256()
    for item in items:
        # Defaults are left out, so that a new field does not change the digest of old items.
        fields = item.model_dump(mode="json", exclude_defaults=True)
        hasher.update(canonical_json(fields).encode() + b"\n")
    return hasher.hexdigest()


def from_rows(rows: Iterable[dict[str, object]]) -> list[Item]:
    """Return a list of the items in rows (dicts) of the same format, sorted by id."""
    place = Path("text")
    items = [_parse(row, "built-in", number, place) for number, row in enumerate(rows)]
    return sorted(items, key=lambda item: item.id)


def files(paths: Sequence[Path], note: file_formats.Note) -> list[Path]:
    """Return a list of the data files that `paths` of files and folders mean. Raises DataError."""
    data_files: list[Path] = []
    for path in paths:
        if path.is_dir():
            every = sorted(path.iterdir())
            inside = [p for p in every if p.suffix.lower() in (".jsonl", ".txt")]
            inside = inside or [p for p in every if file_formats.kind(p) in IN_FOLDERS]
            if not inside:
                raise DataError(
                    f"data folder {path} has no .jsonl and no .txt file, and no {', '.join(IN_FOLDERS)}"
                )
            data_files += inside
            beside = [p for p in every if file_formats.kind(p) and p not in inside]
            if beside:
                note(
                    f"{path.name}: {_listed(inside)} of this folder is read, and not "
                    f"{_listed(beside)}: name the files that are meant."
                )
        elif not path.exists():
            raise DataError(f"data file {path} does not exist.")
        elif not file_formats.kind(path):
            raise DataError(
                f"data file {path} is neither .jsonl nor .txt, .json, .csv or .parquet (.gz behind "
                "the first four)."
            )
        else:
            data_files.append(path)
    return data_files


def _listed(files: Sequence[Path]) -> str:
    names = sorted(file.name for file in files)
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def read(file: Path, how: Reading) -> Iterator[tuple[str, Item]]:
    """Yield (file and line, item) of one file. Raises DataError."""
    if not how.ours:
        file_formats.check_size(file)
    if file_formats.kind(file) == ".txt":
        yield from (_pieces if how.finer else _paragraphs)(file, file_formats.text(file), how)
        return
    for where, number, row in file_formats.rows(file, how.note, how.ours):
        item = _parse(row, where, number, file, how)
        if not how.ours and _names_task(item):
            raise DataError(
                f"{where}: an item of a file cannot be judged by a task of lm-evaluation-harness. "
                "Give the task itself as data: lm-eval:NAME or lm-eval:FILE.yaml."
            )
        yield where, item


def _names_task(item: Item) -> bool:
    return (
        isinstance(item, Problem)
        and isinstance(item.check, Scored)
        and item.check.scorer == spec.SCORER
    )


def _parse(
    row: Mapping[str, object], where: str, number: int, file: Path, how: Reading = Reading()
) -> Item:
    name = how.name or file.name
    row = {"id": f"{name}:{number}", "domain": file_formats.domain(file), **row}
    if how.domain is not None:
        row["domain"] = how.domain
    try:
        if "slice" not in row:
            row["slice"] = slice_of(str(row["id"]), how.shares)
        kind = Text if "text" in row else Problem if "check" in row else Question
        return kind.model_validate(row)
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: id is not Unicode text ({error.reason}).") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        what = first["msg"].removeprefix("Value error, ")
        raise DataError(f"{where}: {key + ': ' if key else ''}{what}.") from error


def _paragraphs(file: Path, content: str, how: Reading) -> Iterator[tuple[str, Item]]:
    piece: list[str] = []
    number = 0
    for paragraph in [*content.split("\n\n"), None]:
        if paragraph is not None:
            piece.append(paragraph)
        if piece and (paragraph is None or sum(map(len, piece)) >= PARAGRAPHS):
            text = "\n\n".join(piece)
            if text.strip():
                row = {"text": text}
                yield f"{file} (piece {number})", _parse(row, str(file), number, file, how)
            piece, number = [], number + 1


def _pieces(file: Path, content: str, how: Reading) -> Iterator[tuple[str, Item]]:
    """Yield (file and piece, item) of a text cut at line ends or blanks; slices come in turn."""
    size = min(PARAGRAPHS, max(SHORTEST, len(content) // PIECES))
    start = number = 0
    while start < len(content):
        end = start + size
        if end < len(content):
            for mark in ("\n", " "):
                position = content.rfind(mark, start + size // 2, end)
                if position >= 0:
                    end = position + 1
                    break
        piece = content[start:end]
        if piece.strip():
            row = {"text": piece, "slice": how.turn[number % len(how.turn)]}
            yield f"{file} (piece {number})", _parse(row, str(file), number, file, how)
            number += 1
        start = end
