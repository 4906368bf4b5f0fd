"""Several processes that share each step: all end with the same bits, near those of one process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from agent_forge.runs.errors import ConfigError, UnavailableError
from agent_forge.weights.folders.checkpoint import digest
from agent_forge.weights.recipes import Algorithm
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training import complete, room, team
from agent_forge.weights.training.loop import Processes, Snapshot, Training, pinned, segment
from agent_forge.weights.training.team import Team
from testing.models.toy_training import model, recipe, streams
from testing.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]
COUNT = 2


def told(snapshot: Snapshot) -> dict[str, Any]:
    """The facts that processes are compared by."""
    return {
        "step": snapshot.step,
        "weights": digest(snapshot.weights),
        "optimiser": digest(snapshot.optimiser),
        "losses": snapshot.losses,
        "norms": snapshot.norms,
    }


#: Muon without QK-Clip, which needs whole weights.
MUON = Algorithm(name="mugrokfast@1", params={"tau": None})


def sharded(group: Any) -> list[dict[str, Any]]:
    """Sharded trainings: with AdamW whole and cut in two, with Muon whole and cut; what one holds."""
    found = []
    for training in (
        recipe(accumulation=2, divergence=9.0),
        complete(recipe(optimiser=MUON.name).model_copy(update={"optimiser": MUON})),
    ):
        common: dict[str, Any] = {"group": group, "sharded": True}
        whole = segment(training, model(), None, streams(), 0, 8, **common)
        half = segment(training, model(), None, streams(), 0, 3, **common)
        start = Tensors(model().config, half.weights)
        cut = segment(training, start, half.optimiser, streams(), 3, 8, **common)
        found += [told(whole), told(cut)]
    with pinned():
        part = Training(training, model(), None, streams(), {}, "cpu", group, sharded=True)
        part.run(0, 1)
        held: Any = [*part.module.parameters(), *(p.grad for p in part.module.parameters())]
        held = [t for t in held if t is not None]
    rows = sum(t.to_local().numel() for t in held)
    return [*found, {"held": rows, "of": sum(t.numel() for t in held)}]


def carry_out(place: str, rank: int) -> None:
    """One process of the group: a whole training, the same cut in two, and one that rank 1 stops.

    Then the sharded ones.
    """
    distributed.init_process_group("gloo", f"file://{place}", rank=rank, world_size=COUNT)
    group = distributed.group.WORLD
    training = recipe(accumulation=2, divergence=9.0)
    whole = segment(training, model(), None, streams(), 0, 8, group=group)
    half = segment(training, model(), None, streams(), 0, 3, group=group)
    start = Tensors(model().config, half.weights)
    cut = segment(training, start, half.optimiser, streams(), 3, 8, group=group)
    seen: list[int] = []
    stopped = segment(
        training,
        model(),
        None,
        streams(),
        0,
        8,
        lambda step: seen.append(step.number),
        lambda: rank == 1 and len(seen) == 2,
        group=group,
    )
    answer = [told(whole), told(cut), told(stopped), *sharded(group)]
    distributed.destroy_process_group()
    sys.stdout.write(json.dumps(answer) + "\n")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """What each process of a group of two says."""
    place = tmp_path_factory.mktemp("group") / "meeting"
    code = f"from {__name__} import carry_out; carry_out({str(place)!r}, %d)"
    started = [
        subprocess.Popen([sys.executable, "-c", code % rank], cwd=ROOT, stdout=subprocess.PIPE)
        for rank in range(COUNT)
    ]
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in started]
    assert [process.returncode for process in started] == [0] * COUNT
    return [json.loads(output.splitlines()[-1]) for output in outputs]


@pytest.mark.slow
def test_all_processes_of_a_group_have_the_same_bits(answers: list[list[dict[str, Any]]]) -> None:
    """Otherwise their weights part, and no error says so."""
    assert answers[0] == answers[1]


@pytest.mark.slow
def test_a_training_of_a_group_that_is_cut_has_the_same_bits(
    answers: list[list[dict[str, Any]]],
) -> None:
    """As one of a single process."""
    whole, cut, *_ = answers[0]
    assert (cut["weights"], cut["optimiser"]) == (whole["weights"], whole["optimiser"])


@pytest.mark.slow
def test_a_group_stops_together(answers: list[list[dict[str, Any]]]) -> None:
    """One process is asked to stop; the other one would wait for it for ever."""
    assert [told[2]["step"] for told in answers] == [2, 2]


@pytest.mark.slow
def test_a_group_computes_what_one_process_computes_within_rounding(
    answers: list[list[dict[str, Any]]],
) -> None:
    """Every row counts once: the first loss and gradient agree to a few float32 roundings."""
    alone = segment(recipe(accumulation=2, divergence=9.0), model(), None, streams(), 0, 8)
    whole = answers[0][0]
    assert whole["losses"][0] == pytest.approx(alone.losses[0], rel=1e-6)
    assert whole["norms"][0] == pytest.approx(alone.norms[0], rel=1e-5)
    assert whole["losses"] == pytest.approx(alone.losses, rel=1e-3)


@pytest.mark.slow
def test_a_sharded_training_computes_what_one_process_computes_within_rounding(
    answers: list[list[dict[str, Any]]],
) -> None:
    """Each process holds a half. Gradients are means over processes: a sum would double the norm."""
    adamw, muon = (answers[0][place] for place in (3, 5))
    held = answers[0][7]
    assert held["held"] * COUNT == held["of"]
    alone = segment(recipe(accumulation=2, divergence=9.0), model(), None, streams(), 0, 8)
    assert adamw["losses"][0] == pytest.approx(alone.losses[0], rel=1e-6)
    assert adamw["norms"][0] == pytest.approx(alone.norms[0], rel=1e-5)
    assert adamw["losses"] == pytest.approx(alone.losses, rel=1e-3)
    training = complete(recipe(optimiser=MUON.name).model_copy(update={"optimiser": MUON}))
    alone = segment(training, model(), None, streams(), 0, 8)
    assert muon["norms"][0] == pytest.approx(alone.norms[0], rel=1e-5)
    assert muon["losses"] == pytest.approx(alone.losses, rel=1e-3)


@pytest.mark.slow
def test_a_sharded_training_that_is_cut_has_the_same_bits(answers: list[list[dict[str, Any]]]) -> None:
    """Snapshots hold whole tensors, which are split again; with AdamW and with Muon."""
    for whole, cut in (answers[0][3:5], answers[0][5:7]):
        assert (cut["weights"], cut["optimiser"]) == (whole["weights"], whole["optimiser"])


def test_what_needs_whole_weights_cannot_be_sharded() -> None:
    """QK-Clip would scale a part of a head; casts would keep a copy of all weights."""
    clipped = recipe(optimiser="mugrokfast@1")
    for wrong, what in ((clipped, "QK-Clip"), (recipe(precision="bfloat16"), "float32")):
        with pytest.raises(ConfigError, match=what):
            segment(wrong, model(), None, streams(), 0, 8, group=object(), sharded=True)


def test_rows_that_cannot_be_shared_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rows would count twice, or not at all."""
    monkeypatch.setattr(distributed, "get_world_size", lambda group: 3)
    monkeypatch.setattr(distributed, "get_rank", lambda group: 1)
    with pytest.raises(ConfigError, match="3 processes cannot share 4 rows"):
        Processes(object(), 4)
    shared = Processes(object(), 6).own({"rows": torch.arange(6)})
    assert shared["rows"].tolist() == [2, 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sharded", "place"), [pytest.param(False, 0, marks=pytest.mark.soak), (True, 3)]
)
def test_a_team_computes_what_a_group_does(
    answers: list[list[dict[str, Any]]], sharded: bool, place: int
) -> None:
    """Members that are started for a segment, with what they need as files."""
    training = recipe(accumulation=2, divergence=9.0)
    seen: list[int] = []
    made = team.segment(
        training,
        model(),
        None,
        streams(),
        0,
        8,
        lambda step: seen.append(step.number),
        team=Team(COUNT, sharded),
    )
    assert told(made) == {**answers[0][place], "losses": made.losses, "norms": made.norms}
    assert seen == list(range(8))
    assert not distributed.is_initialized()


