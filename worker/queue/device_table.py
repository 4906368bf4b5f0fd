"""The table of devices: what each device of the workers offers and does, and its grant.

The table is not the truth: it may be dropped at any time. It has one row per device. The worker
writes its device's status and a heartbeat. The dispatcher writes the grant: the task that the
device should do next. A row whose heartbeat is late, by the database's clock, counts as gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Float,
    Update,
    delete,
    insert,
    literal_column,
    select,
    update,
)
from sqlmodel import Field, SQLModel

from events import EventStore
from events.database import Database
from runs.lists import queries
from worker.queue.leases import alive, lifetime
from worker.queue.scheduler import Offer


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
    """A device as its row in the table says."""

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
    #: What the run is called; its id unless the device is one of `named_devices`.
    run_name: str | None = field(default=None, compare=False)

    @property
    def free(self) -> bool:
        """True if the device can be granted a task."""
        return self.living and self.status == "idle" and self.grant is None

    def refuses(self, run: str) -> bool:
        """Return True if the device refuses this run now."""
        return run in self.refused and self.refused[run][0] > self.now


class Roster:
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
        """Return all devices by name, also those that seem to be gone."""
        query = select(DEVICES, self._now.label("now")).order_by(DEVICES.c.name)
        return [self._device(row) for row in self._database.rows(query)]

    def _device(self, row: Any) -> Device:
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
        """Take a row for a device; return its name.

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
        """Write what the device offers."""
        self._update(
            name,
            owner,
            labels=" ".join(sorted(offer.labels)),
            memory=offer.memory,
            profile=offer.profile,
            only=offer.only,
        )

    def say(self, name: str, owner: str, status: str, **also: Any) -> bool:
        """Write the device's status; return True if the row is still this owner's."""
        with self._writing() as connection:
            return connection.execute(self.saying(name, owner, status, **also)).rowcount == 1

    def saying(self, name: str, owner: str, status: str, **also: Any) -> Update:
        """Return the statement of `say`, to execute in the transaction of another statement."""
        values = {"status": status, "since": self._now, "beat": self._now, **also}
        return self._updating(name, owner, values)

    def refuse(self, name: str, owner: str, refused: Mapping[str, tuple[float, str]]) -> None:
        """Write which runs the device refuses, until when and why."""
        self._update(name, owner, refused=json.dumps(refused))

    def beat(self, name: str, owner: str) -> bool:
        """Write a heartbeat of the device; return True if the row is still this owner's."""
        return self._update(name, owner, beat=self._now)

    def _update(self, name: str, owner: str, **values: Any) -> bool:
        with self._writing() as connection:
            return connection.execute(self._updating(name, owner, values)).rowcount == 1

    def _updating(self, name: str, owner: str, values: Mapping[str, Any]) -> Update:
        own_row = (DEVICES.c.name == name) & (DEVICES.c.owner == owner)
        return update(DEVICES).where(own_row).values(**values)

    def now(self) -> float:
        """Return the time of the database's clock, seconds since 1970."""
        return float(self._database.rows(select(self._now))[0][0])

    def grant_of(self, name: str, owner: str) -> tuple[str, str] | None:
        """Return the (run, task) that the device should do; None if it has no grant."""
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
        """Grant tasks to idle devices without a grant; return the names of devices that got one."""
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
        """Take back a granted task that the device has not begun."""
        granted = (DEVICES.c.grant_run == run) & (DEVICES.c.grant_task == task)
        granted_row = (DEVICES.c.name == name) & (DEVICES.c.status != "busy") & granted
        with self._writing() as connection:
            free = {"grant_run": None, "grant_task": None}
            connection.execute(update(DEVICES).where(granted_row).values(**free))

    def sweep(self, names: list[str]) -> None:
        """Remove the rows of these devices, which are gone."""
        with self._writing() as connection:
            connection.execute(delete(DEVICES).where(DEVICES.c.name.in_(names)))


def named_devices(store: EventStore, roster: Roster) -> list[Device]:
    """Return all devices by name, each with what its run is called."""
    devices = roster.devices()
    names = queries.names(store, {device.run for device in devices if device.run})
    return [
        replace(device, run_name=names.get(device.run, device.run) if device.run else None)
        for device in devices
    ]
