"""The MCP server on standard input and output, for the client that started this process."""

from __future__ import annotations

from mcp.server.stdio import stdio_server
from starlette.datastructures import State

from agent_forge.api.mcp.server import server
from agent_forge.api.options import Options
from agent_forge.api.services import opened
from agent_forge.runs.home import Home
from agent_forge.worker.commands.accounts import User


async def serve(home: Home, options: Options, user: User) -> None:
    """Answer the client's messages until its end of the pipe is closed."""
    state = State()
    async with opened(state, home, options), stdio_server() as (incoming, outgoing):
        mcp_server = server(state, lambda _context: user)
        await mcp_server.run(incoming, outgoing, mcp_server.create_initialization_options())
