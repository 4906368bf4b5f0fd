"""Rows as public data sets have them: read as items, every key that is left out named, faults said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data import row_forms, training_texts
from agent_forge.evaluation.data.items import Question, Text
from agent_forge.runs.errors import DataError

COUNT = 40
#: A text in every slice: what a run needs at least.
ENOUGH = [
    {"id": f"text-{s}", "domain": "plain", "text": f"{s} text", "slice": s} for s in data_items.SLICES
]
ENDS = ["jsonl", "json", "csv", "parquet"]
MMLU = {
    "question": "What is 2 + 2?",
    "subject": "elementary_mathematics",
    "choices": ["3", "5", "four", "six"],
    "answer": 2,
}
ASKED = ("Question: What is 2 + 2?\nAnswer:", (" 3", " 5", " four", " six"), 2)


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows to a file of the kind that its name says; a CSV has every key of every row."""
    end = file.suffix.lower()
    if end == ".parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), file)
    elif end == ".csv":
        import csv

        with file.open("w", newline="") as opened:
            names = list(dict.fromkeys(key for row in rows for key in row))
            table = csv.DictWriter(opened, names)
            table.writeheader()
            table.writerows(rows)
    else:
        file.write_text(
            "\n".join(map(json.dumps, rows)) if end == ".jsonl" else json.dumps(rows), "utf-8"
        )
    return file


def read(tmp_path: Path, rows: list[dict[str, Any]], end: str = "jsonl") -> tuple[list[Any], str]:
    """Return the items of rows, without the plain texts beside them, and the notes."""
    notes: list[str] = []
    beside = write(tmp_path / "plain.jsonl", ENOUGH)
    file = write(tmp_path / f"mine.{end}", rows)
    items = data_items.load([file, beside], note=notes.append)
    return [item for item in items if item.domain != "plain"], " ".join(notes)


def asked(item: Any) -> tuple[str, tuple[str, ...], int]:
    assert isinstance(item, Question)
    return item.prompt, item.choices, item.answer


# ---- texts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["jsonl", "json", "parquet"])
def test_lines_of_the_pile_and_of_c4_are_texts_and_what_is_left_out_is_named(
    tmp_path: Path, end: str
) -> None:
    """The set of the Pile that a row is from could be its domain, and a note says so."""
    pile = [
        {"text": f"text {n}", "meta": {"pile_set_name": ("Github", "PubMed Abstracts")[n % 2]}}
        for n in range(COUNT)
    ]
    items, notes = read(tmp_path, pile, end)
    assert sorted(item.text for item in items) == sorted(row["text"] for row in pile)
    noun = "columns" if end == "parquet" else "keys"
    assert f"mine.{end}: {noun} left out: meta.pile_set_name." in notes
    assert "meta.pile_set_name has 2 different texts: write it as domain" in notes
    crawled = [
        {"text": f"text {n}", "timestamp": "2019-04-25T12:57:54Z", "url": f"https://e.org/{n}"}
        for n in range(COUNT)
    ]
    items, notes = read(tmp_path, crawled, end)
    assert len(items) == COUNT
    assert f"{noun} left out: timestamp, url." in notes
    assert "could be" not in notes
    assert "write it as domain" not in notes


def test_a_row_with_a_domain_keeps_it_and_its_id_and_slice(tmp_path: Path) -> None:
    row = {"id": 7, "domain": "law", "slice": "test", "text": "a", "url": "u"}
    items, _ = read(tmp_path, [row])
    assert items == [Text(id="7", domain="law", slice="test", text="a")]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "row",
    [
        {"question": "2 + 2?", "answer": "4"},
        {"instruction": "Add.", "output": "2"},
        {"prompt": "To be", "completion": " or not"},
        {"text": "some text"},
    ],
)
def test_every_form_of_text_names_what_it_leaves_out(tmp_path: Path, row: dict, end: str) -> None:
    """Of CSV this was said, of other files not."""
    _, notes = read(tmp_path, [{**row, "source": "u", "day": 3}] * COUNT, end)
    assert "left out: day, source." in notes


