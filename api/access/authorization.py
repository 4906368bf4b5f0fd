"""Authorization: the user of a token, the role of a user, limits on requests.

Tickets: addresses that a browser may open once, for a short time, without an Authorization header.

A page saves a large file by opening its address: the browser then writes the file to disk as it comes.
Such a request has no header with the token. A ticket stands for the token in one request below a path.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace

from fastapi import Depends, Request
from starlette.requests import HTTPConnection

from agent_forge.api.options import Options
from agent_forge.api.problems import Problem
from agent_forge.events import EventStore
from agent_forge.worker.commands import accounts
from agent_forge.worker.commands.accounts import Role, User


class Buckets:
    """A token bucket for each name; the least recently used are forgotten."""

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
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
    """Finds the user of a token, and counts requests."""

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
            return replace(
                now, roles=dict(now.roles), tokens=dict(now.tokens), since=dict(now.since)
            )

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
            raise Problem(429, "Too Many Requests", "Wait a moment, and ask less often.", after)


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
    """Return the user who asks: `guard.py` has looked at the token before all else."""
    user: User | None = getattr(request.state, "user", None)
    if user is None:
        raise unauthorized("Send `Authorization: Bearer TOKEN`.")
    return user


def unauthorized(detail: str) -> Problem:
    """Return the answer to a request without a valid token."""
    return Problem(401, "Unauthorized", detail, {"WWW-Authenticate": "Bearer"})


def at_least(role: Role) -> Callable[..., Awaitable[User]]:
    """Return a dependency that yields the user, and raises Problem 403 for a role below `role`."""

    async def check(user: User = Depends(somebody)) -> User:
        need(user, role)
        return user

    return check


def need(user: User, role: Role) -> None:
    """Raise Problem 403 if the user's role is below `role`."""
    if not user.may(role):
        raise Problem(
            403, "Forbidden", f"This needs the role {role}; {user.name} is a {user.role}."
        )


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
    raise Problem(403, "Forbidden", detail)


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
        """Return the token that a ticket stands for; None if it is used, too old or of another path."""
        with self._lock:
            until, prefix, token = self._issued.pop(ticket, (0.0, "", ""))
        valid = token and self._clock() <= until and path.startswith(prefix)
        return token if valid else None
