"""`forge worker`, `workers`, `limits`: workers here and on job managers, and how users share them."""

from __future__ import annotations

import logging
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_forge.cli.options import SuggestingGroup, emit, home, json_option, number, split, table

if TYPE_CHECKING:
    from agent_forge.worker.devices.service import Crew, Shift
    from agent_forge.worker.queue.device_table import Device

log = logging.getLogger("agent_forge.worker.command")

#: Options that end a worker in time: of `forge worker`, and of `forge workers launch`.
_positive = click.FloatRange(0, min_open=True)
notice_option = click.option(
    "--notice",
    type=click.FloatRange(0),
    default=20,
    show_default=True,
    help="Seconds after which a drained worker gives back what is unfinished.",
)
hours_option = click.option(
    "--max-hours", type=_positive, metavar="HOURS", help="Drain after this time, and end."
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
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Processes on the CPU; they share its cores.",
)
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
    "--idle-exit", type=_positive, metavar="SECONDS", help="End after this time without a task."
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
    """List the devices and the task of each; or launch workers on other machines.

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


#: Variables that workers on a cloud's machines get, by name; their values stand in no file.
PASSED = (
    *("FORGE_DATABASE_URL", "FORGE_BROKER_URL", "FORGE_ARTIFACT_STORE", "FORGE_ARTIFACT_KEY"),
    *("FORGE_THREADS", "FORGE_LEASE_SECONDS", "FORGE_KINDS"),
    *("HF_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
)
#: Seconds that a job may last beyond its worker's hours and notice.
MARGIN = 60


@dataclass(frozen=True)
class WorkerJob:
    """Workers for a job manager: how many, what each gets, and what each runs."""

    name: str
    workers: int
    #: The shell lines before the worker's own, and the words of `forge worker …`.
    before: tuple[str, ...]
    words: tuple[str, ...]
    #: A number, or TYPE:NUMBER; empty for none.
    gpus: str
    cpus: int | None
    #: Seconds: of the notice, and of the time limit.
    notice: int
    limit: int | None
    image: str | None
    extra: tuple[str, ...]
    secrets: tuple[str, ...]

    @property
    def shell(self) -> str:
        """The commands of one worker, which becomes the shell's process and gets its signals."""
        return " && ".join([*self.before, f"exec forge {shlex.join(self.words)}"])

    def fields(self) -> dict[str, object]:
        """Return the extra lines `KEY: VALUE` as a mapping. Raises UsageError."""
        import yaml

        fields: dict[str, object] = {}
        for line in self.extra:
            try:
                parsed: object = yaml.safe_load(line)
            except yaml.YAMLError:
                parsed = None
            if not isinstance(parsed, dict):
                raise click.UsageError(f"--extra {line!r} is not KEY: VALUE, as YAML.")
            fields |= parsed
        return fields


def slurm_script(job: WorkerJob) -> str:
    """Return a script for `sbatch`: an array of jobs, each of one worker in a step.

    Slurm sends its signals to steps. It puts a preempted job back only if the job is still there.
    """
    options = [f"--job-name={job.name}", f"--array=1-{job.workers}", "--ntasks=1"]
    options += [f"--cpus-per-task={job.cpus}"] if job.cpus else []
    options += [f"--gpus-per-node={job.gpus}"] if job.gpus else []
    options += [f"--time={math.ceil(job.limit / 60)}"] if job.limit else []
    options += [f"--signal=USR1@{job.notice + MARGIN}", "--requeue", "--open-mode=append"]
    srun = ["srun", *([f"--cpus-per-task={job.cpus}"] if job.cpus else [])]
    srun += [f"--container-image={job.image}"] if job.image else []
    here = Path(sys.executable).with_name("forge")
    program = str(here) if here.exists() and not job.image else "forge"
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in (*options, "--export=ALL", *job.extra))]
    lines += [*job.before, shlex.join([*srun, program, *job.words]), "code=$?"]
    lines += ["case $code in 138|143) sleep 600;; esac  # preempted: wait to be put back", "exit $code"]
    return "\n".join(lines) + "\n"


def kubernetes_job(job: WorkerJob) -> str:
    """Return a Job: its pods are replaced when they are preempted, and not when a worker has ended.

    Raises UsageError without an image, or if --gpus names a type.
    """
    if not job.image:
        raise click.UsageError("--on kubernetes needs --image, for example that of the Dockerfile.")
    if job.gpus and not job.gpus.isdecimal():
        raise click.UsageError("--on kubernetes takes a number of --gpus; choose the type by --extra.")
    limits = {"nvidia.com/gpu": int(job.gpus or 0), "cpu": job.cpus or 0}
    container = {
        "name": "worker",
        "image": job.image,
        "command": ["/bin/sh", "-c", job.shell],
        "envFrom": [{"secretRef": {"name": name}} for name in job.secrets or ("forge",)],
        "resources": {"limits": {name: count for name, count in limits.items() if count}},
    }
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": job.notice + 15}
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    spec = {"parallelism": job.workers, "podFailurePolicy": {"rules": [ignored]}}
    spec |= {"activeDeadlineSeconds": job.limit} if job.limit else {}
    spec["template"] = {"spec": {**pod, "containers": [container], **job.fields()}}
    named = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job.name}}
    return _yaml({**named, "spec": spec})


def sky_task(job: WorkerJob) -> str:
    """Return a task for `sky launch`, for one worker. Raises UsageError for GPUs without a type."""
    if job.gpus.isdecimal():
        raise click.UsageError(f"--on sky needs the GPUs' type too, such as --gpus H100:{job.gpus}.")
    resources: dict[str, object] = {"accelerators": job.gpus} if job.gpus else {}
    resources |= {"cpus": f"{job.cpus}+"} if job.cpus else {}
    resources |= {"image_id": f"docker:{job.image}"} if job.image else {}
    return _yaml({"name": job.name, "resources": {**resources, **job.fields()}, "run": job.shell})


