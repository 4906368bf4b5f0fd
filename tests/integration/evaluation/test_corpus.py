"""The built-in data: right answers are right, files parse, slices never share a document."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from agent_forge.evaluation.data import items
from agent_forge.evaluation.data.builtin import arithmetic, corpus
from agent_forge.evaluation.data.builtin import records as builtin_records
from agent_forge.evaluation.data.builtin import shipped_text as builtin_shipped_text
from agent_forge.evaluation.data.slices import SLICES, Document
from agent_forge.runs.errors import DataError
from benchmarks.evaluation import shipped_text


def test_arithmetic_is_right():
    """Every equation of the worksheets, by Python's own arithmetic."""
    checked = 0
    for document in arithmetic.documents(40_000, 1):
        for a, sign, b, result in re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", document.text):
            values = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}
            values["/"] = int(a) // int(b)
            assert values[sign] == int(result)
            checked += 1
        for a, b, larger in re.findall(r"larger, (\d+) or (\d+)\? (\d+)", document.text):
            assert max(int(a), int(b)) == int(larger)
        for step, terms in re.findall(r"adding (\d+): ([\d, ]+)", document.text):
            numbers = [int(n) for n in terms.split(", ")]
            assert all(y - x == int(step) for x, y in itertools.pairwise(numbers))
    assert checked > 300


def test_generated_documents_depend_on_seed_and_name_alone():
    """The first documents of a longer corpus are the same; another seed gives others."""
    for made in (arithmetic.documents, builtin_records.documents):
        short, long = list(made(5_000, 1)), list(made(20_000, 1))
        assert long[: len(short)] == short
        assert sum(len(d.text) for d in short) >= 5_000
        assert next(iter(made(5_000, 2))).text != short[0].text
        assert len({d.name for d in long}) == len(long)


def test_structured_files_parse_and_all_formats_hold_alike():
    """JSON, CSV, YAML and TOML by their own parsers; 4 to 10 records each."""
    seen = set()
    for document in builtin_records.documents(30_000, 1):
        suffix = document.name.rpartition(".")[2]
        kind = document.name.partition("-")[0]
        if suffix == "csv":
            records = list(csv.DictReader(io.StringIO(document.text)))
        else:
            parse = {"json": json.loads, "yaml": yaml.safe_load, "toml": tomllib.loads}[suffix]
            records = parse(document.text)[kind]
        assert 4 <= len(records) <= 10
        assert len({tuple(r) for r in records}) == 1
        seen.add((kind, suffix))
    assert len(seen) == 12


def test_code_is_python_and_long_files_are_cut_at_a_line():
    """From CPython's library, in the order of paths, without tests and what a build writes."""
    found = list(builtin_shipped_text.documents("code", 200_000))
    assert sum(len(d.text) for d in found) >= 200_000
    assert [d.name for d in found] == sorted(d.name for d in found)
    for document in found:
        parts = Path(document.name).parts
        assert not set(parts) & shipped_text.SKIPPED
        assert not any(part.startswith(shipped_text.BUILT) for part in parts)
        assert shipped_text.SHORTEST <= len(document.text) <= shipped_text.LONGEST
        if len(document.text) < shipped_text.LONGEST - 1000:
            compile(document.text, document.name, "exec", dont_inherit=True)


def test_a_file_that_is_no_utf8_is_passed_over(tmp_path: Path):
    """Some standard libraries have one in Latin-1."""
    file = tmp_path / "latin.py"
    file.write_bytes(b"# caf\xe9")
    assert shipped_text.readable(file) == ""
    file.write_text("x = 1\n" * 10_000, "utf-8")
    cut = shipped_text.readable(file)
    # 24,000 characters are 4,000 whole lines of six.
    assert cut == "x = 1\n" * 4_000


def test_prose_comes_in_the_order_of_topics():
    """Trained on, not measured."""
    found = list(builtin_shipped_text.documents("prose", 10_000))
    assert sum(len(d.text) for d in found) >= 10_000
    assert [d.name for d in found] == sorted(d.name for d in found)
    assert {d.domain for d in found} == {"prose"}
    assert len(list(builtin_shipped_text.documents("prose", 10**9))) > len(found)


# ---- the same everywhere --------------------------------------------------------------------

#: SHA-256 of all built-in text by slice and name, and of the items made of it, seed 0; then the same of
#: the domain `chains`, which came later.
WANTED = (
    "c2ab5e28436a425511bb57f2974e5653e2da5c89b811031fb67d6f76bf1b1693",
    "a7a9d699eeb5ba1a71e9829cdbe28c16f06cd156cbb6f030122d67e18ee486ac",
    "93486e777b7cc74d172e32bd2b8be16ea907294750c54cb6ac6ba02ff199fad4",
    "6bc243f042f0b5c88334f51636fd1bbf31170a7e74b193543ffcbd80d27d08a6",
)
DIGESTS = """
import hashlib, json
from agent_forge.evaluation.data.builtin import corpus as builtin
for domains in (builtin.KNOWN[:5], builtin.KNOWN[5:]):
    texts = builtin.corpus(0, 4_000_000, domains)
    hasher = hashlib.sha256()
    for domain, split in texts.items():
        for slice_, documents in split.items():
            for d in documents:
                hasher.update(f"{domain}/{slice_}/{d.name} {d.text} ".encode())
    rows = json.dumps(list(builtin.items(texts, 0)), sort_keys=True)
    print(hasher.hexdigest(), hashlib.sha256(rows.encode()).hexdigest())
"""
OTHERS = ("/usr/bin/python3", "python3.11", "python3.12", "python3.13", "python3.14")


