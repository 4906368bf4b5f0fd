"""Promises that every study keeps: honest logs, kills, forks, archives, forgeries, weights again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_forge.events import Envelope
from agent_forge.runs import kinds
from agent_forge.runs.history import audit, repository
from agent_forge.runs.history.repository import appends
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import open_tasks
from agent_forge.runs.record.events import MemoryPeaked, PartDone
from agent_forge.studies.making.making import Advanced
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.commands import fork
from agent_forge.worker.exports import archive
from agent_forge.worker.tasks import recorder
from testing.miniatures.studies import EVERY, RUN, Miniature, carried, rows
from testing.models.toys import Toys
from testing.verification import verified_again
from testing.worlds.finished_run import once
from testing.worlds.runs import was_killed
from testing.worlds.warm_process import Template
from tests.integration.kinds.test_forgeries import edit, relinked

each = pytest.mark.parametrize("miniature", EVERY, ids=lambda one: one.name)
KILLS = [
    pytest.param(one, point, id=f"{one.name}-{point}", marks=[pytest.mark.soak] if number else [])
    for one in EVERY
    for number, point in enumerate(one.points)
]
_TENSORS = "reads and writes each tensor once"
#: Tasks that are neither segments of a training nor in parts → why they are short for a large model.
ONE_PIECE = {
    "start": "headers, text that is packed once, and three steps of a training; of experts: in parts",
    "observe task-vectors@1": _TENSORS,
    **dict.fromkeys(
        (
            *("make decode@1", "make float32@1", "make fresh@1", "make interpolate@1"),
            *("make mixture@1", "make resized@1", "make svf-ones@1", "make ternary-pack@1"),
            *("make thoughts-init@1", "make thoughts-removed@1"),
        ),
        _TENSORS,
    ),
    "make encode@1": "one tensor a task",
}
#: A home in which a miniature has ended.
Ended = Callable[[Miniature], Home]


@pytest.fixture(scope="session")
def submit(toys: Toys, session_folder: Path) -> Callable[[Miniature, Path], Home]:
    """Submit a miniature's run in a home of its own."""

    def submitted(miniature: Miniature, folder: Path) -> Home:
        home = Home(folder)
        miniature.submit(home, toys, session_folder / "studies")
        return home

    return submitted


@pytest.fixture(scope="session")
def ended(submit: Callable[[Miniature, Path], Home], session_folder: Path) -> Ended:
    """Give the home of a miniature that went through undisturbed, once a session. Not to be changed."""

    def home_of(miniature: Miniature) -> Home:
        place = session_folder / "studies" / f"ended-{miniature.name}"
        return Home(once(place, lambda folder: carried(submit(miniature, folder))))

    return home_of


def of(home: Home, run: str = RUN) -> Any:
    with closing(home.open_store()) as store:
        return repository.load(store, run)


def in_one_piece(state: Any, history: Sequence[Envelope]) -> set[str]:
    """Return the sorts of an ended run's tasks that were no segments of trainings, and not in parts."""
    before, sorts = type(state)(), set[str]()
    for row in history:
        key = row.key.removeprefix(f"{RUN}/")
        is_whole = key not in state.parts and row.type not in (PartDone.type, Advanced.type)
        for task in open_tasks(before) if is_whole and before.submitted else ():
            if task.key == key:
                more = getattr(task, "measure", None) or getattr(task, "recipe", None)
                sort = [key.partition("/")[0], getattr(more, "operation", more)]
                sorts.add(" ".join(filter(None, sort)))
        before.absorb([row])
    return sorts


def result_of(state: Any) -> str | None:
    """Return the digest of a run's result."""
    result = kinds.of(state.kind).models.result(state)
    return result and result.digest


@pytest.mark.slow
@each
def test_a_run_completes_with_an_honest_history(miniature: Miniature, ended: Ended) -> None:
    home = ended(miniature)
    assert of(home).status == "completed"
    assert audit.audit(rows(home)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("miniature", "point"), KILLS)
