"""Device table: each device's offer, status and grant; needs of runs, and who works on them. No torch.

The table is not the truth: it may be dropped at any time. It has one row per device. The worker writes
its device's status and a heartbeat. The dispatcher writes the grant: the task that the device should do
next. A row whose heartbeat is late, by the database's clock, counts as gone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata

from sqlalchemy import (
    BigInteger,
    Connection,
    Float,
    Row,
    Update,
    delete,
    insert,
    literal_column,
    select,
    update,
)
from sqlmodel import Field, SQLModel

from agent_forge.events import EventStore
from agent_forge.events.database import Database
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, UnavailableError
from agent_forge.runs.kinds.state import State
from agent_forge.runs.lists import queries
from agent_forge.runs.record.device_setting import AUTO, CPU
from agent_forge.worker.queue.leases import Leases, alive, lifetime
from agent_forge.worker.queue.scheduler import DeviceNeeds, Offer


class DeviceRow(SQLModel, table=True):
    """The table of devices."""

    __tablename__ = "devices"  # pyright: ignore[reportAssignmentType]

    name: str = Field(primary_key=True)
    owner: str
    #: cpu or cuda:N.
    device: str
    #: starting, idle, busy or stopping.
    status: str
    labels: str = ""
    memory: int = Field(default=0, sa_type=BigInteger)
    profile: str | None = None
    #: True if the device takes only runs that ask for one of its own labels (without a colon).
    only: bool = False
    beat: float
    since: float
    run: str | None = None
    task: str | None = None
    done: int = 0
    grant_run: str | None = None
    grant_task: str | None = None
    #: Runs that the device refuses for now: name → [until when, why], JSON.
    refused: str = "{}"


DEVICES = DeviceRow.__table__  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True)
class Device:
    """A device, read from its row in the table."""

    name: str
    owner: str
    device: str
    status: str
    offer: Offer
    run: str | None
    task: str | None
    done: int
    #: (run, task) that the device should do.
    grant: tuple[str, str] | None
    refused: Mapping[str, tuple[float, str]]
    #: Seconds in this status.
    seconds: float
    living: bool
    #: Seconds since 1970 by the database's clock, when this was read.
    now: float = field(compare=False)
    #: The run's name; its id unless the device is one of `named_devices`.
    run_name: str | None = field(default=None, compare=False)

    @property
    def free(self) -> bool:
        """True if the device can be granted a task."""
        return self.living and self.status == "idle" and self.grant is None

    def refuses(self, run: str) -> bool:
        """Return True if the device refuses this run at the time of reading."""
        return run in self.refused and self.refused[run][0] > self.now


class DeviceTable:
    """Access to the table of devices, for workers and the dispatcher."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._now = literal_column(database.clock, Float)
        self._lifetime = lifetime()
        with database.explained(), database.migrating() as connection:
            DEVICES.create(connection, checkfirst=True)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._database.explained(), self._database.writing() as connection:
            yield connection

    def devices(self) -> list[Device]:
        """Return all devices sorted by name, also those that seem to be gone."""
        query = select(DEVICES, self._now.label("now")).order_by(DEVICES.c.name)
        return [self._device(row) for row in self._database.rows(query)]

    def _device(self, row: Row) -> Device:
        beats = row.now - row.beat < self._lifetime
        granted = (row.grant_run, row.grant_task) if row.grant_run else None
        return Device(
            name=row.name,
            owner=row.owner,
            device=row.device,
            status=row.status,
            offer=Offer(frozenset(row.labels.split()), row.memory, row.profile, row.only),
            run=row.run,
            run_name=row.run,
            task=row.task,
            done=row.done,
            grant=granted,
            refused={k: (v[0], v[1]) for k, v in json.loads(row.refused).items()},
            seconds=row.now - row.since,
            living=beats and alive(row.owner) is not False,
            now=row.now,
        )

    # ---- written by a device's worker ------------------------------------------------------

    def enter(self, name: str, owner: str, device: str) -> str:
        """Insert a row for a device; return the name that the device has there.

        The name gets a number (`NAME.1`) if another living worker has it.
        """
        number = 0
        while True:
            numbered = f"{name}.{number}" if number else name
            with self._database.explained(), self._database.migrating() as connection:
                query = select(DEVICES, self._now.label("now")).where(DEVICES.c.name == numbered)
                row = connection.execute(query).first()
                if row is None or not self._device(row).living or row.owner == owner:
                    connection.execute(delete(DEVICES).where(DEVICES.c.name == numbered))
                    values = {
                        "name": numbered,
                        "owner": owner,
                        "device": device,
                        "labels": "",
                        "memory": 0,
                        "only": False,
                        "status": "starting",
                        "done": 0,
                        "refused": "{}",
                        "beat": self._now,
                        "since": self._now,
                    }
                    connection.execute(insert(DEVICES).values(**values))
                    return numbered
            number += 1

    def offers(self, name: str, owner: str, offer: Offer) -> None:
        """Write the device's labels, memory and profile into its row."""
        self._update(
            name,
            owner,
            labels=" ".join(sorted(offer.labels)),
            memory=offer.memory,
            profile=offer.profile,
            only=offer.only,
        )

    def say(self, name: str, owner: str, status: str, **also: object) -> bool:
        """Write the device's status; return True if the row is still this owner's."""
        with self._writing() as connection:
            return connection.execute(self.saying(name, owner, status, **also)).rowcount == 1

    def saying(self, name: str, owner: str, status: str, **also: object) -> Update:
        """Return the SQL statement of `say`, to execute in another transaction."""
        values = {"status": status, "since": self._now, "beat": self._now, **also}
        return self._updating(name, owner, values)

    def refuse(self, name: str, owner: str, refused: Mapping[str, tuple[float, str]]) -> None:
        """Write run → (until when, why) for the runs that the device refuses."""
        self._update(name, owner, refused=json.dumps(refused))

    def beat(self, name: str, owner: str) -> bool:
        """Write a heartbeat of the device; return True if the row is still this owner's."""
        return self._update(name, owner, beat=self._now)

    def _update(self, name: str, owner: str, **values: object) -> bool:
        with self._writing() as connection:
            return connection.execute(self._updating(name, owner, values)).rowcount == 1

    def _updating(self, name: str, owner: str, values: Mapping[str, object]) -> Update:
        own_row = (DEVICES.c.name == name) & (DEVICES.c.owner == owner)
        return update(DEVICES).where(own_row).values(**values)

    def now(self) -> float:
        """Return the time of the database's clock, seconds since 1970."""
        return float(self._database.rows(select(self._now))[0][0])

    def grant_of(self, name: str, owner: str) -> tuple[str, str] | None:
        """Return (run, task) that the device should do; None if it has no grant."""
        own_row = (DEVICES.c.name == name) & (DEVICES.c.owner == owner)
        query = select(DEVICES.c.grant_run, DEVICES.c.grant_task).where(own_row)
        rows = self._database.rows(query)
        return (rows[0][0], rows[0][1]) if rows and rows[0][0] else None

    def leave(self, name: str, owner: str) -> None:
        """Remove the device's row."""
        with self._writing() as connection:
            own_row = (DEVICES.c.name == name) & (DEVICES.c.owner == owner)
            connection.execute(delete(DEVICES).where(own_row))

    # ---- written by the dispatcher ---------------------------------------------------------

    def grant(self, grants: Mapping[str, tuple[str, str]]) -> set[str]:
        """Write the grants of devices that are idle and have none; return these devices' names."""
        taken = set()
        with self._writing() as connection:
            for name, (run, task) in sorted(grants.items()):
                free = (DEVICES.c.name == name) & DEVICES.c.grant_run.is_(None)
                free &= DEVICES.c.status == "idle"
                values = {"grant_run": run, "grant_task": task}
                if connection.execute(update(DEVICES).where(free).values(**values)).rowcount:
                    taken.add(name)
        return taken

    def revoke(self, name: str, run: str, task: str) -> None:
        """Remove a device's grant of this task, unless the device has begun it."""
        granted = (DEVICES.c.grant_run == run) & (DEVICES.c.grant_task == task)
        granted_row = (DEVICES.c.name == name) & (DEVICES.c.status != "busy") & granted
        with self._writing() as connection:
            free = {"grant_run": None, "grant_task": None}
            connection.execute(update(DEVICES).where(granted_row).values(**free))

    def sweep(self, names: list[str]) -> None:
        """Remove the rows of these devices, which are gone."""
        with self._writing() as connection:
            connection.execute(delete(DEVICES).where(DEVICES.c.name.in_(names)))


