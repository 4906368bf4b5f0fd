"""Models put into the registry, and taken out: events with an actor."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from events import Context, EventStore, New
from evomerge import models
from evomerge.checkpoints import digest, open_checkpoint
from evomerge.errors import ConfigError
from worker.submission import actor


def register(
    store: EventStore,
    folder: Path,
    name: str | None = None,
    kind: models.Kind = "specialist",
    metrics: Mapping[str, float] | None = None,
    lineage: Sequence[str] = (),
    by: str | None = None,
) -> str:
    """Record a model folder, its weights read and hashed; returns its id.

    Raises SourceError for what is no model, NotFoundError for a parent that is not registered.
    """
    name = folder.resolve().name if name is None else name.strip()
    if not name or len(name) > 200:
        raise ConfigError("a model's name has 1 to 200 characters.")
    if re.fullmatch(rf"[0-9a-f]{{{models.DIGITS}}}", name):
        raise ConfigError(f"{name} looks like a model's id: give another name.")
    parents = tuple(models.find(store, parent)["id"] for parent in lineage)
    checkpoint = open_checkpoint(folder)
    weights = checkpoint.tensors()
    event = models.ModelRegistered(
        name=name,
        kind=kind,
        path=str(folder.resolve()),
        digest=digest(weights),
        bytes=sum(t.numel() * t.element_size() for t in weights.values()),
        parameters=checkpoint.parameters,
        metrics=dict(metrics or {}),
        lineage=parents,
    )
    _append(store, event, by)
    return models.id_of(event.digest)


def remove(
    store: EventStore, id_: str, reason: str | None = None, by: str | None = None
) -> dict[str, object]:
    """Record that a model is no longer listed; the model as it was. No file is touched."""
    found = models.find(store, id_)
    _append(store, models.ModelRemoved(id=found["id"], reason=reason), by)
    return found


def _append(store: EventStore, event: models.ModelRegistered | models.ModelRemoved, by: str | None):
    new = New(event, f"{models.STREAM}/{event.type}/{uuid.uuid4().hex}")
    store.append(models.STREAM, None, [new], Context(actor=by or actor()))
