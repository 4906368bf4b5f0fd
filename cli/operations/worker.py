"""`forge worker`, `workers`, `limits`: workers, and how users share them."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import click

from agent_forge.cli.options import SuggestingGroup, emit, home, json_option, number, split, table

if TYPE_CHECKING:
    from agent_forge.worker.devices.service import Crew, Shift
    from agent_forge.worker.queue.device_table import Device

log = logging.getLogger("agent_forge.worker.command")

#: Options that end a worker in time: of `forge worker`, and of `forge workers launch`.
positive = click.FloatRange(0, min_open=True)
notice_option = click.option(
    "--notice",
    type=click.FloatRange(0),
    default=20,
    show_default=True,
    help="Seconds after which a drained worker gives back what is unfinished.",
)
hours_option = click.option(
    "--max-hours", type=positive, metavar="HOURS", help="Drain after this time, and end."
)


concurrency_option = click.option(
    "--concurrency",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Processes on the CPU; they share its cores.",
)


@click.command("worker")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="cpu, cuda:N, several with commas; auto: every GPU, and the CPU.",
)
@click.option("--queues", default="", metavar="A,B", help="Labels that this worker offers to runs.")
@click.option("--only", is_flag=True, help="Take only runs that ask for one of these labels.")
@concurrency_option
@click.option(
    "--drain-on",
    default="",
    metavar="SIGTERM,SIGUSR1",
    help="Signals that drain the worker: it takes no task, and ends those under way at the next part.",
)
@notice_option
@click.option(
    "--signal-exit",
    is_flag=True,
    help="After such a signal exit with 128 + its number: job managers start another worker.",
)
@click.option(
    "--idle-exit", type=positive, metavar="SECONDS", help="End after this time without a task."
)
@hours_option
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve Prometheus metrics.")
@click.option("--metrics-address", default="127.0.0.1", show_default=True)
@click.option(
    "--log", "form", type=click.Choice(["json", "text"]), help="Default: text on a terminal, else json."
)
def worker_command(
    device: str,
    queues: str,
    only: bool,
    concurrency: int,
    drain_on: str,
    notice: float,
    signal_exit: bool,
    idle_exit: float | None,
    max_hours: float | None,
    metrics_port: int | None,
    metrics_address: str,
    form: str | None,
) -> None:
    """Work on the queue's runs, on this machine's devices. Ctrl-C finishes the tasks under way, or
    their parts, and stops; a second Ctrl-C returns the tasks to the queue.

    FORGE_DATABASE_URL says where the log is, FORGE_BROKER_URL where Redis is.

    \b
    Example:
      forge worker --device cuda:0,cuda:1 --queues big-gpu
      forge worker --drain-on SIGTERM,SIGUSR1 --idle-exit 300 --max-hours 4
    """
    from agent_forge.runs.home import Home, threads
    from agent_forge.weights.storage.artifact_store import open_vault
    from agent_forge.worker.devices import child_main
    from agent_forge.worker.devices.service import Crew
    from agent_forge.worker.queue.celery_wakeup import broker_url
    from agent_forge.worker.queue.device_table import placements

    labels = _labels(queues)
    if only and not labels:
        raise click.UsageError("--only goes with --queues.")
    shift = _shift(drain_on, notice, idle_exit, max_hours)
    threads()
    home, broker = Home.default(), broker_url()
    places = placements(device, concurrency)
    if home.store is not None:
        open_vault(home)  # raises what is wrong before anything is started
    os.environ["FORGE_LOG"] = form = form or ("text" if sys.stderr.isatty() else "json")
    child_main.set_up("json" if form == "json" else "text")
    crew = Crew(home, places, broker, frozenset(labels), only)
    if metrics_port is not None:
        _serve_metrics(crew, metrics_port, metrics_address)
    crew.start()
    log.info("working on %s; Ctrl-C stops", ", ".join(slot.name for slot in crew.slots))
    number = crew.wait(log.info, shift)
    if number and signal_exit:
        sys.exit(128 + number)


def _serve_metrics(crew: Crew, port: int, address: str) -> None:
    """Serve the crew's metrics; close the crew if that fails."""
    try:
        port = crew.metrics.serve(port, address)
    except BaseException:
        crew.close()
        raise
    log.info("metrics at http://%s:%d/metrics", address, port)


def _shift(drain_on: str, notice: float, idle: float | None, hours: float | None) -> Shift:
    """Return the shift that the options ask for. Raises UsageError for names that are no signals."""
    from agent_forge.worker.devices.service import Shift

    drainable = {s.name: s for s in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}}
    names = [f"SIG{name.upper().removeprefix('SIG')}" for name in split(drain_on)]
    if wrong := [name for name in names if name not in drainable]:
        raise click.UsageError(f"--drain-on takes signals such as SIGTERM, not {', '.join(wrong)}.")
    signals = frozenset(int(drainable[name]) for name in names)
    return Shift(signals, notice, idle or math.inf, hours * 3600 if hours else math.inf)


