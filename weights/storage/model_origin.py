"""Find a model by its origin: a run, a candidate of a run, or an entry of the registry.

    RUN             the champion of a run
    RUN:CANDIDATE   a candidate, by the beginning of its recipe's id
    ID or NAME      a registered model

`find` reads the log alone. The command `python -m weights.storage.model_origin` then locates the
weights, in a process of its own, because it reads or builds whole models; with the word `serve` it does
so for one request after the other. It takes a folder that
still has the weights with the recorded digest, and the config and tokenizer that the run pinned or
wrote. If no folder has them, it takes this machine's own copy of a source, or builds a merge into
`models/DIGEST` of the home folder. It prints the folder.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from events import EventStore
from runs import kinds
from runs.errors import AmbiguousError, ForgeError, NotFoundError, SourceError
from runs.event_types import ModelReference
from runs.history import repository
from runs.home import Home
from runs.kinds.origin import Origin
from runs.lists import model_registry
from runs.system.line_process import Respondent

#: The command that finds or builds a model's folder; see `main`.
COMMAND = (sys.executable, "-m", "weights.storage.model_origin")
SERVE = "serve"
#: Seconds that a model may take to be built; nothing tells how long a training lasts.
PATIENCE = 30 * 24 * 3600.0


def find(store: EventStore, text: str) -> Origin | None:
    """Return the model that a text names; None if the text names no run and no registered model.

    Raise SourceError if the run has no such candidate, or if the text is ambiguous.
    """
    run, colon, candidate = text.partition(":")
    try:
        if not colon and repository.stream_of(store, text) is None:
            found = _registered(store, text)
            if found is not None:
                return found
        name = repository.full_name(store, run)
    except AmbiguousError as error:
        raise SourceError(f"model {text!r}: {error}") from error
    except NotFoundError as error:
        if colon:
            raise SourceError(f"model {text!r}: {error}") from error
        return None
    try:
        return _made(store, name, candidate)
    except NotFoundError as error:
        raise SourceError(f"model {text!r}: {error}") from error


def _made(store: EventStore, run: str, name: str = "", digest: str = "") -> Origin:
    """Return a model of a run by its name or digest; without both, the run's result.

    Raise NotFoundError.
    """
    state, rows = repository.opened(store, run)
    kind = kinds.of(state.kind)
    return kind.origin(state, rows, name or (kind.made(state, digest) if digest else None) or "")


def _registered(store: EventStore, text: str) -> Origin | None:
    """Return a model of the registry; None if it has no such entry. Raise AmbiguousError."""
    try:
        row = model_registry.find(store, text)
    except AmbiguousError:
        raise
    except NotFoundError:
        return None
    if row["path"] is None and row["run"] is not None:
        return _made(store, row["run"], digest=row["digest"])
    path = str(row["path"] or "")
    local = Path(path).is_absolute()
    return Origin(
        name=row["name"],
        what=f"registered model {row['id']} ({row['name']})",
        digest=row["digest"],
        folders=(path,) if local else (),
        hub=None if local else path or None,
    )


def finder(home: Home, tell: Callable[[str], None]) -> Callable[[str], ModelReference | None]:
    """Return a function that finds models by name, for `weights.folders.sources.resolve`.

    `tell` hears of each model that is found, and of its folder. One process serves all names.
    """
    settler = _Settler(home)

    def named(text: str) -> ModelReference | None:
        if home.url is None and not home.database.exists():
            return None  # the home has no log yet, and a look-up must not create one
        store = home.open_store()
        try:
            origin = find(store, text)
        finally:
            store.close()
        if origin is None:
            return None
        folder = settler.folder(origin)
        tell(f"{text} is the {origin.what}, taken from {folder}")
        return origin.reference(folder)

    return named


class _Settler:
    """The process that finds or builds the folders of models; it is started for the first."""

    def __init__(self, home: Home) -> None:
        places = {"FORGE_HOME": str(home.folder), "FORGE_DATABASE_URL": home.url or ""}
        self._env = {**os.environ, **places}
        self._process: Respondent | None = None
        #: What the process writes to stderr.
        self._said: IO[bytes]

    def folder(self, origin: Origin) -> str:
        """Return the folder with the model's weights, built if need be. Raise SourceError."""
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
            raise SourceError(f"model {origin.name}: {answer['error']}")
        return answer["folder"]


def settle(home: Home, asked: dict[str, Any]) -> str:
    """Return a folder with the model of the digest asked for; build it if need be.

    `asked` is the request of `Origin.request`. Raise SourceError.
    """
    from weights.storage.model_copies import touch

    kept = home.folder / "models" / asked["digest"]
    folders = [*map(Path, asked["folders"]), kept]
    if asked["hub"]:
        from weights.folders.sources import resolve

        folders.insert(0, Path(resolve(asked["hub"]).path))
    if asked["run"]:
        store = home.open_store()
        try:
            state, rows = repository.opened(store, asked["run"])
        finally:
            store.close()
        kind = kinds.of(state.kind)
        return kind.settle(home, state, rows[-1].hash, asked["recipe_id"], folders)
    from weights.folders.holding import holds

    for folder in folders:
        if holds(folder, asked["digest"]):
            if folder == kept:
                touch(kept)
            return str(folder.resolve())
    tried = ", ".join(map(str, folders[:-1])) or "no folder that may be read"
    raise SourceError(
        f"{asked['what']} is not where it was ({tried}), or its weights have changed: its digest "
        f"was {asked['digest'][:12]}. Register it again."
    )


def _serve() -> int:
    """Answer requests, a line each, until there are no more (`runs.system.line_process`).

    What libraries print goes to stderr: stdout has answers only.
    """
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        number, asked = json.loads(line)
        answer = {"folder": "", "error": ""}
        try:
            answer["folder"] = settle(Home.default(), asked)
        except ForgeError as error:
            answer["error"] = " ".join(str(error).split())
        out.write(json.dumps([number, answer]) + "\n")
        out.flush()
    return 0


def main() -> int:
    """Read a request from stdin and print the folder; or serve.

    Return 0, or an exit code with the reason on stderr.
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
