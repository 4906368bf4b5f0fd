"""Lookup of models by their origin: a run, a candidate of a run, or an entry of the registry.

    RUN                  the result of a run; also RUN:champion and RUN/champion
    RUN:ROLE, RUN/ROLE   a model of a run: a role, a candidate by the beginning of its recipe's id
    ID or NAME           a registered model

`find` reads the log only. The command `python -m weights.storage.model_origin` then finds the weights,
in another process, because it reads or builds whole models; with the word `serve` it answers one
request after the other. It takes a folder that still has the weights with the recorded digest, and the
config and tokenizer that the run pinned or wrote. If no folder has them, it takes this machine's copy
of a source, or builds a merge into `models/DIGEST` of the home folder. It prints the folder.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeVar

from agent_forge.events import EventStore, StoreUnavailableError
from agent_forge.events.envelope import Plain
from agent_forge.runs import kinds, streams
from agent_forge.runs.errors import (
    AmbiguousError,
    ForgeError,
    NotFoundError,
    SourceError,
    UnavailableError,
)
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.origin import LogModel
from agent_forge.runs.lists import finding, model_registry, queries
from agent_forge.runs.system.line_process import Respondent

T = TypeVar("T")

#: The command that finds or builds a model's folder; see `main`.
COMMAND = (sys.executable, "-m", "agent_forge.weights.storage.model_origin")
SERVE = "serve"
#: Seconds that the build of a model may take; it may be a training of any length.
PATIENCE = 30 * 24 * 3600.0


def find(store: EventStore, text: str) -> LogModel | None:
    """Return the LogModel, a model's origin, that a text names; None if it names no run or entry.

    Raises SourceError if the run has no such model, or if the text is ambiguous.
    """
    try:
        reference = finding.find(store, text)
        if reference is None:
            return None if "/" in text else _registered_or_begun(store, text)
        return model(store, *reference)
    except (AmbiguousError, NotFoundError) as error:
        hint = ""
        if finding.split(text)[1] == "/":
            hint = f" If a Hub model is meant, name its revision, as {text}@main."
        raise SourceError(f"model {text!r}: {error}{hint}") from error


def _registered_or_begun(store: EventStore, text: str) -> LogModel | None:
    """Return the LogModel of a registered model, or of the result of a run whose name `text` begins.

    None if there is neither. Raises AmbiguousError; NotFoundError if the run has no result.
    """
    origin = _registered(store, text)
    if origin is not None:
        return origin
    try:
        name = finding.full_name(store, text)
    except AmbiguousError:
        raise
    except NotFoundError:
        return None
    return model(store, name)


def entry(store: EventStore, text: str) -> Plain:
    """Return the registry's entry of a model, a dict, by any name of the log (`find`).

    Raises NotFoundError, AmbiguousError or SourceError.
    """
    try:
        return model_registry.find(store, text)
    except AmbiguousError:
        raise
    except NotFoundError:
        origin = find(store, text)
        if origin is None:
            raise
    return model_registry.find(store, model_registry.id_of(origin.digest))


def model(store: EventStore, run: str, name: str = "") -> LogModel:
    """Return the LogModel of a run's model by name; "" is the run's result. Raises NotFoundError."""
    return _origin(store, *repository.opened(store, run), name)


def _origin(store: EventStore, state: Any, rows: Any, name: str) -> LogModel:
    """Return a LogModel, a model's origin, with the run's name; the registry's folder comes first."""
    kind = kinds.of(state.kind)
    origin = finding.looked_up(lambda model: kind.models.origin(state, rows, model), name)
    run = origin.run or state.run
    origin = replace(origin, what=origin.what.replace(run, queries.name(store, run)))
    with suppress(NotFoundError):
        path = model_registry.find(store, model_registry.id_of(origin.digest))["path"]
        if path and Path(path).is_absolute():
            return replace(origin, folders=tuple(dict.fromkeys((path, *origin.folders))))
    return origin


def _registered(store: EventStore, text: str) -> LogModel | None:
    """Return the LogModel of an entry of the registry; None without one. Raises AmbiguousError."""
    try:
        row = model_registry.find(store, text)
    except AmbiguousError:
        raise
    except NotFoundError:
        return None
    if row["run"] is not None:
        state, rows = repository.opened(store, row["run"])
        recipe_id = kinds.of(state.kind).models.recipe_id(state, row["digest"])
        if recipe_id is not None:
            return _origin(store, state, rows, recipe_id)
    path = str(row["path"] or "")
    local = Path(path).is_absolute()
    return LogModel(
        name=row["name"],
        what=f"registered model {row['id']} ({row['name']})",
        digest=row["digest"],
        folders=(path,) if local else (),
        hub=None if local else path or None,
    )


