"""README's Python: a file of it runs as it is, but for the names of models and data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testing.models.toys import Toys

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_the_snippet_of_the_readme_runs_as_a_file(toys: Toys, tmp_path: Path) -> None:
    """An `await` at top level ran nowhere but in a notebook."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    named = {'"A"': toys.sources[0], '"B"': toys.sources[1], '"C"': toys.sources[2]}
    named |= {'"BASE"': toys.base, '"items"': toys.data}
    for word, place in named.items():
        assert word in code
        code = code.replace(word, repr(str(place)))
    quick = '{"generations": 1, "search_windows": 2, "search_questions": 2}'
    assert '{"generations": 8}' in code
    file = tmp_path / "merge.py"
    file.write_text(code.replace('{"generations": 8}', quick), "utf-8")
    env = {**os.environ, "FORGE_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, str(file)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"key-\w+:\w{64} -?\d+\.\d+(e-\d+)?\n", done.stdout), done.stdout
