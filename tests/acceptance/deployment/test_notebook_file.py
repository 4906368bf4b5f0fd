"""The notebook of the examples, run cell by cell in a kernel of its own, as Jupyter does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testing.worlds.runs import REPOSITORY

EXECUTE = (sys.executable, "-c", "from nbclient.cli import main; main()", "--inplace")


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    """In an empty folder: a family is trained, merged, shown; a call that is made again finds it."""
    file = Path(shutil.copy(REPOSITORY / "examples" / "family.ipynb", tmp_path))
    given = json.loads(file.read_text("utf-8"))
    for cell in given["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
    file.write_text(json.dumps(given), "utf-8")
    env = {name: value for name, value in os.environ.items() if name != "FORGE_HOME"}
    told = subprocess.run(
        [*EXECUTE, file.name], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr[-2000:]
    assert (tmp_path / "notebook-home").is_dir()
    cells = [cell for cell in json.loads(file.read_text("utf-8"))["cells"] if "outputs" in cell]
    assert not any(one["output_type"] == "stream" for cell in cells for one in cell["outputs"])
    shown: list[dict[str, Any]] = [
        one["data"] for cell in cells for one in cell["outputs"] if "data" in one
    ]
    assert sum("image/png" in one for one in shown) == 2
    assert sum("image/svg+xml" in one for one in shown) == 1
    said = ["".join(one["text/plain"]) for one in shown]
    assert said[0].startswith("{'base': 'key-")
    assert any("completed, champion" in text for text in said)
    assert said[-1] == "True"
