"""Errors as problem details (RFC 9457)."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from agent_forge.api.schemas.bodies import SPELLINGS
from agent_forge.events import EventsError, StoreUnavailableError, UnstorableError
from agent_forge.runs import errors
from agent_forge.runs.system import plain_text

log = logging.getLogger(__name__)

#: Folders that no error shows: the homes of the logs that are served.
_homes: list[str] = []

MEDIA = "application/problem+json"

#: The title of a 422 (RFC 9110, 15.5.21).
UNPROCESSABLE = "Unprocessable Content"

#: Class of error → status and title; the first that fits.
STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.NotFoundError, 404, "Not Found"),
    (errors.ConflictError, 409, "Conflict"),
    (errors.TamperedError, 409, "Conflict"),
    (errors.ConfigError, 422, UNPROCESSABLE),
    (errors.UnavailableError, 503, "Service Unavailable"),
    (errors.ForgeError, 409, "Conflict"),
    (UnstorableError, 422, UNPROCESSABLE),
    (EventsError, 409, "Conflict"),
)


class HttpError(Exception):
    """An answer that says what is wrong."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        headers: dict[str, str] | None = None,
        **more: object,
    ) -> None:
        super().__init__(detail)
        self.status, self.headers = status, headers or {}
        self.body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}


def problem_of(error: Exception) -> HttpError:
    """Return the problem that answers an error; the text of an internal error goes to the log only."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, StoreUnavailableError | SQLAlchemyError):  # it names host and user
        log.error("the database failed: %s", error)
        detail = "The log's database does not answer as it should. The server's own log says more."
        return HttpError(503, "Service Unavailable", detail)
    for cls, status, title in STATUS:
        if isinstance(error, cls):
            return HttpError(status, title, _without_homes(str(error)))
    log.error("a request failed", exc_info=error)
    return HttpError(500, "Internal Server Error", "The server's own log says more.")


@contextmanager
def concealed(home: Path) -> Iterator[None]:
    """Replace the path of `home` by $FORGE_HOME in the problems of the `with` block.

    Users name roots, runs and models, never a path in the home. The server's own log has the path.
    """
    _homes.append(str(home))
    try:
        yield
    finally:
        _homes.remove(str(home))


def _without_homes(text: str) -> str:
    for home in sorted(_homes, key=len, reverse=True):
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "$FORGE_HOME", text)
    return text


def answer(problem: HttpError) -> JSONResponse:
    """Return a problem as a JSON response of its status and headers."""
    return JSONResponse(problem.body, problem.status, problem.headers, media_type=MEDIA)


def install(app: FastAPI) -> None:
    """Install the handlers that answer every error of a route as a problem."""

    @app.exception_handler(RequestValidationError)
    async def _invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        faults = [
            {
                "field": _shown(_place(e["loc"])),
                "message": _shown(str(e["msg"]).removeprefix("Value error, ")),
            }
            for e in error.errors()
        ]
        detail = "; ".join(f"{e['field']}: {e['message']}" for e in faults)
        return answer(HttpError(422, UNPROCESSABLE, detail, errors=faults))

    @app.exception_handler(HTTPException)
    async def _http(_request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        return answer(HttpError(error.status_code, str(error.detail), str(error.detail), headers))

    for cls in (HttpError, errors.ForgeError, EventsError, SQLAlchemyError):
        app.add_exception_handler(cls, _any)


def _shown(text: str) -> str:
    """Return a text of a request in one line, with characters escaped that steer or do not show."""
    return plain_text.visible(plain_text.for_reader(text))


def _place(parts: Sequence[int | str]) -> str:
    """Return a field's place as "config.seed", without the name of the spelling that was read there."""
    inner = [str(part) for part in parts[1:] if part not in SPELLINGS]
    return ".".join(inner) or str(parts[0])


async def _any(_request: Request, error: Exception) -> JSONResponse:
    return answer(problem_of(error))
