"""Docstrings are plain: they open with what the thing does, and name who acts.

`python -m tests.unit.house.test_prose FOLDER…` prints every place that does not.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: Folders that keep to the rules; the others follow.
FOLDERS = (
    "events", "runs", "weights", "evaluation", "evomerge", "phases", "worker", "agent_forge",
    "benchmarks",
)  # fmt: skip

#: No function's docstring opens with one of these: it opens with a verb in the imperative.
OPENINGS = re.compile(
    "what|whether|where|who|whom|whose|why|how|when|which|of|somebody|nobody|everybody|anybody|"
    "the|a|an|one|all|every|each|both|as|by|in|on|for|from|with|without|not|no|nothing|none|true|"
    "false|it|this|that|these|those|there|see|is|are|was|has|have|may|must|same|at|to|if"
)
#: Words without a noun behind them, and turns that are not current English.
BARRED = (
    "somebody", "nobody", "anybody", "everybody", "whoever", "whatever", "anew", "of before",
    "so many", "so much", "as it were", "in so many words",
)  # fmt: skip
_BARRED = re.compile(rf"\b({'|'.join(BARRED)})\b", re.IGNORECASE)


def _is_property(node: ast.AST) -> bool:
    names = [ast.unparse(d) for d in getattr(node, "decorator_list", [])]
    return any(name.endswith(("property", ".setter")) for name in names)


def faults(file: Path) -> Iterator[str]:
    """Yield a line for each docstring that breaks a rule."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if not isinstance(node, kinds):
            continue
        text = ast.get_docstring(node) or ""
        place = f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
        first = re.match(r"[\w`]+", text)
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        opening = first[0].lower() if first else ""
        if is_function and not _is_property(node) and OPENINGS.fullmatch(opening):
            yield f"{place}: opens with {first[0] if first else ''!r}: {text.splitlines()[0]}"
        for found in _BARRED.finditer(text):
            yield f"{place}: says {found[0]!r}"


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_open_with_a_verb_and_name_who_acts(folder: str) -> None:
    """A tired stranger reads each once."""
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    found = [fault for file in files for fault in faults(file)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", ["Whether it is so.", "Of somebody.", "Return what nobody reads."])
def test_the_check_can_fail(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that cannot fail is a defect."""
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    file = tmp_path / "m.py"
    file.write_text(f'def f():\n    """{text}"""\n', "utf-8")
    assert list(faults(file))


if __name__ == "__main__":
    for folder in sys.argv[1:] or FOLDERS:
        whole = ROOT / folder
        for one in sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]:
            for line in faults(one):
                sys.stdout.write(f"{line}\n")
