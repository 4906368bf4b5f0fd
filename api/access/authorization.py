"""Authorization of requests: users of tokens, their roles, rate limits, and tickets for downloads.

A page saves a large file by opening its address, so that the browser writes the file to disk as it
arrives. Such a request has no header with the token. A ticket stands for the token instead: it is
valid once, for a short time, for paths below one path.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_forge.api.options import Options
from agent_forge.api.problems import UNPROCESSABLE, HttpError, answer, problem_of
from agent_forge.events import EventStore
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.system import plain_text
from agent_forge.worker.commands import accounts
from agent_forge.worker.commands.accounts import Role, User


class Buckets:
    """Token buckets, one for each name, that limit requests; the least recently used are forgotten."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._lock = threading.Lock()
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str) -> float:
        """Take a request from the user's bucket; return 0, or the seconds until one is allowed."""
        with self._lock:
            now = self._clock()
            left, then = self._left.pop(name, (float(self._burst), now))
            left = min(float(self._burst), left + (now - then) * self._rate)
            allowed = left >= 1
            self._left[name] = (left - 1 if allowed else left, now)
            while len(self._left) > 10_000:
                self._left.popitem(last=False)
            return 0.0 if allowed else (1 - left) / self._rate


class Access:
    """The users by their tokens, and a limit on the requests of each."""

    def __init__(self, store: EventStore, options: Options) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._accounts = accounts.Accounts()
        self._requests = Buckets(options.rate, options.burst)
        self._wrong = Buckets(options.wrong_rate, options.wrong_burst)

    def known(self) -> accounts.Accounts:
        """Return a copy of the accounts as the log has them now."""
        with self._lock:
            now = accounts.read(self._store, self._accounts)
            return replace(now, roles=dict(now.roles), tokens=dict(now.tokens), since=dict(now.since))

    def holds(self, secret: str | None) -> bool:
        """Return True if the token belongs to a user; the check counts as no request."""
        return secret is not None and self.known().user_of(secret) is not None

    def user(self, secret: str | None, address: str) -> User:
        """Return the user of a token. Raises Problem 401, or 429 for too many requests."""
        if secret:
            user = self.known().user_of(secret)
            if user is not None:
                self._allow(self._requests, user.name)
                return user
        self._allow(self._wrong, address)
        detail = (
            "The token is not valid (any more)."
            if secret
            else "Send `Authorization: Bearer TOKEN`. `forge users token NAME` makes one."
        )
        raise unauthorized(detail)

    @staticmethod
    def _allow(buckets: Buckets, name: str) -> None:
        wait = buckets.take(name)
        if wait:
            after = {"Retry-After": str(int(wait) + 1)}
            raise HttpError(429, "Too Many Requests", "Wait a moment, and ask less often.", after)


def bearer(connection: HTTPConnection) -> str | None:
    """Return the token of the Authorization header; None if the header has no bearer token."""
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" and secret.strip() else None


def address(connection: HTTPConnection) -> str:
    """Return the host that a connection comes from; "?" if it is unknown."""
    return connection.client.host if connection.client else "?"


def same_origin(connection: HTTPConnection, options: Options) -> bool:
    """Return True unless a browser's page of another site asks, which the options do not allow."""
    origin = connection.headers.get("origin")
    if origin is None or origin in options.origins:
        return True
    return origin.partition("://")[2] == connection.headers.get("host")


async def somebody(request: Request) -> User:
    """Return the user who asks, whom `Guard` has found by the token. Raises Problem 401 without one."""
    user: User | None = getattr(request.state, "user", None)
    if user is None:
        raise unauthorized("Send `Authorization: Bearer TOKEN`.")
    return user


def unauthorized(detail: str) -> HttpError:
    """Return Problem 401, for a request without a valid token; `detail` is its sentence."""
    return HttpError(401, "Unauthorized", detail, {"WWW-Authenticate": "Bearer"})


def at_least(role: Role) -> Callable[..., Awaitable[User]]:
    """Return an async dependency that returns the user, or raises Problem 403 below `role`."""

    async def check(user: User = Depends(somebody)) -> User:
        need(user, role)
        return user

    return check


def need(user: User, role: Role) -> None:
    """Raise Problem 403 if the user's role is below `role`."""
    if not user.may(role):
        raise HttpError(403, "Forbidden", f"This needs the role {role}; {user.name} is a {user.role}.")


VIEWER, SUBMITTER, ADMIN = (at_least(role) for role in accounts.ROLES)


