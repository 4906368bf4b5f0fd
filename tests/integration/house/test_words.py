"""Docstrings, docs and the dashboard's strings are in plain, current English.

`python -m tests.integration.house.test_words` prints every fault.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = (
    "agent_forge",
    "api",
    "benchmarks",
    "cli",
    "docs",
    "evaluation",
    "events",
    "evomerge",
    "pipeline",
    "phases",
    "runs",
    "search",
    "studies",
    "testing",
    "tools",
    "weights",
    "worker",
)
#: Pages that describe the past: a changelog quotes what it replaced.
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")

#: No docstring opens with one of these: they introduce a clause without its noun.
CLAUSES = (
    "what|whatever|whether|where|who|whoever|whom|whose|why|how|when|which|of|somebody|nobody|"
    "everybody|anybody|until|so|else|it|this|that|these|those|there|they"
)
#: No function's docstring opens with one of these either: it opens with an imperative verb.
NOUN_PHRASES = (
    "the|a|an|one|two|three|four|all|any|some|every|each|everything|anything|both|another|as|by|in|"
    "on|for|from|between|with|without|not|no|nothing|none|once|only|always|true|false|our|their|its|"
    "is|are|was|has|may|must|same|equal|at|to|if|everything|number|names|rows|base|settings|"
    "sizes|slice|texts|tokens|lines|events|results|scores|folders|digests|warnings"
)
#: Words without a noun behind them, and turns that are not current English.
BARRED = (
    "somebody",
    "nobody",
    "anybody",
    "everybody",
    "whoever",
    "whatever",
    "anew",
    "of before",
    "so many",
    "so much",
    "as it were",
    "whether or no",
    "theirs",
    "thereby",
    "said again",
    "admins may everything",
    "leave it",
    "who are you",
    "may not do that",
    "too much to do",
    "first mend",
    "time at them",
    "is like that",
    "as one types",
    "mends it",
)

_CLAUSE = re.compile(CLAUSES)
_NOUN_PHRASE = re.compile(NOUN_PHRASES)
#: "It is none" for "it is missing"; "there is none" is English, and None is a value.
_BARRED = re.compile(rf"\b(?i:{'|'.join(BARRED)})\b|(?<!there )\b(?:is|are) none\b")
#: Code in prose, and addresses of links: names in them are not English.
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", re.DOTALL)
#: TypeScript: comments, strings, and text between two tags.
_COMMENT = r"//[^\n]*|/\*.*?\*/"
_STRING = r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`'
_TOKEN = re.compile(rf"(?P<comment>{_COMMENT})|(?P<string>{_STRING})", re.DOTALL)
_TEXT = re.compile(r"(?:(?<!=)>|\})([^<>{}]*[A-Za-z][^<>{}]*)(?=[<{])")


def barred(text: str) -> Iterator[str]:
    """Yield the barred words of a text, code left out."""
    yield from (found[0] for found in _BARRED.finditer(_CODE.sub(" ", text)))


def _is_exempt(node: ast.AST) -> bool:
    """Return True for properties, which are nouns, and tests, whose docstrings say why."""
    names = [ast.unparse(d) for d in getattr(node, "decorator_list", [])]
    return getattr(node, "name", "").startswith("test_") or any(
        name.endswith(("property", ".setter")) for name in names
    )


def docstring_faults(source: str, place: str) -> Iterator[str]:
    """Yield a line for each docstring of a module that breaks a rule."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node) or ""
        at = f"{place}:{getattr(node, 'lineno', 1)}"
        first = re.match(r"[\w`]+", text)
        opening = first[0].lower() if first else ""
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if not _is_exempt(node) and (
            _CLAUSE.fullmatch(opening) or (is_function and _NOUN_PHRASE.fullmatch(opening))
        ):
            yield f"{at}: opens with {opening!r}: {text.splitlines()[0]}"
        if is_function and not _is_exempt(node) and text and not text[0].isalpha():
            yield f"{at}: opens with no verb: {text.splitlines()[0]}"
        yield from (f"{at}: says {word!r}" for word in barred(text))


#: Blocks of commands and recorded output: what a model says is not ours.
_RECORDED = re.compile(r"(?<=\n\n)(?: {4}.*\n?)+")


def page_faults(text: str, place: str) -> Iterator[str]:
    """Yield a line for each barred word of a Markdown page."""
    blank = lambda found: "\n" * found[0].count("\n") + " "  # noqa: E731
    plain = _CODE.sub(blank, _RECORDED.sub(blank, text))
    for found in _BARRED.finditer(plain):
        yield f"{place}:{plain[: found.start()].count(chr(10)) + 1}: says {found[0]!r}"


