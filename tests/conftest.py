"""Fixtures that everybody may use. Models are made once a session and never written to."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers import Postgres

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@dataclass(frozen=True)
class Toys:
    """A base, three sources and data, tiny."""

    base: Path
    sources: tuple[Path, ...]
    data: Path

    @property
    def names(self) -> str:
        """The sources as `--base-models` takes them."""
        return ",".join(map(str, self.sources))


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Toys:
    """Models and data for whole runs in seconds."""
    from transformers.utils import logging

    from tests import models

    logging.disable_progress_bar()
    folder = tmp_path_factory.mktemp("toys")
    base, sources = models.family(folder / "models")
    return Toys(base, tuple(sources), models.data(folder / "data"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server; ask it for `new_database()`. Not to be killed: others use it."""
    # Not below pytest's own folder, which every new session closes to other users: the server is one.
    folder = Path(tempfile.mkdtemp(prefix="forge-postgres-"))
    server = Postgres(folder)
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)
