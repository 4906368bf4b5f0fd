"""The MCP server in memory, over toy runs, asked by the package's own client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult, TextContent
from starlette.datastructures import State

from agent_forge.api.mcp.server import server
from agent_forge.api.options import Options
from agent_forge.api.services import opened
from agent_forge.runs.home import Home
from agent_forge.worker.commands.accounts import Role, User
from agent_forge.worker.devices import reading_process
from tests.integration.kinds.conftest import ended, home, honest_home, toy_is_known

__all__ = ["ended", "home", "honest_home", "toy_is_known"]


@dataclass
class Talk:
    """A client, and the state of the server that it talks to."""

    client: Client
    state: State

    async def call(self, name: str, **asked: Any) -> dict[str, Any]:
        """Return the answer of a tool."""
        told = await self.client.call_tool(name, asked)
        assert not told.is_error, said(told)
        assert told.structured_content is not None
        return told.structured_content

    async def refused(self, name: str, **asked: Any) -> str:
        """Return the refusal of a tool."""
        told = await self.client.call_tool(name, asked)
        assert told.is_error, told.structured_content
        assert told.structured_content is None
        return said(told)


def said(told: CallToolResult) -> str:
    """Return the text of a result."""
    [content] = told.content
    assert isinstance(content, TextContent)
    return content.text


@dataclass
class Served:
    """A server over a home, for one user; each conversation opens it again."""

    home: Home
    roots: Path
    options: dict[str, Any] = field(default_factory=dict)

    def talk(
        self,
        what: Callable[[Talk], Awaitable[Any]],
        role: Role = "admin",
        name: str = "ada",
        since: int = 0,
    ) -> Any:
        """Carry out a conversation as a user; return what it returns."""
        return asyncio.run(self._talk(what, User(name, role, since)))

    async def _talk(self, what: Callable[[Talk], Awaitable[Any]], user: User) -> Any:
        state, options = State(), Options((self.roots,), **self.options)
        async with opened(state, self.home, options):
            state.readers.ask = _ask
            async with Client(server(state, lambda _context: user)) as client:
                return await what(Talk(client, state))


async def _ask(order: str, user: str, **more: Any) -> dict[str, Any]:
    """Carry out a reader's order here: its process takes a second to start."""
    return reading_process.ORDERS[order](more)


@pytest.fixture
def served(ended: Home, tmp_path: Path) -> Served:
    """A server over a finished toy run `r`, which reads models below `models`."""
    roots = tmp_path / "models"
    roots.mkdir()
    return Served(ended, roots)
