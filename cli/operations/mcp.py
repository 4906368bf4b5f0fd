"""`forge mcp`: a server for MCP clients, on standard input and output or over HTTP."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from agent_forge.worker.commands.accounts import Role

PORT = 8084


@click.command("mcp")
@click.option("--http", is_flag=True, help="Listen on an address, for users with tokens.")
@click.option("--host", help="Address to listen on; default: 127.0.0.1. Needs --http.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help=f"Default: {PORT}. Needs --http; 0: any free one."
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
        _listen(host or "127.0.0.1", PORT if port is None else port, roots)
    else:
        _answer(roots, role or "admin")


def _answer(roots: tuple[str, ...], role: Role) -> None:
    """Serve the MCP client on standard input and output until it ends."""
    import asyncio

    from agent_forge.api.mcp.server import serve
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
    asyncio.run(serve(Home.default(), options, User(actor(), role)))


def _listen(host: str, port: int, roots: tuple[str, ...]) -> None:
    """Serve MCP clients of users with tokens over HTTP until a signal comes."""
    from agent_forge.api.mcp.server import PATH, create
    from agent_forge.api.options import Options
    from agent_forge.cli.operations.serve import address, listen, serve, warn_of_clear_text
    from agent_forge.runs.home import Home

    home, options = Home.default(), Options.of_environment(roots, host)
    listening = listen(host, port)
    warn_of_clear_text(host)
    click.echo(f"mcp {address(host, listening)}{PATH}", err=True)
    click.echo("A token: forge users token NAME; for a new user: forge users add NAME", err=True)
    serve(create(home, options), options, listening)
