"""Carrying out a run of any kind: recorded, resumed, followed to its end, its result announced."""

from __future__ import annotations

import signal
import sys
from contextlib import closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_forge.cli.options import Json, emit, name_of, tell

if TYPE_CHECKING:
    from agent_forge.events import EventStore
    from agent_forge.runs.home import Home
    from agent_forge.runs.kinds.asked import Plan
    from agent_forge.runs.kinds.kind import Kind
    from agent_forge.runs.kinds.state import State
    from agent_forge.runs.record.events import Described


def tracked(flag: bool = False, elsewhere: bool = False) -> bool:
    """Return True if W&B should follow the run, False if it runs `elsewhere`. Raises ConfigError."""
    from agent_forge.runs.errors import ConfigError
    from agent_forge.worker.exports import wandb_follower

    if flag and elsewhere:
        raise ConfigError(
            "--wandb follows a run that this command carries: leave it out here, and follow the run "
            "with `forge wandb sync RUN --follow`."
        )
    return not elsewhere and wandb_follower.wanted(flag, _warn)


def _warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)


def carry_on(
    home: Home, run: str, output: str | None, as_json: bool, followed: bool | None = None
) -> None:
    """Carry out a run, write its result's folder, print the result; exit with 1 if it did not complete.

    W&B follows the run if `followed` is True; None: if FORGE_WANDB asks for it.
    """
    from agent_forge.cli.runs import export
    from agent_forge.worker.exports import wandb_follower

    follows = tracked() if followed is None else followed
    with wandb_follower.beside(home, run, _warn) if follows else nullcontext():
        state = _follow(home, run)
        export.announce(state, _written(home, state, output), as_json)
    if not state.completed:
        sys.exit(1)


def begin(
    home: Home,
    plan: Plan,
    queued: Json,
    detach: bool,
    dry_run: bool,
    as_json: bool,
    config_file: str | None = None,
    followed: bool | None = None,
) -> None:
    """Record a run and carry it out; only record it with `detach`, only try it with `dry_run`.

    After an interruption an equal request continues its run. A run without a given name is named after
    its config file. `followed` is that of `carry_on`.
    """
    from agent_forge.cli.runs.progress import lasting

    if dry_run:
        _tried(plan, detach, as_json)
        return
    with lasting("checking models and data"):
        run, name = recorded(home, plan, queued, config_file)
    if detach:
        emit({"run": run, "name": name}) if as_json else click.echo(f"run {name} submitted")
        return
    run, output = resumed(home, run, {"output_dir": plan.output_dir})
    click.echo(
        f"run {name} (go on with it after an interruption: the same command, or forge start --resume "
        f"{name})",
        err=True,
    )
    carry_on(home, run, output, as_json, followed)


def _tried(plan: Plan, detach: bool, as_json: bool) -> None:
    """Try the work of a run and print time, disk and memory, each with its derivation.

    Raises UsageError with `detach`, and the errors of a submission and of a start.
    """
    import tempfile

    from agent_forge.cli.runs.progress import lasting
    from agent_forge.runs import kinds
    from agent_forge.runs.system.durations import duration, size
    from agent_forge.runs.system.process_limits import peak_memory
    from agent_forge.weights.storage.weight_cache import Artifacts

    if detach:
        raise click.UsageError("--dry-run starts nothing: leave out --detach.")
    _checked(plan)
    kind = kinds.of(plan.kind)
    submitted = kind.submitted(run="dry-run", owner="", config=plan.config, **plan.fields)
    click.echo("trying the work here: the start, some steps, some readings", err=True)
    with tempfile.TemporaryDirectory() as folder, lasting("trying"), peak_memory() as peak:
        cache = Artifacts(Path(folder) / "artifacts")
        forecast = kind.forecast(submitted, cache, Path(folder) / "models")
    forecast = forecast.held(peak[0])
    amounts = {
        "time": (forecast.seconds, duration),
        "disk": (forecast.disk, size),
        "memory": (forecast.memory, size),
    }
    if as_json:
        emit({name: asdict(amount) for name, (amount, _) in amounts.items()})
        return
    for name, (amount, words) in amounts.items():
        value = "not known" if amount.value is None else words(amount.value)
        tell(f"{name:7s} {value}: {amount.how}")


def _written(home: Home, state: State, output: str | None) -> Json:
    """Write the folder of a run's result; return the report, without `folder` if there is no result."""
    from agent_forge.cli.runs.progress import lasting
    from agent_forge.runs import kinds
    from agent_forge.runs.history.repository import history
    from agent_forge.worker.exports import delivery

    kind = kinds.of(state.kind)
    with closing(home.open_store()) as store, lasting("writing the result"):
        if kind.models.result(state) is None:
            return kind.view.report(state, list(history(store, state.run)))
        written = kind.write_result(home, state, Path(output or _folder(kind, state.run)))
        if state.completed and written["folder"] not in delivery.folders(store, state):
            delivery.record(store, state, written)
        return written


