"""Users' texts to train on: domains, slices, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import constants

from agent_forge.evaluation.data import training_texts
from agent_forge.evaluation.data.slices import SLICES
from agent_forge.runs.errors import DataError, UnavailableError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def lines(file: Path, count: int, **more: str) -> Path:
    """Write a JSONL file of short texts."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = ({"text": f"{file.stem} text number {n} of some words", **more} for n in range(count))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_a_file_is_a_domain_and_most_of_it_is_to_train_on(tmp_path: Path) -> None:
    found = training_texts.read([str(lines(tmp_path / "law.jsonl", 400))])
    sizes = {slice_: len(texts) for slice_, texts in found.documents["law"].items()}
    assert sum(sizes.values()) == 400
    assert sizes["train"] > 280
    assert all(sizes.values())


def test_a_named_domain_takes_every_file_below_its_folder(tmp_path: Path) -> None:
    """Two files of one name do not clash: ids have the folders in them."""
    lines(tmp_path / "d" / "a.jsonl", 60)
    lines(tmp_path / "d" / "deep" / "a.jsonl", 60)
    (tmp_path / "d" / "notes.md").write_text("left out")
    found = training_texts.read([f"law={tmp_path / 'd'}"])
    assert list(found.documents) == ["law"]
    names = [d.name for split in found.documents["law"].values() for d in split]
    assert len(names) == len(set(names)) == 120


def test_a_named_domain_wins_over_what_a_row_says(tmp_path: Path) -> None:
    file = lines(tmp_path / "x.jsonl", 60, domain="other")
    assert list(training_texts.read([str(file)]).documents) == ["other"]
    assert list(training_texts.read([f"law={file}"]).documents) == ["law"]


def test_an_equals_sign_in_a_path_that_exists_is_no_domain(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "a=b.jsonl", 60)
    assert training_texts.absolute("a=b.jsonl") == str(tmp_path / "a=b.jsonl")
    assert list(training_texts.read(["a=b.jsonl"]).documents) == ["a=b"]


def test_a_short_text_file_is_cut_so_that_every_slice_has_some(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("\n".join(f"line {n} of a text" for n in range(400)))
    found = training_texts.read([str(tmp_path / "t.txt")])
    split = found.documents["t"]
    assert all(split[slice_] for slice_ in SLICES)
    assert len(split["train"]) > sum(len(split[s]) for s in SLICES if s != "train")
    assert "cut at line ends" in found.notes[0]
    whole = sorted(d.text for texts in split.values() for d in texts)
    assert sum(map(len, whole)) == len((tmp_path / "t.txt").read_text())


def test_questions_are_kept_to_measure_on(tmp_path: Path) -> None:
    file = lines(tmp_path / "q.jsonl", 60)
    row = {"prompt": "2 + 2 =", "choices": [" 4", " 5"], "answer": 0, "slice": "test"}
    with file.open("a") as out:
        out.write(json.dumps(row) + "\n")
    found = training_texts.read([str(file)])
    assert [item.slice for item in found.others] == ["test"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"text": "a few words"}\n', "domain few has no text in the slices"),
        ('{"prompt": "a", "choices": ["b", "c"], "answer": 0}\n', "no text to train on"),
        ('{"text": 7}\n', r"few.jsonl:1: text"),
    ],
)
def test_too_little_or_no_text_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "few.jsonl").write_text(content)
    with pytest.raises(DataError, match=complaint):
        training_texts.read([str(tmp_path / "few.jsonl")])


def test_places_with_nothing_in_them_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"Plain text ends in \.txt"):
        training_texts.read([f"law={tmp_path / 'empty'}"])
    with pytest.raises(DataError, match="does not exist"):
        training_texts.read([f"law={tmp_path / 'nothing'}"])
    file = lines(tmp_path / "a.jsonl", 60)
    with pytest.raises(DataError, match="used twice"):
        training_texts.read([str(file), str(file)])


def test_a_data_set_of_the_hub_is_its_files_at_a_commit(tmp_path: Path, monkeypatch) -> None:
    """As the Hub's own cache has it; nothing is asked of the network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "hub" / "datasets--owner--texts"
    lines(repository / "snapshots" / COMMIT / "data" / "train.jsonl", 60)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    place = training_texts.absolute("law=hub:owner/texts")
    assert place == f"law={repository / 'snapshots' / COMMIT}"
    assert list(training_texts.read([place]).documents) == ["law"]
    with pytest.raises(DataError, match="say which domain"):
        training_texts.absolute("hub:owner/texts")
    with pytest.raises(DataError, match="hub:OWNER/NAME"):
        training_texts.absolute("law=hub:texts")
    with pytest.raises(UnavailableError, match="cannot be fetched"):
        training_texts.absolute("law=hub:owner/other")


@pytest.mark.parametrize("given", ["a" * 5000, f"law={'a' * 5000}"])
def test_a_name_that_no_file_can_have_is_refused_in_words(given: str) -> None:
    with pytest.raises(DataError, match="is no path: File name too long"):
        training_texts.absolute(given)