def _yaml(document: Mapping[str, object]) -> str:
    import yaml

    return yaml.safe_dump(dict(document), sort_keys=False, width=1000)


#: Job manager → the end of the file's name, what writes it, and the command that takes it.
MANAGERS = {
    "slurm": (".sh", slurm_script, ("sbatch",)),
    "kubernetes": (".yaml", kubernetes_job, ("kubectl", "apply", "-f")),
    "sky": (".yaml", sky_task, ("sky", "launch", "--yes", "--detach-run", "--down")),
}


@workers_command.command("launch")
@click.option("--on", "manager", type=click.Choice([*MANAGERS]), required=True, help="The job manager.")
@click.option("--workers", type=click.IntRange(1, 10_000), default=1, show_default=True)
@click.option("--gpus", default="", metavar="N|TYPE:N", help="GPUs of each worker; default: none.")
@click.option("--cpus", type=click.IntRange(1), help="Cores of each worker.")
@hours_option
@notice_option
@click.option("--idle-exit", type=_positive, default=300, show_default=True, metavar="SECONDS")
@click.option("--image", help="Container image; Slurm needs pyxis for it.")
@click.option("--before", multiple=True, metavar="LINE", help="Shell line before the worker's.")
@click.option(
    "--extra",
    multiple=True,
    metavar="LINE",
    help="Slurm: an #SBATCH option. Kubernetes: a field of the pod. SkyPilot: one of resources.",
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME",
    help="Kubernetes: a Secret with the workers' variables (default: forge). SkyPilot: a further "
    "variable of this environment.",
)
@click.option("--dry-run", is_flag=True, help="Print the file, and submit nothing.")
@json_option
@click.argument("worker_options", nargs=-1)
def launch_command(
    manager: str,
    workers: int,
    gpus: str,
    cpus: int | None,
    max_hours: float | None,
    notice: float,
    idle_exit: float,
    image: str | None,
    before: tuple[str, ...],
    extra: tuple[str, ...],
    secrets: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    worker_options: tuple[str, ...],
) -> None:
    """Write the lines that start workers of this queue on Slurm, Kubernetes or SkyPilot; submit them.

    WORKER_OPTIONS, after --, are further options of forge worker. Workers drain when they are
    preempted. No file contains a secret: Slurm's jobs get this environment, Kubernetes' pods the
    variables of a Secret, SkyPilot's machines variables by name.

    \b
    Example:
      forge workers launch --on slurm --workers 4 --gpus 1 --max-hours 4 --extra=--partition=gpu
      forge workers launch --on kubernetes --image registry/forge --gpus 1 -- --queues big-gpu
      forge workers launch --on sky --gpus H100:1 --extra "use_spot: true" --dry-run
    """
    words = ["worker", "--drain-on", "SIGTERM,SIGUSR1", "--signal-exit", "--notice", f"{notice:g}"]
    words += ["--idle-exit", f"{idle_exit:g}"]
    words += ["--max-hours", f"{max_hours:g}"] if max_hours else []
    words += worker_options
    worker_command.make_context("forge worker", words[1:])  # raises what is wrong with the options
    name = f"forge-worker-{time.strftime('%m%d-%H%M%S')}"
    limit = math.ceil(max_hours * 3600 + notice + MARGIN) if max_hours else None
    amounts = ("" if gpus == "0" else gpus, cpus, math.ceil(notice), limit)
    job = WorkerJob(name, workers, before, tuple(words), *amounts, image, extra, secrets)
    suffix, write, command = MANAGERS[manager]
    _check_secrets(text := write(job))
    file = None if dry_run else _submit(job, suffix, text, command)
    if as_json:
        emit({"name": name, "file": file and str(file), "text": text})
    elif file is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"{name}: submitted {file}; `forge workers` lists the workers once they are there")


def _check_secrets(text: str) -> None:
    """Raise UsageError if a file contains the value of a secret variable."""
    for name in PASSED:
        value = os.environ.get(name, "")
        if value in text and any(word in name for word in ("URL", "KEY", "TOKEN")) and value:
            raise click.UsageError(f"the file would contain the value of {name}: give it by name only.")


def _submit(job: WorkerJob, suffix: str, text: str, command: tuple[str, ...]) -> Path:
    """Write the file into the home folder and hand it to the job manager; return its path.

    Raises UnavailableError if the manager's program is missing or fails, ConfigError without a log.
    """
    from agent_forge.runs.errors import ConfigError, UnavailableError

    if command[0] == "sky" and not os.environ.get("FORGE_DATABASE_URL"):
        raise ConfigError("set FORGE_DATABASE_URL: machines of a cloud reach the queue's log by it.")
    if shutil.which(command[0]) is None:
        raise UnavailableError(
            f"`{command[0]}` is not on the PATH of this machine. Install it, or print the file with "
            "--dry-run and submit it elsewhere."
        )
    file = home().folder / "launched" / f"{job.name}{suffix}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    calls = [[*command, str(file)]]
    if command[0] == "sky":  # a cluster each: it ends with its worker
        names = [*(name for name in PASSED if os.environ.get(name)), *job.secrets]
        further = [word for name in names for word in ("--secret", name)]
        calls = [[*calls[0], *further, "-c", f"{job.name}-{n + 1}"] for n in range(job.workers)]
    for words in calls:
        if code := subprocess.run(words, stdout=sys.stderr, check=False).returncode:
            raise UnavailableError(f"`{command[0]}` ended with exit code {code}; it was given {file}.")
    return file


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
