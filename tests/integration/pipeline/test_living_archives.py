"""Archives of pipelines that have not completed: their children come along as they were.

An archive has the pipeline and its children at one position of the log. What an import says of a single
run that has not ended holds for the children, too: they belong to the importer, and wait.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_forge.cli.main import forge
from agent_forge.events import ArchiveError, Envelope, EventStore, archive, canonical_json
from agent_forge.pipeline.events import PipelineState
from agent_forge.runs.errors import ConflictError, NotFoundError, RunFailedError
from agent_forge.runs.history import audit
from agent_forge.runs.history.repository import inside
from agent_forge.runs.home import Home
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.exports import archive as archives
from agent_forge.worker.exports import archive as run_archive
from testing.toy import toy_pipelines, toy_runs
from testing.toy.toy_pipelines import TWO, phase
from tests.integration.cli.test_forge import succeeds
from tests.integration.kinds.test_forgeries import relinked
from tests.integration.pipeline.test_histories import edited

Streams = dict[str, list[Envelope]]

SECOND = "toy/p.2-second"


def called(home: Home, *words: str) -> str:
    """Return what a `forge` command on a home says; it succeeds."""
    return succeeds(home, *words).output


def packed(path: Path, streams: Streams) -> Path:
    """Write streams of the pipeline `p` as an archive; return its file."""
    archive.write(path, streams, {}, {"run": "p", "result": None, "written_by": "x"})
    return path


def taken(home: Home, file: Path) -> archives.ImportResult:
    """Import an archive for the user bob."""
    with closing(home.open_store()) as store:
        return archives.load(store, Artifacts(home.artifacts), file, by="bob")


def ends_of_appends(rows: Sequence[Envelope]) -> list[int]:
    """Return the positions at which the log stood between two appends."""
    later = [*rows[1:], None]
    return [
        row.position for row, next_ in zip(rows, later, strict=True) if not next_ or not inside(next_)
    ]


def under_way(home: Home) -> Streams:
    """Carry the pipeline `p` into its second phase; return what an archive of it has."""
    toy_pipelines.submit(home)
    toy_runs.carry_until(home, lambda state: state.run == "p.2-second" and state.place > 3, "p")
    with closing(home.open_store()) as store:
        return run_archive.streams_of(store, "p", store.end())


@pytest.mark.slow
def test_from_any_position_of_the_log_it_ends_as_the_original_did(
    honest_home: Home, honest: PipelineState, tmp_path: Path
) -> None:
    """Archived between any two appends, imported, resumed: the same lineage, nothing done again."""
    with closing(honest_home.open_store()) as store:
        everything = store.read_all()
        places = ends_of_appends(everything)
        seen = [run_archive.streams_of(store, "p", place) for place in places]
    for place, streams in zip(places, seen, strict=True):
        assert sum(map(len, streams.values())) == sum(r.position <= place for r in everything)
        home = Home(tmp_path / f"{place}")
        waiting = taken(home, packed(tmp_path / "p.forge", streams)).waiting
        assert waiting == ([] if place == places[-1] else ["p"])
        with closing(home.open_store()) as store:
            own = {name: store.read(name) for name in streams}
        for name, rows in streams.items():
            assert own[name][: len(rows)] == [
                row._replace(position=own[name][i].position) for i, row in enumerate(rows)
            ], "as they were"
        if waiting:
            called(home, "resume", "p")
        assert toy_runs.finish(home, "p").lineage_digest() == honest.lineage_digest()
        children = {run.child: run.lineage for run in map(honest.ended_phase, (1, 2)) if run}
        for child, lineage in children.items():
            assert toy_runs.state(home, child).lineage_digest() == lineage
        assert all(audit.audit(toy_runs.rows(home, run)) == [] for run in ("p", *children))


def test_a_living_child_waits_with_its_pipeline_and_goes_on_with_it(
    home: Home, honest: PipelineState, tmp_path: Path
) -> None:
    streams = under_way(home)
    file, there = tmp_path / "p.forge", Home(tmp_path / "there")
    called(home, "archive", "p", str(file))
    assert "verified" in called(there, "verify", str(file))
    assert taken(there, file).new == {"p.1-first": 11, "p.2-second": 4, "p": 4}
    for run in ("p", "p.2-second"):
        state = toy_runs.state(there, run)
        assert (state.paused, state.submitted.owner, state.priority) == (True, "bob", 0)
    called(there, "resume", "p")
    assert toy_runs.finish(there, "p").lineage_digest() == honest.lineage_digest()
    rows = toy_runs.rows(there, "p.2-second")
    assert [row.hash for row in rows[:4]] == [row.hash for row in streams[SECOND]]
    assert [row.type for row in rows].count("submitted") == 1
    assert "children   ok" in called(there, "verify", "p", "--origins")


def test_a_child_goes_its_own_way_where_it_was_imported(home: Home, tmp_path: Path) -> None:
    """Both copies may go on; the longer archive is another history then, and nothing of it is taken."""
    under_way(home)
    file, there = tmp_path / "p.forge", Home(tmp_path / "there")
    called(home, "archive", "p", str(file))
    taken(there, file)
    toy_runs.carry_until(home, lambda state: state.run == "p.2-second" and state.place > 6, "p")
    called(home, "archive", "p", str(file), "--force")
    before = toy_runs.rows(there, "p.2-second")
    with pytest.raises(ConflictError, match=r"run p.2-second is here already.* from event 5 on"):
        taken(there, file)
    assert toy_runs.rows(there, "p.2-second") == before
    assert toy_runs.finish(home, "p").completed


def test_a_failed_child_is_tried_again_where_it_stood(home: Home, tmp_path: Path) -> None:
    """Its steps are not done again; one retry and one resume of the pipeline are enough."""
    toy_pipelines.submit(home, [TWO[0], phase("second", failing="count/1/1")])
    with pytest.raises(RunFailedError):
        toy_runs.finish(home, "p")
    file, there = tmp_path / "p.forge", Home(tmp_path / "there")
    called(home, "archive", "p", str(file))
    brought = taken(there, file)
    assert (brought.waiting, brought.failed) == (["p"], ["p"])
    failed = toy_runs.rows(there, "p.2-second")
    called(there, "retry", "p")
    called(there, "resume", "p")
    with pytest.raises(RunFailedError):  # the toy always fails there
        toy_runs.finish(there, "p")
    after = toy_runs.rows(there, "p.2-second")[len(failed) :]
    assert [row.type for row in after] == ["retried", "resumed", *["task_failed"] * 3, "failed"]
    assert audit.audit(toy_runs.rows(there, "p.2-second")) == []
    assert "children   ok" in called(there, "verify", "p")


def test_an_import_cut_off_between_two_runs_is_completed_by_another(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline comes last: without its child it would begin another under the child's name."""
    file, there = packed(tmp_path / "p.forge", under_way(home)), Home(tmp_path / "there")
    adopt = EventStore.adopt

    def killed(store: EventStore, stream: str, *given: object) -> int:
        if stream == "pipeline/p":
            raise KeyboardInterrupt
        return adopt(store, stream, *given)  # pyright: ignore[reportArgumentType]

    with monkeypatch.context() as patch:
        patch.setattr(EventStore, "adopt", killed)
        with pytest.raises(KeyboardInterrupt):
            taken(there, file)
    with closing(there.open_store()) as store:
        assert store.names() == ["toy/p.1-first", SECOND]
    assert toy_runs.state(there, "p.2-second").paused
    assert taken(there, file).new == {"p.1-first": 0, "p.2-second": 0, "p": 4}
    called(there, "resume", "p")
    assert toy_runs.finish(there, "p").completed


