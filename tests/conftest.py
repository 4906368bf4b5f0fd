"""Fixtures for all tests. Models are made once a session and never written to."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from testing import memory_disk, shares
from testing.durations import (
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_runtest_setup,
    pytest_sessionfinish,
    pytest_terminal_summary,
)
from testing.models.toys import Toys
from testing.services.servers import Postgres, open_folder
from testing.worlds.finished_run import FinishedRun, FinishedTraining, once
from testing.worlds.warm_process import Template

__all__ = [
    "pytest_runtest_logreport",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
]

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Models of tests are so small that a second thread only waits, and files of tests run side by side.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FORGE_THREADS", "1")
# A training is one segment on every machine, unless a test says after how many steps it is cut.
os.environ.setdefault("FORGE_SEGMENT_STEPS", "1000000")
# What the device auto means here, so that a GPU changes no test; tests of GPUs name theirs.
os.environ.setdefault("FORGE_DEVICE", "cpu")
# How long an example takes says how busy the machine is.
settings.register_profile(
    "busy", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")
# pytest's variable for the place of its temporary folders; a user's own choice stays.
if "TMPDIR" not in os.environ and (memory := memory_disk.folder()):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


#: Rooms whose slow tests add next to nothing to coverage, which costs a third of their time.
UNCOVERED = (
    "acceptance",
    "golden",
    "unit",
    "integration/evaluation",
    "integration/evomerge",
    "integration/kinds",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect without looking for garbage: five of sixteen seconds, and nothing is found."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests of other shares, and measure no coverage in slow tests of some rooms."""
    root = Path(__file__).parent
    left_out = [item for item in items if not shares.has(item)]
    items[:] = [item for item in items if shares.has(item)]
    config.hook.pytest_deselected(items=left_out)
    for item in items:
        inside = item.path.relative_to(root).as_posix().startswith(UNCOVERED)
        if inside and item.get_closest_marker("slow") and not item.get_closest_marker("smoke"):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder that all workers of pytest-xdist have in common, for what one of them makes."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"


@pytest.fixture(scope="session")
def toys(session_folder: Path) -> Toys:
    """Models and data for whole runs in seconds."""
    from transformers.utils import logging

    from testing.models import toy_models

    logging.disable_progress_bar()
    folder = once(session_folder / "toys", toy_models.write)
    return toy_models.at(folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server; ask it for `new_database()`. Not to be killed: others use it."""
    with open_folder() as folder:
        server = Postgres(folder / "data")
        yield server
        server.stop()


@pytest.fixture(scope="session")
def finished_run(
    toys: Toys, session_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> FinishedRun:
    """Runs of the toys that have ended; each of them is carried out once a session."""
    place = session_folder / "finished-runs"
    return FinishedRun(toys, place, lambda: tmp_path_factory.mktemp("finished-run"))


@pytest.fixture(scope="session")
def finished_training(
    session_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> FinishedTraining:
    """Give copies of a cognate run that has ended, carried out once a session."""
    return FinishedTraining(session_folder, lambda: tmp_path_factory.mktemp("finished-training"))


@pytest.fixture(scope="session")
def warm() -> Iterator[Template]:
    """A process that has imported torch and forks one for each kill."""
    template = Template()
    yield template
    template.close()