def pythons() -> list[str]:
    """The interpreter of these tests, and others of this machine that are new enough."""
    found = [sys.executable]
    for name in filter(None, map(shutil.which, OTHERS)):
        asked = [name, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
            found.append(name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("python", pythons())
def test_the_text_is_the_same_whatever_python_makes_it(python: str):
    """Models are trained on it and measured on it: with other text a verdict would not travel."""
    root = Path(__file__).resolve().parents[3]
    found = subprocess.run(
        [python, "-c", DIGESTS], cwd=root, check=True, capture_output=True, text=True
    )
    assert tuple(found.stdout.split()) == WANTED


def test_the_tokenizer_is_the_same_every_time():
    """Its vocabulary has an order of its own; training tells equal pairs apart by rule."""
    from agent_forge.phases.cognate.work import train_tokenizer

    texts = [d.text for d in itertools.islice(builtin_shipped_text.documents("code", 10**9), 40)]
    one, two = (train_tokenizer(texts, 600).get_vocab() for _ in range(2))
    assert one == two


def test_the_shipped_text_comes_with_its_licence():
    """The PSF's terms; and where it comes from."""
    folder = Path(builtin_shipped_text.__file__).parent
    assert "PYTHON SOFTWARE FOUNDATION LICENSE" in (folder / "library.LICENSE.txt").read_text()
    assert "3.11.7" in (folder / "library.md").read_text()


# ---- a run without data ---------------------------------------------------------------------


@pytest.mark.slow
def test_the_larger_the_models_the_fewer_default_items():
    """A forward pass costs in proportion to the parameters; the number of items follows, by
    arithmetic alone: a run that goes on elsewhere has the same items.
    """
    assert corpus.share(1_150_080) == corpus.share(corpus.FULL_UP_TO) == 1
    assert corpus.share(2 * corpus.FULL_UP_TO) == 1 / 2
    assert corpus.share(500_000_000) == corpus.LEAST
    small, large = list(corpus.default(1_150_080)), list(corpus.default(25_576_320))
    assert large == list(corpus.default(25_576_320))
    for slice_ in ("search", "selection", "test"):
        for kind in ("text", "prompt"):
            counts = [
                sum(len(row[kind]) for row in rows if row["slice"] == slice_ and kind in row)
                for rows in (small, large)
            ]
            assert counts[1] / counts[0] == pytest.approx(corpus.share(25_576_320), rel=0.15)


# ---- questions -----------------------------------------------------------------------------


def test_an_equation_s_right_answer_is_right_and_the_others_are_wrong():
    """Four different numbers, one of which is the result."""
    asked = list(corpus.equations(list(arithmetic.documents(20_000, 1)), 40, 0))
    assert len(asked) == 40
    for item in asked:
        a, sign, b = re.findall(r"(\d+) ([-+*/]) (\d+) =$", item["prompt"])[0]
        value = {
            "+": int(a) + int(b),
            "-": int(a) - int(b),
            "*": int(a) * int(b),
            "/": int(a) // max(1, int(b)),
        }[sign]
        assert item["choices"][item["answer"]] == f" {value}"
        assert len(set(item["choices"])) == 4
        assert len(item["prompt"]) <= corpus.CONTEXT
    assert {item["answer"] for item in asked} == {0, 1, 2, 3}


def test_a_continuation_s_right_answer_is_the_line_that_follows():
    """And the prompt ends just before it."""
    documents = list(builtin_records.documents(20_000, 1))
    texts = [d.text for d in documents]
    asked = list(corpus.continuation(documents, 30, 0))
    for item in asked:
        right = item["choices"][item["answer"]]
        assert any(item["prompt"] + right in text for text in texts)
        assert item["choices"].count(right) == 1
        assert len(item["choices"]) == 4
    assert asked == list(corpus.continuation(documents, 30, 0))


def test_a_document_without_a_line_to_ask_for_is_passed_over():
    """Too short, too long or too few lines."""
    short = Document("a", "data", "x\ny\nz\n")
    usable = Document("b", "data", "\n".join(f"a line of text {i}" for i in range(9)))
    asked = list(corpus.continuation([short, usable], 4, 0))
    assert [item["id"] for item in asked] == ["next-line-0001", "next-line-0003"]


# ---- the whole corpus ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def texts() -> dict:
    """A small corpus of all three domains."""
    return corpus.corpus(1, 150_000)


def test_no_document_is_in_two_slices(texts: dict):
    """What is trained on must not be measured on."""
    assert tuple(texts) == corpus.DOMAINS
    for split in texts.values():
        assert set(split) == set(SLICES)
        names = [d.name for documents in split.values() for d in documents]
        assert len(names) == len(set(names))


def test_the_written_items_are_data_that_a_run_can_read(texts: dict, tmp_path: Path):
    """The project's own JSONL, through the user's own door; the same as without the files."""
    corpus.write(tmp_path / "corpus", texts, 1)
    loaded = items.load([tmp_path / "corpus"])
    assert loaded == items.from_rows(corpus.items(texts, 1))
    assert {item.domain for item in loaded} == set(corpus.DOMAINS)
    held = [i for i in loaded if isinstance(i, items.Text) and i.domain == "math"]
    trained = sum(len(i.text) for i in held if i.slice == "train")
    # Cut where 40,000 characters are full, and nowhere below 200 of a document.
    assert 39_000 <= trained <= corpus.HELD_OUT["train"] + 200
    asked = [i for i in loaded if isinstance(i, items.Question) and i.slice == "search"]
    assert asked
    assert all(i.slice != "train" for i in loaded if isinstance(i, items.Question))


def test_rows_of_the_built_in_corpus_are_checked_like_any_other():
    """A bug in a generator is a DataError, not a crash in the middle of a run."""
    with pytest.raises(DataError, match="built-in"):
        items.from_rows([{"id": "a", "domain": "d", "text": ""}])
