"""Checks of a finished run that tests of several kinds share: made again, forged, shown, forecast."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from agent_forge.cli import kind_views
from agent_forge.runs import kinds
from agent_forge.runs.history import repository
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.asked import Lookup, RunRequest
from agent_forge.runs.kinds.view import overview
from agent_forge.studies.making.model_files import from_nothing
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.tasks.verify_again import again
from testing.worlds.runs import REPOSITORY


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


def in_folder(home: Home, state: Any, folder: Path, **changes: Any) -> list[Any]:
    """Return what is wrong in a folder of a run's result, whose document has other fields."""
    verification = kinds.of(state.kind).verification
    document = verification.document(folder)
    assert document is not None
    return list(verification.folder(home, folder, {**document, **changes}, state, True))


def written_again(home: Home, state: Any, folder: Path) -> Path:
    """Return the folder of a run's result, written again in a copy of the home."""
    recipe, storage = state.completed.models["model"].recipe_id, kinds.of(state.kind).storage
    copied = copy_of(home, folder)
    return Path(storage.materialise(copied, state, state.head, recipe, [folder / "kept"]))


def copy_of(home: Home, folder: Path) -> Home:
    """Return a copy of a home, below a folder."""
    return Home(Path(shutil.copytree(home.folder, folder / "home")))


def changed(state: Any, **fields: Any) -> Any:
    """Return a copy of a state with other fields, which remembers nothing of its script."""
    copied = type(state)()
    copied.__dict__.update(state.__dict__ | {"memory": {}, **fields})
    return copied


def shown_early(state: Any) -> Any:
    """Return the overview of a run when it was only submitted."""
    early = type(state)()
    early.submitted, early.run = state.submitted, state.run
    return overview(early)


def announced(state: Any, folder: Path, **more: str) -> str:
    """Return what a terminal says at the end of a run whose result is in a folder."""
    with CliRunner().isolation() as streams:
        kind_views.of(state.kind).announce(state, {"folder": str(folder), **more}, state.run)
    return streams[0].getvalue().decode()


def assert_amounts(forecast: Any) -> None:
    """Check that a forecast has time, disk and memory, each above zero."""
    for amount in (forecast.seconds, forecast.disk, forecast.memory):
        assert amount.value is not None
        assert amount.value > 0


def kinds_of_example(name: str) -> list[str]:
    """Return the kinds of the phases of the pipeline `examples/NAME.toml`, which can start."""
    settings = tomllib.loads((REPOSITORY / "examples" / f"{name}.toml").read_text())
    plan = kinds.of("pipeline").plan(RunRequest("pipeline", settings), Lookup())
    return [phase.kind for phase in plan.config.phases]
