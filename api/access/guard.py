"""Checks that every request passes before it is parsed, and headers of every answer."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_forge.api.access.authorization import address, bearer
from agent_forge.api.options import Options
from agent_forge.api.problems import UNPROCESSABLE, Problem, answer, problem_of
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.system import plain_text

#: What a browser may do with what we send.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self' ws: wss:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

#: What is answered without a token.
PUBLIC = ("/", "/health", "/openapi.json")
ASSETS = "/assets/"


class Guard:
    """Checks host, token, size, kind and characters of a request, in this order; dresses answers.

    An error that a route did not foresee is logged once and answered like every other one.
    """

    def __init__(self, app: ASGIApp, options: Options) -> None:
        self._app, self._options = app, options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            if self._options.answers_for(Headers(scope=scope).get("host", "")):
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
        else:
            await self._request(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = False

        async def dressed(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                _dress(scope, message)
            await send(message)

        try:
            await self._check(scope)
            await self._app(scope, receive, dressed)
        except Exception as error:
            problem = problem_of(error)
            if began:
                raise
            await answer(problem)(scope, receive, dressed)

    async def _check(self, scope: Scope) -> None:
        """Raise Problem for a request that is not to be read any further."""
        headers = Headers(scope=scope)
        if not self._options.answers_for(host := headers.get("host", "")):
            detail = (
                f"This server does not answer for {plain_text.visible(host[:200])!r}. Its operator "
                "can name more hosts in FORGE_API_HOSTS."
            )
            raise Problem(421, "Misdirected Request", detail)
        if scope["path"] not in PUBLIC and not scope["path"].startswith(ASSETS):
            asks = HTTPConnection(scope)
            user = await run_in_threadpool(asks.app.state.access.user, _token(asks), address(asks))
            scope.setdefault("state", {})["user"] = user
        self._check_body(headers)
        _check_characters(scope, headers.get("idempotency-key", ""))

    def _check_body(self, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        if (
            not length.isdecimal()
            or int(length) > self._options.body
            or "transfer-encoding" in headers
        ):
            limit = f"A body has at most {self._options.body:,} bytes, and says how many."
            raise Problem(413, "Content Too Large", limit)
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        if int(length) and media != "application/json":
            detail = "Send the body as JSON, with the header Content-Type: application/json."
            raise Problem(415, "Unsupported Media Type", detail)


def _token(asks: HTTPConnection) -> str | None:
    """Return the token of the header, or the token that the query's ticket stands for."""
    ticket = asks.query_params.get("ticket")
    if ticket is None or asks.scope["method"] != "GET":
        return bearer(asks)
    return bearer(asks) or asks.app.state.tickets.redeem(asks.scope["path"], ticket)


def _check_characters(scope: Scope, key: str) -> None:
    """Raise Problem 422 for an address or a key with characters that are no part of any name."""
    try:
        query = parse_qsl(scope["query_string"].decode("latin-1"), True, max_num_fields=100)
    except ValueError as error:
        raise Problem(422, UNPROCESSABLE, "The query has over 100 fields.") from error
    fields = [("path", scope["path"]), ("Idempotency-Key", key)]
    for field, text in [*fields, *((name, name + value) for name, value in query)]:
        try:
            plain_text.check(text, "the text")
        except ConfigError as error:
            field = plain_text.visible(field)
            errors = [{"field": field, "message": str(error)}]
            raise Problem(422, UNPROCESSABLE, f"{field}: {error}", errors=errors) from error


def _dress(scope: Scope, start: Message) -> None:
    """Add the security and cache headers to an answer."""
    headers = MutableHeaders(scope=start)
    if scope["path"].startswith(ASSETS) and start["status"] == 200:
        headers["Cache-Control"] = "public, max-age=31536000, immutable"
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