def listeners(process: str) -> dict[str, str]:
    """Sockets on which a process listens → address, as the kernel writes it: 0100007F is 127.0.0.1."""
    own = set()
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(str(entry.readlink()))
    found = {}
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found[fields[9]] = fields[1].partition(":")[0]
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc says who listens")
def test_a_team_listens_on_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gloo believes all who connect, and would listen where the host's name or a variable points."""
    for name in team.INTERFACES:
        monkeypatch.setenv(name, "no-such-interface")
    seen: dict[str, str] = {}

    def look(step: Any) -> None:
        children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
        for process in ("self", *children):
            seen.update(listeners(process))

    before = listeners("self")
    team.segment(recipe(), model(), None, streams(), 0, 1, look, team=Team(COUNT))
    addresses = [address for socket, address in seen.items() if socket not in before]
    assert len(addresses) >= COUNT
    assert set(addresses) == {"0100007F"}
    assert {os.environ[name] for name in team.INTERFACES} == {"no-such-interface"}


@pytest.mark.slow
def test_a_member_that_ends_fails_the_segment_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first step, and by a kill in the middle; no process is left."""
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            started.append(self)

    monkeypatch.setattr(team.subprocess, "Popen", Noted)
    with monkeypatch.context() as patch:
        patch.setattr(team, "ORDER", "elsewhere.json")
        with pytest.raises(UnavailableError, match=r"process 1 .* ended with 1: FileNotFound"):
            team.segment(recipe(), model(), None, streams(), 0, 8, team=Team(COUNT))

    def full(step: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")

    with pytest.raises(room.OutOfMemoryError), room.bounded():
        team.segment(recipe(), model(), None, streams(), 0, 8, full, team=Team(COUNT))

    def kill(step: Any) -> None:
        if step.number == 1:
            started[-1].kill()

    with pytest.raises(UnavailableError, match="process 1 of the training was killed by signal 9"):
        team.segment(recipe(), model(), None, streams(), 0, 8, kill, team=Team(COUNT))
    assert all(process.returncode is not None for process in started)
    assert not distributed.is_initialized()


def test_a_batch_that_cannot_be_shared_and_gpus_that_are_not_there_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 processes cannot share a batch of 4"):
        team.check_shares(4, 3, "cpu")
    with pytest.raises(ConfigError, match="64 processes need a GPU each; there are"):
        team.check_shares(64, 64, "cuda:0")
    team.check_shares(64, 64, "cuda:0", elsewhere=True)
    assert team.placed("cuda:1", 2) == "cuda:3"
    assert team.placed("cpu", 2) == "cpu"
