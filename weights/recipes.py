"""Recipes that every kind of run shares: their base, and the nodes Source, Transform and Train. Pure.

A recipe names its inputs by id, so recipes form a Merkle graph: an id stands for the whole history
of a model. Nothing in a recipe depends on the place of files or on the machine that carries it out.

    Source       a model given to the run, by the digest of its weights
    Transform    a model made in one go: initialised, interpolated, packed, decoded
    Train        a model trained step by step; `upto` makes it the snapshot after that many steps

An operation, objective, optimiser or schedule is named NAME@VERSION. A landed version never changes
its result, its parameters or their defaults; a change is a new version. `tests/golden/operations.json`
guards that.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agent_forge.events import canonical_json

#: Name and version of an algorithm, for example "adamw@1".
Versioned = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*@[1-9][0-9]*$")]
#: Digest of a stream of token ids, 64 hexadecimal digits.
DataDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Share = Annotated[float, Field(gt=0)]


class Parameters(BaseModel):
    """Parameters of an algorithm: they never change, and have only known fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Frozen(Parameters):
    """A part of a recipe: it never changes, and has only known fields and finite numbers."""

    model_config = ConfigDict(allow_inf_nan=False)


class RecipeNode(Frozen):
    """The base of all recipes: a part that has an id."""

    @property
    def id(self) -> str:
        """SHA-256 of the canonical form, 64 hexadecimal digits."""
        return _hash(self.model_dump(mode="json"))


def _hash(form: dict[str, object]) -> str:
    """Return SHA-256 of the canonical JSON of a recipe's fields, 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(form).encode()).hexdigest()


class Source(RecipeNode):
    """A model given to the run. `digest` covers names, dtypes, shapes and bytes of its tensors."""

    kind: Literal["source"] = "source"
    digest: str

    def inputs_used(self) -> tuple[str, ...]:
        """Return (): a source reads the weights of no other recipe."""
        return ()


class Transform(RecipeNode):
    """A model that one operation makes of its inputs; see `weights.operations`."""

    kind: Literal["transform"] = "transform"
    operation: Versioned
    #: Role → id of a recipe. The operation says which roles it reads.
    inputs: dict[str, str] = {}
    #: Parameters of the operation, all of them written out: `weights.operations.complete`.
    params: dict[str, Any] = {}
    seed: int = 0

    def inputs_used(self) -> tuple[str, ...]:
        """Return a tuple of the ids of the recipes whose weights are read, sorted by role."""
        return tuple(self.inputs[role] for role in sorted(self.inputs))


class Algorithm(Frozen):
    """An algorithm by name and version, with its parameters, all of them written out."""

    name: Versioned
    params: dict[str, Any] = {}


class Train(RecipeNode):
    """The snapshot after `upto` steps of a training; see `weights.training`.

    Steps are numbered from 0. This training does the steps `first` … `upto` − 1 of a schedule that
    is made for `steps`. The batch of step n is a function of the recipe and n, so how a training is
    cut into segments changes neither an id nor a bit.
    """

    kind: Literal["train"] = "train"
    objective: Versioned
    #: Parameters of the objective, all of them written out: `weights.training.complete`.
    params: dict[str, Any] = {}
    #: Id of the recipe whose weights the training starts from.
    start: str
    #: True if the optimiser goes on with the state that it had at the end of `start`, which is then
    #: a training too; False if it begins with no state.
    carries: bool = False
    #: Role → id of a further recipe that the objective reads, such as a teacher.
    inputs: dict[str, str] = {}
    #: Name of a stream of data → its weight among the streams; the weights need not add up to 1.
    data: dict[str, Share]
    #: Name of a stream of data → digest of its content.
    data_digests: dict[str, DataDigest]
    #: Rows of a step, of `context` tokens that are predicted.
    batch: int = Field(ge=1)
    context: int = Field(ge=1)
    #: Parts that a step's rows are computed in, one after the other; gradients are added up.
    accumulation: int = Field(default=1, ge=1)
    optimiser: Algorithm
    schedule: Algorithm
    #: What the forward pass computes in. Weights, gradients and optimiser stay float32.
    precision: Literal["float32", "bfloat16"] = "float32"
    #: Implementation of attention, by the name that transformers gives it.
    attention: Literal["sdpa", "eager"] = "sdpa"
    #: True if activations are computed again in the backward pass instead of kept.
    checkpointing: bool = False
    #: Largest norm of the whole gradient; None: it is not clipped.
    clip: float | None = Field(default=None, gt=0)
    #: Standard deviations above its moving average at which a loss ends the training; None: never.
    divergence: float | None = Field(default=None, gt=0)
    #: Key of all random draws, with `purpose`.
    seed: int = 0
    purpose: str
    #: Number of steps that the schedule is made for.
    steps: int = Field(ge=1)
    first: int = Field(default=0, ge=0)
    upto: int = Field(ge=0)

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        """Return the recipe. Raises ValueError if its steps, rows or streams contradict each other."""
        if not self.first <= self.upto <= self.steps:
            raise ValueError(
                f"first {self.first}, upto {self.upto}, steps {self.steps}: they must not decrease"
            )
        if self.batch % self.accumulation:
            raise ValueError(f"{self.batch} rows cannot be computed in {self.accumulation} equal parts")
        if set(self.data) != set(self.data_digests):
            raise ValueError("data and data_digests must name the same streams")
        return self

    def to(self, step: int) -> Train:
        """Return the Train recipe of the snapshot after `step` steps. Raises ValueError without one."""
        return Train.model_validate({**self.model_dump(), "upto": step})

    @property
    def stem(self) -> str:
        """The id of the recipe without `upto`: the same for all snapshots of a training."""
        return _hash(self.model_dump(mode="json", exclude={"upto"}))

    def inputs_used(self) -> tuple[str, ...]:
        """Return a tuple of the ids of recipes whose weights are read: the start, then by role."""
        return (self.start, *(self.inputs[role] for role in sorted(self.inputs)))
