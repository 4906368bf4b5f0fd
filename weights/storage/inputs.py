"""Inputs of a run on this machine: private copies of models, and transfers from the store or the Hub.

The worker that starts the run puts its inputs into the store. A worker that fetches them checks,
before any use, the digests that `started` records, as it does for files of its own.

    model-ADDRESS   a whole model, by its content address
    DIGEST          bare weights (`weights/storage/weight_cache.py`), or a run's items
                    (`evaluation/kept_items.py`)

A run reads its own copy of a model, so that later changes of the files do no harm:

    FOLDER/ADDRESS/           weights, config, tokenizer and templates, named by their content address
    FOLDER/.HASH.incoming/    a copy being made; HASH is that of the copied folder's path
    FOLDER/.HASH.lock         locked by the process that makes the copy

The copies are a cache: a missing copy is made again from the files that the user named, and a run
refuses the new copy if its address is not the pinned one. Only copies are memory-mapped, not the user's
files: a file that is truncated under a memory map would kill the process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_forge.events import failpoints
from agent_forge.runs import kinds
from agent_forge.runs.errors import (
    ConfigError,
    ForgeError,
    SourceChangedError,
    SourceError,
    TamperedError,
    UnavailableError,
)
from agent_forge.runs.event_types import ModelReference, SourceRecord, checked
from agent_forge.runs.history import repository
from agent_forge.runs.kinds.origin import LogModel
from agent_forge.runs.lists import family
from agent_forge.runs.streams import run_of
from agent_forge.weights.folders import adapter_folders, checkpoint, companions
from agent_forge.weights.folders.checkpoint import (
    INDEX,
    Checkpoint,
    digest,
    open_checkpoint,
    settle,
    sync,
    weight_files,
)
from agent_forge.weights.folders.made_folders import DISK_BYTES, alone, evict, touch
from agent_forge.weights.folders.sources import make_again, resolve
from agent_forge.weights.recipes import Source
from agent_forge.weights.storage import model_origin

if TYPE_CHECKING:
    from agent_forge.runs.home import Home
    from agent_forge.weights.storage.artifact_store import Vault
    from agent_forge.weights.tensors import Tensors

log = logging.getLogger(__name__)


def stored(address: str) -> str:
    """Return the artifact name of the whole model with this content address: "model-ADDRESS"."""
    return f"model-{address}"


def _difference(reference: ModelReference, pinned: SourceRecord, place: Path) -> str:
    """Return an error text that names the files of a model that differ from the pinned ones."""
    digests = companions.digests(place)
    changed = [n for n in {**pinned.files, **digests} if pinned.files.get(n) != digests.get(n)]
    what = f": {', '.join(changed)} differ" if changed else ""
    return (
        f"model {pinned.name} has changed since the run started{what} ({reference.path}). Put the old "
        "files back, or start a new run."
    )


def check_named(reference: ModelReference, weights_digest: str, place: Path) -> None:
    """Raise SourceError if a model was submitted with a digest and its weights have another one now.

    `weights_digest` is the digest of the weights that the run reads, `place` the model's copy.
    """
    if reference.digest in (None, weights_digest):
        return
    if reference.digest != checkpoint.digest(checkpoint.open_checkpoint(place).tensors()):
        raise SourceError(
            f"model {reference.name}: the weights in {reference.path} have changed since the run was "
            "submitted. Submit it again."
        )


def recorded(reference: ModelReference, place: Path, opened: Checkpoint) -> SourceRecord:
    """Return a SourceRecord of a model for the event `started`; it reads all of the model's weights.

    `place` is the model's copy, `opened` its checkpoint. Raises SourceError by `check_named`.
    """
    weights_digest = checkpoint.digest(opened.tensors())
    check_named(reference, weights_digest, place)
    return SourceRecord(
        name=reference.name,
        recipe_id=Source(digest=weights_digest).id,
        digest=weights_digest,
        sketch="",
        parameters=opened.parameters,
        model=place.name,
        files=companions.digests(place),
    )


class Supply:
    """A run's inputs on this machine: model copies, and their exchange with the shared store."""

    def __init__(self, folder: Path, vault: Vault | None, cache: Any = None) -> None:
        #: The folder of pinned inputs, such as items, that this machine keeps.
        self.folder = folder
        self._vault = vault
        #: The weight cache of this supply; the log of its home tells which runs made an input.
        self._cache = cache
        self._copies = Copies(folder.parent / "models")

    def model(self, reference: ModelReference, pinned: SourceRecord | None) -> Path:
        """Return the path of this machine's copy of a model; `pinned` is its record in `started`.

        Raises UnavailableError if this machine lacks the model (another one may have it),
        SourceChangedError if this machine's model is not the pinned one.
        """
        if pinned is None or not pinned.model:  # no model is pinned, or only its weights are
            return self._copies.take(self._given(reference))
        place, refused = self._copies.find(pinned.model, pinned.files), ""
        if place is None:
            place, refused = self._fetched(pinned)
        if place is None:
            place = self._copies.take(self._given(reference, refused))
        elif written_since(place, Path(reference.path)):
            log.warning(
                "the files of model %s were changed since the run started: %s. The run goes on with "
                "its own copy of the model as it was.",
                reference.name,
                reference.path,
            )
        if place.name != pinned.model:
            raise SourceChangedError(_difference(reference, pinned, place))
        return place

    def checked(self, place: Path, pinned: SourceRecord | None) -> Tensors:
        """Return the model (config and tensors) of a copy; `pinned` is its record in `started`.

        Raises SourceChangedError, and removes the copy, if its weights are not the pinned ones.
        """
        opened = checkpoint.open_checkpoint(place)
        if pinned is not None and checkpoint.digest(opened.tensors()) != pinned.digest:
            self.forget(place)
            raise SourceChangedError(
                f"the weights of model {pinned.name} are not those that the run has pinned. Put the "
                "old files back, or start a new run."
            )
        return opened.model()

    def forget(self, place: Path) -> None:
        """Remove a copy whose weights are damaged, and log a warning."""
        log.warning("the copy %s of a model is damaged: it is made again", place.name[:12])
        self._copies.drop(place)

    def _fetched(self, pinned: SourceRecord) -> tuple[Path | None, str]:
        """Return (path of a copy fetched from the store, ""), or (None, reason of a refusal or "")."""
        try:
            if self.fetch(stored(pinned.model), self._copies.place(pinned.model), companions.CONFIG):
                return self._copies.find(pinned.model, pinned.files), ""
        except ConfigError as error:
            return None, f" The store's cannot be used: {error}"
        return None, ""

    def _given(self, reference: ModelReference, refused: str = "") -> Path:
        """Return the path of the user's folder, of a download from the Hub, or of a folder made again.

        Raises UnavailableError; `refused` is added to its text.
        """
        if adapter_folders.exists(Path(reference.path)):
            return Path(reference.path)
        if (folder := make_again(Path(reference.path))) is not None:
            return folder
        if reference.hub_id is not None:
            return Path(resolve(f"{reference.hub_id}@{reference.revision}").path)
        if self._home is not None and (place := rebuilt_model(self._home, reference)) is not None:
            return place
        raise UnavailableError(
            f"model {reference.name} is not on this machine: there is no {reference.path}. "
            "Put it there, or "
            f"name a store that has it in FORGE_ARTIFACT_STORE.{refused}"
        )

    def share_model(self, place: Path) -> None:
        """Put a copy into the store, if there is one, as model-ADDRESS; only log a failure."""
        files = {p.name: p for p in place.iterdir() if p.name != ORIGIN}
        self.put(stored(place.name), files)

    def items_again(self, file: Path) -> bool:
        """Make a missing file of items, which another run pinned, again; return True if it is there.

        False: it is no such file of this machine's inputs, or no run of the log pinned it.
        """
        if self._home is None or file.parent.parent != self.folder:
            return False
        return rebuilt_items(self._home, self._cache, file.parent.name) == file

    @property
    def _home(self) -> Home | None:
        return None if self._cache is None else self._cache.home

    @property
    def shares(self) -> bool:
        """True if there is a store to share with."""
        return self._vault is not None

    def put(self, name: str, files: dict[str, Path]) -> None:
        """Put files into the store, if there is one, as artifact `name`; only log a failure.

        Sharing helps other machines; this run does not need it.
        """
        if self._vault is None:
            return
        try:
            self._vault.put(name, files)
        except (ForgeError, OSError) as error:
            log.warning("not shared with other machines: %s", error)

    def fetch(self, name: str, place: Path, needed: str) -> bool:
        """Download an artifact to `place` if it has a file `needed`; return True if that was done.

        It removes a damaged artifact from the store. Raises ConfigError if this machine's keys do not
        fit the artifact.
        """
        if self._vault is None:
            return False
        try:
            return needed in self._vault.files(name) and self._vault.fetch(name, place)
        except TamperedError as error:
            log.warning("%s It is removed.", error)
            self._vault.remove(name)
            return False


