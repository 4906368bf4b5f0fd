"""The application: routes, errors, headers, the dashboard's files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

from agent_forge.api import live, problems
from agent_forge.api.access.authorization import Guard
from agent_forge.api.access.waiting import WaitingRoom
from agent_forge.api.live import Hub
from agent_forge.api.options import Options
from agent_forge.api.routes import (
    checks,
    commands,
    control,
    listings,
    model_files,
    phases,
    pipelines,
    runs,
    users,
)
from agent_forge.api.routes.listings import known_fields
from agent_forge.api.schemas.bodies import Problem
from agent_forge.api.services import opened
from agent_forge.runs.home import Home

VERSION = version("agent-forge")

SITE = Path(__file__).parent / "site"

#: In the order in which a path is looked for.
ROUTES = (*(checks, commands, control, runs, model_files), *(listings, pipelines, users, phases, live))

#: Answers that every route may give.
ERRORS: dict[int | str, dict[str, object]] = {
    status: {"model": Problem, "description": what}
    for status, what in (
        (401, "No valid token"),
        (403, "Not with this role"),
        (404, "No such thing"),
        (409, "It is not so that this could be done"),
        (413, "The body is too large"),
        (415, "The body is not JSON"),
        (421, "Another host was meant"),
        (422, "The request is wrong"),
        (429, "Too many requests"),
        (503, "Something needed is not there"),
    )
}


def create(home: Home, options: Options) -> FastAPI:
    """Return the application that serves the log of `home`: routes, middleware and dashboard."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opened(app.state, home, options):
            app.state.strangers = WaitingRoom(options.strangers, options.strangers_per_address)
            app.state.hub = Hub(app.state.desk)
            app.state.hub.start()
            try:
                yield
            finally:
                app.state.hub.stop()

    app = FastAPI(
        title="EvoMerge",
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        description="Runs that evolve merges of language models: docs/api.md.",
        responses=ERRORS,
    )
    problems.install(app)
    app.add_middleware(GZipMiddleware, minimum_size=2048)
    app.add_middleware(Guard, options=options)
    if options.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(options.origins),
            allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "If-None-Match"],
            expose_headers=["ETag", "Location", "Retry-After"],
        )
    for module in ROUTES:
        app.include_router(module.router, dependencies=[Depends(known_fields)])
    _site(app)
    return app


def _site(app: FastAPI) -> None:
    """Add the routes of the dashboard's files and of the health check."""

    @app.get("/health", tags=["health"])
    def health(request: Request) -> dict[str, str]:
        """Check that the server can read the log and follows it; 503 if not."""
        request.app.state.desk.end()
        if not request.app.state.hub.lives:
            raise problems.HttpError(
                503, "Service Unavailable", "The log is not followed: start the server again."
            )
        return {"status": "ok", "version": VERSION}

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        if not (SITE / "index.html").is_file():
            return Response("The dashboard has not been built: see docs/api.md.", 404)
        return FileResponse(SITE / "index.html", headers={"Cache-Control": "no-cache"})

    files = StaticFiles(directory=SITE / "assets", check_dir=False)
    app.mount("/assets", files, name="assets")
