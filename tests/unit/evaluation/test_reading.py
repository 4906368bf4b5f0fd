"""Data as people have it: taken with a sentence about how it was read, or refused with what helps."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evaluation.data import file_formats
from agent_forge.evaluation.data import items as data_items
from agent_forge.evomerge import data_settings
from agent_forge.evomerge.fitness.composite import Weighting
from agent_forge.runs.errors import DataError

#: Enough rows that every slice has some.
COUNT = 40
PLAIN = [{"text": f"text {n}"} for n in range(COUNT)]


def load(*paths: Path) -> tuple[list[Any], str]:
    """The items, and what was said about how they were read."""
    notes: list[str] = []
    return data_items.load(list(paths), note=notes.append), " ".join(notes)


def texts(items: list[Any]) -> set[str]:
    return {item.text for item in items}


def lines(rows: list[Any]) -> str:
    return "\n".join(map(json.dumps, rows))


@pytest.mark.parametrize(
    ("row", "text", "note"),
    [
        ({"question": "2 + 2?", "answer": "4"}, "Question: 2 + 2?\nAnswer: 4", "the question"),
        (
            {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]},
            "user: Hi\n\nassistant: Ho",
            "behind its role",
        ),
        ({"instruction": "Add.", "input": "1 1", "output": "2"}, "Add.\n\n1 1\n\n2", "instruction"),
        ({"instruction": "Say.", "input": "", "output": "So"}, "Say.\n\nSo", "instruction"),
        ({"prompt": "To be", "completion": " or not"}, "To be or not", "completion"),
    ],
)
def test_rows_of_other_shapes_are_texts_and_a_note_says_so(
    tmp_path: Path, row: dict, text: str, note: str
) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(lines([row] * COUNT))
    items, said = load(file)
    assert texts(items) == {text}
    assert f"mine.jsonl: {COUNT} rows are read as texts" in said
    assert note in said


def test_every_file_format_gives_the_same_texts(tmp_path: Path) -> None:
    """Also behind gzip; the domain is the file's name without its ends."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (tmp_path / "a.jsonl").write_text(lines(PLAIN))
    (tmp_path / "b.json").write_text(json.dumps(PLAIN))
    (tmp_path / "c.json").write_text(json.dumps([row["text"] for row in PLAIN]))
    (tmp_path / "d.csv").write_text("text,url\n" + "".join(f"text {n},u\n" for n in range(COUNT)))
    parquet.write_table(pa.table({"text": [r["text"] for r in PLAIN]}), tmp_path / "e.parquet")
    for name in ("a.jsonl", "b.json", "d.csv"):
        packed = tmp_path / f"z-{name}.gz"
        packed.write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    for file in sorted(tmp_path.iterdir()):
        items, said = load(file)
        assert texts(items) == texts(load(tmp_path / "a.jsonl")[0]), file
        assert {item.domain for item in items} == {file.name.split(".")[0]}
        assert ("columns left out: url" in said) == (".csv" in file.name)


def test_a_text_without_blank_lines_is_cut_so_that_every_slice_has_some(tmp_path: Path) -> None:
    """A short one too; nothing of it is lost, and a note says it."""
    for words in ("word " * 180, "line of text\n" * 3000, "x" * 100_000):
        file = tmp_path / "mine.txt"
        file.write_text(words)
        items, said = load(file)
        assert {item.slice for item in items} == set(data_items.SLICES)
        pieces = sorted(items, key=lambda item: int(item.id.rpartition(":")[2]))
        assert "".join(piece.text for piece in pieces) == words
        assert "cut at line ends" in said


def test_paragraphs_that_fill_every_slice_are_cut_as_before(tmp_path: Path) -> None:
    """The digests of runs that are there must not change."""
    file = tmp_path / "mine.txt"
    file.write_text("\n\n".join(f"paragraph {n} " + "x" * 2000 for n in range(COUNT)))
    items, said = load(file)
    assert len(items) == COUNT
    assert not said