class Finder:
    """Finder of models of a home's log by name, for `weights.folders.sources.resolve`.

    It calls `tell` with a sentence about each found model and its folder. One process serves all names.
    """

    def __init__(self, home: Home, tell: Callable[[str], None]) -> None:
        self._home, self._tell, self._settler = home, tell, _Settler(home)

    def __call__(self, text: str) -> ModelReference | None:
        """Return the ModelReference of the model that a text names, its folder built; None if none.

        Raises SourceError, UnavailableError.
        """
        origin = self._ask_log(lambda store: find(store, text))
        if origin is None:
            return None
        folder = self._settler.folder(origin)
        self._tell(f"{text} is the {origin.what}, taken from {folder}")
        return origin.reference(folder)

    def hidden_by(self, text: str, folder: Path) -> None:
        """Tell the user that `text` means `folder`, if it is also the name of a run's model.

        If the log cannot be read now, nothing is told, because the folder needs no log.
        """
        run, _, model = finding.split(text)
        run_name = None
        if streams.NAME.fullmatch(run):
            with suppress(UnavailableError):
                run_name = self._ask_log(lambda store: finding.whole_name(store, run))
        if run_name is None:
            return
        known_as = f"{run}:{model or finding.RESULT}"
        other = f"write {known_as} for that" if text != known_as else "move the folder for that"
        self._tell(f"{text} is the folder {folder}, not the model of run {run}: {other}")

    def _ask_log(self, question: Callable[[EventStore], T | None]) -> T | None:
        """Return `question(log)`; None if the home has no log yet, and none is created."""
        if self._home.url is None and not self._home.database.exists():
            return None
        with closing(self._home.open_store()) as store:
            return question(store)


class _Settler:
    """The process that finds or builds the folders of models; the first request starts it."""

    def __init__(self, home: Home) -> None:
        places = {"FORGE_HOME": str(home.folder), "FORGE_DATABASE_URL": home.url or ""}
        self._env = {**os.environ, **places}
        self._process: Respondent | None = None
        #: What the process writes to stderr.
        self._said: IO[bytes]

    def folder(self, origin: LogModel) -> str:
        """Return the path of a folder with the model's weights, built if missing.

        Raises SourceError, or UnavailableError if it may be there later.
        """
        if self._process is None or not self._process.living:
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
            weakref.finalize(self, self._said.close)
            self._process = Respondent((*COMMAND, SERVE), env=self._env, stderr=self._said)
        try:
            answer = self._process.ask(json.loads(origin.request(origin.folders)), PATIENCE)
        except (OSError, ValueError) as error:
            self._said.seek(0)
            lines = self._said.read().decode(errors="replace").strip().splitlines()
            why = lines[-1] if lines else "the process that makes it has ended without a word"
            raise SourceError(f"model {origin.name}: {why}") from error
        if answer["error"]:
            kind = UnavailableError if answer["later"] else SourceError
            raise kind(f"model {origin.name}: {answer['error']}")
        return answer["folder"]


def settle(home: Home, request: Plain) -> str:
    """Return the path of a folder with the requested model; build it if it is missing.

    `request` is that of `LogModel.request`. Raises SourceError.
    """
    from agent_forge.weights.folders.made_folders import touch

    target = home.folder / "models" / request["digest"]
    folders = [*map(Path, request["folders"]), target]
    if request["hub"]:
        from agent_forge.weights.folders.sources import resolve

        folders.insert(0, Path(resolve(request["hub"]).path))
    if request["run"]:
        with closing(home.open_store()) as store:
            state, rows = repository.opened(store, request["run"])
        kind = kinds.of(state.kind)
        return kind.storage.materialise(home, state, rows[-1].hash, request["recipe_id"], folders)
    from agent_forge.weights.folders.checkpoint import holds
    from agent_forge.weights.folders.sources import make_again

    for folder in folders:
        if not folder.exists():
            make_again(folder)
        if holds(folder, request["digest"]):
            if folder == target:
                touch(target)
            return str(folder.resolve())
    raise SourceError(gone(request["what"], list(map(str, folders[:-1])), request["digest"]))


def gone(what: str, tried: Sequence[str], digest: str) -> str:
    """Return the error text about a registered model that is in none of the folders `tried`."""
    places = ", ".join(tried) or "no folder that may be read"
    return (
        f"{what} is not where it was ({places}), or its weights have changed: its digest was "
        f"{digest[:12]}. Register it again."
    )


def _serve() -> int:
    """Answer each request line of stdin until the input ends (`runs.system.line_process`); return 0.

    Libraries print to stderr, because stdout has answers only.
    """
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        number, request = json.loads(line)
        answer: Plain = {"folder": "", "error": "", "later": False}
        try:
            answer["folder"] = settle(Home.default(), request)
        except (ForgeError, StoreUnavailableError) as error:
            answer["error"] = " ".join(str(error).split())
            answer["later"] = isinstance(error, UnavailableError | StoreUnavailableError)
        out.write(json.dumps([number, answer]) + "\n")
        out.flush()
    return 0


def main() -> int:
    """Read a request from stdin and print the folder, or serve; return the exit code.

    If the code is not 0, the reason is on stderr.
    """
    if sys.argv[1:] == [SERVE]:
        return _serve()
    try:
        sys.stdout.write(settle(Home.default(), json.loads(sys.stdin.read())) + "\n")
    except ForgeError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
