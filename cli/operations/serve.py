"""`forge serve`: the API and the dashboard."""

from __future__ import annotations

import re
import signal
import socket
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from agent_forge.runs.home import Home

#: Default port of the dashboard and the API, as in the source documents.
PORT = 8083


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True)
@click.option(
    "--models",
    "roots",
    multiple=True,
    type=click.Path(),
    help="Where models and data may be; default: where it is started.",
)
def serve_command(host: str, port: int, roots: tuple[str, ...]) -> None:
    """Serve the dashboard and the API. The first start at a terminal prints an admin's token, once.

    \b
    Example:
      forge serve --models models
    """
    from agent_forge.api.app import create
    from agent_forge.api.options import Options
    from agent_forge.runs.home import Home

    home, options = Home.default(), Options.of_environment(roots, host)
    listening = listen(host, port)
    token = _first(home)
    warn_of_clear_text(host)
    place = f"{address(host, listening)}/"
    click.echo(f"dashboard {place}" + (f"#token={token}" if token else ""), err=True)
    if token:
        click.echo("This address has your token; it is not shown again.", err=True)
    else:
        click.echo("A token: forge users token NAME; for a new user: forge users add NAME", err=True)
    serve(create(home, options), options, listening)


def address(host: str, listening: socket.socket) -> str:
    """Return a server's URL without its path, such as "http://127.0.0.1:8083"."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"


def warn_of_clear_text(host: str) -> None:
    """Print a warning if other machines can connect: there is no TLS."""
    if host not in ("127.0.0.1", "::1", "localhost"):
        click.echo("warning: tokens travel in the clear here: put TLS in front of it", err=True)


def listen(host: str, port: int) -> socket.socket:
    """Return a new socket that listens on the address. Raises UnavailableError."""
    from agent_forge.runs.errors import UnavailableError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise UnavailableError(
            f"{host}:{port} cannot be listened on: {error.strerror or error}. Name "
            "another --port, or stop what listens there."
        ) from error
    return listening


def _first(home: Home) -> str | None:
    """Create the first user, an admin; return the token, or None if there are users already.

    None also if stderr is no terminal: Docker and systemd would keep the token in their logs.
    """
    from agent_forge.worker.append import actor
    from agent_forge.worker.commands import accounts

    if not sys.stderr.isatty():
        return None
    with closing(home.open_store()) as store:
        if accounts.read(store).roles:
            return None
        name = re.sub(r"[^A-Za-z0-9._@+-]", "-", actor())[:64] or "admin"
        accounts.add(store, name, "admin")
        return accounts.issue(store, name, "first start")[1]


def serve(app: Any, options: Any, listening: socket.socket) -> None:
    """Serve an application on a listening socket, within the options' limits, until a signal comes."""
    from agent_forge.api.serving import server

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a client that goes away must not end the server
    server(app, options).run(sockets=[listening])