def test_killed_it_ends_as_if_undisturbed(
    miniature: Miniature,
    point: str,
    ended: Ended,
    submit: Callable[[Miniature, Path], Home],
    warm: Template,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cut into other segments, and with other paths of data: the same lineage, models and figures."""
    if miniature.steps is not None:
        monkeypatch.setenv("FORGE_SEGMENT_STEPS", miniature.steps)
    home = submit(miniature, tmp_path / "home")
    assert was_killed(warm.start(home, RUN, f"kill:{point}")), "not reached"
    before, state, other = of(home), carried(home), of(ended(miniature))
    assert before.place <= state.place
    assert state.lineage_digest() == other.lineage_digest()
    assert result_of(state) == result_of(other)
    assert kinds.of(state.kind).figures(state) == kinds.of(state.kind).figures(other)
    assert audit.audit(rows(home)) == []
    assert not (home.artifacts / "packing" / RUN).exists()


@pytest.mark.slow
@each
def test_in_parts_of_one_piece_it_ends_as_undisturbed(
    miniature: Miniature,
    ended: Ended,
    submit: Callable[[Miniature, Path], Home],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every piece of every task is recorded: another log, and the same lineage, models and figures.

    What has no pieces is short, by the list above: any other task could be lost in a kill as a whole.
    So is the memory that tasks take, however little.
    """
    monkeypatch.setenv("FORGE_PART_SECONDS", "0")
    monkeypatch.setattr(recorder, "NOTED", -(1 << 60))
    home = submit(miniature, tmp_path / "home")
    state, other = carried(home), of(ended(miniature))
    noted = [json.loads(row.data)["bytes"] for row in rows(home) if row.type == MemoryPeaked.type]
    assert noted
    assert noted == sorted(noted)
    assert state.peak_bytes == noted[-1]
    parts = [part for recorded in state.parts.values() for part in recorded.values()]
    assert parts
    assert all(part.end - part.begin == 1 for part in parts)
    assert in_one_piece(state, rows(home)) <= ONE_PIECE.keys()
    assert ("start" in state.parts) == miniature.name.startswith("experts")  # it decomposes a model
    assert state.lineage_digest() == other.lineage_digest()
    assert kinds.of(state.kind).models.result(state) == kinds.of(state.kind).models.result(other)
    assert kinds.of(state.kind).figures(state) == kinds.of(state.kind).figures(other)
    assert audit.audit(rows(home)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "miniature",
    [
        pytest.param(
            one, id=one.name, marks=[] if one.name in ("bake", "measure") else [pytest.mark.soak]
        )
        for one in EVERY
    ],
)
def test_killed_in_a_part_it_loses_that_part_alone(
    miniature: Miniature,
    ended: Ended,
    submit: Callable[[Miniature, Path], Home],
    warm: Template,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A part that was kept and not recorded is done again; those before it are not."""
    monkeypatch.setenv("FORGE_PART_SECONDS", "0")
    home = submit(miniature, tmp_path / "home")
    assert was_killed(warm.start(home, RUN, "kill:part-kept:3")), "not reached"
    before, state, other = of(home), carried(home), of(ended(miniature))
    recorded = {(task, begin) for task, parts in before.parts.items() for begin in parts}
    assert len(recorded) == 2
    assert recorded <= {(task, begin) for task, parts in state.parts.items() for begin in parts}
    assert state.lineage_digest() == other.lineage_digest()
    assert kinds.of(state.kind).models.result(state) == kinds.of(state.kind).models.result(other)
    assert audit.audit(rows(home)) == []


@pytest.mark.slow
@each
def test_a_fork_in_its_middle_ends_alike(miniature: Miniature, ended: Ended, tmp_path: Path) -> None:
    """Do the second half of the history again: the same models and figures."""
    home = Home(Path(shutil.copytree(ended(miniature).folder, tmp_path / "home")))
    groups = appends(rows(home))
    place = sum(map(len, groups[: len(groups) // 2]))
    with closing(home.open_store()) as store:
        run = fork.fork(store, fork.plan(store, RUN, place, None, {}))
        begun = repository.load(store, run)
    sharing = Home(
        home.folder, store=f"file://{tmp_path / 'store'}"
    )  # of machines without a common disk
    sentences = kinds.of(begun.kind).storage.resumes(begun, Artifacts.of(sharing))
    assert all(sentence.strip() for sentence in sentences)
    state, other = carried(home, run), of(home)
    assert result_of(state) == result_of(other)
    assert kinds.of(state.kind).figures(state) == kinds.of(state.kind).figures(other)
    assert audit.audit(rows(home, run)) == []


@pytest.mark.slow
@each
def test_an_archive_is_the_same_run_elsewhere(
    miniature: Miniature, ended: Ended, tmp_path: Path
) -> None:
    home, other, file = ended(miniature), Home(tmp_path / "other"), tmp_path / "run.forge"
    with closing(home.open_store()) as store:
        archive.export(store, Artifacts.of(home), RUN, file, weights=True, replace=False)
    with closing(other.open_store()) as store:
        archive.load(store, Artifacts.of(other), file)
    assert [row.hash for row in rows(other)] == [row.hash for row in rows(home)]
    assert audit.audit(rows(other)) == []


@pytest.mark.slow
@each
def test_a_forged_end_is_found(miniature: Miniature, ended: Ended) -> None:
    """Each figure and each model of it, changed by a forger who computes every hash again."""
    history = rows(ended(miniature))
    said = json.loads(history[-1].data)
    figures, models = said.get("figures", {}), said.get("models", {})
    forgeries: list[dict[str, Any]] = [
        *({"figures": {**figures, n: {**f, "value": f["value"] + 0.25}}} for n, f in figures.items()),
        *({"models": {**models, role: {**m, "digest": "0" * 64}}} for role, m in models.items()),
    ]
    assert forgeries
    for forged in forgeries:
        found = audit.audit(relinked(edit("completed", **forged)(list(history))))
        assert "error" in {one.level for one in found}, forged


@pytest.mark.slow
@each
def test_verify_makes_and_measures_everything_again(miniature: Miniature, ended: Ended) -> None:
    home = ended(miniature)
    found, said = verified_again(home, RUN)
    assert found == []
    assert said
