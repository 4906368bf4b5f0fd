"""Events of every kind of run that makes models: a recipe was made, a training has advanced."""

from __future__ import annotations

from pydantic import Field

from events import Event
from runs.event_types import Part
from runs.system.digests import Digest
from runs.system.integers import Count
from weights.recipes import Train, Transform

#: What a task makes.
Making = Transform | Train


class Point(Part):
    """One point of a training's curves: a step, or the mean of the steps since the point before."""

    step: Count
    #: Nats a token.
    loss: float
    #: Norm of the gradient, before it was clipped.
    norm: float
    #: Learning rate.
    rate: float


class Made(Event):
    """The weights of a recipe were made in one go."""

    type = "made"

    recipe_id: Digest
    recipe: Transform
    #: BLAKE3 of the weights.
    digest: Digest
    seconds: float = Field(ge=0)


class Trained(Event):
    """A training has ended: the weights after its last segment are a model."""

    type = "trained"

    recipe_id: Digest
    recipe: Train
    #: BLAKE3 of the weights.
    digest: Digest


class Advanced(Event):
    """A training was carried on by a segment. The length of segments changes no recipe and no bit."""

    type = "advanced"

    #: Id of the snapshot's recipe: the training up to this step.
    recipe_id: Digest
    #: Id that all snapshots of the training share.
    stem: Digest
    #: Steps that were done before the segment, and after it.
    begin: Count
    step: Count
    #: BLAKE3 of the weights, and of the optimiser's tensors.
    digest: Digest
    optimiser: Digest
    curve: tuple[Point, ...]
    tokens: Count
    seconds: float = Field(ge=0)


#: Events of this room, for a kind's registry.
EVENTS = (Made, Advanced, Trained)
#: Types that a kind leaves out of its lineage: where segments end is luck.
OUTSIDE = frozenset({Advanced.type})