# ---- forgeries -------------------------------------------------------------------------------


def other_settings(streams: Streams) -> None:
    """Let the child be another run than the phase asks for, honest in itself."""
    rows = streams[SECOND][:1]
    data = json.loads(rows[0].data)
    data["config"]["steps"] = 99
    streams[SECOND] = relinked([rows[0]._replace(data=canonical_json(data))])


def nobodys(streams: Streams) -> None:
    """Let no event of the pipeline be the child's cause."""
    rows = streams[SECOND]
    streams[SECOND] = relinked([rows[0]._replace(causation="0" * 32), *rows[1:]])


def too_early(streams: Streams) -> None:
    """Cut the pipeline before its first phase has ended: nothing has asked for the second."""
    streams["pipeline/p"] = streams["pipeline/p"][:-2]


FORGERIES = {
    "a living child's value": (edited(SECOND, "counted", value=1), r"at event \d+ of run p.2-second"),
    "a living child's settings": (
        other_settings,
        "run p.2-second: phase second asks for other settings",
    ),
    "a child of another run": (nobodys, "events of p.2-second that are no part of run p's"),
    "a child of a later phase": (too_early, "events of p.2-second that are no part of run p's"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_living_child_is_refused_with_its_place(home: Home, tmp_path: Path, name: str) -> None:
    streams, there = under_way(home), Home(tmp_path / "there")
    forgery, said = FORGERIES[name]
    forgery(streams)
    refused(there, packed(tmp_path / "p.forge", streams), said)


def refused(home: Home, file: Path, said: str) -> None:
    """Assert that `forge verify` and `forge import` refuse an archive and record nothing."""
    with pytest.raises(ArchiveError, match=said):
        taken(home, file)
    done = CliRunner().invoke(forge, ["verify", str(file)], env={"FORGE_HOME": str(home.folder)})
    assert done.exit_code == 1, done.output
    with closing(home.open_store()) as store:
        assert store.names() == []


def test_a_failed_child_that_is_cut_or_gone_is_refused(home: Home, tmp_path: Path) -> None:
    """The pipeline recorded where its child failed."""
    toy_pipelines.submit(home, [TWO[0], phase("second", failing="count/0/1")])
    with pytest.raises(RunFailedError):
        toy_runs.finish(home, "p")
    with closing(home.open_store()) as store:
        streams = run_archive.streams_of(store, "p")
    there, file = Home(tmp_path / "there"), tmp_path / "p.forge"
    cut = {**streams, SECOND: streams[SECOND][:-1]}
    refused(there, packed(file, cut), "run p.2-second: it has 6 events, and had 7")
    gone = {name: rows for name, rows in streams.items() if name != SECOND}
    refused(there, packed(file, gone), "run p.2-second: it is not in this log")
    assert taken(there, packed(file, streams)).waiting == ["p"]


def test_a_position_before_the_pipeline_began_is_said(honest_home: Home) -> None:
    with (
        closing(honest_home.open_store()) as store,
        pytest.raises(NotFoundError, match="had not begun at position 0"),
    ):
        run_archive.streams_of(store, "p", 0)
