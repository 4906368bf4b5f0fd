"""Models and data that a request names: looked up by the rules of this server, before any is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import State

from api.options import Options
from evaluation.lm_eval import spec
from runs.errors import ConfigError
from runs.event_types import ModelReference
from weights.folders.sources import ALIASES
from weights.storage import model_origin as origins
from worker.commands.accounts import User

#: Seconds that a request waits for a model of a run or of the registry to be found or built.
PATIENCE = 20.0


@dataclass(frozen=True)
class Found:
    """Models and data of a request, found by their names."""

    #: Name → the model: its path is one below a root, a Hub id or a built-in alias. Its name is empty
    #: if the folder's or the Hub's name will do.
    models: Mapping[str, ModelReference]
    #: Name → the path below a root, or the name of a task, a data set or built-in items.
    data: Mapping[str, str]


async def find(
    state: State,
    user: User,
    models: Sequence[str],
    data: Sequence[str],
    aliases: Mapping[str, str],
) -> Found:
    """Return what names of models and data mean, `aliases` being names of models, too.

    `state` is the application's. Raises ConfigError, Problem.
    """
    tasks = [name for name in data if spec.is_task(name)]
    for name in tasks:
        if spec.parse(name).file is not None:
            raise ConfigError(f"{name}: a task file is code; give a task by its name.")
    options: Options = state.options
    files = [name for name in data if name not in tasks]
    places = await asyncio.to_thread(_places, options.place, models)
    meant = {name: aliases.get(name, name) for name in places if not _is_path(places[name])}
    places |= await asyncio.to_thread(_places, options.place, list(meant.values()))
    placed = await asyncio.to_thread(_places, options.data, files)
    found = {}
    with state.work.request((user.name, *places)) as since:
        for name in dict.fromkeys(models):
            text = meant.get(name, name)
            model = await _model(state, user, text, places[text], since)
            alias = name if text != name and not model.name else model.name
            found[name] = model.model_copy(update={"name": alias})
    return Found(found, {name: placed.get(name, name) for name in data})


def _is_path(placed: str) -> bool:
    return Path(placed).is_absolute()


def _places(place: Callable[[str], str], names: Sequence[str]) -> dict[str, str]:
    """Return each name with its place; a folder's files are looked at once, however often it is named.

    For a thread beside the event loop: a folder may have many files. Raises ConfigError.
    """
    return {name: place(name) for name in dict.fromkeys(names)}


async def _model(state: State, user: User, text: str, placed: str, since: float) -> ModelReference:
    """Return a model's path below a root or its Hub id, and its name if it has one of its own.

    `since` is when the request for it was first made: what was found later counts.
    A run's result and a model of the registry are found by name: every user may read both. Only
    folders below the server's roots, or of its own home, are read. No thread is held while the model
    is built. Raises ConfigError, Problem.
    """
    found = None
    if not _is_path(placed) and text not in ALIASES:
        found = await asyncio.to_thread(_origin, state, text)
    if found is None:
        state.options.check_fetched(placed)
        return ModelReference(name="", path=placed)
    origin, folders = found
    folder = await state.work.outcome(
        f"model {origin.digest}",
        list(origins.COMMAND),
        origin.request(folders),
        PATIENCE,
        user.name,
        since,
    )
    return origin.reference(folder)


def _origin(state: State, text: str) -> tuple[origins.Origin, list[str]] | None:
    """Return the model that a name of the log means, and its folders that may be read.

    Raises ConfigError.
    """
    options: Options = state.options
    origin = origins.find(state.desk.store, text)
    if origin is None:
        return None
    if origin.hub is not None:
        options.model(origin.hub)
    own = state.desk.home.folder.resolve()
    folders = [
        place
        for place in origin.folders
        if options.inside(Path(place)) or own in Path(place).resolve().parents
    ]
    return origin, folders
