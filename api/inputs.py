"""Models and data that a request names: looked up by the rules of this server, before any is opened."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from starlette.datastructures import State

from agent_forge.api.options import Options
from agent_forge.evaluation.lm_eval import spec
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import ModelReference
from agent_forge.weights.folders import gguf_names
from agent_forge.weights.folders.sources import ALIASES
from agent_forge.weights.storage import model_origin as origins
from agent_forge.worker.commands.accounts import User

#: Seconds that a request waits for models of runs or of the registry to be found or built. A page that
#: checks while its user types asks again, and shows what it waits for; who starts a run waits.
CHECK_PATIENCE, START_PATIENCE = 5.0, 50.0


@dataclass(frozen=True)
class RequestInputs:
    """Models and data of a request, found by their names."""

    #: Name → the model: its path is one below a root, a Hub id or a built-in alias. Its name is empty
    #: if the folder's or the Hub's name will do.
    models: Mapping[str, ModelReference]
    #: Name → the path below a root, or the name of a task, a data set or built-in items.
    data: Mapping[str, str]
    #: Name → a model of the log, and its folders that may be read. Which of them has the weights is
    #: not known yet: the path in `models` is where they are expected.
    origins: Mapping[str, tuple[origins.LogModel, list[str]]]


async def find(
    state: State, user: User, models: Sequence[str], data: Sequence[str], aliases: Mapping[str, str]
) -> RequestInputs:
    """Return the RequestInputs that the names mean; `aliases`: other name → name of a model.

    `state` is the application's. The log and the names of files are read, and no model is opened.
    Raises ConfigError for a name that means nothing.
    """
    tasks = [name for name in data if spec.is_task(name)]
    for name in tasks:
        if spec.parse(name).file is not None:
            raise ConfigError(f"{name}: a task file is code; give a task by its name.")
    options: Options = state.options
    files = [name for name in data if name not in tasks]
    places = await asyncio.to_thread(_places, options.model_place, models)
    meant = {name: aliases.get(name, name) for name in places if not _is_path(places[name])}
    places |= await asyncio.to_thread(_places, options.model_place, list(meant.values()))
    placed = await asyncio.to_thread(_places, options.data, files)
    references: dict[str, ModelReference] = {}
    log_origins: dict[str, tuple[origins.LogModel, list[str]]] = {}
    for name in dict.fromkeys(models):
        text = meant.get(name, name)
        origin = None
        if not (_is_path(places[text]) or text in ALIASES or gguf_names.is_prefixed(text)):
            origin = await asyncio.to_thread(_origin, state, text)
        if origin is None:
            options.check_fetched(places[text])
            model = ModelReference(name="", path=places[text])
        else:
            log_origins[name] = origin
            model = await asyncio.to_thread(_expected, state, *origin)
        alias = name if text != name and not model.name else model.name
        references[name] = model.model_copy(update={"name": alias})
    return RequestInputs(references, {name: placed.get(name, name) for name in data}, log_origins)


async def locate(
    state: State, user: User, inputs: RequestInputs, checked: bool, patience: float
) -> RequestInputs:
    """Return `inputs` with the folders that hold the models of the log; build them if need be.

    If not `checked`, only models of the Hub are looked for: a worker finds or builds the others where
    they are expected, by their digests.
    A run's result and a model of the registry are found by name: every user may read both. Only
    folders below the server's roots, or of its own home, are read. No thread is held while a model is
    built. Raises Problem; 503 if the models take longer than `patience` seconds.
    """
    models, clock = dict(inputs.models), asyncio.get_running_loop().time
    end = clock() + patience
    sought = {n: source for n, source in inputs.origins.items() if checked or source[0].hub is not None}
    for number, (name, (origin, folders)) in enumerate(sought.items(), 1):
        folder = await state.work.outcome(
            f"model {origin.digest}",
            list(origins.COMMAND),
            origin.request(folders),
            max(0.0, end - clock()),
            user.name,
            f"model {number} of {len(sought)} ({name[:200]})",
            _files,
        )
        models[name] = models[name].model_copy(update={"path": folder})
    return replace(inputs, models=models, origins={})


def _files(folder: str) -> tuple[tuple[str, int, int], ...] | None:
    """Return (name, bytes, time of change in ns) of each file of a folder; None if it is missing.

    As long as these stay the same, the folder holds the same model.
    """
    try:
        with os.scandir(folder) as files:
            facts = [(file.name, file.stat()) for file in files]
    except OSError:
        return None
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in facts))


def _is_path(placed: str) -> bool:
    return Path(placed).is_absolute()


def _places(place: Callable[[str], str], names: Sequence[str]) -> dict[str, str]:
    """Return {name: place(name)}; `place` is called once for each name.

    For a thread beside the event loop: a folder may have many files. Raises ConfigError.
    """
    return {name: place(name) for name in dict.fromkeys(names)}


def _origin(state: State, text: str) -> tuple[origins.LogModel, list[str]] | None:
    """Return (the log's model of this name, its readable folders) or None. Raises ConfigError."""
    options: Options = state.options
    origin = origins.find(state.desk.store, text)
    if origin is None:
        return None
    if origin.hub is not None:
        options.model(origin.hub)
    home = state.desk.home.folder.resolve()
    folders = [
        place
        for place in origin.folders
        if options.inside(Path(place)) or home in Path(place).resolve().parents
    ]
    return origin, folders


def _expected(state: State, origin: origins.LogModel, folders: Sequence[str]) -> ModelReference:
    """Return a reference to a model of the log, its path the folder where its weights are expected.

    Raises ConfigError for a registered model whose folder is missing or may not be read.
    """
    built = state.desk.home.folder / "models" / origin.digest
    there = [place for place in (str(built), *folders) if Path(place).is_dir()]
    if not there and origin.run is None and origin.hub is None:
        raise ConfigError(origins.gone(origin.what, folders, origin.digest))
    return origin.reference(there[0] if there else str(built))