def test_keys_within_messages_are_named_too(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "Hi", "name": None},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
    ]
    items, notes = read(tmp_path, [{"messages": messages, "source": "s"}] * COUNT)
    assert items[0].text == "user: Hi\n\nassistant: "
    assert "keys left out: messages.tool_calls, source." in notes


def test_an_answer_that_is_a_number_is_one_in_every_kind_of_file(tmp_path: Path) -> None:
    """A table of CSV has texts only, and was read."""
    for end in ENDS:
        items, _ = read(tmp_path, [{"question": "2 + 2?", "answer": 4}] * COUNT, end)
        assert {item.text for item in items} == {"Question: 2 + 2?\nAnswer: 4"}


# ---- questions -------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["jsonl", "json", "parquet"])
@pytest.mark.parametrize("answer", [2, "2", "C", "c", "(C)", "four", " four "])
def test_a_question_of_mmlu_may_have_its_answer_as_place_letter_or_text(
    tmp_path: Path, answer: Any, end: str
) -> None:
    items, notes = read(tmp_path, [{**MMLU, "answer": answer}] * 8, end)
    assert {asked(item) for item in items} == {ASKED}
    assert "8 rows are read as questions" in notes
    assert "left out: subject." in notes


@pytest.mark.parametrize("end", ENDS)
def test_lettered_choices_are_a_question(tmp_path: Path, end: str) -> None:
    """They were read as the text "Answer: B", without the choices, and no word of it."""
    row = {"question": "What is 2 + 2?", "A": "3", "B": "5", "C": "four", "D": "six", "answer": "C"}
    items, notes = read(tmp_path, [{**row, "subject": s} for s in ("sums", "law") * 4], end)
    assert {asked(item) for item in items} == {ASKED}
    assert "left out: subject." in notes
    assert "subject has 2 different texts: write it as domain" in notes
    lower = {key.lower(): value for key, value in row.items()}
    assert asked(read(tmp_path, [lower], end)[0][0]) == ASKED


def test_a_table_may_have_questions_of_three_and_of_four_choices(tmp_path: Path) -> None:
    rows = [
        {"question": "Which?", "A": "a", "B": "b", "C": "c", "D": "d", "answer": "D"},
        {"question": "Which?", "A": "a", "B": "b", "C": "c", "D": "", "answer": "A"},
    ]
    for end in ENDS:
        items, _ = read(tmp_path, rows, end)
        assert [len(item.choices) for item in items] == [4, 3]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (  # ARC; its labels may be numbers that begin at 1
            {
                "id": "Mercury_1",
                "question": "Which is a gas?",
                "choices": {"text": ["iron", "air", "ice"], "label": ["1", "2", "3"]},
                "answerKey": "2",
            },
            ("Question: Which is a gas?\nAnswer:", (" iron", " air", " ice"), 1),
        ),
        (  # OpenBookQA
            {
                "question_stem": "The sun is",
                "choices": {"text": ["cold", "hot"], "label": ["A", "B"]},
                "answerKey": "B",
            },
            ("Question: The sun is\nAnswer:", (" cold", " hot"), 1),
        ),
        (
            {
                "question": "Which?",
                "choices": [{"label": "A", "text": "x"}, {"label": "B", "text": "y"}],
                "answerKey": "A",
            },
            ("Question: Which?\nAnswer:", (" x", " y"), 0),
        ),
        (
            {"question": "Which?", "options": {"A": "x", "B": "y", "C": "z"}, "answer": "C"},
            ("Question: Which?\nAnswer:", (" x", " y", " z"), 2),
        ),
        (  # PIQA
            {"goal": "Open a jar", "sol1": "Twist it.", "sol2": "Eat it.", "label": 0},
            ("Question: Open a jar\nAnswer:", (" Twist it.", " Eat it."), 0),
        ),
        (  # HellaSwag; its label is written as text
            {"ctx": "A man sits", "endings": ["down.", "up.", "in.", "out."], "label": "3"},
            ("A man sits", (" down.", " up.", " in.", " out."), 3),
        ),
    ],
)
@pytest.mark.parametrize("end", ["jsonl", "json", "parquet"])
def test_questions_of_public_data_sets_are_read(
    tmp_path: Path, row: dict, expected: tuple, end: str
) -> None:
    items, _ = read(tmp_path, [row], end)
    assert [asked(item) for item in items] == [expected]


