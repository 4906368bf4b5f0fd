"""Reading data: every mistake a user can make is named with its file and line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.items import Problem, Question, Text
from agent_forge.evaluation.data.slices import MEASURING_SHARES, SLICES, slice_of
from agent_forge.evaluation.loading import load_items
from agent_forge.evomerge import data_settings
from agent_forge.evomerge.fitness.composite import Weighting
from agent_forge.runs.errors import DataError

#: A text in every slice: what a run needs at least.
ENOUGH = [{"id": f"text-{s}", "text": f"some {s} text", "slice": s} for s in SLICES]


def write(file: Path, *rows: object) -> Path:
    """A JSONL file: what is no string is dumped; `ENOUGH` comes last."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in (*rows, *ENOUGH)]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


def test_a_good_file_gives_its_items_sorted_by_id(tmp_path: Path):
    """The domain is the file's stem, the id the name and the line, unless they are given."""
    asked = {"prompt": "2 + 2 =", "choices": [" 4", " 5"], "answer": 0, "slice": "search"}
    items = data_items.load([write(tmp_path / "sums.jsonl", asked, "", {"id": "a", "text": "x"})])
    assert [i.id for i in items] == sorted(i.id for i in items)
    found = {i.id: i for i in items}
    assert found["sums.jsonl:1"] == Question(id="sums.jsonl:1", domain="sums", **asked)
    assert isinstance(found["a"], Text)
    assert found["a"].domain == "sums"
    assert found["a"].slice == slice_of("a", MEASURING_SHARES)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "x"', "not JSON"),
        ("[1, 2]", "must be a JSON object"),
        ('{"prompt": "x", "choices": ["a", "b"]}', "answer: Field required"),
        ('{"prompt": "x", "choices": ["a", "b"], "answer": 2}', "answer 2 is not one of 2"),
        ('{"prompt": "x", "choices": ["a", "b"], "answer": -1}', "answer: "),
        ('{"prompt": "x", "choices": ["a"], "answer": 0}', "choices: "),
        ('{"text": 5}', "text: "),
        ('{"text": "x", "slice": "validation"}', "slice: "),
        ('{"prompt": "x", "choices": ["a", "b"], "answer": 0, "colour": 1}', "colour: Extra"),
        ('{"id": "", "text": "x"}', "id: "),
        ('{"prompt": "x", "check": {"kind": "number"}}', "check.number.answer: Field required"),
        ('{"prompt": "x", "check": {"kind": "taste", "answer": 1}}', "check: .*'taste'"),
        ('{"prompt": "", "check": {"kind": "exact", "answer": "y"}}', "prompt: "),
        ('{"prompt": "x", "check": {"kind": "program", "tests": ["f(1)"]}}', "is not `assert CALL"),
        ('{"prompt": "x", "check": {"kind": "scorer", "scorer": "none"}}', "no entry point 'none'"),
        ('{"prompt": "x", "check": {"kind": "exact", "answer": "y"}, "max_tokens": 0}', "max_tokens: "),
        ('{"prompt": "x", "choices": ["a", ""], "answer": 0}', "choices.1: "),
        ('{"prompt": "x", "choices": ["a", "b"], "answer": 0, "normalise": "luck"}', "normalise: "),
        ('{"prompt": "x", "choices": ["a", "b"], "answer": 0, "grade": 10}', "grade: "),
        ('{"id": "text-train", "text": "x"}\n{"id": "text-train", "text": "y"}', "used twice"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str):
    """By file and line, counted from one, blank lines counted too."""
    file = write(tmp_path / "bad.jsonl", {"id": "good", "text": "fine"}, "", line)
    where = 4 if "used twice" in message else 3
    with pytest.raises(DataError, match=rf"bad\.jsonl:{where}: .*{message}"):
        data_items.load([file])


