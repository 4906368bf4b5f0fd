"""Value types that the events of a run are made of: digests, whole numbers, models, figures, profiles.

A digest is 64 hex digits, and nothing else. Caches and stores name files by digests. If a digest of a
stranger's log were a path (`/home/ada`, `../x`), the caches and stores would read, or remove, files
that do not belong to them.

Whole numbers fit into every database's columns. JSON does not bound the size of a number, and one that
no column holds would stop every table that is made from the event. The bounds leave out no value that
was ever recorded, so the schema stays the same.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from agent_forge.runs.errors import TamperedError

_ANY = WithJsonSchema({"type": "integer"})

#: A place or a number of things: 0 to 2³¹ − 1.
Count = Annotated[int, Field(ge=0, lt=2**31), _ANY]
#: A number with a sign that fits the same columns.
Signed = Annotated[int, Field(gt=-(2**31), lt=2**31), _ANY]
#: Bytes or parameters: 0 to 2⁶³ − 1.
Large = Annotated[int, Field(ge=0, lt=2**63), _ANY]


_HEX = r"[0-9a-f]{64}"
_TEXT = WithJsonSchema({"type": "string"})  # nothing else was ever recorded: the schema is the same

#: 64 hex digits.
Digest = Annotated[str, Field(pattern=rf"^{_HEX}$"), _TEXT]
#: 64 hex digits, or empty if nothing was pinned.
Pinned = Annotated[str, Field(pattern=rf"^({_HEX})?$"), _TEXT]


def checked(digest: str) -> str:
    """Return `digest` as it is. Raises TamperedError if it is not 64 hex digits: it names a file."""
    if not re.fullmatch(_HEX, digest):
        raise TamperedError(f"{digest[:80]!r} is no digest: a file cannot be named by it.")
    return digest


#: Dtypes of 16 bits, by torch's names.
HalfPrecision = Literal["bfloat16", "float16"]


class EventPart(BaseModel):
    """Frozen, and nothing that is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelReference(EventPart):
    """A model as it was given: a local folder, and for Hub models id and revision."""

    name: str
    path: str
    hub_id: str | None = None
    revision: str | None = None
    #: BLAKE3 of the weights that are meant; None: of those in the folder when the run starts.
    digest: Digest | None = None


class MadeModel(EventPart):
    """A model that a run gives: its recipe within that run, and BLAKE3 of its weights."""

    recipe_id: Digest
    digest: Digest


class Figure(EventPart):
    """A number that a run has measured, with the 95 % interval and the number of items if known."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


class Measurement(EventPart):
    """A figure that a run has measured of one model."""

    #: The figure in words, as "bits per byte".
    name: str
    #: The domain that it is of; empty: all together.
    domain: str = ""
    #: The slice of the items, and of a draw its generation; empty for what is of no items.
    slice: str = ""
    figure: Figure


class SourceRecord(EventPart):
    """A model as it was found at `started`."""

    name: str
    recipe_id: str
    #: BLAKE3 of its weights.
    digest: Digest
    sketch: str
    parameters: Large
    #: Content address of the whole model (`companions.address`); empty in older logs.
    model: Pinned = ""
    #: BLAKE3 of its config, tokenizer and templates, by name.
    files: dict[str, Digest] = {}


class Profile(EventPart):
    """Profile of a machine: the properties that can change the last bit of a number (SPEC §7)."""

    device: str
    dtype: str
    threads: int
    batch_tokens: int
    attention: str
    machine: str
    torch: str
    transformers: str
    numpy: str
    #: The dtype that evaluation computes in; empty: `dtype`, that of the weights.
    evaluation: str = ""
    #: The compiler of full batches of windows, with its version; empty: batches are not compiled.
    compiled: str = ""

    @property
    def computed_in(self) -> str:
        """The dtype that evaluation computes in: `evaluation`, or the weights' dtype."""
        return self.evaluation or self.dtype

    def unlike(self, pinned: Profile) -> list[str]:
        """Return a line for each field that differs from `pinned`; [] if numbers come out equal."""
        fields = self.model_dump()
        return [
            f"{name} is {fields[name] or 'not set'}, not {value or 'unset'}"
            for name, value in pinned.model_dump().items()
            if fields[name] != value
        ]

    @property
    def of_machine(self) -> str:
        """The settings that belong to the machine and not to the model, in one string."""
        kind = self.device.partition(":")[0]
        rest = (self.threads, self.machine, self.torch, self.transformers)
        return "|".join([kind, *map(str, rest), self.numpy])
