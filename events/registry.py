"""Registry of event classes by type and schema version, with upcasters for rows of old schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pydantic import ValidationError

from agent_forge.events.envelope import Envelope, Event
from agent_forge.events.errors import PayloadError, UnknownEventError

E = TypeVar("E", bound=Event)
Upcaster = Callable[[dict[str, object]], dict[str, object]]


class Registry:
    """The events of one domain. Rows are never rewritten: an old row is upcast while it is read."""

    def __init__(self) -> None:
        self._classes: dict[str, type[Event]] = {}
        self._upcasters: dict[tuple[str, int], Upcaster] = {}
        #: (type, latest schema) → validation of the recorded text.
        self._latest: dict[tuple[str, int], Callable[[str], Event]] = {}

    def event(self, cls: type[E]) -> type[E]:
        """Register `cls` as the latest schema of its event type; return it. Raises ValueError."""
        if not cls.type or cls.type in self._classes:
            raise ValueError(f"event type {cls.type!r} is empty or registered twice")
        self._classes[cls.type] = cls
        self._latest[cls.type, cls.schema_version] = cls.__pydantic_validator__.validate_json
        return cls

    def upcaster(self, type_: str, from_schema: int) -> Callable[[Upcaster], Upcaster]:
        """Return a decorator that registers a pure function: data of `from_schema` → of the next."""

        def register(function: Upcaster) -> Upcaster:
            if (type_, from_schema) in self._upcasters:
                raise ValueError(f"upcaster of {type_}@{from_schema} is registered twice")
            self._upcasters[type_, from_schema] = function
            return function

        return register

    def types(self) -> dict[str, type[Event]]:
        """Return {type name: event class} of all registered events, sorted by name."""
        return dict(sorted(self._classes.items()))

    def knows(self, row: Envelope) -> bool:
        """Return True if the row's type is known and its schema is not newer than the latest."""
        cls = self._classes.get(row.type)
        return cls is not None and row.schema <= cls.schema_version

    def load(self, row: Envelope) -> Event:
        """Return the row as an event of the latest schema.

        Raises UnknownEventError for an unknown type or a schema newer than the one known here, and
        PayloadError if the data does not validate.
        """
        return next(self.load_each((row,)))[1]

    def load_each(self, rows: Iterable[Envelope]) -> Iterator[tuple[Envelope, Event]]:
        """Yield (row, its event) for each row; raise what `load` raises, at the row concerned."""
        latest = self._latest
        for row in rows:
            validate = latest.get((row.type, row.schema))
            try:
                event = validate(row.data) if validate else self._upcast(row)
            except (ValidationError, ValueError, TypeError, KeyError, AttributeError) as error:
                raise PayloadError(row.position, row.type, repr(error)) from error
            yield row, event

    def _upcast(self, row: Envelope) -> Event:
        """Return an old row's event of the latest schema; upcasters change its data step by step."""
        cls = self._classes.get(row.type)
        if cls is None or row.schema > cls.schema_version:
            detail = "no such type" if cls is None else f"the latest schema is {cls.schema_version}"
            raise UnknownEventError(row.type, row.schema, detail, row.code_version)
        for schema in range(row.schema, cls.schema_version):
            if (row.type, schema) not in self._upcasters:
                raise UnknownEventError(row.type, row.schema, f"no upcaster from schema {schema}")
        data = json.loads(row.data)
        for schema in range(row.schema, cls.schema_version):
            data = self._upcasters[row.type, schema](data)
        return cls.model_validate(data)