def named_devices(store: EventStore, roster: DeviceTable) -> list[Device]:
    """Return all devices sorted by name, each with the name of its current run."""
    devices = roster.devices()
    names = queries.names(store, {device.run for device in devices if device.run})
    return [
        replace(device, run_name=names.get(device.run, device.run) if device.run else None)
        for device in devices
    ]


@dataclass(frozen=True)
class Hand:
    """A device or process that works on a task of a run."""

    who: str
    task: str
    seconds: float | None = None
    #: How far the task is, in words; empty: not known.
    pace: str = ""


def at_work(run: str, roster: DeviceTable, leases: Leases) -> list[Hand]:
    """Return a list of Hands: devices that work on a run, then processes that carry out the run."""
    paces = leases.paces()
    hands = {
        f"{run}/{d.task}": Hand(d.name, d.task, d.seconds, paces.get(f"{run}/{d.task}", ""))
        for d in roster.devices()
        if d.living and d.run == run and d.task
    }
    for task, owner in sorted(leases.held().items()):
        if task.startswith(f"{run}/") and task not in hands:
            place, pid, *_ = owner.split("/")
            who = f"{place.partition(':')[0]}, process {pid}"
            hands[task] = Hand(who, task.removeprefix(f"{run}/"), None, paces.get(task, ""))
    return list(hands.values())


