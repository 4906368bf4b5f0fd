"""Users' data files, read as rows: JSONL, text, JSON, CSV, Parquet; all but Parquet also gzipped.

Rows that are no items yet (`question` and `answer`, `messages`, `instruction` and `output`, `prompt`
and `completion`) become texts, and a note says so. Rows that are items stay unchanged.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from runs.errors import DataError
from runs.system import packages
from runs.system.bounded_files import MOST_PARTS

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
#: Columns that a text may have; other columns of a table are left out.
ITEM = ("id", "domain", "slice", "text")
#: Columns that make a row an item, any of them.
CONTENT = {"text", "choices", "check"}
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
Row = tuple[str, int, dict[str, Any]]
#: A function that takes a sentence about how a file was read.
Note = Callable[[str], None]


def kind(path: Path) -> str:
    """Return the ending in `KINDS` that says how a file is read, "" for a file of no kind."""
    name = path.name.removesuffix(".gz")
    end = Path(name).suffix
    return end if end in KINDS and not (end == ".parquet" and name != path.name) else ""


def domain(path: Path) -> str:
    """Return the default domain of a file's items: the file's name without its endings."""
    return Path(path.name.removesuffix(".gz")).stem


def text(path: Path) -> str:
    """Read a whole file as text. Raises DataError."""
    try:
        content = _unpacked(path) if path.suffix == ".gz" else _regular(path).read_bytes()
        # As Python reads text: every line ends in a line feed.
        found = io.TextIOWrapper(io.BytesIO(content), "utf-8").read()
    except UnicodeDecodeError as error:
        raise DataError(
            f"data file {path} is not UTF-8 text (byte {error.start}). Is it a binary file?"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise DataError(f"data file {path} cannot be read: {why}.") from error
    if not found.strip():
        raise DataError(f"data file {path} is empty.")
    if "\0" in found:
        raise DataError(f"data file {path} has NUL bytes: it is a binary file, not text.")
    return found


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


def _unmarked(path: Path) -> str:
    """Read a whole file as text, without the byte-order mark that Excel writes at the beginning."""
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


def rows(path: Path, note: Note) -> Iterator[Row]:
    """Yield the rows of a file that is no plain text. Raises DataError naming file and line."""
    read = {".jsonl": _lines, ".json": _array, ".csv": _table, ".parquet": _parquet}[kind(path)]
    seen: Counter[str] = Counter()
    dropped: set[str] = set()
    empty: list[str] = []
    for where, number, given in read(path):
        row = _filled(given) if kind(path) in TABLES else given
        shaped, how = _shaped(_named(row))
        if kind(path) in TABLES and how is None and "text" in shaped:
            dropped |= set(shaped) - set(ITEM)
            shaped = {key: value for key, value in shaped.items() if key in ITEM}
        if how or CONTENT & set(shaped):
            seen[how or ""] += 1
            yield where, number, shaped
        elif len(row) < len(given):
            empty.append(empty[0] if empty else _no_item(path, where, given))
        else:
            raise DataError(_no_item(path, where, given))
    if empty and not seen:
        raise DataError(empty[0])
    if empty:
        note(f"{path.name}: {len(empty)} row{'s' * (len(empty) > 1)} without text left out.")
    for how, count in seen.items():
        if how:
            note(f"{path.name}: {count} rows are read as texts: {how}.")
    if dropped:
        note(f"{path.name}: columns left out: {', '.join(sorted(dropped))}.")


def _filled(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row without its empty cells; keep an empty prompt, which a question may have."""
    return {k: v for k, v in row.items() if v is not None and (v != "" or k == "prompt")}


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its id as text: in a table an id is often a number."""
    return {**row, "id": str(row["id"])} if type(row.get("id")) is int else row


def _no_item(path: Path, where: str, row: dict[str, Any]) -> str:
    keys = ", ".join(map(str, row)) or "nothing"
    return (
        f"{where}: no item: it has {keys}, and an item has text, choices or check (docs/fitness.md). "
        f"{ADVICE[kind(path)]}"
    )


def _lines(path: Path) -> Iterator[Row]:
    for number, line in enumerate(_unmarked(path).split("\n"), start=1):
        if line.strip():
            where = f"{path}:{number}"
            row = _json(line, where)
            if not isinstance(row, dict):
                raise DataError(
                    f"{where}: a line must be a JSON object. One array of all rows belongs into a "
                    "file that ends in .json."
                )
            yield where, number, row


def _json(content: str, where: str) -> Any:
    """Parse a document or a line. Raises DataError, also for more than `MOST_PARTS` lists and objects.

    `[],` takes 64 bytes of memory, and a file of a megabyte can unpack to a gigabyte of them.
    """
    if _parts(content) > MOST_PARTS and _parts(TEXT.sub("", content)) > MOST_PARTS:
        raise DataError(
            f"{where}: more than {MOST_PARTS:,} lists and objects in one JSON document: write one "
            "object a line, in a file that ends in .jsonl."
        )
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        hint = ""
        if "Extra data" in str(error) and not where.rpartition(":")[2].isdigit():
            hint = " A file with an object on each line must end in .jsonl: rename it."
        raise DataError(f"{where}: not JSON ({error}).{hint}") from error


def _parts(content: str) -> int:
    """Return how many lists and objects the text of JSON has at most: its brackets, also in texts."""
    return content.count("[") + content.count("{")


def _array(path: Path) -> Iterator[Row]:
    found = _json(_unmarked(path), str(path))
    if not isinstance(found, list):
        raise DataError(f"{path}: a .json file must be an array of objects or texts.")
    for number, row in enumerate(found, start=1):
        where = f"{path}: element {number}"
        row = {"text": row} if isinstance(row, str) else row
        if not isinstance(row, dict):
            raise DataError(f"{where}: must be an object or a text.")
        yield where, number, row


def _table(path: Path) -> Iterator[Row]:
    csv.field_size_limit(MOST_BYTES)
    reader = csv.DictReader(io.StringIO(_unmarked(path), newline=""), strict=True)
    try:
        for number, row in enumerate(reader, start=2):
            where = f"{path}: row {number}"
            if None in row or None in row.values():
                raise DataError(f"{where}: has not as many fields as the first row has names.")
            yield where, number, dict(row)
    except csv.Error as error:
        raise DataError(f"{path}: not CSV ({error}).") from error


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
    """Return how many rows of a Parquet file are unpacked together, from the sizes that it states.

    A value that repeats is stored once, so a row can be as large as its whole group of rows. The rows
    of a batch have at most `MOST_BYTES` together even then. Raises DataError if all groups have more.
    """
    groups = [metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)]
    if sum(groups) > MOST_BYTES:
        raise _unpacks_to_too_much(path)
    return max(1, min(MOST_ROWS, MOST_BYTES // max([1, *groups])))


def _size(value: Any) -> int:
    """Return the characters of the texts in a row, 64 for each list or object, 8 for another value."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return 64 + sum(map(_size, value.values()))
    if isinstance(value, list | tuple):
        return 64 + sum(map(_size, value))
    return 8


