"""Users' data files, read as rows: JSONL, text, JSON, CSV, Parquet; all but Parquet also gzipped.

Endings may be written in capitals. Rows that are no items yet become items (`row_forms`). Notes say
which forms were read, and which keys were left out.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_forge.evaluation.data import row_forms
from agent_forge.runs.errors import DataError
from agent_forge.runs.system import packages
from agent_forge.runs.system.bounded_files import MOST_PARTS
from agent_forge.runs.system.plain_text import shown, visible

#: Endings of the names of files that are read; a `.gz` may follow.
KINDS = (".jsonl", ".txt", ".json", ".csv", ".parquet")
#: Bytes of the largest file; of a compressed file also the unpacked bytes.
MOST_BYTES = 1 << 30
#: A text in JSON.
TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
#: Rows of a Parquet file that are unpacked together at most.
MOST_ROWS = 1000
#: Kinds that hold a table, which may have empty cells and columns that no item has.
TABLES = (".json", ".csv", ".parquet")
#: A key is said to be a possible domain if it has at least 2 different texts and at most
#: `MOST_DOMAINS`, each of at most `LONGEST_DOMAIN` characters and on average in `FULL_DOMAIN` rows.
MOST_DOMAINS, LONGEST_DOMAIN, FULL_DOMAIN = 100, 80, 4
#: The most keys that are named as left out.
MOST_NAMED = 50
#: Kind → how its rows become items. For CSV there is no command: quotes and commas need care.
ADVICE = {
    ".jsonl": "To make texts of a column: python -c \"import json, sys; [print(json.dumps({'text': "
    "json.loads(line)['COLUMN']})) for line in sys.stdin]\" < old.jsonl > new.jsonl",
    ".json": 'To make texts of a column: python -c "import json, sys; '
    "json.dump([row['COLUMN'] for row "
    'in json.load(sys.stdin)], sys.stdout)" < old.json > new.json',
    ".csv": "To make texts of a column, name it text in the first row.",
    ".parquet": 'To make texts of a column: python -c "from pyarrow import parquet as p; t = '
    "p.read_table('old.parquet', columns=['COLUMN']); p.write_table(t.rename_columns(['text']), "
    "'new.parquet')\"",
}

#: (file and line, number, row).
Row = tuple[str, int, dict[str, object]]
#: A function that takes a sentence about how a file was read.
Note = Callable[[str], None]


def kind(path: Path) -> str:
    """Return the ending in `KINDS` that says how a file is read; '' for a file of no kind."""
    name = _unzipped(path)
    end = Path(name).suffix.lower()
    return end if end in KINDS and not (end == ".parquet" and name != path.name) else ""


def domain(path: Path) -> str:
    """Return the default domain of a file's items: the file's name without its endings."""
    return Path(_unzipped(path)).stem


def _unzipped(path: Path) -> str:
    return path.name[:-3] if path.suffix.lower() == ".gz" else path.name


def text(path: Path) -> str:
    """Return a whole file's text, unpacked if it is gzipped. Raises DataError."""
    try:
        content = _unpacked(path) if path.suffix.lower() == ".gz" else _regular(path).read_bytes()
        # As Python reads text: every line ends in a line feed.
        plain_text = io.TextIOWrapper(io.BytesIO(content), "utf-8").read()
    except UnicodeDecodeError as error:
        raise DataError(
            f"data file {path} is not UTF-8 text (byte {error.start}). Is it a binary file?"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise DataError(f"data file {path} cannot be read: {why}.") from error
    if not plain_text.strip():
        raise DataError(f"data file {path} is empty.")
    if "\0" in plain_text:
        raise DataError(f"data file {path} has NUL bytes: it is a binary file, not text.")
    return plain_text


def _regular(path: Path) -> Path:
    """Return the path; raise DataError for a named pipe or a device, which may never end."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise DataError(
            f"data file {path} is a named pipe or a device and no plain file. Write its content to a "
            f"file first: cat {path} > data{kind(path)}"
        )
    return path


def check_size(path: Path) -> None:
    """Raise DataError if a file has more than `MOST_BYTES` bytes, or is no plain file."""
    try:
        size = _regular(path).stat().st_size
    except OSError as error:
        raise DataError(f"data file {path} cannot be read: {error.strerror}.") from error
    if size > MOST_BYTES:
        raise DataError(
            f"data file {path} has {size:,} bytes, more than the {MOST_BYTES:,} that "
            "are read: split it."
        )


def _text_without_mark(path: Path) -> str:
    """Return a whole file's text without the byte-order mark that Excel writes at the beginning."""
    return text(path).removeprefix("\ufeff")


def _unpacked(path: Path) -> bytes:
    with gzip.open(_regular(path)) as packed:
        content = packed.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise _unpacks_to_too_much(path)
    return content


def _unpacks_to_too_much(path: Path) -> DataError:
    return DataError(
        f"data file {path} unpacks to more than the {MOST_BYTES:,} bytes that are read: split it."
    )


def rows(path: Path, note: Note, from_program: bool = False) -> Iterator[Row]:
    """Yield (file and line, number, row that is an item) for each row of a file that is no plain text.

    Rows without text are left out. `note` is told of them, of the forms of rows and of keys left out.
    `from_program`: the program wrote the file; its rows are items already, and stay as they are.
    Raises DataError naming file and line.
    """
    read = {".jsonl": lines, ".json": _array, ".csv": _table, ".parquet": _parquet}[kind(path)]
    if from_program:
        yield from read(path)
        return
    counts, first = Counts(), ""
    for where, number, row in read(path):
        filled = _without_empty_cells(row) if kind(path) in TABLES else row
        try:
            shaped = row_forms.shape(_with_text_id(filled))
        except row_forms.FormError as error:
            raise DataError(f"{where}: {error}.") from error
        if shaped is None and len(filled) == len(row):
            raise DataError(_no_item(path, where, row))
        if shaped is None or _blank(shaped.row):
            counts.empty += 1
            if not counts.items and counts.empty == 1:
                first = _no_item(path, where, row)
            continue
        counts.take(where, filled, shaped)
        yield where, number, shaped.row
    if counts.empty and not counts.items:
        raise DataError(first)
    for words in counts.notes("columns" if kind(path) in (".csv", ".parquet") else "keys"):
        note(f"{path.name}: {words}")


def _blank(row: dict[str, Any]) -> bool:
    return isinstance(row.get("text"), str) and not row["text"].strip()


@dataclass
class Counts:
    """Counts over the rows of a file: forms, rows without text, keys that were left out."""

    #: How rows were read and as what → their number.
    forms: Counter[tuple[str, str]] = field(default_factory=Counter)
    items: int = 0
    #: Rows without text.
    empty: int = 0
    #: Key that was left out → its different texts; None if it cannot be a domain.
    rest: dict[str, set[str] | None] = field(default_factory=dict)
    #: Places of questions with two equal wrong choices.
    equal: list[str] = field(default_factory=list)

    def take(self, where: str, row: dict[str, object], shaped: row_forms.Shaped) -> None:
        """Count a row and its keys. Raises DataError if a question's right choice is there twice."""
        self.items += 1
        self.forms[shaped.how, shaped.kind] += 1
        for key in shaped.rest:
            value = row_forms.value(row, key)
            values = self.rest.setdefault(key, set())
            if not isinstance(value, str) or not 0 < len(value) <= LONGEST_DOMAIN:
                self.rest[key] = None
            elif values is not None and len(values) <= MOST_DOMAINS:
                values.add(value)
        self._compare_choices(where, shaped.row)

    def _compare_choices(self, where: str, row: dict[str, object]) -> None:
        choices, answer = row.get("choices"), row.get("answer")
        if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
            return
        if len(set(choices)) == len(choices):
            return
        right = choices[answer] if isinstance(answer, int) and 0 <= answer < len(choices) else None
        if choices.count(right) > 1:
            raise DataError(
                f"{where}: the right choice {shown(right)} is there twice: no model can choose it "
                "alone. Change a choice, or leave the question out."
            )
        self.equal.append(where)

    def notes(self, noun: str) -> Iterator[str]:
        """Yield sentences for the user, about rows, forms and keys; `noun`: "keys" or "columns"."""
        if self.empty:
            yield f"{self.empty} row{'s' * (self.empty > 1)} without text left out."
        for (how, items), count in self.forms.items():
            if how:
                yield f"{count} rows are read as {items}: {how}."
        if count := len(self.equal):
            yield f"{count} question{'s' * (count > 1)} with two equal choices, first {self.equal[0]}."
        names = sorted(self.rest)
        if names:
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            listing = ", ".join(map(visible, names[:MOST_NAMED]))
            yield f"{noun} left out: {listing}{more}."
        for key in names:
            values = self.rest[key] or ()
            if 1 < len(values) <= min(MOST_DOMAINS, self.items // FULL_DOMAIN):
                yield (
                    f"{visible(key)} has {len(values)} different texts: write it as domain to have "
                    "each measured as a domain of its own."
                )


def _without_empty_cells(row: dict[str, object]) -> dict[str, object]:
    """Return the row without its empty cells; keep an empty prompt, which a question may have."""
    return {k: v for k, v in row.items() if v is not None and (v != "" or k == "prompt")}


def _with_text_id(row: dict[str, object]) -> dict[str, object]:
    """Return the row with its id as text: in a table an id is often a number."""
    return {**row, "id": str(row["id"])} if type(row.get("id")) is int else row


def _no_item(path: Path, where: str, row: dict[str, object]) -> str:
    keys = ", ".join(map(str, row)) or "nothing"
    return (
        f"{where}: no item: it has {keys}, and an item has text, choices or check (docs/fitness.md). "
        f"{ADVICE[kind(path)]}"
    )


def lines(path: Path) -> Iterator[Row]:
    """Yield (file and line, number, row) of a file with an object on each line. Raises DataError."""
    for number, line in enumerate(_text_without_mark(path).split("\n"), start=1):
        if line.strip():
            where = f"{path}:{number}"
            row = _json(line, where)
            if not isinstance(row, dict):
                raise DataError(
                    f"{where}: a line must be a JSON object. One array of all rows belongs into a "
                    "file that ends in .json."
                )
            yield where, number, row


def _json(content: str, where: str) -> object:
    """Return parsed JSON. Raises DataError, also for more than `MOST_PARTS` lists and objects.

    `[],` takes 64 bytes of memory, and a file of a megabyte can unpack to a gigabyte of them.
    """
    if _parts(content) > MOST_PARTS and _parts(TEXT.sub("", content)) > MOST_PARTS:
        raise DataError(
            f"{where}: more than {MOST_PARTS:,} lists and objects in one JSON document: write one "
            "object a line, in a file that ends in .jsonl."
        )
    try:
        return json.loads(content, object_pairs_hook=_object)
    except _TwiceError as error:
        raise DataError(f"{where}: {error}.") from error
    except (ValueError, RecursionError) as error:
        hint = ""
        if "Extra data" in str(error) and not where.rpartition(":")[2].isdigit():
            hint = " A file with an object on each line must end in .jsonl: rename it."
        raise DataError(f"{where}: not JSON ({error}).{hint}") from error


class _TwiceError(ValueError):
    """A JSON object has a key twice: programs differ in which value counts."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the pairs as a dict. Raises _TwiceError for a key that is there twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise _TwiceError(f"the key {visible(twice)!r} is there twice in one object: leave one out")
    return members


def _parts(content: str) -> int:
    """Return an upper bound of the lists and objects in JSON text: its brackets, also in texts."""
    return content.count("[") + content.count("{")


def _array(path: Path) -> Iterator[Row]:
    document = _json(_text_without_mark(path), str(path))
    if not isinstance(document, list):
        raise DataError(f"{path}: a .json file must be an array of objects or texts.")
    for number, row in enumerate(document, start=1):
        where = f"{path}: element {number}"
        row = {"text": row} if isinstance(row, str) else row
        if not isinstance(row, dict):
            raise DataError(f"{where}: must be an object or a text.")
        yield where, number, dict(row)


def _table(path: Path) -> Iterator[Row]:
    csv.field_size_limit(MOST_BYTES)
    reader = csv.DictReader(io.StringIO(_text_without_mark(path), newline=""), strict=True)
    try:
        _check_names(path, reader.fieldnames or ())
        for number, row in enumerate(reader, start=2):
            where = f"{path}: row {number}"
            if None in row or None in row.values():
                raise DataError(f"{where}: has not as many fields as the first row has names.")
            yield where, number, dict(row)
    except csv.Error as error:
        raise DataError(f"{path}: not CSV ({error}).") from error


def _check_names(path: Path, names: Sequence[str]) -> None:
    """Raise DataError if two columns have one name: only one of them would be read."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(
            f"{path}: the column {visible(twice[0])!r} is there twice: rename or remove one."
        )


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(
            f"data file {path}: {packages.missing('reading Parquet', 'pyarrow')}."
        ) from error
    try:
        file = parquet.ParquetFile(_regular(path))
        _check_names(path, file.schema_arrow.names)
        number = unpacked = 0
        # Threads cost more than they save when a batch has few rows.
        for batch in file.iter_batches(_rows_at_a_time(path, file.metadata), use_threads=False):
            for row in batch.to_pylist():
                number += 1
                unpacked += _size(row)
                if unpacked > MOST_BYTES:
                    raise _unpacks_to_too_much(path)
                yield f"{path}: row {number}", number, row
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"data file {path} cannot be read as Parquet: {error}.") from error


def _rows_at_a_time(path: Path, metadata: Any) -> int:
    """Return the number of a Parquet file's rows to unpack together, by the sizes that it states.

    A value that repeats is stored once, so a row can be as large as its whole group of rows. The rows
    of a batch have at most `MOST_BYTES` together even then. Raises DataError if all groups have more.
    """
    groups = [metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)]
    if sum(groups) > MOST_BYTES:
        raise _unpacks_to_too_much(path)
    return max(1, min(MOST_ROWS, MOST_BYTES // max([1, *groups])))


def _size(value: object) -> int:
    """Return the characters of the texts in a row, 64 for each list or object, 8 for another value."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return 64 + sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return 64 + sum(map(_size, value))
    return 8
