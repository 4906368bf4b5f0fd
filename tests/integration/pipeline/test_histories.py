"""Forks, archives and verification of toy pipelines: with their children, and against forgers.

The forger computes every hash again, so that the chains hold.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agent_forge.events import ArchiveError, Envelope, archive, canonical_json
from agent_forge.pipeline.events import PipelineState
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.history import audit, children, repository
from agent_forge.runs.home import Home
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import fork as forks
from agent_forge.worker.exports import archive as archives
from agent_forge.worker.exports import archive as run_archive
from agent_forge.worker.exports.archive import ArchivedLog
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_pipelines import TWO, phase
from tests.integration.cli.test_forge import call, succeeds
from tests.integration.kinds.test_forgeries import relinked

Streams = dict[str, list[Envelope]]


@pytest.fixture
def ended(honest_home: Home, tmp_path: Path) -> Home:
    """A copy of the home with the undisturbed pipeline."""
    return Home(Path(shutil.copytree(honest_home.folder, tmp_path / "copied")))


# ---- forks -----------------------------------------------------------------------------------


def test_a_fork_at_phase_2_keeps_what_came_before_by_reference(
    ended: Home, honest: PipelineState
) -> None:
    with closing(ended.open_store()) as store:
        branch = forks.plan(store, "p", None, 2, {"second.steps": 1})
        run = forks.fork(store, branch)
    state = toy_runs.finish(ended, run)
    assert state.ended_phase(1) == honest.ended_phase(1), "no new run of phase 1"
    assert state.ended_phase(2).child == f"{run}.2-second"
    assert toy_runs.state(ended, f"{run}.2-second").submitted.config.steps == 1
    assert audit.audit(toy_runs.rows(ended, run)) == []
    succeeds(ended, "verify", run, "--origins")


def test_a_fork_changes_no_phase_that_has_ended(ended: Home) -> None:
    with (
        closing(ended.open_store()) as store,
        pytest.raises(ConfigError, match="phase first has ended before this place"),
    ):
        forks.plan(store, "p", None, 2, {"first.steps": 1})


def test_a_fork_changes_no_setting_that_its_phase_refuses(ended: Home) -> None:
    """It was recorded, and failed at that phase, or could not be verified."""
    with (
        closing(ended.open_store()) as store,
        pytest.raises(ConfigError, match="there is no such setting"),
    ):
        forks.plan(store, "p", None, 2, {"second.colour": 1})


def test_an_unchanged_fork_has_the_same_lineage(ended: Home, honest: PipelineState) -> None:
    with closing(ended.open_store()) as store:
        run = forks.fork(store, forks.plan(store, "p", None, 2, {}))
    assert toy_runs.finish(ended, run).lineage_digest() == honest.lineage_digest()


def test_a_fork_of_a_failed_pipeline_tries_the_phase_again(home: Home) -> None:
    toy_pipelines.submit(home, [TWO[0], phase("second", failing="count/0/1")])
    with pytest.raises(Exception, match="second"):
        toy_runs.finish(home, "p")
    with closing(home.open_store()) as store:
        place = len(list(repository.history(store, "p")))
        run = forks.fork(store, forks.plan(store, "p", place, None, {"second.failing": ""}))
    assert toy_runs.finish(home, run).completed
    assert audit.audit(toy_runs.rows(home, run)) == []


# ---- archives --------------------------------------------------------------------------------


def test_an_archive_has_the_children_and_an_import_takes_them_in(
    ended: Home, honest: PipelineState, tmp_path: Path
) -> None:
    file, there = tmp_path / "p.forge", Home(tmp_path / "there")
    with closing(ended.open_store()) as store:
        archives.export(store, Artifacts(ended.artifacts), "p", file, False, False)
    succeeds(there, "verify", str(file))
    with closing(there.open_store()) as store:
        taken = archives.load(store, Artifacts(there.artifacts), file, by="bob")
    assert set(taken.new) == {"p", "p.1-first", "p.2-second"}
    assert taken.waiting == []
    assert toy_runs.state(there, "p").lineage_digest() == honest.lineage_digest()
    found = call(there, "verify", "p", "--origins", "--json")
    assert json.loads(found.output)["origins"] == ["p.1-first", "p.2-second"]


def test_an_unfinished_pipeline_goes_on_in_another_home(
    home: Home, honest: PipelineState, tmp_path: Path
) -> None:
    """It waits for its importer, and then goes on with the phase that had not ended."""
    toy_pipelines.submit(home)
    toy_runs.carry_until(home, lambda s: s.run == "p.2-second" and s.place > 3, "p")
    file, there = tmp_path / "p.forge", Home(tmp_path / "there")
    with closing(home.open_store()) as store:
        archives.export(store, Artifacts(home.artifacts), "p", file, False, False)
    with closing(there.open_store()) as store:
        taken = archives.load(store, Artifacts(there.artifacts), file, by="bob")
    assert taken.waiting == ["p"]
    succeeds(there, "resume", "p")
    assert toy_runs.finish(there, "p").lineage_digest() == honest.lineage_digest()


# ---- forgeries -------------------------------------------------------------------------------


def edited(stream: str, type_: str, **changes: object) -> Callable[[Streams], None]:
    """Return a forgery: other data in the first event of a type."""

    def forged(streams: Streams) -> None:
        rows = streams[stream]
        place = next(i for i, row in enumerate(rows) if row.type == type_)
        data = {**json.loads(rows[place].data), **changes}
        rows[place] = rows[place]._replace(data=canonical_json(data))
        streams[stream] = relinked(rows)

    return forged


def swapped(streams: Streams) -> None:
    """Put the history of another run in the place of a child."""
    first, second = streams["toy/p.1-first"], streams["toy/p.2-second"]
    words = [row._replace(stream="toy/p.1-first") for row in second]
    streams["toy/p.1-first"] = relinked(
        [
            row._replace(
                key=row.key.replace("p.2-second", "p.1-first"),
                data=row.data.replace("p.2-second", "p.1-first"),
                event_id=f"{row.event_id}x",
            )
            for row in words
        ]
    )
    assert len(first) != len(second)


def cut(streams: Streams) -> None:
    """Remove the last event of a child."""
    streams["toy/p.2-second"] = streams["toy/p.2-second"][:-1]


def removed(streams: Streams) -> None:
    """Remove a child."""
    del streams["toy/p.1-first"]


FORGERIES = {
    "a gate that passed": edited("pipeline/p", "gate_decided", verdict="stop"),
    "a gate's figure": edited(
        "pipeline/p", "gate_decided", figure={"value": 9, "low": None, "high": None, "n": None}
    ),
    "a gate's baseline": edited("pipeline/p", "gate_decided", baseline=0.5),
    "a phase's figure": edited(
        "pipeline/p",
        "phase_ended",
        figures={"total": {"value": 9, "low": None, "high": None, "n": None}},
    ),
    "a phase's model": edited("pipeline/p", "phase_ended", models={}),
    "a phase's lineage": edited("pipeline/p", "phase_ended", lineage="0" * 64),
    "a phase's run": edited("pipeline/p", "phase_ended", child="p.2-second"),
    "the result": edited("pipeline/p", "completed", models={}),
    "a child's total": edited("toy/p.1-first", "step_completed", total=1),
    "a swapped child": swapped,
    "a cut child": cut,
    "a child that is gone": removed,
}


def findings(streams: Streams) -> list[audit.Finding]:
    """Return all that audits and children's ends say of a pipeline."""
    log = ArchivedLog(streams)
    found = []
    for name in streams:
        found += audit.audit(streams[name])
    if not found:
        found += children.check(log, repository.fold(streams["pipeline/p"]))
    return found


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found_and_not_imported(honest_home: Home, tmp_path: Path, name: str) -> None:
    with closing(honest_home.open_store()) as store:
        streams = run_archive.streams_of(store, "p")
    assert findings(streams) == []
    FORGERIES[name](streams)
    assert any(found.level == "error" for found in findings(streams)), "not found"
    file, there = tmp_path / "forged.forge", Home(tmp_path / "there")
    schemas = run_archive.schemas_of("pipeline/p")
    archive.write(file, streams, schemas, {"run": "p", "result": None, "written_by": "x"}, [])
    with closing(there.open_store()) as store:
        with pytest.raises(ArchiveError):
            archives.load(store, Artifacts(there.artifacts), file)
        assert store.names() == []


def test_a_swapped_child_is_found_in_the_log(home: Home) -> None:
    """Another run of the child's name, recorded honestly, but not the one that the pipeline had."""
    toy_pipelines.submit(home)
    toy_runs.finish(home, "p")
    succeeds(home, "verify", "p")
    other = Home(home.folder.parent / "other")
    toy_runs.submit(other, "p.1-first", seed=99)
    toy_runs.finish(other, "p.1-first")
    with closing(home.open_store()) as store:
        mine = run_archive.streams_of(store, "p")
    mine["toy/p.1-first"] = toy_runs.rows(other, "p.1-first")
    said = [f.message for f in children.check(ArchivedLog(mine), repository.fold(mine["pipeline/p"]))]
    assert said == ["run p.1-first: it has another history than it had"]
