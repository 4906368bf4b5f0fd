"""Requests for runs: equal requests of scripts and commands mean the same run. No torch.

Two requests are equal if they have one kind, the same settings and the same inputs. A setting that
equals its default counts as left out. The folder of the result, the run's name, its priority and its
labels are no part of a request.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import BaseModel, JsonValue, TypeAdapter

from agent_forge.evaluation.data import file_formats, training_texts
from agent_forge.events import EventStore, canonical_json
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.history import repository
from agent_forge.runs.kinds.asked import Plan
from agent_forge.weights.folders import adapter_folders, made_folders
from agent_forge.worker.commands import submit as commands_submit

#: Bytes of the largest file that is read for a digest; of a larger one the size and the time of its
#: last change stand for the content.
READ_BYTES = 64 << 20
#: Suffixes of files that can change what a model folder computes.
_MODEL_FILES = (".safetensors", ".json", ".jinja", ".model", ".txt")


@dataclass(frozen=True)
class Requested:
    """The run that a request means."""

    run: str
    #: Its status before the request: submitted, running, …; empty if the request began the run.
    before: str


def submit(
    store: EventStore,
    plan: Plan,
    key: str | None = None,
    check: Callable[[Plan], None] = lambda plan: None,
    **queued: Any,
) -> Requested:
    """Record a new run, or find the user's run of an equal request; return its name and status before.

    A cancelled run is not found: the request begins another one. With a `key` the run is the one of
    that key, in any state. `check` is called before a new run is recorded. `queued` is what
    `worker.commands.submit.submit` takes. Raises ConflictError if the key began a run of another
    request.
    """
    digest = digest_of(plan)
    keys = [key] if key is not None else (f"request {digest} {number}" for number in count(1))
    for name in keys:
        commands_submit.check_queued(key=name)
        before = _status(store, commands_submit.keyed_name(name, queued.get("by")))
        if not before:
            check(plan)
        if before != "cancelled" or name == key:
            run = commands_submit.submit(store, plan, key=name, request_digest=digest, **queued)
            return Requested(run, before)
    raise AssertionError("there is always another number")


def digest_of(plan: Plan) -> str:
    """Return the SHA-256 of a request, hexadecimal: of the plan's kind, settings and inputs."""
    inputs = {name: list(_inputs(plan.fields[name])) for name in sorted(plan.fields)}
    whole = [plan.kind, _settings(plan.config), inputs]
    return hashlib.sha256(canonical_json(whole).encode()).hexdigest()


def _status(store: EventStore, run: str) -> str:
    """Return the status of a run, such as "running"; empty if there is no such run."""
    if repository.stream_of(store, run) is None:
        return ""
    return repository.load(store, run).status


def _settings(config: BaseModel) -> dict[str, JsonValue]:
    """Return name → JSON value of the settings that differ from their defaults."""
    changed: dict[str, JsonValue] = {}
    for name, value in config.model_dump(mode="json").items():
        field = type(config).model_fields[name]
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        if field.is_required() or value != _plain(default):
            changed[name] = value
    return changed


def _plain(value: object) -> JsonValue:
    return TypeAdapter(object).dump_python(value, mode="json")


def _inputs(value: object) -> Iterator[JsonValue]:
    """Yield JSON values that identify the models, data and other values in a field of a plan."""
    if isinstance(value, ModelReference):
        yield _model(value)
    elif isinstance(value, str):
        yield _data(value)
    elif isinstance(value, Mapping):
        for name in sorted(value):
            yield [name, list(_inputs(value[name]))]
    elif isinstance(value, tuple | list):
        for each in value:
            yield list(_inputs(each))
    else:
        yield _plain(value)


def _model(model: ModelReference) -> JsonValue:
    """Return JSON that identifies a model: its digest, its commit at the Hub, or its files."""
    if model.digest:
        return model.digest
    if model.hub_id:
        return [model.hub_id, model.revision]
    folders = [folder for folder in adapter_folders.parts(Path(model.path)) if folder is not None]
    return [
        [str(folder), [] if made_folders.is_cached(folder) else list(_files(folder))]
        for folder in folders
    ]


def _files(folder: Path) -> Iterator[JsonValue]:
    """Yield [name, content's digest] of the files of a model's folder; nothing if it is missing."""
    if folder.is_dir():
        for file in sorted(folder.iterdir()):
            if file.suffix in _MODEL_FILES and file.is_file():
                yield [file.name, _content(file)]


def _data(text: str) -> JsonValue:
    """Return [path, digests of its files] for a place of data; other texts are unchanged."""
    domain, place = ("", text) if os.path.exists(text) else training_texts.parts(text)
    if not os.path.exists(place):  # of a text that no path can be, it is False
        return text
    path = Path(place)
    if path.is_file():
        return [text, _content(path)]
    inside = sorted(path.rglob("*") if domain else path.iterdir())
    files = [file for file in inside if file.is_file() and file_formats.kind(file)]
    return [text, [[str(file.relative_to(path)), _content(file)] for file in files]]


def _content(file: Path) -> JsonValue:
    """Return the SHA-256 of a file, or [size, time of last change] of a large one."""
    stat = file.stat()
    if stat.st_size > READ_BYTES:
        return [stat.st_size, stat.st_mtime_ns]
    return hashlib.sha256(file.read_bytes()).hexdigest()
