"""Errors as problem details (RFC 9457)."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from events import EventsError, StoreUnavailableError, UnstorableError
from evomerge import errors

log = logging.getLogger(__name__)

MEDIA = "application/problem+json"

#: Class of error → status and title; the first that fits.
STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.NotFoundError, 404, "Not found"),
    (errors.ConflictError, 409, "Conflict"),
    (errors.TamperedError, 409, "The history is not what its hashes say"),
    (errors.ConfigError, 422, "That cannot be used"),
    (errors.UnavailableError, 503, "Something needed is not there"),
    (errors.ForgeError, 409, "That is not possible"),
    (StoreUnavailableError, 503, "The log cannot be reached"),
    (UnstorableError, 422, "That cannot be recorded"),
    (EventsError, 409, "The log is not as it should be"),
)


class Problem(Exception):
    """An answer that says what is wrong."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.headers = status, headers or {}
        self.body = {
            "type": "about:blank",
            "title": title,
            "status": status,
            "detail": detail,
            **more,
        }


def problem_of(error: Exception) -> Problem:
    """Any error as a problem; one that is nobody's fault but ours says nothing of the inside."""
    if isinstance(error, Problem):
        return error
    for cls, status, title in STATUS:
        if isinstance(error, cls):
            return Problem(status, title, str(error))
    if isinstance(error, SQLAlchemyError):
        log.error("the database failed: %s", error)
        return Problem(
            503, "The log cannot be reached", "The database does not answer as it should."
        )
    log.error("a request failed", exc_info=error)
    return Problem(500, "Error in the server", "The server's own log says more.")


def answer(problem: Problem) -> JSONResponse:
    """A problem as a response."""
    return JSONResponse(problem.body, problem.status, problem.headers, media_type=MEDIA)


def install(app: FastAPI) -> None:
    """Let every error that leaves a route be told so."""

    @app.exception_handler(RequestValidationError)
    async def _invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        found = [
            {
                "field": ".".join(str(p) for p in e["loc"][1:]) or str(e["loc"][0]),
                "message": e["msg"],
            }
            for e in error.errors()
        ]
        said = "; ".join(f"{e['field']}: {e['message']}" for e in found)
        return answer(Problem(422, "The request is not valid", said, errors=found))

    @app.exception_handler(HTTPException)
    async def _http(_request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        return answer(Problem(error.status_code, str(error.detail), str(error.detail), headers))

    for cls in (Problem, errors.ForgeError, EventsError, SQLAlchemyError, Exception):
        app.add_exception_handler(cls, _any)


async def _any(_request: Request, error: Exception) -> JSONResponse:
    return answer(problem_of(error))
