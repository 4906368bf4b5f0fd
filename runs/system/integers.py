"""Whole numbers of events that every database's columns can hold.

JSON does not bound the size of a number. A number that no column holds would stop every table that
is made from the event, so the field does not accept such a number, and the row cannot be read. The
bounds leave out no value that was ever recorded, so the schema stays the same.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, WithJsonSchema

_ANY = WithJsonSchema({"type": "integer"})

#: A place or a number of things: 0 to 2³¹ − 1.
Count = Annotated[int, Field(ge=0, lt=2**31), _ANY]
#: A number with a sign that fits the same columns.
Signed = Annotated[int, Field(gt=-(2**31), lt=2**31), _ANY]
#: Bytes or parameters: 0 to 2⁶³ − 1.
Large = Annotated[int, Field(ge=0, lt=2**63), _ANY]
