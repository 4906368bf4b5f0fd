"""Find a model by its origin: a run, a candidate of a run, or an entry of the registry.

    RUN             the champion of a run
    RUN:CANDIDATE   a candidate, by the beginning of its recipe's id
    ID or NAME      a registered model

`find` reads the log alone. The command `python -m worker.exports.model_origin` then locates the
weights, in a process of its own, because it reads or builds whole models. It takes a folder that
still has the weights with the recorded digest, and the config and tokenizer that the run pinned or
wrote. If no folder has them, it takes this machine's own copy of a source, or builds a merge into
`models/DIGEST` of the home folder. It prints the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from events import Envelope, EventStore
from evomerge.reports import model_registry
from evomerge.run import events, repository
from evomerge.run.events import ModelReference, SourceRecord
from evomerge.run.state import RunState, fold
from runs.errors import AmbiguousError, ForgeError, NotFoundError, SourceError
from runs.home import Home
from weights import companions

#: The command that finds or builds a model's folder; see `main`.
COMMAND = (sys.executable, "-m", "worker.exports.model_origin")

#: A run's state, and the head of its chain.
Past = tuple[RunState, str]


@dataclass(frozen=True)
class Origin:
    """A model that the log knows, and the folders that may have its weights."""

    name: str
    #: A description for people.
    what: str
    #: BLAKE3 of its weights.
    digest: str
    #: Folders that had these weights, the best first.
    folders: tuple[str, ...] = ()
    #: The Hub id that the model was fetched by.
    hub: str | None = None
    #: The run and the recipe from which the model can be rebuilt.
    run: str | None = None
    recipe_id: str | None = None

    def request(self, folders: Sequence[str]) -> str:
        """Return the request, as JSON, that `main` reads; it may look in these folders."""
        return json.dumps({**asdict(self), "folders": list(folders)})

    def reference(self, folder: str) -> ModelReference:
        """Return the reference by which a run records the model, with this folder."""
        return ModelReference(name=self.name, path=folder, digest=self.digest)


def find(store: EventStore, text: str) -> Origin | None:
    """Return the model that a text names; None if the text names no run and no registered model.

    Raise SourceError if the run has no such candidate, or if the text is ambiguous.
    """
    run, colon, candidate = text.partition(":")
    try:
        if not colon and not store.version(repository.stream(text)):
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
        return _made(store, name, candidate or "champion")
    except NotFoundError as error:
        raise SourceError(f"model {text!r}: {error}") from error


def _made(store: EventStore, run: str, candidate: str) -> Origin:
    """Return a candidate of a run. Raise NotFoundError."""
    rows = list(repository.history(store, run))
    state = fold(rows)
    recipe_id = repository.find(state, candidate)
    kind = "champion" if recipe_id == state.champion else "candidate"
    so_far = "" if state.completed or kind != "champion" else ", which has not ended"
    return Origin(
        name=f"{run}-{recipe_id[:8]}",
        what=f"{kind} {recipe_id[:12]} of run {run}{so_far}",
        digest=state.built[recipe_id][0],
        folders=tuple(dict.fromkeys(_places(state, rows, recipe_id))),
        run=run,
        recipe_id=recipe_id,
    )


def _places(state: RunState, rows: Sequence[Envelope], recipe_id: str) -> list[str]:
    """Return the folders to which a recipe's weights were written, the newest first.

    For a source, its given folders follow.
    """
    found: list[str] = []
    for row in reversed(rows):
        if row.type == events.Exported.type:
            event = events.REGISTRY.load(row)
            if isinstance(event, events.Exported) and event.recipe_id == recipe_id:
                found.append(event.folder)
    if state.submitted and state.submitted.output_dir and recipe_id == state.champion:
        found.append(state.submitted.output_dir)
    if state.submitted and state.started:
        found += [model.path for model, _ in _sources(state, recipe_id)]
    return found


def _sources(state: RunState, recipe_id: str) -> list[tuple[ModelReference, SourceRecord]]:
    """Return the base and sources that have a recipe's id, as given and as pinned; [] for a merge."""
    assert state.submitted
    assert state.started
    given = (state.submitted.base or state.submitted.sources[0], *state.submitted.sources)
    pairs = zip(given, (state.started.base, *state.started.sources), strict=True)
    return [(model, record) for model, record in pairs if record.recipe_id == recipe_id]


def _registered(store: EventStore, text: str) -> Origin | None:
    """Return a model of the registry; None if it has no such entry. Raise AmbiguousError."""
    try:
        row = model_registry.find(store, text)
    except AmbiguousError:
        raise
    except NotFoundError:
        return None
    if row["path"] is None and row["run"] is not None:
        return _made(store, row["run"], "champion")
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
    """Return a function that finds models by name, for `weights.sources.resolve`.

    `tell` hears of each model that is found, and of its folder.
    """

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
        folder = _settled(home, origin)
        tell(f"{text} is the {origin.what}, taken from {folder}")
        return origin.reference(folder)

    return named


