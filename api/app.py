"""The application: routes, errors, headers, the dashboard's files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware

from api import asking, catalogue, people, phases, problems, runs, sockets
from api.access import Access
from api.desk import Desk
from api.live import Hub
from api.options import Options
from api.shapes import Problem
from api.work import Work
from evomerge.home import Home

VERSION = "0.1.0"

SITE = Path(__file__).parent / "site"

#: What a browser may do with what we send.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self' ws: wss:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

#: Answers that every route may give.
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": what}
    for status, what in (
        (401, "No valid token"), (403, "Not with this role"), (404, "No such thing"),
        (409, "It is not so that this could be done"), (422, "The request is wrong"),
        (429, "Too many requests"), (503, "Something needed is not there"),
    )
}  # fmt: skip


def create(home: Home, options: Options) -> FastAPI:
    """The server over one log."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        desk = Desk(home)
        app.state.options, app.state.desk, app.state.work = options, desk, Work()
        app.state.access = Access(desk.store, options)
        app.state.hub = Hub(desk)
        app.state.hub.start()
        try:
            yield
        finally:
            app.state.hub.stop()
            await app.state.work.stop()
            desk.close()

    app = FastAPI(
        title="EvoMerge", version=VERSION, lifespan=lifespan, docs_url=None, redoc_url=None,
        description="Runs that evolve merges of language models: docs/api.md.", responses=ERRORS,
    )  # fmt: skip
    problems.install(app)
    app.add_middleware(GZipMiddleware, minimum_size=2048)
    if options.origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(options.origins), allow_methods=["*"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "If-None-Match"],
            expose_headers=["ETag", "Location", "Retry-After"],
        )  # fmt: skip
    app.middleware("http")(_guard(options))
    for module in (asking, runs, catalogue, people, phases, sockets):
        app.include_router(module.router)
    _site(app)
    return app


def _guard(options: Options) -> Callable[..., Awaitable[Response]]:
    """Bodies that are too large are refused, and every answer says how it may be used."""

    async def guard(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        length = request.headers.get("content-length", "0")
        if request.method in ("POST", "PUT", "PATCH") and (
            not length.isdecimal()
            or int(length) > options.body
            or request.headers.get("transfer-encoding")
        ):
            said = f"A body has at most {options.body:,} bytes, and says how many."
            response: Response = problems.answer(problems.Problem(413, "Too large", said))
        else:
            response = await go_on(request)
        if request.url.path.startswith("/assets/") and response.status_code == 200:
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return guard


def _site(app: FastAPI) -> None:
    """The dashboard, and whether the server lives."""

    @app.get("/health", tags=["health"])
    def health(request: Request) -> dict[str, str]:
        """Whether the log can be read, and is followed."""
        request.app.state.desk.end()
        if not request.app.state.hub.lives:
            raise problems.Problem(503, "The log is not followed", "Start the server again.")
        return {"status": "ok", "version": VERSION}

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        if not (SITE / "index.html").is_file():
            return Response("The dashboard has not been built: see docs/api.md.", 404)
        return FileResponse(SITE / "index.html", headers={"Cache-Control": "no-cache"})

    files = StaticFiles(directory=SITE / "assets", check_dir=False)
    app.mount("/assets", files, name="assets")
