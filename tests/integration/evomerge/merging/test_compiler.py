"""Where compiled loops are kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing.worlds.runs import REPOSITORY

NUMBA = Path("agent_forge", "evomerge", "merging", "kernels", "numba")

MERGE = """
import torch
from agent_forge.evomerge.merging.kernels.numba import compiler
from agent_forge.evomerge.merging.kernels.numba.vectors import add_to
print(compiler._folder(), compiler.is_new())
a = torch.ones(3).numpy()
add_to(a, a)
print(a.tolist())
"""


def run(package: Path, cache: Path) -> list[str]:
    env = {**os.environ, "PYTHONPATH": str(package), "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", MERGE], env=env, capture_output=True, text=True, check=True, cwd=cache
    )
    return done.stdout.splitlines()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package that nothing was compiled for."""
    import shutil

    ignore = shutil.ignore_patterns("__pycache__", "site")
    shutil.copytree(REPOSITORY / "agent_forge", tmp_path / "lib" / "agent_forge", ignore=ignore)
    (tmp_path / "cache").mkdir()
    return tmp_path / "lib"


@pytest.mark.slow
def test_a_change_in_any_of_the_files_is_another_cache(package: Path, tmp_path: Path) -> None:
    """Numba itself sees only changes of the file of the function."""
    folder, values = run(package, tmp_path / "cache")
    assert folder.split()[0].startswith(str(package))
    assert folder.endswith("True")
    assert values == "[2.0, 2.0, 2.0]"
    kept = list(Path(folder.split()[0]).rglob("*.nbi"))
    assert kept
    assert run(package, tmp_path / "cache")[0].split()[0] == folder.split()[0]
    changed = package / NUMBA / "dtypes.py"
    changed.write_text(changed.read_text("utf-8") + "\n# changed\n", "utf-8")
    assert run(package, tmp_path / "cache")[0].split()[0] != folder.split()[0]


@pytest.mark.slow
def test_without_a_writable_package_the_user_s_cache_is_taken(package: Path, tmp_path: Path) -> None:
    (package / NUMBA / "__pycache__").write_text("a file where the folder would be")
    folder, values = run(package, tmp_path / "cache")
    assert folder.startswith(str(tmp_path / "cache" / "agent-forge"))
    assert values == "[2.0, 2.0, 2.0]"
    assert list((tmp_path / "cache" / "agent-forge").rglob("*.nbi"))


@pytest.mark.slow
def test_where_nothing_can_be_written_loops_are_compiled_anew(package: Path, tmp_path: Path) -> None:
    (package / NUMBA / "__pycache__").write_text("a file")
    (tmp_path / "cache" / "agent-forge").write_text("a file")
    folder, values = run(package, tmp_path / "cache")
    assert folder == "None True"
    assert values == "[2.0, 2.0, 2.0]"
