"""Tables of docs/scale.md as Markdown, from measured constants and simulated queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks import scale_queue, scale_runs
from benchmarks.scale_queue import Queue
from benchmarks.scale_runs import Recorded, Taken
from benchmarks.scale_simulation import Costs, Measured, simulate
from benchmarks.scale_store import Artifact

DEVICES = (1, 10, 100, 1_000)
#: Seconds of work in a task: a merge of a small model, a measurement, a segment of a training.
LENGTHS = (1.0, 10.0, 60.0)
NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def constants(found: dict[str, Measured]) -> str:
    """Return the table of constants, a column for each database."""
    rows: list[tuple[str, Callable[[Measured], str]]] = [
        ("append of one event, one writer", lambda m: f"{1000 * m.write:.2f} ms"),
        ("writing transactions of a task", lambda m: f"{m.queue.task_writes:.1f}"),
        ("of an idle device, a minute", lambda m: f"{60 * m.queue.idle_writes:.1f}"),
        ("of a device at work, a minute", lambda m: f"{60 * m.queue.busy_writes:.1f}"),
        ("of the dispatcher, a minute", lambda m: f"{60 * m.queue.leader_writes:.1f}"),
        ("reading transactions of an idle device, a second", lambda m: told(m.queue.idle_reads)),
        ("of the idle dispatcher, a second", lambda m: told(m.queue.leader_reads)),
        ("of the dispatcher while devices work", lambda m: told(m.queue.busy_leader_reads)),
        ("processor time of a task beyond its work", lambda m: f"{1e3 * m.queue.task_cpu:.0f} ms"),
        ("of an idle device, a minute", lambda m: f"{60 * m.queue.idle_cpu:.2f} s"),
        ("of the idle dispatcher, a minute", lambda m: f"{60 * m.queue.leader_cpu:.2f} s"),
        ("connections to the log of a device", lambda m: linked(m, "{0.device}")),
        ("of a worker besides", lambda m: linked(m, "{0.worker}")),
        ("of the dispatcher besides", lambda m: linked(m, "{0.dispatcher}")),
        ("memory of a connection in the server", lambda m: linked(m, "{0.mebibytes:.1f} MiB")),
        ("connections to Redis of a worker", lambda m: f"{m.queue.broker.worker}"),
        ("of the dispatcher besides", lambda m: f"{m.queue.broker.dispatcher}"),
        ("commands to Redis of an idle worker, a second", lambda m: f"{m.queue.broker.idle:.1f}"),
        ("of a task", lambda m: f"{m.queue.broker.task:.1f}"),
        ("of them messages", lambda m: f"{m.queue.broker.messages:.1f}"),
        ("events folded a second, one process", lambda m: f"{m.recorded.folded:,.0f}"),
        ("events a second when tables are made again", lambda m: f"{m.recorded.rebuilt:,.0f}"),
    ]
    each = [[what, *(value(m) for m in found.values())] for what, value in rows]
    return table(["", *(NAMES[name] for name in found)], each)


def linked(found: Measured, form: str) -> str:
    """Return a fact of the connections, or a dash if they were not counted."""
    return "–" if found.queue.links is None else form.format(found.queue.links)


def told(value: float | None) -> str:
    """Return a number, or a dash if it was not counted."""
    return "–" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def by_steps(found: dict[str, Measured]) -> str:
    """Return the table of the dispatcher's steps by the devices at work."""
    rows = (
        [f"{count:,}", *(f"{1000 * m.steps[count]:,.1f} ms" for m in found.values())]
        for count in scale_queue.TABLES
    )
    return table(["devices at work", *(NAMES[name] for name in found)], rows)


def by_connections(queue: Queue) -> str:
    """Return the table of connections to PostgreSQL by devices, and the most devices."""
    links = queue.links
    assert links
    workers = (1, 8)
    rows = []
    for n in DEVICES:
        memory = f"{links.used(n) * links.mebibytes / 1024:,.1f} GiB"
        rows.append([f"{n:,}", *(f"{links.used(n, each):,}" for each in workers), memory])
    titles = ["devices", *(f"connections, workers of {each}" for each in workers)]
    most = ", ".join(f"{links.most(each)} in workers of {each}" for each in workers)
    made = table([*titles, "memory, workers of 1"], rows)
    return f"{made}\n{links.limit} connections are enough for {most}.\n"