#: File in a copy with the path of the copied folder and the stamps of its files.
ORIGIN = "origin.json"

Stamps = dict[str, list[int]]


class Copies:
    """Cache of model copies on this machine."""

    def __init__(self, folder: Path, disk_bytes: int = DISK_BYTES) -> None:
        self._folder = folder
        self._disk_bytes = disk_bytes
        #: Copy → descriptor with a shared lock: a copy that a living process uses is not evicted.
        self._locks: dict[Path, int] = {}

    def place(self, address: str) -> Path:
        """Return the path that the copy with this address has or would have."""
        return self._folder / checked(address)

    def find(self, address: str, files: Mapping[str, str]) -> Path | None:
        """Return the path of the copy with this address and these companions' digests, or None.

        It removes a damaged copy. The caller checks the weights. Raises UnavailableError if the copy
        cannot be read.
        """
        place = self.place(address)
        if not place.is_dir():
            return None
        try:
            open_checkpoint(place)  # raises unless every shard is there and complete
            intact = companions.digests(place) == dict(files)
        except SourceError:
            intact = False
        except OSError as error:  # the machine's fault: the copy may be the last one
            raise UnavailableError(f"the copy {place} cannot be read: {error}.") from error
        if not intact:
            log.warning("the copy %s of a model is damaged: it is removed", address[:12])
            self.drop(place)
            return None
        self._use(place)
        return place

    def take(self, source: Path) -> Path:
        """Copy a model folder; return the path of the copy, whose name is its content address.

        The copy of BASE+ADAPTER has both files of the adapter beside the base's. If there is a copy of
        the base, its weight files are linked, not copied.

        Raises SourceError if the folder is not a model, SourceChangedError if the folder is written
        to meanwhile, UnavailableError if the disk lacks space.
        """
        open_checkpoint(source)  # raises an error that names the user's own folder
        files = model_files(source)
        name = hashlib.sha256(str(source.resolve()).encode()).hexdigest()[:16]
        incoming = self._folder / f".{name}.incoming"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with alone(self._folder / f".{name}.lock"):
                shutil.rmtree(incoming, ignore_errors=True)
                try:
                    twins = self._twins(source)
                    self._check_space(source, [f for n, f in files.items() if n not in twins])
                    place = self._copied(source, files, incoming, twins)
                finally:
                    shutil.rmtree(incoming, ignore_errors=True)
        except OSError as error:
            raise UnavailableError(
                f"model {source} cannot be copied to {self._folder}: {error.strerror or error}."
            ) from error
        self._use(place)
        evict(self._folder, self._disk_bytes, self.drop)
        return place

    def _twins(self, source: Path) -> dict[str, Path]:
        """Return name → weight file of a copy of BASE, for BASE+ADAPTER; {} if there is no copy."""
        base, adapter = adapter_folders.parts(source)
        if adapter is None:
            return {}
        for place in self._folder.iterdir():
            if place.name[0] != "." and _origin_of(place) == (str(base), stamps(model_files(base))):
                self._use(place)
                return {file.name: place / file.name for file in weight_files(base)}
        return {}

    def _copied(
        self, source: Path, files: Mapping[str, Path], incoming: Path, twins: Mapping[str, Path]
    ) -> Path:
        before = stamps(files)
        incoming.mkdir()
        for name, file in files.items():
            if name in twins:
                os.link(twins[name], incoming / name)
            else:
                _copy(file, incoming / name)
        failpoints.hit("source-copied")
        if stamps(files) != before:
            raise SourceChangedError(
                f"model {source} was written to while it was copied. Start again when its files are "
                "complete."
            )
        weights = digest(open_checkpoint(incoming, source).tensors())
        digests = companions.digests(incoming)
        address = companions.address(weights, digests)
        note = {"folder": str(source), "stamps": before}
        (incoming / ORIGIN).write_text(json.dumps(note, indent=2) + "\n", "utf-8")
        settle(incoming)
        place = self.place(address)
        there = self.find(address, digests)
        if there is not None and digest(open_checkpoint(there).tensors()) != weights:
            self.drop(there)
        try:
            incoming.rename(place)
        except OSError as error:  # a complete copy is there already
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        sync(self._folder)
        failpoints.hit("source-kept")
        return place

    def _check_space(self, source: Path, files: Iterable[Path]) -> None:
        need = sum(file.stat().st_size for file in files)
        free = shutil.disk_usage(self._folder).free
        if need > free:
            raise UnavailableError(
                f"a run reads its own copy of each model, and {source.name} has {need / 1e9:.1f} GB: "
                f"{self._folder} has {free / 1e9:.1f} GB free. Free space, or set FORGE_HOME to a "
                "folder on another disk."
            )

    def _use(self, place: Path) -> None:
        """Lock the copy against eviction until this process ends or this object is deleted."""
        touch(place)
        if place not in self._locks:
            self._locks[place] = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._locks[place], fcntl.LOCK_SH)

    def __del__(self) -> None:
        for descriptor in self._locks.values():
            os.close(descriptor)

    def drop(self, place: Path) -> None:
        """Remove a copy, so that no process finds it any more; open files can still be read."""
        hidden = place.with_name(f".{place.name[:16]}.{os.getpid()}.dropped")
        with contextlib.suppress(OSError):
            place.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def model_files(model: Path) -> dict[str, Path]:
    """Return name in a copy → path of each file of a model, also BASE+ADAPTER. Raises SourceError."""
    folder, added = adapter_folders.parts(model)[0], adapter_folders.files(model)
    files = {file.name: file for file in weight_files(folder)}
    if (folder / INDEX).is_file():
        files[INDEX] = folder / INDEX
    return files | companions.found(folder) | added


