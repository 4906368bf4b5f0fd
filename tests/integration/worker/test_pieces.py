"""Pieces of a task: the same results whatever devices did which pieces, and whatever was lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import Start, Task, in_parts, whole
from agent_forge.runs.kinds.state import COMMON, State
from agent_forge.runs.record.events import PartDone
from agent_forge.runs.system import pace
from agent_forge.weights import pieces
from agent_forge.weights.pieces import Tensors
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.worker.tasks.pieces import PartEnded, TaskPieces


class AnyState(State):
    handlers = COMMON


@dataclass(frozen=True)
class Later:
    """A task after the start."""

    key = "later"


def work(done: list[int] | None = None) -> list[list[float]]:
    """Two loops, the second with what the first gave, and a loop within a piece."""

    def square(number: int) -> Tensors:
        if done is not None:
            done.append(number)
        inner = pieces.each(2, lambda n: {"n": torch.tensor(n)})
        return {"x": torch.tensor([number**2, len(inner)], dtype=torch.float64)}

    with pieces.divided():
        first = [float(read["x"][0]) for read in pieces.each(5, square)]
        total = sum(first)
        second = pieces.each(4, lambda n: {"y": torch.tensor(total * n, dtype=torch.float64)})
    return [first, [float(read["y"]) for read in second]]


def do(cache: Artifacts, state: State, task: Task, work: Callable[[], object] = work) -> object:
    """Do a task as a device does, with a part after each piece; return its result or its part."""
    try:
        with pieces.offered(TaskPieces(cache, state, task)):
            return work()
    except PartEnded as ended:
        return ended.event


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artifacts:
    monkeypatch.setenv("FORGE_PART_SECONDS", "0")
    return Artifacts(tmp_path / "cache")


def finished(
    cache: Artifacts, choose: Callable[[int], int], work: Callable[[], object] = work
) -> object:
    """Do a task part by part, each time the open one that `choose` picks, until it gives its result."""
    state = AnyState()
    for _ in range(40):
        opened = in_parts(state, [Start()])
        answer = do(cache, state, opened[choose(len(opened))], work)
        if not isinstance(answer, PartDone):
            return answer
        state.take(answer)
    raise AssertionError("the task does not end")


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=20,
    deadline=None,
)
@given(data=st.data())
def test_the_result_is_that_of_the_undivided_work(cache: Artifacts, data: st.DataObject) -> None:
    """Devices take the open parts in any order."""
    assert finished(cache, lambda n: data.draw(st.integers(0, n - 1))) == work()


def test_without_a_limit_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_PART_SECONDS", "1e9")
    cache = Artifacts(tmp_path / "cache")
    assert do(cache, AnyState(), Start()) == work()
    assert not (tmp_path / "cache").exists() or not [*(tmp_path / "cache").rglob("*.safetensors")]


def test_work_that_is_not_divided_is_one_task(cache: Artifacts) -> None:
    def plain() -> list[Tensors]:
        return pieces.each(3, lambda n: {"n": torch.tensor(n)})

    results = do(cache, AnyState(), Start(), plain)
    assert isinstance(results, list)
    assert [int(read["n"]) for read in results] == [0, 1, 2]


def test_what_the_cache_lost_is_done_again(cache: Artifacts, tmp_path: Path) -> None:
    state = AnyState()
    first = do(cache, state, Start())
    assert isinstance(first, PartDone)
    assert (first.begin, first.end, first.of) == (0, 1, 5)
    state.take(first)
    while (task := in_parts(state, [Start()])[0]) != Start():
        answer = do(cache, state, task)
        assert isinstance(answer, PartDone)
        state.take(answer)
    done: list[int] = []
    again = do(Artifacts(tmp_path / "empty"), state, Start(), lambda: work(done))
    assert isinstance(again, PartDone)  # a piece of the second loop
    assert again.begin == 5
    assert done == [0, 1, 2, 3, 4]


def test_a_start_takes_no_results_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of another kind of machine may have other bits; later tasks have a pinned profile."""
    monkeypatch.setenv("FORGE_PART_SECONDS", "0")
    state, done = AnyState(), list[int]()
    store = (tmp_path / "store").as_uri()
    there, here = (Artifacts.of(Home(tmp_path / name, store=store)) for name in ("there", "here"))
    for task in (Start(), Later()):
        while (part := in_parts(state, [task])[0]) != task or not state.parts.get(task.key):
            answer = do(there, state, part)
            assert isinstance(answer, PartDone)
            state.take(answer)
        done.clear()
        do(here, state, task, lambda: work(done))
        assert done == ([0, 1, 2, 3, 4] if task == Start() else [])


def test_a_piece_that_is_recorded_is_not_done_again(cache: Artifacts) -> None:
    state, done = AnyState(), list[int]()
    for _ in range(40):
        answer = do(cache, state, in_parts(state, [Start()])[0], lambda: work(done))
        if not isinstance(answer, PartDone):
            break
        state.take(answer)
    assert done == [0, 1, 2, 3, 4]


def test_the_whole_task_is_the_one_that_work_is_given(cache: Artifacts) -> None:
    state = AnyState()
    answer = do(cache, state, Start())
    assert isinstance(answer, PartDone)
    state.take(answer)
    assert {whole(part) for part in in_parts(state, [Start()])} == {Start()}


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_a_wrong_number_of_seconds_is_said(
    text: str, cache: Artifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_PART_SECONDS", text)
    with pytest.raises(ConfigError, match="FORGE_PART_SECONDS"):
        TaskPieces(cache, AnyState(), Start())


def test_each_piece_counts_for_the_pace(cache: Artifacts) -> None:
    """People read how far the task is while it is done."""
    pace.forget()
    do(cache, AnyState(), Start())
    assert pace.words() == "1 of 5 pieces"
    pace.forget()
    assert pace.words() == ""


def test_what_a_task_lacks_on_the_way_keeps_its_own_pace_outside_of_pieces(cache: Artifacts) -> None:
    """Verification makes models again and says how far it is; within a task its own pieces count."""

    def made() -> list[Tensors]:
        with pieces.undivided():
            return pieces.each(2, lambda n: {"n": torch.tensor(n)})

    def task() -> None:
        with pieces.divided():
            made()

    pace.forget()
    do(cache, AnyState(), Start(), task)
    assert pace.words() == ""
    made()
    assert pace.words().startswith("2 of 2 pieces")
    pace.forget()
