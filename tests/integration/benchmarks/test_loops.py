"""`benchmarks.weights.loops`: the loops that it takes away are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.weights.loops import KERNELS, LOOPS, ROOT, Loop, without


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
def test_a_copy_of_the_program_lacks_one_loop(loop: Loop, tmp_path: Path) -> None:
    """Nothing but the choice of the loop differs, and the file is Python still."""
    text = (without(loop, tmp_path) / KERNELS / loop.file).read_text("utf-8")
    compile(text, loop.file, "exec")
    assert text.replace(loop.instead, loop.chosen, 1) == (ROOT / KERNELS / loop.file).read_text()
