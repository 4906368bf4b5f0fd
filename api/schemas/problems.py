"""Schemas of problem details (RFC 9457)."""

from __future__ import annotations

from api.schemas.runs import Answer


class WrongField(Answer):
    """A part of a body or query that is wrong, and why."""

    field: str
    message: str


class Problem(Answer):
    """Problem details (RFC 9457); `errors` only if parts of a body or query are wrong."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[WrongField] | None = None
