"""A segment that several processes of this machine share: this process and members that it starts.

    python -m weights.training.team FOLDER RANK    the command of a member

Members get recipe, weights and streams as files of a folder and meet there. Each computes its share of
every step's rows (`processes`) and holds all weights, or a part of them (`sharding`). A member ends
with the process that started it. If a process is killed, the segment fails and is done again.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file as load_streams
from safetensors.numpy import save_file as save_streams
from safetensors.torch import load_file, save_file
from torch import distributed
from torch.distributed import ProcessGroup

from agent_forge.runs.errors import ConfigError, UnavailableError
from agent_forge.runs.system.child_environment import child_environment
from agent_forge.runs.system.linked_processes import tied
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors, Weights
from agent_forge.weights.training import loop
from agent_forge.weights.training.loop import Snapshot, TrainingStep
from agent_forge.weights.training.room import OutOfMemoryError, lacks_memory
from agent_forge.weights.training.windows import Ids

#: Kind of device → torch's backend of collectives: gloo between processors, NCCL between GPUs.
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
#: Variables that name the network interface on which gloo and NCCL listen, without authentication.
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
#: How long processes wait for one another: importing torch takes seconds, on a busy machine more.
WAIT = timedelta(minutes=10)
#: Seconds in which a process whose connection is closed is seen to have ended.
ENDING = 5.0
#: Files of a member's folder.
ORDER, START, INPUT, OPTIMISER, STREAMS, MEETING = (
    *("order.json", "start.safetensors", "input-{}.safetensors", "optimiser.safetensors"),
    *("streams.safetensors", "meeting"),
)


@dataclass(frozen=True)
class Team:
    """The processes that share a training; another team computes other bits."""

    processes: int = 1
    #: True if each holds a part of weights and optimiser only.
    sharded: bool = False


def segment(
    recipe: Train,
    start: Tensors,
    optimiser: Weights | None,
    streams: Mapping[str, Ids],
    first: int,
    last: int,
    report: Callable[[TrainingStep], None] = loop.ignore,
    *,
    inputs: Mapping[str, Tensors] | None = None,
    device: str = "cpu",
    team: Team = Team(),
) -> Snapshot:
    """Do the steps `first` … `last` − 1 in the processes of a team; return the snapshot after them.

    On GPUs, process n computes on the n-th GPU from `device` on. Raises the errors of `loop.segment`,
    and UnavailableError if a process was killed.
    """
    work = (recipe, start, optimiser, streams, first, last, report)
    if team.processes == 1:
        return loop.segment(*work, inputs=inputs, device=device)
    with tempfile.TemporaryDirectory(prefix="forge-team-") as place:
        folder = Path(place)
        _write(folder, recipe, start, optimiser, streams, inputs or {}, (first, last), device, team)
        with _members(folder, team.processes) as members:
            _await(folder, members)
            try:
                with _group(folder, device, 0, team.processes) as group:
                    own_device = placed(device, 0)
                    return loop.segment(
                        *work, inputs=inputs, device=own_device, group=group, sharded=team.sharded
                    )
            except RuntimeError as error:
                if lacks_memory(error):
                    raise
                raise _end_error(folder, members, error) from error


def placed(device: str, rank: int) -> str:
    """Return the device of process `rank`: "cpu", or "cuda:N" with N that of `device` plus `rank`."""
    kind, _, number = device.partition(":")
    return device if kind == "cpu" else f"{kind}:{int(number or 0) + rank}"


def check_shares(batch: int, processes: int, device: str, elsewhere: bool = False) -> None:
    """Raise ConfigError if processes cannot share a batch, or if there are too few GPUs for them."""
    if batch % processes:
        raise ConfigError(
            f"{processes} processes cannot share a batch of {batch}: set one that is a multiple."
        )
    there = torch.cuda.device_count()
    if device.startswith("cuda") and not elsewhere and there < processes:
        raise ConfigError(f"{processes} processes need a GPU each; there are {there} here.")


def _write(
    folder: Path,
    recipe: Train,
    start: Tensors,
    optimiser: Weights | None,
    streams: Mapping[str, Ids],
    inputs: Mapping[str, Tensors],
    steps: tuple[int, int],
    device: str,
    team: Team,
) -> None:
    """Write recipe, models and streams into `folder` for members. Raises UnavailableError."""
    order = {
        "recipe": recipe.model_dump(mode="json"),
        "config": dict(start.config),
        "inputs": {role: dict(model.config) for role, model in inputs.items()},
        "steps": steps,
        "device": device,
        "team": asdict(team),
        "threads": torch.get_num_threads(),
    }
    try:
        (folder / ORDER).write_text(json.dumps(order), "utf-8")
        save_file(dict(start.weights), folder / START)
        save_streams({n: np.ascontiguousarray(s) for n, s in streams.items()}, folder / STREAMS)
        for role, model in inputs.items():
            save_file(dict(model.weights), folder / INPUT.format(role))
        if optimiser is not None:
            save_file(dict(optimiser), folder / OPTIMISER)
    except (OSError, SafetensorError) as error:
        raise UnavailableError(
            f"{folder} cannot be written: {error}. Free space (TMPDIR names another folder) and go on."
        ) from error


@contextmanager
def _members(folder: Path, processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield the other processes, started for the block; kill those that still run at its end."""
    started = []
    try:
        for rank in range(1, processes):
            command = [
                sys.executable,
                "-m",
                "agent_forge.weights.training.team",
                str(folder),
                str(rank),
            ]
            with (folder / f"{rank}.log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        tied(command), stdout=log, stderr=log, env=child_environment("device")
                    )
                )
        yield started
    finally:
        for member in started:
            member.kill()
            member.wait()


