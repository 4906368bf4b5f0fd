"""Addresses that may hold a password, shown without it, also in texts that quote an address."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import unquote

MASK = "***"

_AUTHORITY = re.compile(r"[^/?#]*")
#: A user and the beginning of a password: a name, a colon, and text that is no port.
_CUT_LOGIN = re.compile(r"[^:\[\]]*:(?!\d*$).*")
#: A login that a host, and a port or none, follow.
_BEFORE_HOST = re.compile(r"(.*?)@(?:\[[^\]@/?#]*\]|[^\[\]:@/?#]+)(?::\d*)?(?:[/?#]|$)")
#: A host and a port with a letter in it, or a user and a password with a digit in front.
_MISTYPED = re.compile(r"[^:/?#@\[\]]*:\d")


@dataclass(frozen=True)
class Address:
    """A URL. Only `shown` may stand in an error, a log or on a screen."""

    url: str = field(repr=False)

    @cached_property
    def shown(self) -> str:
        """The URL without user, password, query and fragment."""
        return self.bare.partition("?")[0].partition("#")[0]

    @property
    def has_login(self) -> bool:
        """Return True if the URL holds a user, a password, or a token in their place."""
        return bool(self._login)

    @property
    def bare(self) -> str:
        """The URL without user and password, to connect to."""
        return self.url.replace(f"{self._login}@", "", 1) if self.has_login else self.url

    @property
    def login(self) -> tuple[str, str] | None:
        """User and password, decoded; None if the URL holds none."""
        user, _, password = self._login.partition(":")
        return (unquote(user), unquote(password)) if self.has_login else None

    def masked(self, text: str, *secrets: str) -> str:
        """Return the text with *** for the login, its password and the other `secrets`."""
        for secret in sorted({*self._secrets, *filter(None, secrets)}, key=len, reverse=True):
            text = text.replace(secret, MASK)
        return text

    @property
    def unclear(self) -> bool:
        """Return True if a mistyped port and a password with a slash would look the same.

        Such a URL is shown as if it held a password, and nothing may connect to it.
        """
        return _MISTYPED.match(self._rest) is not None and not {*"/?#"}.isdisjoint(self._login)

    @property
    def _rest(self) -> str:
        return self.url.partition("://")[2] or self.url

    @cached_property
    def _login(self) -> str:
        """The part before the last @ of the authority, which ends at the first of / ? #.

        A slash that was not encoded in a password ends the authority too early. Then the authority
        is a name and no port, and the login ends at the first @ that a host follows.
        """
        start = _AUTHORITY.match(self._rest)
        assert start  # it may be empty
        authority = start[0]
        if "@" in authority or not _CUT_LOGIN.fullmatch(authority):
            return authority.rpartition("@")[0]
        match = _BEFORE_HOST.match(self._rest)
        return match[1] if match else self._rest.rpartition("@")[0]

    @property
    def _secrets(self) -> set[str]:
        if not self.has_login:
            return set()
        user, _, password = self._login.partition(":")
        both = base64.b64encode(unquote(self._login).encode()).decode()
        secret = password or user  # alone it is a token
        return {
            self._login,
            unquote(self._login),
            both,
            secret,
            unquote(secret),
            *secret.split("/"),
        } - {""}
