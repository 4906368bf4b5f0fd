"""The MCP server over Streamable HTTP at `/mcp`, behind the checks of every request of the API.

Every request stands alone: it carries its token, and there are no sessions that others could enter.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agent_forge.api.access.authorization import Guard, same_origin
from agent_forge.api.mcp.server import server
from agent_forge.api.options import Options
from agent_forge.api.problems import HttpError
from agent_forge.api.schemas.runs import Json
from agent_forge.api.services import opened
from agent_forge.runs.home import Home
from agent_forge.worker.commands.accounts import User

PATH = "/mcp"


def create(home: Home, options: Options) -> Starlette:
    """Return the application that serves the log of `home` to MCP clients at `PATH`."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with opened(app.state, home, options):
            manager = StreamableHTTPSessionManager(
                server(app.state, _user), stateless=True, max_request_body_size=options.body
            )
            app.state.manager = manager
            async with manager.run():
                yield

    layers = [Middleware(Guard, options=options)]
    if options.origins:
        cors: Json = {"allow_origins": list(options.origins), "allow_methods": ["POST"]}
        layers.insert(0, Middleware(CORSMiddleware, allow_headers=["*"], **cors))
    return Starlette(
        routes=[Route(PATH, _Endpoint(options), methods=["POST"])], middleware=layers, lifespan=lifespan
    )


class _Endpoint:
    """The application at `/mcp`: it refuses pages of other sites, and hands the rest to the package."""

    def __init__(self, options: Options) -> None:
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Problem 403 for a page of another site."""
        if not same_origin(HTTPConnection(scope), self._options):
            detail = "Pages of this origin may not ask: see FORGE_API_ORIGINS."
            raise HttpError(403, "Forbidden", detail)
        await scope["app"].state.manager.handle_request(scope, receive, send)


def _user(context: ServerRequestContext[object]) -> User:
    """Return the user whom `Guard` has found by the request's token."""
    assert context.request is not None
    return context.request.state.user