@click.group("workers", cls=SuggestingGroup, invoke_without_command=True)
@click.option("--check", is_flag=True, help="Exit code 3 unless a device of this host lives.")
@json_option
@click.pass_context
def workers_command(context: click.Context, check: bool, as_json: bool) -> None:
    """List the devices and the task of each; `launch` starts workers on other machines.

    \b
    Example:
      forge workers
      forge workers launch --on slurm --workers 4 --gpus 1
    """
    if context.invoked_subcommand is None:
        _list(check, as_json)


def _list(check: bool, as_json: bool) -> None:
    """Print the devices; with `check` exit with code 3 unless a device of this host lives."""
    from agent_forge.worker.devices.device import STARTING
    from agent_forge.worker.queue.device_table import DeviceTable, named_devices
    from agent_forge.worker.queue.leases import here

    with closing(home().open_store()) as store:
        devices = named_devices(store, DeviceTable(store.database))
    if check:
        host = here().partition(":")[0]
        here_now = [d for d in devices if d.living and d.name.startswith(f"{host}/")]
        if all(d.status == "starting" and d.seconds > STARTING for d in here_now):
            click.echo(f"error: no device of {host} is at work.", err=True)
            sys.exit(3)
    rows = [_row(device) for device in devices]
    if as_json:
        emit(rows)
        return
    if not rows:
        click.echo("no workers: start one with `forge worker`", err=True)
    keys = ("device", "status", "for", "task", "done", "labels", "refuses")
    table([*keys], [[str(row[key] or "-") for key in keys] for row in rows])


def _row(device: Device) -> dict[str, object]:
    """Return one device as a row, field → value, for the table and for JSON."""
    refuses = {run: why for run, (until, why) in device.refused.items() if until > device.now}
    return {
        "device": device.name,
        "status": device.status if device.living else "gone",
        "for": f"{number(device.seconds, '.0f')} s",
        "task": f"{device.run}/{device.task}" if device.task else None,
        "done": device.done,
        "labels": " ".join(sorted(device.offer.labels)),
        "memory": device.offer.memory,
        "profile": device.offer.profile,
        "refuses": "; ".join(f"{run}: {why}" for run, why in sorted(refuses.items())),
    }


@click.command("limits")
@click.argument("user", required=False)
@click.option("--weight", type=float, help="The user's share: twice the weight is twice as much.")
@click.option("--tasks", type=int, help="Tasks of a user at once; 0 is no limit.")
@click.option("--run-tasks", type=int, help="Tasks of one run at once, for all users; 0 is no limit.")
@json_option
def limits_command(
    user: str | None, weight: float | None, tasks: int | None, run_tasks: int | None, as_json: bool
) -> None:
    """Show or change how users share the workers. Without USER, the limits of all users.

    \b
    Example:
      forge limits
      forge limits ada --weight 2 --tasks 8
      forge limits --run-tasks 4
    """
    from agent_forge.worker.commands import user_limits

    with closing(home().open_store()) as store:
        if (weight, tasks, run_tasks) == (None, None, None):
            rules = user_limits.read(store)
        else:
            rules = user_limits.change(store, user, weight, tasks, run_tasks)
    limits = {
        name: {"weight": rules.weights.get(name, 1.0), "tasks": rules.tasks.get(name)}
        for name in sorted({*rules.weights, *rules.tasks} | ({user} if user else set()))
    }
    everybody = {"tasks": rules.everybody.per_user, "run_tasks": rules.everybody.per_run}
    if as_json:
        emit({"everybody": everybody, "users": limits})
        return
    head = "all other users" if limits else "all users"
    rows = [[n, f"{r['weight']:g}", str(r["tasks"] or "as all users")] for n, r in limits.items()]
    rows.insert(0, [head, "1", _limit(rules.everybody.per_user)])
    table(["user", "weight", "tasks at once"], rows)
    click.echo(f"tasks of one run at once: {_limit(rules.everybody.per_run)}")


def _limit(most: int | None) -> str:
    return "no limit" if most is None else str(most)


def _labels(queues: str) -> tuple[str, ...]:
    """Return the labels of --queues as a tuple. Raises UsageError if it names none, ConfigError."""
    from agent_forge.worker.commands.submit import check_queued

    labels = tuple(split(queues))
    check_queued(labels=labels)
    if queues and not labels:
        raise click.UsageError("--queues names no label.")
    return labels