@contextmanager
def _group(folder: Path, device: str, rank: int, processes: int) -> Iterator[ProcessGroup | None]:
    """Yield torch's group of all processes, which this process joins for the block."""
    meeting = f"file://{folder / MEETING}"
    # All members are on this machine. Otherwise gloo listens where the host's name points to.
    before = {name: os.environ.get(name) for name in INTERFACES}
    names = (name for _, name in socket.if_nameindex() if name.startswith("lo"))
    os.environ.update(dict.fromkeys(INTERFACES, next(names, "lo")))  # on macOS lo0
    try:
        backend = BACKENDS[device.partition(":")[0]]
        if device.startswith("cuda"):
            torch.cuda.set_device(device)  # sharding takes the process' present device
        distributed.init_process_group(backend, meeting, rank=rank, world_size=processes, timeout=WAIT)
        try:
            yield distributed.group.WORLD
        finally:
            distributed.destroy_process_group()
    finally:
        for name, value in before.items():  # the process may be a user's own
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _await(folder: Path, members: list[subprocess.Popen[bytes]]) -> None:
    """Wait until every member has started. Raises UnavailableError if one has ended.

    Otherwise torch's group would wait for an ended process as long as for a slow one.
    """
    until = time.monotonic() + WAIT.total_seconds()
    while not all((folder / f"{rank}.here").exists() for rank in range(1, len(members) + 1)):
        if any(member.poll() is not None for member in members):
            raise _end_error(folder, members, "one ended before the first step")
        if time.monotonic() > until:
            raise UnavailableError("the processes of the training did not start in ten minutes.")
        time.sleep(0.05)


def _end_error(folder: Path, members: list[subprocess.Popen[bytes]], error: object) -> UnavailableError:
    """Return the UnavailableError to raise when processes lost each other, by the members' ends.

    It waits, because a process's connection closes a moment before its end shows.
    """
    until = time.monotonic() + ENDING
    while time.monotonic() < until and not any(member.poll() for member in members):
        time.sleep(0.05)
    for rank, member in enumerate(members, start=1):
        if code := member.poll():
            log_lines = (folder / f"{rank}.log").read_text("utf-8", "replace").strip().splitlines()
            how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
            words = f"process {rank} of the training {how}{': ' + log_lines[-1] if log_lines else ''}"
            full = lacks_memory(RuntimeError("\n".join(log_lines)))
            return OutOfMemoryError(words) if full else UnavailableError(words)
    return UnavailableError(f"the processes of the training lost each other: {error}")


def member(folder: Path, rank: int) -> None:
    """Carry out the segment in `folder` as the process `rank`; its snapshot is dropped."""
    order = json.loads((folder / ORDER).read_text("utf-8"))
    optimiser = load_file(folder / OPTIMISER) if (folder / OPTIMISER).exists() else None
    torch.set_num_threads(order["threads"])
    (folder / f"{rank}.here").touch()
    team = Team(**order["team"])
    with _group(folder, order["device"], rank, team.processes) as group:
        loop.segment(
            Train.model_validate(order["recipe"]),
            Tensors(order["config"], load_file(folder / START)),
            optimiser,
            load_streams(folder / STREAMS),
            *order["steps"],
            inputs={
                role: Tensors(config, load_file(folder / INPUT.format(role)))
                for role, config in order["inputs"].items()
            },
            device=placed(order["device"], rank),
            group=group,
            sharded=team.sharded,
        )


if __name__ == "__main__":
    member(Path(sys.argv[1]), int(sys.argv[2]))