class WorkFinder:
    """A callable that finds the devices and processes that work on a run's tasks now."""

    def __init__(self, store: EventStore, run: str) -> None:

        from agent_forge.worker.queue.leases import Leases

        self._run = run
        self._roster, self._leases = DeviceTable(store.database), Leases(store.database)

    def __call__(self) -> list[Hand]:
        """Return a list of Hands: the devices and processes that work on the run now, by the tables."""
        return at_work(self._run, self._roster, self._leases)


_GPU = "device:cuda"


def kind_label(device: str) -> str:
    """Return the label of a device's kind: "device:cpu" or "device:cuda"."""
    return f"device:{device.partition(':')[0]}"


def needs(
    device: str, labels: tuple[str, ...], state: State | None, offers: Collection[Offer] = ()
) -> DeviceNeeds:
    """Return what a run needs of a device: labels, and once started its memory and profile.

    A run whose device is auto needs a GPU if one of `offers`, those of the living devices, meets its
    labels, else a CPU.
    """
    if state is not None:
        device = state.device
    if device == AUTO:
        on_gpu = DeviceNeeds(frozenset({_GPU, *labels}))
        device = "cuda" if any(offer.meets(on_gpu) for offer in offers) else CPU
    needed_labels = frozenset({kind_label(device), *labels})
    if state is None or state.started is None:
        return DeviceNeeds(needed_labels)
    memory = kinds.of(state.kind).memory(state)
    return DeviceNeeds(needed_labels, memory, state.started.machine)


def gpu_offers(devices: Iterable[Device]) -> frozenset[Offer]:
    """Return the set of offers of living GPUs, without memory and profiles, which may change."""
    return frozenset(
        Offer(d.offer.labels, only=d.offer.only) for d in devices if d.living and _GPU in d.offer.labels
    )


@dataclass(frozen=True)
class Placement:
    """A device, and the environment of the process that uses it."""

    device: str
    #: The last part of the device's name on its host.
    name: str
    env: dict[str, str]


def placements(devices: str, concurrency: int) -> list[Placement]:
    """Return the placements that `--device` means: one per GPU, `concurrency` for the CPU.

    Each has a process of its own. "auto" means every GPU that CUDA_VISIBLE_DEVICES leaves, and the
    CPU, so that runs for either are taken. Raises ConfigError and UnavailableError.
    """
    visible = visible_gpus()
    if devices == AUTO:
        devices = ",".join([*(f"cuda:{n}" for n in range(len(visible))), CPU])
    places: list[Placement] = []
    for device in map(str.strip, devices.split(",")):
        match = re.fullmatch(r"cpu|cuda:(\d+)", device)
        if match is None:
            raise ConfigError(f"device {device!r} is not known: give cpu, cuda:N, several, or auto.")
        if match[1] is not None:
            if int(match[1]) >= len(visible):
                raise UnavailableError(
                    f"device {device} is not here: {len(visible)} GPUs are visible. "
                    "CUDA_VISIBLE_DEVICES and nvidia-smi say which; "
                    f"torch is {metadata.version('torch')}, and a build +cpu uses none."
                )
            gpu = visible[int(match[1])]
            env = {"CUDA_VISIBLE_DEVICES": gpu, "FORGE_DEVICE": "cuda:0"}
            places += [Placement(device, f"cuda{match[1]}", env)]
        else:
            places += _on_cpu(concurrency)
    if len({placement.name for placement in places}) < len(places):
        raise ConfigError(f"a device stands twice in {devices}.")
    return places


def _on_cpu(concurrency: int) -> list[Placement]:
    """Return `concurrency` placements on the CPU, which share its cores.

    FORGE_THREADS, if set, is the number of threads of each instead.
    """
    cores = len(os.sched_getaffinity(0))
    threads = os.environ.get("FORGE_THREADS") or str(max(1, cores // concurrency))
    env = {"CUDA_VISIBLE_DEVICES": "", "FORGE_DEVICE": "cpu", "FORGE_THREADS": threads}
    return [Placement("cpu", f"cpu{n}", env) for n in range(concurrency)]


def visible_gpus() -> list[str]:
    """Return a value of CUDA_VISIBLE_DEVICES for each GPU that this process may use.

    Empty with a torch that was built for the CPU alone, as its version says.
    """
    if metadata.version("torch").endswith("+cpu"):
        return []
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is not None:
        return [part.strip() for part in setting.split(",") if part.strip() and part.strip() != "-1"]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [str(n) for n, _ in enumerate(re.findall(r"^GPU \d+", listed.stdout, re.MULTILINE))]