def _settled(home: Home, origin: Origin) -> str:
    """Return the folder with the model's weights, built if need be, in a process of its own."""
    places = {"FORGE_HOME": str(home.folder), "FORGE_DATABASE_URL": home.url or ""}
    done = subprocess.run(
        COMMAND,
        input=origin.request(origin.folders),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **places},
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise SourceError(f"model {origin.name}: {said[-1]}")
    return done.stdout.strip().splitlines()[-1]


def settle(home: Home, asked: dict[str, Any]) -> str:
    """Return a folder with the model of the digest asked for; build it if need be.

    `asked` is the request of `Origin.request`. Raise SourceError.
    """
    from weights.storage.model_copies import DISK_BYTES, alone, evict, touch

    kept = home.folder / "models" / asked["digest"]
    folders = [*map(Path, asked["folders"]), kept]
    if asked["hub"]:
        from weights.sources import resolve

        folders.insert(0, Path(resolve(asked["hub"]).path))
    past = _past(home, asked["run"]) if asked["run"] else None
    for folder in folders:
        if _fits(home, asked, past, folder):
            if folder == kept:
                touch(kept)
            return str(folder.resolve())
    if past is None:
        tried = ", ".join(map(str, folders[:-1])) or "no folder that may be read"
        raise SourceError(
            f"{asked['what']} is not where it was ({tried}), or its weights have changed: its digest "
            f"was {asked['digest'][:12]}. Register it again."
        )
    sources = _sources(past[0], asked["recipe_id"])
    if sources and sources[0][1].model:
        return str(_own_copy(home, *sources[0]))
    kept.parent.mkdir(parents=True, exist_ok=True)
    with alone(kept.parent / f".{kept.name[:16]}.lock"):
        if not _fits(home, asked, past, kept):  # another process may just have built it
            _build(home, past, asked["recipe_id"], kept)
    evict(kept.parent, DISK_BYTES, lambda place: shutil.rmtree(place, ignore_errors=True))
    return str(kept)


def _holds(folder: Path, expected: str) -> bool:
    """Return True if a folder is a model whose weights have this digest, as stored or untied."""
    from weights.checkpoint import digest, open_checkpoint, untied

    try:
        opened = open_checkpoint(folder)
        tensors = opened.tensors()
        if digest(tensors) == expected:
            return True
        return opened.tied and digest(untied(tensors)) == expected
    except (ForgeError, OSError):
        return False


def _past(home: Home, run: str) -> Past:
    """Return a run's state now, and the head of its chain."""
    store = home.open_store()
    try:
        rows = list(repository.history(store, run))
    finally:
        store.close()
    return fold(rows), rows[-1].hash


def _fits(home: Home, asked: dict[str, Any], past: Past | None, folder: Path) -> bool:
    """Return True if a folder has the weights and, for a model of a run, its config and tokenizer.

    A source must have the files that the run pinned, a merge the files that the run writes. A
    registered model is checked by its weights alone, and so is a model of a run that pinned no
    files.
    """
    if not _holds(folder, asked["digest"]):
        return False
    if past is None:
        return True
    state, head = past
    assert state.started
    if not state.started.base.model:
        return True
    if sources := _sources(state, asked["recipe_id"]):
        return _digests(folder) in [record.files for _, record in sources]
    from evomerge.tasks.verify_folder import documents, taken_over
    from weights.checkpoint import open_checkpoint

    weights = open_checkpoint(folder).tensors()
    made = documents(home, state, asked["recipe_id"], weights, head)
    return taken_over(folder, made)


def _digests(folder: Path) -> dict[str, str] | None:
    """Return the digests of a folder's companion files; None if they cannot be read."""
    try:
        return companions.digests(folder)
    except (SourceError, OSError):
        return None


def _own_copy(home: Home, given: ModelReference, pinned: SourceRecord) -> Path:
    """Return this machine's own copy of a run's source, as the run pinned it. Raise ForgeError."""
    from weights.storage.weight_cache import Artifacts

    supply = Artifacts.of(home).supply
    place = supply.model(given, pinned)
    if _holds(place, pinned.digest):
        return place
    supply.forget(place)  # the copy is damaged: the next call makes or fetches another
    return supply.model(given, pinned)


def _build(home: Home, past: Past, recipe_id: str, folder: Path) -> None:
    """Write the model of a recipe, from the cache or its sources."""
    from evomerge.tasks import champion
    from weights.storage.weight_cache import Artifacts

    state, head = past
    champion.write(state, Artifacts.of(home), recipe_id, folder, head)


def main() -> int:
    """Read a request from stdin and print the folder.

    Return 0, or an exit code with the reason on stderr.
    """
    try:
        sys.stdout.write(settle(Home.default(), json.loads(sys.stdin.read())) + "\n")
    except ForgeError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