def stamps(files: Mapping[str, Path]) -> Stamps:
    """Return name → [inode, size, mtime, ctime], in ns; a write to the file changes some of them."""
    stats = {name: file.stat() for name, file in files.items()}
    return {name: [s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for name, s in stats.items()}


def written_since(place: Path, source: Path) -> bool:
    """Return True if `place` is a copy of `source` and its files changed since or cannot be read."""
    folder, before = _origin_of(place)
    if folder != str(source) or not adapter_folders.exists(source):
        return False
    try:
        return stamps(model_files(source)) != before
    except (OSError, SourceError):
        return True


def _origin_of(place: Path) -> tuple[str, Stamps]:
    """Return (path of the copied folder, stamps of its files); ("", {}) if unknown."""
    try:
        note = json.loads((place / ORIGIN).read_text("utf-8"))
        return note["folder"], note["stamps"]
    except (OSError, ValueError, LookupError, TypeError):
        return "", {}


def _copy(source: Path, target: Path) -> None:
    """Copy a file's bytes, sharing blocks on the disk if the file system can."""
    with source.open("rb") as read, target.open("xb") as write:
        try:
            while os.copy_file_range(read.fileno(), write.fileno(), 1 << 30):
                pass
        except OSError:  # the file systems cannot do that: copy the bytes from the start
            read.seek(0)
            write.seek(0)
            write.truncate()
            shutil.copyfileobj(read, write, 1 << 20)


def rebuilt_model(home: Home, reference: ModelReference) -> Path | None:
    """Return the path of a folder with the model, rebuilt if missing; None if no run made it."""
    origin = _origin(home, reference.digest) if reference.digest else None
    if origin is None:
        return None
    try:
        return Path(model_origin.settle(home, json.loads(origin.request(origin.folders))))
    except ForgeError as error:
        log.warning("model %s cannot be made again: %s", reference.name, error)
        return None


def _origin(home: Home, digest: str) -> LogModel | None:
    """Return the LogModel of the weights with this digest; None if no run in the log made them."""
    with contextlib.closing(home.open_store()) as store:
        run = family.said(store, digest)
        if run is None:
            return None
        state, rows = repository.opened(store, run, showing=True)
        kind = kinds.of(state.kind)
        recipe_id = kind.models.recipe_id(state, digest)
        return None if recipe_id is None else kind.models.origin(state, rows, recipe_id)


def rebuilt_items(home: Home, cache: object, address: str) -> Path | None:
    """Return the path of the file of the items with this address; None if no run pinned them."""
    with contextlib.closing(home.open_store()) as store:
        for name in kinds.table():
            kind = kinds.of(name)
            for first in store.streams(f"{name}/") if kind.gives_items else ():
                state = repository.load(store, run_of(first.stream))
                if state.started is not None and kind.storage.items_address(state) == address:
                    return kind.storage.items_file(state, cache)
    return None