def _shaped(row: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return the row as a text, and how the text was made; (row, None) if the row stays as it is.

    A row stays as it is if it is an item already, or if no text can be made of its columns.
    """
    if CONTENT & set(row):
        return row, None
    made = _chat(row) or _pair(row)
    if made is None:
        return row, None
    kept = {key: row[key] for key in ("id", "domain", "slice") if row.get(key) not in (None, "")}
    return {**kept, "text": made[0]}, made[1]


def _chat(row: dict[str, Any]) -> tuple[str, str] | None:
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    said = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            return None
        said.append(f"{message.get('role', 'user')}: {message['content']}")
    return "\n\n".join(said), "messages one after the other, each behind its role"


def _pair(row: dict[str, Any]) -> tuple[str, str] | None:
    """Join two columns of which one answers the other; return the text, and how it was made.

    None if the row has no such columns.
    """

    def has(*names: str) -> bool:
        return all(isinstance(row.get(name), str) and row[name] for name in names)

    if has("question", "answer"):
        made = f"Question: {row['question']}\nAnswer: {row['answer']}"
        return made, "the question, then the answer"
    if has("instruction", "output"):
        given = f"{row['input']}\n\n" if has("input") else ""
        made = f"{row['instruction']}\n\n{given}{row['output']}"
        return made, "the instruction, the input if there is one, then the output"
    if has("prompt", "completion"):
        return row["prompt"] + row["completion"], "the prompt, directly followed by the completion"
    return None