def test_a_question_as_this_program_has_it_may_have_its_answer_as_letter_too(tmp_path: Path) -> None:
    """Its prompt and choices stay as they are."""
    row = {"prompt": "2 + 2 =", "choices": [" 3", " 4"], "answer": "B"}
    assert asked(read(tmp_path, [row])[0][0]) == ("2 + 2 =", (" 3", " 4"), 1)


def test_questions_are_measured_on_and_not_trained_on(tmp_path: Path) -> None:
    file = write(tmp_path / "law.jsonl", [{"text": f"text {n}"} for n in range(400)] + [MMLU])
    found = training_texts.read([str(file)])
    assert [asked(item) for item in found.others] == [ASKED]
    assert "law.jsonl: keys left out: subject." in found.notes


# ---- faults ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**MMLU, "answer": 4}, "its answer 4 is not one of 4 choices"),
        ({**MMLU, "answer": -1}, "its answer -1 is not one of 4 choices"),
        ({**MMLU, "answer": "E"}, "its answer 'E' is not one of 4 choices"),
        ({**MMLU, "answer": True}, r"its answer is true: give its place \(from 0\), letter or text"),
        ({**MMLU, "answer": 1.5}, "its answer is 1.5: give its place"),
        ({**MMLU, "answer": None}, "a question with choices, and no answer"),
        ({**MMLU, "choices": ["B", "A"], "answer": "B"}, r"may be the choice at any of \[0, 1\]"),
        ({**MMLU, "choices": ["1", "2", "0"], "answer": "1"}, r"any of \[0, 1\]"),
        ({**MMLU, "choices": ["1"]}, "a question has two or more"),
        ({**MMLU, "choices": ["1", " "]}, r"choice 1 \(from 0\) is ' ': a choice is a text"),
        ({**MMLU, "choices": "['1' '2']"}, "write them as a list, or as columns A, B"),
        ({**MMLU, "choices": {"text": ["a", "b"], "label": ["A"]}}, "2 texts and other labels"),
        ({**MMLU, "choices": ["four", "4", "four"]}, "the right choice ' four' is there twice"),
        (
            {"question": "Which?", "A": "a", "B": "b", "D": "d", "answer": "D"},
            "it has the choice D and no choice C",
        ),
        ({"question": "Is it?", "answer": True}, "its answer is true: an answer is a text or a"),
        ({"goal": "g", "sol1": "a", "sol2": "b", "label": -1}, "its answer -1 is not one of 2"),
        ({"text": "t", "choices": ["a", "b"], "answer": 0}, "it has text and choices"),
        ({"prompt": "p", "choices": ["a", "b"], "answer": True}, "answer: true is not a number"),
        ({"prompt": "p", "choices": ["a", "a"], "answer": 0}, "the right choice 'a' is there twice"),
        (
            {"prompt": "p", "check": {"kind": "number", "answer": False}},
            "check.number.answer: false is not a number",
        ),
        (
            {"prompt": "p", "check": {"kind": "exact", "answer": "a"}, "max_tokens": True},
            "max_tokens: true is not a number",
        ),
    ],
)
def test_what_is_wrong_with_a_row_is_said_with_its_line(
    tmp_path: Path, row: dict, message: str
) -> None:
    with pytest.raises(DataError, match=rf"mine\.jsonl:2: .*{message}"):
        read(tmp_path, [{"text": "fine"}, row])


def test_two_equal_wrong_choices_are_said(tmp_path: Path) -> None:
    """Public data sets have some; the right answer can still be found."""
    rows = [MMLU, {**MMLU, "choices": ["3", "3", "four", "six"]}]
    items, notes = read(tmp_path, rows)
    assert len(items) == 2
    assert f"1 question with two equal choices, first {tmp_path / 'mine.jsonl'}:2." in notes


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("blank", ["", " ", "\n\t\n"])
def test_blank_texts_are_left_out_and_counted(tmp_path: Path, end: str, blank: str) -> None:
    items, notes = read(tmp_path, [{"text": "a"}, {"text": blank}, {"text": "b"}], end)
    assert [item.text for item in items] == ["a", "b"]
    assert f"mine.{end}: 1 row without text left out." in notes


