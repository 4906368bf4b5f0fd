"""Changes of the model registry: register, rename, describe, remove; each an event with an actor."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from agent_forge.events import Cause, ConcurrencyError, Event, EventStore, New
from agent_forge.runs.errors import ConfigError, ConflictError, NotFoundError
from agent_forge.runs.lists import finding, model_registry
from agent_forge.runs.system import plain_text
from agent_forge.weights.folders import made_folders
from agent_forge.weights.folders.sources import ALIASES
from agent_forge.weights.storage import model_origin
from agent_forge.worker.append import actor
from agent_forge.worker.commands import submit


@dataclass(frozen=True)
class ModelFacts:
    """Facts read from a model's files: path, weights digest, bytes and number of parameters."""

    path: str
    digest: str
    bytes: int
    parameters: int
    #: As `runs.lists.model_registry.ModelRegistered` has it; empty unless it was a GGUF file.
    origin: dict[str, str] = field(default_factory=dict)


def measure(folder: Path) -> ModelFacts:
    """Return ModelFacts, read from a model's files: path, digest, bytes, parameters and origin.

    The model is a folder, a GGUF file, or BASE+ADAPTER. Raises SourceError for anything else.
    """
    from agent_forge.weights.folders import gguf_note
    from agent_forge.weights.folders.checkpoint import digest, open_checkpoint
    from agent_forge.weights.folders.sources import resolve

    folder = Path(resolve(str(folder.resolve())).path)
    checkpoint = open_checkpoint(folder)
    note = gguf_note.facts(folder)
    origin = {"file": note["name"], "digest": made_folders.digits_of(folder)} if note else {}
    if "rounded" in note:
        origin["type"] = note["rounded"]
    weights = checkpoint.tensors()
    return ModelFacts(
        path=str(folder),
        digest=digest(weights),
        bytes=sum(t.numel() * t.element_size() for t in weights.values()),
        parameters=checkpoint.parameters,
        origin=origin,
    )


def register(
    store: EventStore,
    folder: Path,
    name: str | None = None,
    kind: model_registry.Kind = "specialist",
    metrics: Mapping[str, float] | None = None,
    lineage: Sequence[str] = (),
    by: str | None = None,
) -> str:
    """Record a model folder in the registry; return the model's id.

    Raises SourceError if the folder is not a model, NotFoundError if a parent is not registered.
    """
    parents = check(store, folder, name, lineage, metrics)
    return record(store, measure(folder), name, kind, metrics, parents, by)


def check(
    store: EventStore,
    folder: Path,
    name: str | None = None,
    lineage: Sequence[str] = (),
    metrics: Mapping[str, float] | None = None,
) -> tuple[str, ...]:
    """Return the ids of the parents in `lineage`; check all names, and read no file.

    Raises ConfigError, NotFoundError.
    """
    _named(folder, name)
    for metric in metrics or {}:
        plain_text.check_name(metric, "a metric's name")
    return tuple(model_registry.find(store, parent)["id"] for parent in lineage)


def record(
    store: EventStore,
    measured: ModelFacts,
    name: str | None,
    kind: model_registry.Kind,
    metrics: Mapping[str, float] | None,
    parents: tuple[str, ...],
    by: str | None = None,
    only_own: bool = False,
    since: int = 0,
) -> str:
    """Record a model that was measured; return the model's id.

    With `only_own`, an entry with the same weights is replaced only if `by` made it. An entry of an
    earlier user of that name does not count: `by` is a user since the position `since` of the log.
    Raises ConfigError, ConflictError.
    """
    event = model_registry.ModelRegistered(
        name=_named(Path(measured.path), name),
        kind=kind,
        metrics=dict(metrics or {}),
        lineage=parents,
        **vars(measured),
    )
    by, id_ = by or actor(), model_registry.id_of(measured.digest)
    while True:
        version = store.version(model_registry.STREAM)
        whose = model_registry.owner(store, id_) if only_own else None
        if whose is not None and not (whose[0] == by and since < whose[1]):
            owner = whose[0] if whose[0] != by else f"an earlier user {by}"
            raise ConflictError(
                f"model {id_} has these weights and is {owner}'s: only {owner} or an admin "
                "may change its entry."
            )
        try:
            _append(store, event, by, version if only_own else None)
            return id_
        except ConcurrencyError:  # another entry was recorded meanwhile, perhaps of these weights
            continue


def _named(folder: Path, name: str | None) -> str:
    """Return the model's name, by default the folder's. Raises ConfigError for an invalid name."""
    name = made_folders.plain_name(folder.resolve()) if name is None else name.strip()
    plain_text.check_name(name, "the model's name")
    if not name or len(name) > 200:
        raise ConfigError("a model's name has 1 to 200 characters.")
    if re.match(rf"[0-9a-f]{{{model_registry.DIGITS}}}", name):
        raise ConfigError(f"{name} looks like a model's id: give another name.")
    return name


def remove(
    store: EventStore, id_: str, reason: str | None = None, by: str | None = None
) -> dict[str, object]:
    """Record that a model is no longer listed; return its entry. No file is touched."""
    plain_text.check(reason or "", "the reason")
    entry = model_registry.find(store, id_)
    _append(store, model_registry.ModelRemoved(id=entry["id"], reason=reason), by)
    return entry


def rename(store: EventStore, model: str, name: str, by: str | None = None) -> dict[str, object]:
    """Record another name of a model; return its entry before.

    `model` is an id, a name, or RUN or RUN:MODEL for a result of a run. The new name works wherever a
    model is asked for. Raises ConfigError, ConflictError, NotFoundError, SourceError; ConcurrencyError
    if the registry changed meanwhile.
    """
    name = _named(Path(), name)
    if re.search(r"[:/@,\s]", name) or name.startswith((".", "~")) or name in ALIASES:
        raise ConfigError(
            f"{name!r} could not stand for a model: a name has no blanks, commas, colons, slashes and "
            f"@, does not begin with a dot, and is none of {', '.join(sorted(ALIASES))}."
        )
    version = store.version(model_registry.STREAM)
    if finding.whole_name(store, name) is not None:
        raise ConflictError(f"{name} is the name of a run, which means its result.")
    origin = model_origin.find(store, model)
    if origin is None:
        raise NotFoundError(f"model {model!r} is not known. List them with `forge models list`.")
    entry = model_registry.find(store, model_registry.id_of(origin.digest))
    with suppress(NotFoundError):
        other = model_registry.find(store, name)
        if other["name"] == name and other["id"] != entry["id"]:
            raise ConflictError(f"model {other['id']} is called {name} already: rename it first.")
    _append(store, model_registry.ModelRenamed(id=entry["id"], name=name), by, version)
    return entry


def describe(
    store: EventStore,
    model: str,
    note: str | None = None,
    tags: tuple[str, ...] | None = None,
    by: str | None = None,
) -> dict[str, object]:
    """Record a user's note and tags for a registered model; return its entry before.

    Raises ConfigError, NotFoundError, SourceError.
    """
    submit.check_note(note or "")
    submit.check_tags(tags or ())
    entry = model_origin.entry(store, model)
    event = model_registry.ModelDescribed(id=entry["id"], note=note, tags=tags)
    _append(store, event, by)
    return entry


def _append(store: EventStore, event: Event, by: str | None, version: int | None = None) -> None:
    new = New(event, f"{model_registry.STREAM}/{event.type}/{uuid.uuid4().hex}")
    store.append(model_registry.STREAM, version, [new], Cause(actor=by or actor()))
