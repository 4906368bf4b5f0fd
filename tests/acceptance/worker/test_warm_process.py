"""Processes forked from a warm template end as those of a fresh interpreter do."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_forge.runs.home import Home
from testing.waiting import PATIENCE
from testing.worlds.warm_process import Template


@pytest.mark.slow
def test_an_error_of_a_forked_process_is_told_with_its_exit_code(
    warm: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that fails for another reason must not look like a killed one."""
    Home(tmp_path).open_store().close()
    process = warm.start(Home(tmp_path), "no-such-run")
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert "run 'no-such-run' is not known" in err
    monkeypatch.setenv("FORGE_THREADS", "none")
    process = warm.start(Home(tmp_path), "no-such-run")
    assert "FORGE_THREADS" in process.communicate(timeout=PATIENCE)[1], "it has another environment"