def test_too_little_text_says_how_much_is_needed_and_how_slices_are_made(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("too short")
    with pytest.raises(DataError, match=r"9 characters .* needs 800 characters.*train 10%, search"):
        load(file)
    other = tmp_path / "mine.jsonl"
    other.write_text(lines([{"text": "x", "slice": "train"}]))
    with pytest.raises(DataError, match="no text in the slices search, selection, test: it has 1"):
        load(other)


def test_a_row_that_is_no_item_says_what_it_has_and_how_to_convert_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text(lines([{"body": "text", "url": "u"}]))
    with pytest.raises(DataError, match=r"mine.jsonl:1: no item: it has body, url.*'COLUMN'"):
        load(file)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"text": "x"}\n{"text": "y"}', "must end in .jsonl"),
        ("a.json", '{"text": "x"}', "must be an array"),
        ("a.json", "[1]", "element 1: must be an object or a text"),
        ("a.jsonl", "[]", "belongs into a file that ends in .json"),
        ("a.csv", 'text,b\n"x', "not CSV"),
        ("a.csv", "text,b\nx,y,z", "row 2: has not as many fields"),
        ("a.jsonl.gz", "no gzip", "cannot be read: Not a gzipped file"),
        ("a.parquet", "no parquet", "cannot be read as Parquet"),
        ("a.xlsx", "x", "neither .jsonl nor .txt"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_named(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        load(tmp_path / name)


def test_parquet_without_its_package_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"x")
    with pytest.raises(DataError, match=r"pip install 'pyarrow>=17'"):
        load(tmp_path / "a.parquet")


def test_a_link_to_itself_is_an_error_and_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "loop.txt").symlink_to(tmp_path / "loop.txt")
    with pytest.raises(DataError, match=r"loop.txt is a link to itself"):
        data_settings.given([tmp_path / "loop.txt"], Weighting())


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """Also in a folder, where two of them blocked every check of a server."""
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path / "pipe.txt", tmp_path):
        with pytest.raises(DataError, match=r"pipe.txt is a named pipe or a device.*cat"):
            load(path)


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_formats, "MOST_BYTES", 1000)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"x" * 2000))
    with pytest.raises(DataError, match="unpacks to more than"):
        load(tmp_path / "a.txt.gz")


def test_a_parquet_file_that_unpacks_to_too_much_is_refused_before_a_row_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the sizes that it states: a small file stands for two megabytes of text."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    file = tmp_path / "bomb.parquet"
    rows = [f"{n:04} " * 400 for n in range(1000)]
    parquet.write_table(pa.table({"text": rows}), file, compression="zstd", use_dictionary=False)
    monkeypatch.setattr(file_formats, "MOST_BYTES", 1 << 20)
    assert file.stat().st_size < 1 << 20
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", None)
    with pytest.raises(DataError, match=r"bomb\.parquet unpacks to more than the 1,048,576 bytes"):
        load(file)


def test_a_value_that_repeats_in_a_parquet_file_is_refused_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored once, so the file's own sizes are small: 0.1 MB there, 100 MB as rows."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    file = tmp_path / "bomb.parquet"
    parquet.write_table(pa.table({"text": ["x" * 100_000] * 1000}), file)
    metadata = parquet.ParquetFile(file).metadata
    most = 4_000_000
    assert metadata.row_group(0).total_byte_size < most
    monkeypatch.setattr(file_formats, "MOST_BYTES", most)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"bomb\.parquet unpacks to more than the 4,000,000 bytes"):
        for _ in file_formats.rows(file, lambda words: None):
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Two batches at most: the one that is read and the one before it.
    assert peak < 3 * most