def shown_texts(source: str) -> Iterator[str]:
    """Yield the strings and the JSX text of a TypeScript module; comments are left out."""
    yield from (found["string"] for found in _TOKEN.finditer(source) if found["string"])
    without_comments = re.sub(_COMMENT, " ", source, flags=re.DOTALL)
    yield from (found[1] for found in _TEXT.finditer(without_comments))


def shown_faults(source: str, place: str) -> Iterator[str]:
    """Yield a line for each barred word that a page of the dashboard shows."""
    for text in shown_texts(source):
        yield from (f"{place}: says {found[0]!r}: {text[:80]}" for found in _BARRED.finditer(text))


def _in(folder: str) -> Iterator[str]:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for file in files:
        yield from docstring_faults(file.read_text("utf-8"), str(file.relative_to(ROOT)))


def _in_pages() -> Iterator[str]:
    for file in sorted(file for pattern in PAGES for file in ROOT.glob(pattern)):
        yield from page_faults(file.read_text("utf-8"), str(file.relative_to(ROOT)))


def _in_dashboard() -> Iterator[str]:
    files = sorted((ROOT / "dashboard" / "src").rglob("*.ts*"))
    assert files
    for file in files:
        yield from shown_faults(file.read_text("utf-8"), str(file.relative_to(ROOT)))


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_open_with_a_verb_and_name_who_acts(folder: str) -> None:
    """A tired stranger reads each once."""
    found = list(_in(folder))
    assert not found, "\n".join(found)


def test_docs_are_in_plain_english() -> None:
    """Many readers' first language is another one: they look words up."""
    found = list(_in_pages())
    assert not found, "\n".join(found)


def test_the_dashboard_speaks_like_other_products() -> None:
    """Users read its buttons and messages without a manual."""
    found = list(_in_dashboard())
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "Whether it is so.",
        "Of somebody.",
        "The server's desk.",
        "(place, row) of a run.",
        "Until it has ended.",
        "Return what nobody reads.",
        "Merge so many rows.",
    ],
)
def test_a_bad_docstring_of_a_function_is_found(text: str) -> None:
    """A check that cannot fail is a defect."""
    assert list(docstring_faults(f'def f():\n    """{text}"""\n', "m.py"))


@pytest.mark.parametrize("text", ["What a run has.", "Who may do what.", "A row; it is none."])
def test_a_bad_docstring_of_a_class_or_module_is_found(text: str) -> None:
    """Classes and modules open with a noun phrase, so only clauses are barred."""
    assert list(docstring_faults(f'"""{text}"""\n', "m.py"))
    assert list(docstring_faults(f'class C:\n    """{text}"""\n', "m.py"))


def test_good_docstrings_pass() -> None:
    """Properties and classes are nouns; words in code font are names."""
    source = (
        '"""Jail of programs, as the user `nobody`."""\n'
        'class C:\n    """The cache of a run."""\n'
        '    @property\n    def end(self):\n        """The newest position."""\n'
        '    def read(self):\n        """Return the rows; raise KeyError if `key` is unknown."""\n'
        'def test_it():\n    """So that it holds."""\n'
    )
    assert list(docstring_faults(source, "m.py")) == []


def test_a_bad_sentence_of_a_page_is_found_on_its_line() -> None:
    """Code blocks and code font are left out, and still count as lines."""
    page = "Good.\n\n```\nnobody\n```\nThe user `nobody`,\nor whoever asks.\n\n    $ nobody\n"
    assert list(page_faults(page, "p.md")) == ["p.md:7: says 'whoever'"]


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("<button>Leave it</button>", 1),
        ("<p>\n  Runs of {name}, anybody's\n</p>", 1),
        ('const says = "First mend what is marked.";', 1),
        ("const title = `Whoever uses ${id}`;", 1),
        ("// somebody\n/* nobody\n else */ const n = 1;", 0),
        ('<Button label="Cancel">Cancel</Button>', 0),
        ("const f = (a: number) => a > 1 && a < 2;", 0),
    ],
)
def test_a_bad_string_of_the_dashboard_is_found(source: str, faults: int) -> None:
    """Comments are for us, strings for users."""
    assert len(list(shown_faults(source, "m.tsx"))) == faults


if __name__ == "__main__":
    lines = [*(line for folder in FOLDERS for line in _in(folder)), *_in_pages(), *_in_dashboard()]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
