"""Limits of open connections: places for clients that have not asked yet, seats for live events."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable


class WaitingRoom:
    """A bounded set of waiting clients, by address.

    A full room does not refuse the next client: it drops the client that has waited longest at the
    address with the most clients. So an address that opens many silent connections loses its own.
    Only the event loop's thread uses it.
    """

    def __init__(self, places: int, per_address: int) -> None:
        self._places, self._per_address = places, per_address
        self._waiting: dict[str, OrderedDict[object, Callable[[], object]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, address: str, let_go: Callable[[], object]) -> tuple[str, object]:
        """Take a place; return its ticket (address, key). `let_go` is called if the room drops it."""
        if len(self._waiting.get(address, ())) >= self._per_address:
            self._drop_oldest(address)
        elif self._count >= self._places:
            self._drop_oldest(max(self._waiting, key=lambda name: len(self._waiting[name])))
        ticket = address, object()
        self._waiting.setdefault(address, OrderedDict())[ticket[1]] = let_go
        self._count += 1
        return ticket

    def leave(self, ticket: tuple[str, object]) -> None:
        """Free the place of a ticket; a ticket without a place is ignored."""
        address, key = ticket
        those = self._waiting.get(address)
        if those is None or those.pop(key, None) is None:
            return
        self._count -= 1
        if not those:
            del self._waiting[address]

    def _drop_oldest(self, address: str) -> None:
        key, let_go = next(iter(self._waiting[address].items()))
        self.leave((address, key))
        let_go()


class Seats:
    """The number of live connections of each user. Used by the event loop's thread alone."""

    def __init__(self, seats: int, per_user: int) -> None:
        self._seats, self._per_user = seats, per_user
        self._taken: Counter[str] = Counter()

    def why_none(self, user: str) -> str | None:
        """Return the reason why this user gets no further live connection; None if there is room."""
        if self._taken[user] >= self._per_user:
            return f"{user} has {self._per_user} live connections already: close one."
        if self._taken.total() >= self._seats:
            return "There are too many live connections: ask again later."
        return None

    def take(self, user: str) -> None:
        """Count one more live connection of the user."""
        self._taken[user] += 1

    def give_back(self, user: str) -> None:
        """Count one live connection of the user less."""
        self._taken[user] -= 1
        self._taken += Counter()  # forgets users who have none