@pytest.mark.parametrize(("name", "place"), [("a.json.gz", "a.json.gz"), ("a.jsonl", "a.jsonl:1")])
def test_a_json_document_of_many_lists_is_refused_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: str
) -> None:
    """A megabyte can unpack to a gigabyte of `[],`, which is twenty gigabytes of memory."""
    monkeypatch.setattr(file_formats, "MOST_PARTS", 1000)
    for count, words in ((1000, f"{place}: more than 1,000 lists and objects"), (900, "must be")):
        content = "[" + ",".join(["[]"] * count) + "]"
        raw = gzip.compress(content.encode()) if name.endswith(".gz") else content.encode()
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(DataError, match=words):
            load(tmp_path / name)


def test_brackets_in_texts_are_no_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code is full of them."""
    monkeypatch.setattr(file_formats, "MOST_PARTS", 100)
    row = {"id": "a", "domain": "d", "slice": "test", "text": '[[{"' * 500}
    (tmp_path / "a.json").write_text(json.dumps([row]))
    [(_, _, read)] = file_formats.rows(tmp_path / "a.json", lambda words: None)
    assert read["text"] == row["text"]


def test_a_folder_is_its_jsonl_and_text_files_or_else_the_others(tmp_path: Path) -> None:
    """As before where there are some: tables beside them were never read."""
    (tmp_path / "b.csv").write_text("text\n" + "".join(f"row {n}\n" for n in range(COUNT)))
    assert {item.domain for item in load(tmp_path)[0]} == {"b"}
    (tmp_path / "a.jsonl").write_text(lines(PLAIN))
    assert {item.domain for item in load(tmp_path)[0]} == {"a"}


def test_long_lines_take_time_by_their_length(tmp_path: Path) -> None:
    """Ten megabytes a line, one in every slice."""
    file = tmp_path / "long.jsonl"
    file.write_text(lines([{"text": "a b " * 2_500_000, "slice": s} for s in data_items.SLICES]))
    items, _ = load(file)
    assert [len(item.text) for item in items] == [10_000_000] * 4


@pytest.mark.parametrize("end", ["csv", "json", "jsonl"])
def test_the_byte_order_mark_of_a_spreadsheet_is_no_part_of_the_data(tmp_path: Path, end: str) -> None:
    """Excel's "CSV UTF-8" begins with one: the first column was called otherwise than it reads."""
    rows = [{"text": f"text {n}", "id": f"i{n}"} for n in range(COUNT)]
    content = {
        "csv": "text,id\n" + "".join(f"{row['text']},{row['id']}\n" for row in rows),
        "json": json.dumps(rows),
        "jsonl": lines(rows),
    }[end]
    file = tmp_path / f"mine.{end}"
    file.write_text("\ufeff" + content, "utf-8")
    items, said = load(file)
    assert {(item.id, item.text) for item in items} == {(r["id"], r["text"]) for r in rows}
    assert not said


def table(file: Path, rows: list[dict[str, Any]]) -> Path:
    """The rows in a file of the kind that its name says."""
    if file.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), file)
    elif file.suffix == ".csv":
        cells = [["" if value is None else str(value) for value in row.values()] for row in rows]
        file.write_text("\n".join(map(",".join, [list(rows[0]), *cells])) + "\n")
    else:
        file.write_text(lines(rows) if file.suffix == ".jsonl" else json.dumps(rows))
    return file


TABLES = ["csv", "parquet", "json"]


@pytest.mark.parametrize("end", TABLES)
@pytest.mark.parametrize("names", [("text", "url"), ("question", "answer")])
def test_rows_without_text_are_left_out_of_a_table_and_counted(
    tmp_path: Path, end: str, names: tuple[str, str]
) -> None:
    """One empty cell refused a table of thousands of rows."""
    one, other = names
    rows = [{one: f"text {n}", other: "u"} for n in range(COUNT)]
    rows[3][one] = rows[5][one] = rows[6][one] = ""
    items, said = load(table(tmp_path / f"mine.{end}", rows))
    assert len(items) == COUNT - 3
    assert f"mine.{end}: 3 rows without text left out." in said