def test_an_id_used_in_two_files_is_named(tmp_path: Path):
    """Ids are unique over the whole data, not per file."""
    first = write(tmp_path / "a.jsonl")
    with pytest.raises(DataError, match=r"b\.jsonl:1: id 'text-train' is used twice"):
        data_items.load([first, write(tmp_path / "b.jsonl")])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jsonl", b"  \n\n", "is empty"),
        ("binary.jsonl", b"\x89PNG\xff\xfe", r"not UTF-8 text \(byte 0\)"),
        ("nul.txt", b"some\0text", "NUL bytes"),
        ("table.xlsx", b"a,b", r"neither \.jsonl nor \.txt"),
    ],
)
def test_a_file_that_is_no_data_is_named(tmp_path: Path, name: str, content: bytes, message: str):
    """A wrong path is the most frequent mistake, and must not end in a traceback."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}.*{message}"):
        data_items.load([tmp_path / name])


def test_missing_files_and_folders_without_files_are_named(tmp_path: Path):
    """And a file that cannot be read (here: a folder that is called .jsonl is still a folder)."""
    with pytest.raises(DataError, match=r"nowhere\.jsonl does not exist"):
        data_items.load([tmp_path / "nowhere.jsonl"])
    with pytest.raises(DataError, match=r"has no \.jsonl and no \.txt"):
        data_items.load([tmp_path])


def test_an_unreadable_file_is_named(tmp_path: Path):
    """A folder inside the folder that ends in .jsonl cannot be read as a file."""
    (tmp_path / "odd.jsonl").mkdir()
    with pytest.raises(DataError, match=r"odd\.jsonl cannot be read"):
        data_items.load([tmp_path])


def test_a_slice_without_text_is_named(tmp_path: Path):
    """Questions do not help: perplexity needs text in every slice."""
    file = tmp_path / "a.jsonl"
    asked = {"prompt": "x", "choices": ["a", "b"], "answer": 0, "slice": "train"}
    rows = [json.dumps(row) for row in (*ENOUGH[1:3], asked)]
    file.write_text("\n".join(rows), "utf-8")
    with pytest.raises(DataError, match="no text in the slices train, test"):
        data_items.load([file])
    file.write_text("\n".join(json.dumps(row) for row in ENOUGH[1:]), "utf-8")
    with pytest.raises(DataError, match="no text in the slice train"):
        data_items.load([file])


def test_a_folder_is_all_its_files(tmp_path: Path):
    """JSONL and text together, nothing else."""
    write(tmp_path / "a.jsonl")
    (tmp_path / "b.txt").write_text("just text", "utf-8")
    (tmp_path / "readme.md").write_text("no data", "utf-8")
    assert {i.domain for i in data_items.load([tmp_path])} == {"a", "b"}


def test_a_text_file_is_cut_at_paragraphs(tmp_path: Path):
    """1,500 + 600 characters pass 2,000 and make the first piece, the rest the second."""
    (tmp_path / "book.txt").write_text("\n\n".join(["a" * 1500, "b" * 600, "c"]), "utf-8")
    items = data_items.load([write(tmp_path / "a.jsonl"), tmp_path / "book.txt"])
    pieces = [i.text for i in items if isinstance(i, Text) and i.domain == "book"]
    assert pieces == ["a" * 1500 + "\n\n" + "b" * 600, "c"]


def test_blank_paragraphs_at_the_end_make_no_item(tmp_path: Path):
    """A piece of white space predicts nothing."""
    (tmp_path / "book.txt").write_text("a" * 2500 + "\n\n   \n\n  ", "utf-8")
    items = data_items.load([write(tmp_path / "a.jsonl"), tmp_path / "book.txt"])
    assert sum(i.domain == "book" for i in items) == 1


def test_two_files_of_one_stem_do_not_collide(tmp_path: Path):
    """notes.txt beside notes.jsonl, or a/part.txt and b/part.txt: nobody gave an id twice."""
    write(tmp_path / "notes.jsonl", {"text": "one", "slice": "test"})
    (tmp_path / "notes.txt").write_text("a" * 3000 + "\n\nmore", "utf-8")
    assert len(data_items.load([tmp_path])) == 2 + 1 + len(ENOUGH)


def test_an_id_that_is_no_unicode_is_named(tmp_path: Path):
    r"""JSON allows a lone surrogate ("\ud800"), UTF-8 does not."""
    file = write(tmp_path / "odd.jsonl", '{"id": "\\ud800", "text": "x"}')
    with pytest.raises(DataError, match=r"odd\.jsonl:1"):
        data_items.load([file])


def test_a_line_of_brackets_is_named(tmp_path: Path):
    """Nesting beyond the parser's depth is one more way of not being JSON."""
    with pytest.raises(DataError, match=r"deep\.jsonl:1"):
        data_items.load([write(tmp_path / "deep.jsonl", "[" * 200_000)])


