"""Users, roles and tokens of the API, as events of a stream of their own.

A token is 256 random bits and is shown once; the log records its SHA-256. A slower hash does not
protect a secret of that length better (NIST SP 800-63B, 5.1.1.2 is about passwords that people choose).
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import time
import uuid
from dataclasses import dataclass, field
from typing import Literal, get_args

from agent_forge.events import (
    Cause,
    ChainError,
    ConcurrencyError,
    Event,
    EventStore,
    New,
    PayloadError,
    Registry,
    chain,
)
from agent_forge.runs.errors import ConfigError, ConflictError, NotFoundError
from agent_forge.runs.system.plain_text import check
from agent_forge.worker.append import actor

log = logging.getLogger(__name__)

REGISTRY = Registry()

STREAM = "users"

Role = Literal["viewer", "submitter", "admin"]
#: A user's name: ASCII only, because letters of other alphabets look alike.
NAME = r"[A-Za-z0-9._@+-]{1,64}"
#: Longest life of a token that expires, in days.
MOST_DAYS = 3650

#: Each role can do everything that the roles before it can do.
ROLES: tuple[Role, ...] = get_args(Role)


@REGISTRY.event
class UserAdded(Event):
    """A user was added and may use the API."""

    type = "user_added"

    name: str
    role: Role


@REGISTRY.event
class RoleChanged(Event):
    """A user got another role."""

    type = "role_changed"

    name: str
    role: Role


@REGISTRY.event
class UserRemoved(Event):
    """A user may not use the API any more; the user's tokens are void."""

    type = "user_removed"

    name: str


@REGISTRY.event
class TokenIssued(Event):
    """A user got a token."""

    type = "token_issued"

    id: str
    name: str
    #: SHA-256 of the token, hexadecimal.
    hash: str
    note: str = ""
    #: Seconds since 1970 at which the token expires; None: it does not expire.
    expires: float | None = None


@REGISTRY.event
class TokenRevoked(Event):
    """A token is void."""

    type = "token_revoked"

    id: str


@dataclass(frozen=True)
class User:
    """The user who makes a request."""

    name: str
    role: Role
    #: Runs from this position of the log on are the user's; earlier runs under this name belong to
    #: a removed user.
    since: int = 0

    def may(self, role: Role) -> bool:
        """Return True if the user's role is `role` or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True)
class ActiveToken:
    """A token that was not revoked, without its secret."""

    id: str
    name: str
    note: str
    issued_at: str
    expires: float | None = None

    def void(self) -> bool:
        """Return True if the token has expired."""
        return self.expires is not None and self.expires <= time.time()


@dataclass
class Accounts:
    """The users and tokens that follow from the events of the stream."""

    roles: dict[str, Role] = field(default_factory=dict)
    #: Hash → token.
    tokens: dict[str, ActiveToken] = field(default_factory=dict)
    #: Version of the stream up to which events are absorbed, and the chain's head there.
    version: int = 0
    head: str = chain.GENESIS
    #: Name → position of the event that removed the last user of this name.
    since: dict[str, int] = field(default_factory=dict)

    def absorb(self, event: Event, recorded_at: str, position: int = 0) -> None:
        """Apply the next event; `position` is its place in the log."""
        match event:
            case UserAdded() | RoleChanged():
                self.roles[event.name] = event.role
            case UserRemoved():
                self.since[event.name] = position
                self.roles.pop(event.name, None)
                self._drop(lambda token: token.name == event.name)
            case TokenIssued():
                self.tokens[event.hash] = ActiveToken(
                    event.id, event.name, event.note, recorded_at, event.expires
                )
            case TokenRevoked():
                self._drop(lambda token: token.id == event.id)

    def _drop(self, void) -> None:
        self.tokens = {hash_: token for hash_, token in self.tokens.items() if not void(token)}

    def user_of(self, secret: str) -> User | None:
        """Return the user who owns a token; None if the token is unknown, revoked or expired."""
        token = self.tokens.get(hashed(secret))
        if token is None or token.name not in self.roles or token.void():
            return None
        return User(token.name, self.roles[token.name], self.since.get(token.name, 0))

    def tokens_of(self, name: str) -> list[ActiveToken]:
        """Return a user's tokens, the oldest first."""
        return sorted((t for t in self.tokens.values() if t.name == name), key=lambda t: t.issued_at)