@pytest.mark.parametrize("end", TABLES)
def test_a_table_of_empty_texts_only_is_refused(tmp_path: Path, end: str) -> None:
    file = table(tmp_path / f"mine.{end}", [{"text": "", "url": "u"}] * COUNT)
    with pytest.raises(DataError, match="no item: it has text, url"):
        load(file)


def test_a_question_whose_prompt_is_empty_is_one_in_a_json_file_too(tmp_path: Path) -> None:
    rows = [{"prompt": "", "choices": ["a", "b"], "answer": 0}, *PLAIN]
    assert len(load(table(tmp_path / "mine.json", rows))[0]) == COUNT + 1


@pytest.mark.parametrize("end", [*TABLES, "jsonl"])
def test_an_id_may_be_a_whole_number_in_every_kind_of_file(tmp_path: Path, end: str) -> None:
    """CSV took it, and the same table as Parquet was refused."""
    rows = [{"id": n, "text": f"text {n}"} for n in range(COUNT)]
    items, _ = load(table(tmp_path / f"mine.{end}", rows))
    assert {item.id for item in items} == {str(n) for n in range(COUNT)}


@pytest.mark.parametrize("end", [*TABLES, "jsonl"])
def test_columns_of_other_people_are_left_out_and_named(tmp_path: Path, end: str) -> None:
    rows = [{"text": f"text {n}", "url": "u", "day": 3} for n in range(COUNT)]
    items, said = load(table(tmp_path / f"mine.{end}", rows))
    assert len(items) == COUNT
    assert f"{'keys' if 'json' in end else 'columns'} left out: day, url" in said


@pytest.mark.parametrize("end", [*TABLES, "jsonl"])
def test_the_advice_for_rows_that_are_no_items_helps_with_that_kind_of_file(
    tmp_path: Path, end: str
) -> None:
    """The command is run as it is printed, with the column's name."""
    file = table(tmp_path / f"old.{end}", [{"body": f"text {n}", "url": "u"} for n in range(COUNT)])
    with pytest.raises(DataError, match=r"no item: it has body, url") as caught:
        load(file)
    _, _, advice = str(caught.value).partition("To make texts of a column")
    if end == "csv":
        assert "name it text in the first row" in advice
        return
    command = advice.removeprefix(": ").replace("COLUMN", "body").replace("python", sys.executable, 1)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert texts(load(tmp_path / f"new.{end}")[0]) == {f"text {n}" for n in range(COUNT)}


def test_a_folder_says_what_of_it_is_not_read(tmp_path: Path) -> None:
    """A licence was measured in the place of the table beside it, silently."""
    (tmp_path / "LICENSE.txt").write_text("Permission is granted.\n" * 300)
    (tmp_path / "train.csv").write_text("text\n" + "".join(f"row {n}\n" for n in range(COUNT)))
    (tmp_path / "notes.md").write_text("notes")
    items, said = load(tmp_path)
    assert {item.domain for item in items} == {"LICENSE"}
    assert "LICENSE.txt of this folder is read, and not train.csv: name the files" in said


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.json", "a.parquet"])
def test_a_file_that_is_too_large_to_be_read_whole_is_refused(tmp_path: Path, name: str) -> None:
    """A sparse file of gigabytes took a worker's memory as soon as a run named it."""
    with (tmp_path / name).open("wb") as file:
        file.truncate(8 << 30)
    for path in (tmp_path / name, tmp_path):
        if path.suffix or file_formats.kind(Path(name)) in data_items.IN_FOLDERS:
            with pytest.raises(DataError, match=r"more than the 1,073,741,824 that are read: split"):
                load(path)


def test_items_that_a_run_wrote_are_read_whatever_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are all data of a run in one file; a run that began must go on."""
    file = table(tmp_path / "items.jsonl", PLAIN)
    monkeypatch.setattr(file_formats, "MOST_BYTES", 10)
    assert len(data_items.load([file], from_program=True)) == COUNT