def by_devices(columns: dict[str, Costs]) -> str:
    """Return the table of simulated queues: devices by length of tasks, a column for each constants."""
    rows = []
    for devices in DEVICES:
        for seconds in LENGTHS:
            row = [f"{devices:,}", f"{seconds:g}"]
            for costs in columns.values():
                found = simulate(devices, seconds, costs)
                row.append(
                    f"{found.tasks_per_second:,.2f}/s, {found.working:.0%}, {found.writing:.0%}, "
                    f"{1000 * found.wait:,.0f} ms"
                )
            rows.append(row)
    return table(["devices", "seconds a task", *columns], rows)


def by_runs(recorded: Recorded) -> str:
    """Return the table of runs by number: bytes, and hours to make tables and to verify all."""
    rows = []
    for runs in (100, 10_000, 1_000_000):
        events = runs * recorded.run_events
        rows.append(
            [f"{runs:,}", f"{events:,}", f"{events * recorded.event_bytes / 1e9:,.1f} GB"]
            + [f"{events / each / 3600:,.2f} h" for each in (recorded.rebuilt, recorded.folded)]
        )
    titles = ["runs of 20 generations", "events", "log", "tables made again"]
    return table([*titles, "all folded, one process"], rows)


def by_kinds(found: Sequence[Taken]) -> str:
    """Return the table of runs of other kinds."""
    rows = (
        [
            one.what,
            f"{one.events}",
            f"{one.bytes / 1e6:.2f} MB",
            f"{one.segments}",
            f"{one.segment_bytes / 1e3:.1f} kB",
            f"{one.bytes / 1e3:,.0f} GB",
        ]
        for one in found
    )
    titles = ["in miniature", "events", "log", "segments of trainings", "event of a segment"]
    return table([*titles, "a million of them"], rows)


def by_questions(found: dict[str, dict[int, float]], each: float) -> str:
    """Return the table of questions to the list of runs, and the bytes that a run has in it."""
    sizes = (scale_runs.SHORT, scale_runs.LONG)
    rows = [
        [question, *(f"{1000 * times[size]:,.0f} ms" for size in sizes)]
        for question, times in found.items()
    ]
    made = table(["the list of runs", *(f"of {size:,}" for size in sizes)], rows)
    return f"{made}\nA run in the list: {each:,.0f} bytes.\n"


def by_artifacts(found: Sequence[Artifact]) -> str:
    """Return the table of artifacts."""

    def calls(of: dict[str, int]) -> str:
        return ", ".join(f"{count} {name}" for name, count in sorted(of.items()))

    rows = (
        [
            one.what,
            f"{one.bytes / 1e6:.1f} MB",
            f"{one.objects}",
            f"{1000 * one.put:,.0f} ms",
            f"{1000 * one.fetch:,.0f} ms",
            calls(one.put_calls),
            calls(one.fetch_calls),
        ]
        for one in found
    )
    titles = ["", "bytes", "objects", "put", "fetch", "calls of a put", "calls of a fetch"]
    return table(titles, rows)


def by_traffic(found: Sequence[Artifact]) -> str:
    """Return the table of what devices send that all train, with a snapshot a minute."""
    rows = (
        [one.what, *(f"{n * one.bytes / 60e6:,.1f} MB/s" for n in DEVICES)]
        for one in found
        if one.what.startswith("snapshot")
    )
    return table(["devices", *(f"{n:,}" for n in DEVICES)], rows)


def by_champions(found: Sequence[Artifact]) -> str:
    """Return the table of a million champions."""
    rows = (
        [one.what, f"{one.bytes / 1e6:,.1f} TB", f"{one.objects} million"]
        for one in found
        if one.what.startswith("champion")
    )
    return table(["a million", "bytes", "objects"], rows)


def columns_of(found: dict[str, Measured]) -> dict[str, Costs]:
    """Return the columns of the simulation by their titles."""
    return {f"{NAMES[name]}, {1000 * one.write:.2f} ms": one.costs for name, one in found.items()}