def _folder(kind: Kind, run: str) -> str:
    return f"{run}-{kind.result_name}"


def recorded(home: Home, plan: Plan, queued: Json, config_file: str | None = None) -> tuple[str, str]:
    """Check a plan and record its run, or find an equal request's; return (id, name).

    `queued` has the options of the queue. Raises ConfigError, ConflictError, UnavailableError.
    """
    from dataclasses import replace

    from agent_forge.runs.home import threads
    from agent_forge.runs.lists import queries
    from agent_forge.worker.commands import requests

    out = _checked(plan)
    threads()
    with closing(home.open_store()) as store:
        words = _words(store, queued, config_file)
        options = {name: value for name, value in queued.items() if name != "name"}
        outcome = requests.submit(store, replace(plan, output_dir=out), words=words, **options)
        row = queries.row(store, outcome.run)
        name = row["name"] if row else outcome.run
        if outcome.before:
            click.echo(_found(name, outcome.before, options["key"]), err=True)
        return outcome.run, name


def _found(name: str, status: str, key: str | None) -> str:
    """Return the message for a request that means an existing run."""
    whose = "the same request" if key is None else f"key {key!r}"
    another = "; --key TEXT begins another one" if key is None else ""
    return f"run {name} of {whose} is {status}{another}"


def _checked(plan: Plan) -> str | None:
    """Check a plan and print warnings; return its result's absolute folder, None if it names none.

    Raises ConfigError, ConflictError, UnavailableError.
    """
    from agent_forge.weights.storage.output_folder import check_target
    from agent_forge.worker.commands import submit

    for warning in submit.check(plan).warnings:
        click.echo(f"warning: {warning}", err=True)
    return None if plan.output_dir is None else str(check_target(Path(plan.output_dir)))


def _words(store: EventStore, queued: Json, config_file: str | None) -> Described:
    """Return a Described: the key, and the name, given or made from the config file's; else None."""
    from datetime import UTC, datetime

    from agent_forge.runs.lists import projections, queries
    from agent_forge.runs.record.events import Described

    name, key = queued.get("name"), queued.get("key")
    if name is None and config_file is not None and config_file != "-":
        day = datetime.now(UTC).isoformat()
        name = queries.free_name(store, projections.dated(Path(config_file).stem, day))
    return Described(name=name, key=key)


def resumed(home: Home, run: str, options: Json) -> tuple[str, str | None]:
    """Return (id of the run to continue, its output folder, or None for the default).

    Settings of a run are fixed: raises ConfigError if other options are given.
    """
    from agent_forge.runs import kinds
    from agent_forge.runs.errors import ConfigError
    from agent_forge.runs.kinds.asked import inputs, plan_of
    from agent_forge.weights.storage.output_folder import check_apart, check_target
    from agent_forge.worker.commands.control import adopted

    unset = (None, False, ())
    fixed = [
        name.replace("_", "-")
        for name, value in options.items()
        if name != "output_dir" and not any(value is default for default in unset)
    ]
    if fixed:
        raise ConfigError(
            f"--resume goes on with a run as it was started: leave out {', '.join(sorted(fixed))}."
        )
    with closing(home.open_store()) as store:
        state = adopted(store, run)
    folder = state.submitted.output_dir if state.submitted else None
    output = options.get("output_dir") or folder
    place = check_target(Path(output or _folder(kinds.of(state.kind), state.run)))
    check_apart(place, inputs(plan_of(state.submitted, state.kind)))
    return state.run, output


def _follow(home: Home, run: str) -> Any:
    """Carry out a run, showing its progress; return its state, or exit with 130 after Ctrl-C."""
    from agent_forge.cli.runs.progress import ProgressFollower
    from agent_forge.runs.home import processes
    from agent_forge.weights.storage.weight_cache import Artifacts
    from agent_forge.worker.tasks import helpers, runner

    store = home.open_store()
    interrupted: list[int] = []

    def stop(_signal: int, _frame: object) -> None:
        if interrupted:
            raise KeyboardInterrupt
        interrupted.append(1)
        click.echo("stopping after this step; Ctrl-C again stops at once", err=True)

    before = signal.signal(signal.SIGINT, stop)
    try:
        with ProgressFollower() as progress, helpers.beside(home, run, processes() - 1):
            worker = runner.WorkerProcess(
                store, Artifacts.of(home), progress.watch, lambda: bool(interrupted)
            )
            state = runner.finish(worker, run)
    except KeyboardInterrupt:
        state = None
    finally:
        signal.signal(signal.SIGINT, before)
        store.close()
    if state is None or not state.ended:
        click.echo(f"interrupted. Go on with: forge start --resume {name_of(run)}", err=True)
        sys.exit(130)
    return state
