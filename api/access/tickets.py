"""Tickets: addresses that a browser may open once, for a short time, without an Authorization header.

A page saves a large file by opening its address: the browser then writes the file to disk as it comes.
Such a request has no header with the token. A ticket stands for the token in one request below a path.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

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