def test_items_that_a_run_wrote_are_read_as_they_are(tmp_path: Path) -> None:
    """An earlier version took such rows: their digest must stay, so that the run goes on."""
    common = {"domain": "plain", "slice": "test"}
    rows = [
        {"id": "a", "text": " ", **common},
        {"id": "b", "prompt": "p", "choices": ["a", "a"], "answer": 0, **common},
    ]
    items = data_items.load([write(tmp_path / "items.jsonl", [*rows, *ENOUGH])], from_program=True)
    assert [item.id for item in items[:2]] == ["a", "b"]


@pytest.mark.parametrize("end", ["jsonl", "json"])
@pytest.mark.parametrize("inner", ['"text": "a", "text": "b"', '"text": "a", "m": {"x": 1, "x": 2}'])
def test_a_key_that_is_there_twice_is_refused(tmp_path: Path, end: str, inner: str) -> None:
    """The last of them was taken, and nothing said."""
    file = tmp_path / f"mine.{end}"
    file.write_text(f"{{{inner}}}" if end == "jsonl" else f"[{{{inner}}}]")
    key = "text" if inner.count("text") == 2 else "x"
    place = r"jsonl:1" if end == "jsonl" else "json"
    with pytest.raises(DataError, match=rf"mine\.{place}: the key '{key}' is there twice"):
        data_items.load([file])


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("text,day,text\na,b,c\n")
    with pytest.raises(DataError, match=r"mine\.csv: the column 'text' is there twice"):
        data_items.load([tmp_path / "mine.csv"])
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table([["a"], ["b"]], names=["text", "text"])
    parquet.write_table(table, tmp_path / "mine.parquet")
    with pytest.raises(DataError, match=r"mine\.parquet: the column 'text' is there twice"):
        data_items.load([tmp_path / "mine.parquet"])


def test_a_key_may_hold_characters_that_steer_a_terminal_and_is_shown_without_them(
    tmp_path: Path,
) -> None:
    _, notes = read(tmp_path, [{"text": "a", "u\x1b[2J": 1}])
    assert r"keys left out: u\x1b[2J." in notes


# ---- names of files --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.JSONL", "a.Json", "a.CSV", "a.TXT", "a.PARQUET"])
def test_endings_may_be_written_in_capitals(tmp_path: Path, name: str) -> None:
    """Alone, in a folder, behind gzip, as text to train on."""
    rows = [{"text": f"text {n} of some words"} for n in range(400)]
    file = tmp_path / name
    if name.endswith("TXT"):
        file.write_text("\n\n".join(row["text"] * 90 for row in rows))
    else:
        write(file, rows)
    files = [file] if name == "a.Json" else [file, tmp_path]
    for path in files:
        assert {item.domain for item in data_items.load([path])} == {"a"}
    assert list(training_texts.read([f"law={tmp_path}"]).documents) == ["law"]
    if name != "a.PARQUET":
        import gzip

        packed = tmp_path / f"{name}.GZ"
        packed.write_bytes(gzip.compress(file.read_bytes()))
        assert {item.domain for item in data_items.load([packed])} == {"a"}


# ---- domains ---------------------------------------------------------------------------------


def test_a_domain_that_a_slice_lacks_is_said(tmp_path: Path) -> None:
    """Models would be chosen by fewer domains than they are compared on, in silence."""
    more = [{"text": "a", "domain": "law", "slice": s} for s in ("search", "test")]
    _, notes = read(tmp_path, [*more, {"text": "a", "domain": "calibration", "slice": "train"}])
    assert "domain law has no items in the slice selection: models are not measured" in notes
    assert "calibration" not in notes


def test_forms_that_are_listed_are_those_that_are_read() -> None:
    """The module's own table has a line for every form."""
    lines = [line for line in (row_forms.__doc__ or "").splitlines() if line.startswith("    ")]
    assert len(lines) == 3 + len(row_forms.FORMS)