def test_the_slice_of_an_id_never_moves():
    """Adding items must not move others between search and test; the hash is frozen here."""
    names = ["a", "b", "c", "d", "e", "f", "g", "h"]
    assert [slice_of(n, MEASURING_SHARES) for n in names] == [
        "test",
        "search",
        "search",
        "train",
        "search",
        "search",
        "test",
        "selection",
    ]


def test_slices_have_their_shares():
    """10, 40, 25 and 25 % of 4,000 ids, each within 5·√(n·p·(1 − p))."""
    found = [slice_of(f"item-{i}", MEASURING_SHARES) for i in range(4000)]
    for slice_, share in MEASURING_SHARES.items():
        allowed = 5 * (4000 * share * (1 - share)) ** 0.5
        assert abs(found.count(slice_) - 4000 * share) <= allowed


def test_shares_that_add_up_to_less_than_one_still_place_everything():
    """0.1 + 0.2 + … may end at 0.999…: the last slice takes the rest."""
    nothing = {"train": 0.0, "search": 0.0, "selection": 0.0, "test": 0.0}
    assert slice_of("x", nothing) == "test"  # pyright: ignore[reportArgumentType]


def test_a_digest_changes_with_any_item():
    """What a run was measured on is pinned by it."""
    a = data_items.from_rows(ENOUGH_WITH_DOMAIN)
    changed = [{**ENOUGH_WITH_DOMAIN[0], "text": "other"}, *ENOUGH_WITH_DOMAIN[1:]]
    assert data_items.digest(a) == data_items.digest(
        data_items.from_rows(list(reversed(ENOUGH_WITH_DOMAIN)))
    )
    assert data_items.digest(a) != data_items.digest(data_items.from_rows(changed))
    assert data_items.digest(a) != data_items.digest(a[1:])


ENOUGH_WITH_DOMAIN = [{**row, "domain": "d"} for row in ENOUGH]


def test_a_line_with_a_check_is_a_problem(tmp_path: Path):
    """With the defaults that docs/fitness.md names."""
    row = {"id": "p", "prompt": "6 * 7 =", "check": {"kind": "number", "answer": 42}, "slice": "test"}
    (found,) = [i for i in data_items.load([write(tmp_path / "m.jsonl", row)]) if i.id == "p"]
    assert isinstance(found, Problem)
    assert (found.max_tokens, found.stop, found.grade) == (64, (), 0)
    assert not data_items.runs_code(found)


def test_the_digest_of_older_data_has_not_changed():
    """A run of before must find its data as it recorded it: what is not said is not hashed."""
    rows = [
        {"id": "a", "domain": "d", "slice": "test", "text": "x"},
        {"id": "b", "domain": "d", "slice": "test", "prompt": "p", "choices": ["1", "2"], "answer": 1},
    ]
    lines = [json.dumps(row, sort_keys=True, separators=(",", ":")) + "\n" for row in rows]
    expected = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert data_items.digest(data_items.from_rows(rows)) == expected
    harder = data_items.from_rows([rows[0], {**rows[1], "grade": 1}])
    assert data_items.digest(harder) != expected


def test_a_domain_that_counts_must_be_measured(tmp_path: Path):
    """In search, selection and test; the message names what there is."""
    items = data_items.load([write(tmp_path / "math.jsonl")])
    data_settings.check_weights(items, {"math": 1.0})
    data_settings.check_weights(items, {})
    with pytest.raises(DataError, match=r"domain 'code'.*search, selection, test.*domains are math"):
        data_settings.check_weights(items, {"math": 0.5, "code": 0.5})


def test_what_is_given_is_a_place_or_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Paths become absolute; weights of domains mean the built-in four where nothing is given."""
    monkeypatch.chdir(tmp_path)
    scheme = Weighting(domains={"code": 1.0})
    assert data_settings.given(["x.jsonl"], scheme) == (str(tmp_path / "x.jsonl"),)
    assert data_settings.given([], scheme) == ("builtin:domains",)
    assert data_settings.given([], Weighting()) == ()
    assert data_settings.given(["builtin:domains"], Weighting()) == ("builtin:domains",)


def test_built_in_domains_stand_alone(tmp_path: Path):
    """Beside other data their slices and weights would be somebody else's."""
    with pytest.raises(DataError, match="whole in itself"):
        load_items(("builtin:domains", str(write(tmp_path / "more.jsonl"))))
