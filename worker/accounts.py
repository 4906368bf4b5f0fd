"""Who may use the API: users, roles and tokens, as events of a stream of their own.

A token is 256 random bits, shown once; what is recorded is its SHA-256. Against a secret of that length
no slower hash helps (NIST SP 800-63B, 5.1.1.2 is about what people choose).
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import uuid
from dataclasses import dataclass, field
from typing import Literal, get_args

from events import ConcurrencyError, Context, Event, EventStore, New, PayloadError, Registry
from evomerge.errors import ConfigError, ConflictError, NotFoundError
from worker.submission import actor

log = logging.getLogger(__name__)

REGISTRY = Registry()

STREAM = "users"

Role = Literal["viewer", "submitter", "admin"]
#: Each may what those before it may.
ROLES: tuple[Role, ...] = get_args(Role)


@REGISTRY.event
class UserAdded(Event):
    """Somebody may use the API."""

    type = "user_added"

    name: str
    role: Role


@REGISTRY.event
class RoleChanged(Event):
    """A user may more, or less."""

    type = "role_changed"

    name: str
    role: Role


@REGISTRY.event
class UserRemoved(Event):
    """A user may not use the API any more; the tokens are void."""

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


@REGISTRY.event
class TokenRevoked(Event):
    """A token is void."""

    type = "token_revoked"

    id: str


@dataclass(frozen=True)
class User:
    """Who asks."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Whether the user may what this role may."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True)
class Token:
    """A token that counts, without its secret."""

    id: str
    name: str
    note: str
    issued_at: str


@dataclass
class Accounts:
    """What the events say now."""

    roles: dict[str, Role] = field(default_factory=dict)
    #: Hash → token.
    tokens: dict[str, Token] = field(default_factory=dict)
    version: int = 0

    def absorb(self, event: Event, recorded_at: str) -> None:
        """One more event."""
        match event:
            case UserAdded() | RoleChanged():
                self.roles[event.name] = event.role
            case UserRemoved():
                self.roles.pop(event.name, None)
                self._drop(lambda token: token.name == event.name)
            case TokenIssued():
                self.tokens[event.hash] = Token(event.id, event.name, event.note, recorded_at)
            case TokenRevoked():
                self._drop(lambda token: token.id == event.id)

    def _drop(self, void) -> None:
        self.tokens = {hash_: token for hash_, token in self.tokens.items() if not void(token)}

    def user_of(self, secret: str) -> User | None:
        """Whose token this is; None where it is nobody's."""
        token = self.tokens.get(hashed(secret))
        if token is None or token.name not in self.roles:
            return None
        return User(token.name, self.roles[token.name])

    def tokens_of(self, name: str) -> list[Token]:
        """A user's tokens, the oldest first."""
        return sorted(
            (t for t in self.tokens.values() if t.name == name), key=lambda t: t.issued_at
        )


def hashed(secret: str) -> str:
    """What is recorded of a token."""
    return hashlib.sha256(secret.encode()).hexdigest()


def read(store: EventStore, accounts: Accounts | None = None) -> Accounts:
    """The accounts, brought up to date. What cannot be read lets nobody in: it raises."""
    accounts = accounts or Accounts()
    for row in store.iterate(STREAM, after=accounts.version):
        try:
            accounts.absorb(REGISTRY.load(row), row.recorded_at)
        except PayloadError:
            log.error("the list of users is damaged at %s@%d", STREAM, row.version)
            raise
        accounts.version = row.version
    return accounts


def add(store: EventStore, name: str, role: str, by: str | None = None) -> None:
    """Record a user. Raises ConfigError, ConflictError."""
    if not re.fullmatch(r"[\w.@+-]{1,64}", name):
        raise ConfigError(f"the user's name {name!r} must be 1 to 64 letters, digits or ._@+-")
    event = UserAdded(name=name, role=_role(role))
    _append(store, event, by, lambda known: _free(known, name))


def change_role(store: EventStore, name: str, role: str, by: str | None = None) -> None:
    """Record another role. Raises ConfigError, NotFoundError, ConflictError for the last admin."""
    event = RoleChanged(name=name, role=_role(role))
    _append(store, event, by, lambda known: _kept(known, name, event.role))


def remove(store: EventStore, name: str, by: str | None = None) -> None:
    """Record that a user is none any more. Raises NotFoundError, ConflictError for the last admin."""
    _append(store, UserRemoved(name=name), by, lambda known: _kept(known, name, None))


def issue(store: EventStore, name: str, note: str = "", by: str | None = None) -> tuple[str, str]:
    """Record a new token; (its id, the token itself, which is nowhere else). Raises NotFoundError."""
    secret, id_ = f"forge_{secrets.token_urlsafe(32)}", uuid.uuid4().hex[:12]
    event = TokenIssued(id=id_, name=name, hash=hashed(secret), note=note[:200])
    _append(store, event, by, lambda known: _known(known, name))
    return id_, secret


def revoke(store: EventStore, name: str, id_: str, by: str | None = None) -> None:
    """Record that a token is void. Raises NotFoundError."""

    def check(known: Accounts) -> None:
        if id_ not in {token.id for token in known.tokens_of(name)}:
            raise NotFoundError(f"user {name} has no token {id_!r}. `forge users list` lists them.")

    _append(store, TokenRevoked(id=id_), by, check)


def _append(store: EventStore, event: Event, by: str | None, check) -> None:
    while True:
        known = read(store)
        check(known)
        new = New(event, f"{STREAM}/{event.type}/{uuid.uuid4().hex}")
        try:
            store.append(STREAM, known.version, [new], Context(actor=by or actor()))
            return
        except ConcurrencyError:
            continue


def _role(text: str) -> Role:
    for role in ROLES:
        if role == text:
            return role
    raise ConfigError(f"role {text!r} is not known: use {', '.join(ROLES)}.")


def _free(known: Accounts, name: str) -> None:
    if name in known.roles:
        raise ConflictError(f"user {name} is there already, as {known.roles[name]}.")


def _known(known: Accounts, name: str) -> None:
    if name not in known.roles:
        raise NotFoundError(f"user {name!r} is not known. `forge users list` lists them.")


def _kept(known: Accounts, name: str, role: Role | None) -> None:
    """An admin must remain."""
    _known(known, name)
    admins = [n for n, r in known.roles.items() if r == "admin"]
    if admins == [name] and role != "admin":
        raise ConflictError(f"{name} is the last admin: make somebody else one first.")
