"""Results of a finished run, made and measured again as `forge verify` does it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from agent_forge.runs import kinds
from agent_forge.runs.history import repository
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.home import Home
from agent_forge.studies.making.model_files import from_nothing
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.tasks.verify_again import again


def verified_again(
    home: Home, run: str = "r", which: str | None = "all", tolerance: float | None = 0.0
) -> tuple[list[Finding], list[str]]:
    """Return what does not come out as recorded, and the lines about the rest."""
    said: list[str] = []
    with closing(home.open_store()) as store:
        rows = list(repository.history(store, run))
    return list(again(rows, Artifacts.of(home), which, tolerance, said.append)), said


def rebuilt(home: Home, state: Any, ids: Sequence[str]) -> list[Finding]:
    """Return the models of a state, which a test has forged, that do not come out again."""
    with from_nothing(Artifacts.of(home)) as cache:
        return list(kinds.of(state.kind).verification.rebuild(state, cache, ids, lambda said: None))