def hashed(secret: str) -> str:
    """Return the SHA-256 of a token in hexadecimal, as the log records it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def read(store: EventStore, accounts: Accounts | None = None) -> Accounts:
    """Return the accounts after all events of the log; `accounts` are those of an earlier read.

    A damaged list of users must admit no user: raises PayloadError for an unreadable row, and
    ChainError for a row that does not follow on the one before it.
    """
    accounts = accounts or Accounts()
    for row in store.iterate(STREAM, after=accounts.version):
        try:
            if not chain.follows(row, accounts.version, accounts.head):
                raise ChainError(STREAM, row.version, "it was changed, or not recorded by forge")
            accounts.absorb(REGISTRY.load(row), row.recorded_at, row.position)
        except (ChainError, PayloadError):
            log.error("the list of users is damaged at %s@%s", STREAM, row.version)
            raise
        accounts.version, accounts.head = row.version, row.hash
    return accounts


def add(store: EventStore, name: str, role: str, by: str | None = None) -> None:
    """Record a new user. Raises ConfigError for a bad name, ConflictError if the name is taken."""
    if not re.fullmatch(NAME, name):
        raise ConfigError(
            f"the user's name {name!r} must be 1 to 64 letters from a to z, digits or ._@+-: letters "
            "of other alphabets look alike."
        )
    event = UserAdded(name=name, role=_role(role))
    _append(store, event, by, lambda accounts: _free(accounts, name))


def change_role(store: EventStore, name: str, role: str, by: str | None = None) -> None:
    """Record a user's new role. Raises ConfigError, NotFoundError, ConflictError for the last admin."""
    event = RoleChanged(name=name, role=_role(role))
    _append(store, event, by, lambda accounts: _kept(accounts, name, event.role))


def remove(store: EventStore, name: str, by: str | None = None) -> None:
    """Record the removal of a user. Raises NotFoundError, ConflictError for the last admin."""
    _append(store, UserRemoved(name=name), by, lambda accounts: _kept(accounts, name, None))


def issue(
    store: EventStore, name: str, note: str = "", by: str | None = None, days: int | None = None
) -> tuple[str, str]:
    """Record a new token; return (id, the token itself, which is stored nowhere).

    The token expires after `days`; without `days` it does not expire. Raises ConfigError,
    NotFoundError.
    """
    if days is not None and not 1 <= days <= MOST_DAYS:
        raise ConfigError(f"a token is given for 1 to {MOST_DAYS:,} days, not for {days}.")
    secret, id_ = f"forge_{secrets.token_urlsafe(32)}", uuid.uuid4().hex[:12]
    event = TokenIssued(
        id=id_,
        name=name,
        hash=hashed(secret),
        note=check(note[:200], "the note"),
        expires=None if days is None else time.time() + days * 86_400,
    )
    _append(store, event, by, lambda accounts: _known(accounts, name))
    return id_, secret


def revoke(store: EventStore, name: str, id_: str, by: str | None = None) -> None:
    """Record that a token is void. Raises NotFoundError."""

    def check(accounts: Accounts) -> None:
        if id_ not in {token.id for token in accounts.tokens_of(name)}:
            raise NotFoundError(f"user {name} has no token {id_!r}. `forge users list` lists them.")

    _append(store, TokenRevoked(id=id_), by, check)


def _append(store: EventStore, event: Event, by: str | None, check) -> None:
    while True:
        accounts = read(store)
        check(accounts)
        new = New(event, f"{STREAM}/{event.type}/{uuid.uuid4().hex}")
        try:
            store.append(STREAM, accounts.version, [new], Cause(actor=by or actor()))
            return
        except ConcurrencyError:
            continue


def _role(text: str) -> Role:
    for role in ROLES:
        if role == text:
            return role
    raise ConfigError(f"role {text!r} is not known: use {', '.join(ROLES)}.")


def _free(accounts: Accounts, name: str) -> None:
    for other, role in accounts.roles.items():
        if other.casefold() == name.casefold():
            raise ConflictError(f"user {other} is there already, as {role}.")


def _known(accounts: Accounts, name: str) -> None:
    if name not in accounts.roles:
        raise NotFoundError(f"user {name!r} is not known. `forge users list` lists them.")


def _kept(accounts: Accounts, name: str, role: Role | None) -> None:
    """Raise ConflictError if a role, None to remove, leaves no admin; NotFoundError for no user."""
    _known(accounts, name)
    admins = [n for n, r in accounts.roles.items() if r == "admin"]
    if admins == [name] and role != "admin":
        raise ConflictError(f"{name} is the last admin: make another user an admin first.")
