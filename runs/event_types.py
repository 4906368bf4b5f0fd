"""Value types that the events of a run are made of."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from runs.system.digests import Digest, Pinned
from runs.system.integers import Large

#: Dtypes of 16 bits, by torch's names.
HalfPrecision = Literal["bfloat16", "float16"]


class Part(BaseModel):
    """Frozen, and nothing that is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelReference(Part):
    """A model as it was given: a local folder, and for Hub models id and revision."""

    name: str
    path: str
    hub_id: str | None = None
    revision: str | None = None
    #: BLAKE3 of the weights that are meant; None: of those in the folder when the run starts.
    digest: Digest | None = None


class MadeModel(Part):
    """A model that a run gives: its recipe within that run, and BLAKE3 of its weights."""

    recipe_id: Digest
    digest: Digest


class Figure(Part):
    """A number that a run has measured, with the 95 % interval and the number of items if known."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None


class Measurement(Part):
    """A figure that a run has measured of one model."""

    #: The figure in words, as "bits per byte".
    name: str
    #: The domain that it is of; empty: all together.
    domain: str = ""
    #: The slice of the items, and of a draw its generation; empty for what is of no items.
    slice: str = ""
    figure: Figure


class SourceRecord(Part):
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


class Profile(Part):
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
        """Return how this profile differs from a pinned one; [] if numbers come out bit for bit."""
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