def own(user: User, owner: str, began: int) -> None:
    """Raise Problem 403 if the run belongs to another user and `user` is no admin.

    `began` is the position of the run's first event: a user with the name of an
    earlier, removed user does not own that user's runs.
    """
    if user.may("admin") or (user.name == owner and user.since < began):
        return
    detail = (
        f"The run belongs to {owner or 'no user'}; only {owner or 'an admin'} or an admin may do that."
        if user.name != owner
        else f"The run is of an earlier user {owner}: only an admin may do that."
    )
    raise HttpError(403, "Forbidden", detail)


#: Seconds that a ticket may be used.
SECONDS = 60.0
#: Tickets that are kept; the oldest are forgotten.
KEPT = 1024


class Tickets:
    """Tickets that were issued and not used yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Ticket → (time until which it is valid, path, token).
        self._issued: OrderedDict[str, tuple[float, str, str]] = OrderedDict()

    def issue(self, path: str, token: str) -> str:
        """Return a new ticket for a request of the token's user below a path."""
        ticket = secrets.token_urlsafe(24)
        with self._lock:
            self._issued[ticket] = (self._clock() + SECONDS, path, token)
            while len(self._issued) > KEPT:
                self._issued.popitem(last=False)
        return ticket

    def redeem(self, path: str, ticket: str) -> str | None:
        """Use a ticket up; return its token, None if it is used, too old or of another path."""
        with self._lock:
            until, prefix, token = self._issued.pop(ticket, (0.0, "", ""))
        valid = token and self._clock() <= until and path.startswith(prefix)
        return token if valid else None


#: Headers that say what a browser may do with an answer.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self' ws: wss:; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

#: Paths that are answered without a token.
PUBLIC = ("/", "/health", "/openapi.json")
ASSETS = "/assets/"


class Guard:
    """Middleware that checks host, token, size, kind and characters of a request; it adds headers.

    An error that a route did not foresee is logged once and answered like every other error.
    """

    def __init__(self, app: ASGIApp, options: Options) -> None:
        self._app, self._options = app, options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or answer it with a problem."""
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
        """Raise Problem if host, token, size or characters are wrong; keep the user for the routes."""
        headers = Headers(scope=scope)
        if not self._options.answers_for(host := headers.get("host", "")):
            detail = (
                f"This server does not answer for {plain_text.visible(host[:200])!r}. Its operator "
                "can name more hosts in FORGE_API_HOSTS."
            )
            raise HttpError(421, "Misdirected Request", detail)
        if scope["path"] not in PUBLIC and not scope["path"].startswith(ASSETS):
            asks = HTTPConnection(scope)
            user = await run_in_threadpool(asks.app.state.access.user, _token(asks), address(asks))
            scope.setdefault("state", {})["user"] = user
        self._check_body(headers)
        _check_characters(scope, headers.get("idempotency-key", ""))

    def _check_body(self, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._options.body or "transfer-encoding" in headers:
            limit = f"A body has at most {self._options.body:,} bytes, and says how many."
            raise HttpError(413, "Content Too Large", limit)
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        if int(length) and media != "application/json":
            detail = "Send the body as JSON, with the header Content-Type: application/json."
            raise HttpError(415, "Unsupported Media Type", detail)


def _token(asks: HTTPConnection) -> str | None:
    """Return the token of the header, else the one that the query's ticket stands for; or None."""
    ticket = asks.query_params.get("ticket")
    if ticket is None or asks.scope["method"] != "GET":
        return bearer(asks)
    return bearer(asks) or asks.app.state.tickets.redeem(asks.scope["path"], ticket)


def _check_characters(scope: Scope, key: str) -> None:
    """Raise Problem 422 for an address or a key with characters that are no part of any name."""
    try:
        query = parse_qsl(scope["query_string"].decode("latin-1"), True, max_num_fields=100)
    except ValueError as error:
        raise HttpError(422, UNPROCESSABLE, "The query has over 100 fields.") from error
    fields = [("path", scope["path"]), ("Idempotency-Key", key)]
    for field, text in [*fields, *((name, name + value) for name, value in query)]:
        try:
            plain_text.check(text, "the text")
        except ConfigError as error:
            field = plain_text.visible(field)
            errors = [{"field": field, "message": str(error)}]
            raise HttpError(422, UNPROCESSABLE, f"{field}: {error}", errors=errors) from error


def _dress(scope: Scope, start: Message) -> None:
    """Add the security and cache headers to an answer."""
    headers = MutableHeaders(scope=start)
    if scope["path"].startswith(ASSETS) and start["status"] == 200:
        headers["Cache-Control"] = "public, max-age=31536000, immutable"
    for name, value in HEADERS.items():
        headers.setdefault(name, value)
