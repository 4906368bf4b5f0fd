"""The services that routes and MCP tools share: log, options, processes beside the server, users."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from starlette.datastructures import State

from agent_forge.api import problems
from agent_forge.api.access.authorization import Access, Tickets
from agent_forge.api.access.waiting import Seats
from agent_forge.api.options import Options
from agent_forge.api.processes.readers import Readers, Work
from agent_forge.api.state.run_cache import RunReader
from agent_forge.runs.home import Home


@asynccontextmanager
async def opened(state: State, home: Home, options: Options) -> AsyncIterator[None]:
    """Open the services as attributes of an application's state; close them at the end."""
    desk = RunReader(home)
    state.options, state.desk, state.work = options, desk, Work()
    state.readers = Readers(options)
    state.access = Access(desk.store, options)
    state.tickets = Tickets()
    state.seats = Seats(options.watchers, options.user_watchers)
    try:
        with nullcontext() if options.anywhere else problems.concealed(home.folder):
            yield
    finally:
        await state.work.stop()
        state.readers.stop()
        desk.close()
