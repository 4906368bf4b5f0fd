"""Toy pipelines killed with SIGKILL: wherever it happens, the end is that of an undisturbed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_forge.pipeline.events import PipelineState
from agent_forge.runs.history import audit
from agent_forge.runs.home import Home
from testing.shares import one_quick
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_pipelines import phase
from testing.waiting import PATIENCE
from testing.worlds.runs import was_killed
from testing.worlds.warm_process import Template
from tests.integration.kinds.test_whole_runs import FAILPOINTS

#: What only a run with children passes.
OF_CHILDREN = {"child-submitted", "child-ended", "child-answered"}


def same(home: Home, run: str, digest: str) -> None:
    """The pipeline ends with this lineage, and it and its children have honest histories."""
    assert toy_runs.finish(home, run).lineage_digest() == digest
    for name in (run, f"{run}.1-first", f"{run}.2-second"):
        assert audit.audit(toy_runs.rows(home, name)) == []


def test_the_failpoints_of_a_pipeline_are_those_that_are_walked(
    home: Home, warm: Template, tmp_path: Path
) -> None:
    """A new failpoint must be killed at, too."""
    toy_pipelines.submit(home)
    out, err = warm.start(home, "p", f"trace:{tmp_path / 'trace'}").communicate(PATIENCE)
    assert out, err
    assert set((tmp_path / "trace").read_text().split()) == FAILPOINTS | OF_CHILDREN


@pytest.mark.parametrize("name", one_quick(*sorted(OF_CHILDREN)))
def test_killed_at_a_failpoint_a_pipeline_ends_as_if_undisturbed(
    honest: PipelineState, home: Home, warm: Template, name: str
) -> None:
    """SIGKILL at the first passage, and at the first of the process after it."""
    toy_pipelines.submit(home)
    for _ in range(2):
        assert was_killed(warm.start(home, "p", f"kill:{name}:1")), "not reached"
    same(home, "p", honest.lineage_digest())


@pytest.mark.soak
@pytest.mark.slow
def test_killed_at_every_passage_of_any_failpoint_a_pipeline_ends_as_if_undisturbed(
    home: Home, warm: Template
) -> None:
    """One pipeline each for the 1st, 2nd, … passage, until a process comes through."""
    phases = [phase("first", {"metric": "total", "at_least": 0}, steps=1, width=1)]
    phases.append(phase("second", steps=1, width=1, seed=2))
    toy_pipelines.submit(home, phases, "undisturbed")
    digest = toy_runs.finish(home, "undisturbed").lineage_digest()
    for count in range(1, 400):
        run = toy_pipelines.submit(home, phases, f"p{count}")
        killed = was_killed(warm.start(home, run, f"kill:{count}"))
        same(home, run, digest)
        if not killed:
            break
    assert 60 < count < 399


def test_two_processes_carry_one_pipeline(honest: PipelineState, home: Home, warm: Template) -> None:
    toy_pipelines.submit(home)
    both = [warm.start(home, "p") for _ in range(2)]
    for one in both:
        out, err = one.communicate(PATIENCE)
        assert one.returncode == 0, err
        assert out.strip() == honest.lineage_digest()
    same(home, "p", honest.lineage_digest())
