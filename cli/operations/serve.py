"""`forge serve` and `forge mcp`: the API and the dashboard, and a server for MCP clients."""

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
    from agent_forge.worker.commands.accounts import Role


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


MCP_PORT = 8084


@click.command("mcp")
@click.option("--http", is_flag=True, help="Listen on an address, for users with tokens.")
@click.option("--host", help="Address to listen on; default: 127.0.0.1. Needs --http.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help=f"Default: {MCP_PORT}. Needs --http; 0: any free one."
)
@click.option(
    "--models",
    "roots",
    multiple=True,
    type=click.Path(),
    help="Where models and data may be. Default: anywhere; with --http, where it is started.",
)
@click.option(
    "--role",
    type=click.Choice(["viewer", "submitter", "admin"]),
    help="What the client may do; default: admin, as at a terminal. With --http a token says it.",
)
def mcp_command(
    http: bool, host: str | None, port: int | None, roots: tuple[str, ...], role: Role | None
) -> None:
    """Serve MCP clients, such as editors and chat programs: docs/mcp.md.

    Without --http a client starts this command itself, and acts as the user of this terminal.

    \b
    Example:
      forge mcp
      forge mcp --role viewer
      forge mcp --http --port 8084 --models models
    """
    from agent_forge.runs.system import packages

    packages.require("a server for MCP clients", "mcp")
    if not http and (host is not None or port is not None):
        raise click.UsageError("--host and --port are for a server that listens: give --http, too.")
    if http and role is not None:
        raise click.UsageError("--role is for standard input: with --http a token says the role.")
    if http:
        _listen(host or "127.0.0.1", MCP_PORT if port is None else port, roots)
    else:
        _answer(roots, role or "admin")


def _answer(roots: tuple[str, ...], role: Role) -> None:
    """Serve the MCP client on standard input and output until it ends."""
    import asyncio

    from agent_forge.api.mcp import server
    from agent_forge.api.options import Options
    from agent_forge.runs.home import Home
    from agent_forge.worker.append import actor
    from agent_forge.worker.commands.accounts import User

    options = Options.of_terminal(roots)
    if sys.stdin.isatty():
        click.echo(
            "An MCP client starts this command and talks to it here: docs/mcp.md. Ctrl-C ends it.",
            err=True,
        )
    # A thread waits for the next line and cannot be woken. The log needs no orderly end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(server.serve(Home.default(), options, User(actor(), role)))


def _listen(host: str, port: int, roots: tuple[str, ...]) -> None:
    """Serve MCP clients of users with tokens over HTTP until a signal comes."""
    from agent_forge.api.mcp.server import PATH, create
    from agent_forge.api.options import Options
    from agent_forge.runs.home import Home

    home, options = Home.default(), Options.of_environment(roots, host)
    listening = listen(host, port)
    warn_of_clear_text(host)
    click.echo(f"mcp {address(host, listening)}{PATH}", err=True)
    click.echo("A token: forge users token NAME; for a new user: forge users add NAME", err=True)
    serve(create(home, options), options, listening)
