"""Pipelines of long tasks whose workers are preempted: the same digests, and a part lost each."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from agent_forge.runs.home import Home
from agent_forge.runs.kinds import FURTHER
from testing.services.cluster import DRAINED, Cluster
from testing.toy import divided_kind, toy_kind, toy_pipelines, toy_runs
from testing.toy.toy_pipelines import phase
from tests.acceptance.pipeline.test_queued import ended

KNOWN = f"{toy_kind.KNOWN},{divided_kind.KNOWN}"
#: Two long tasks at once in each phase; a part is a piece of 0.4 seconds.
PHASES = [
    phase("first", {"metric": "total", "at_least": 1}, "divided", steps=1, width=2, slow=0.04, seed=1),
    phase("second", None, "divided", steps=1, width=2, slow=0.04, seed=2),
]


@pytest.fixture(autouse=True)
def kinds_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name both kinds to this process, which records no parts."""
    monkeypatch.setenv(FURTHER, KNOWN)


@pytest.fixture
def digest(tmp_path: Path) -> str:
    """The lineage digest of the pipeline when one process carries it alone."""
    home = Home(tmp_path / "alone")
    toy_pipelines.submit(home, PHASES)
    return toy_runs.finish(home, "p").lineage_digest()


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, pytest.param(100, marks=pytest.mark.soak)])
def test_preempted_at_random_moments_a_pipeline_ends_the_same_and_loses_a_part_each(
    tmp_path: Path, digest: str, count: int
) -> None:
    """Either of two workers goes, with or without a notice; a piece that is begun twice was lost."""
    rng, preempted = random.Random(count), 0
    env = {FURTHER: KNOWN, "FORGE_PART_SECONDS": "0", divided_kind.FILE: str(tmp_path / "pieces")}
    with closing(Cluster(tmp_path, env=env)) as cluster:
        cluster.worker(*DRAINED)
        cluster.worker(*DRAINED)
        for number in range(count):
            run = toy_pipelines.submit(cluster.home, PHASES, f"p{number}")
            while preempted < count and went_on(cluster, run):
                time.sleep(rng.uniform(0, 2))
                cluster.preempt(rng)
                preempted += 1
            assert ended(cluster, run).lineage_digest() == digest
            if preempted == count:
                break
    pieces = begun(tmp_path)
    assert len(pieces) == (number + 1) * 4 * divided_kind.PIECES
    assert pieces.total() - len(pieces) <= preempted
    assert preempted == count


def went_on(cluster: Cluster, run: str) -> bool:
    """Wait until a piece is begun, or the pipeline has ended; return True if it has not."""
    before = begun(cluster.folder).total()
    word = cluster.wait(
        lambda: (
            (toy_runs.state(cluster.home, run).ended and "ended")
            or (begun(cluster.folder).total() > before and "went on")
        )
    )
    return word == "went on"


def begun(folder: Path) -> Counter[str]:
    """Return piece → how often it was begun."""
    file = folder / "pieces"
    return Counter(file.read_text().split() if file.exists() else [])
