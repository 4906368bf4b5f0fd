"""Files of a run that makes models: folders found or written, cached weights, their verification."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from agent_forge.events.envelope import Data, Plain
from agent_forge.runs.errors import DataError, ForgeError, SourceError
from agent_forge.runs.history.audit import Finding
from agent_forge.runs.system import bounded_files
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import digest, holds, open_checkpoint
from agent_forge.weights.folders.made_folders import DISK_BYTES, alone, evict, touch
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.tensors import Weights


def fits(folder: Path, digest_: str, files: Mapping[str, str]) -> bool:
    """Return True if a folder has weights of this digest, and companions of the digests `files`."""
    try:
        return holds(folder, digest_) and companions.digests(folder) == files
    except (SourceError, OSError):
        return False


def settled(
    folders: Sequence[Path], fits_: Callable[[Path], bool], write: Callable[[Path], None]
) -> str:
    """Return the path, a string, of the first folder that fits; if none does, of the last, now written.

    One process writes it for all. Then, of the folders beside it, the longest unused are removed
    beyond the budget.
    """
    target = folders[-1]
    for folder in folders:
        if fits_(folder):
            if folder == target:
                touch(target)
            return str(folder.resolve())
    target.parent.mkdir(parents=True, exist_ok=True)
    with alone(target.parent / f".{target.name[:16]}.lock"):
        if not fits_(target):  # another process may have written it
            write(target)
    evict(target.parent, DISK_BYTES, lambda place: shutil.rmtree(place, ignore_errors=True))
    return str(target)


def files(
    cache: Artifacts,
    models: Mapping[str, Callable[[], Weights]],
    seconds: Callable[[str], float] = lambda digest: 0.0,
) -> list[tuple[str, Path]]:
    """Return (name in an archive, file) pairs of the weights; `models`: digest → function to make them.

    The function is called if the cache lacks the weights; by `seconds(digest)` it takes so long.
    """
    entries: list[tuple[str, Path]] = []
    for digest_, weights in models.items():
        if not cache.files(digest_):
            cache.keep(digest_, weights(), seconds(digest_))
        entries += [(f"{digest_}/{file.name}", file) for file in cache.files(digest_)]
    return entries


@contextmanager
def from_nothing(cache: Artifacts) -> Generator[Artifacts]:
    """Yield an empty cache with the inputs of `cache`; its folder is removed after the `with` block."""
    with tempfile.TemporaryDirectory() as empty:
        empty_cache = Artifacts(Path(empty) / "cache")
        empty_cache.supply = cache.supply
        yield empty_cache


def cached(digests: Iterable[str], cache: Artifacts) -> Iterator[Finding]:
    """Yield an error for each of a run's models whose cached files have another digest."""
    for weights_digest in digests:
        if cache.check(weights_digest) is False:
            yield Finding("error", "files", f"the cached weights {weights_digest[:12]} are damaged")


def document(folder: Path, names: Iterable[str]) -> Plain | None:
    """Return the JSON object of the first of the files `names` that a folder has; None if it has none.

    Raises DataError if it names no run.
    """
    for name in names:
        if (folder / name).is_file():
            content = bounded_files.read_object(folder / name, error=DataError)
            if {"run", "chain_head"} <= set(content):
                return content
            raise DataError(f"{folder / name} does not say which run made the models.")
    return None


def folder(place: Path, document: Data, digests: Mapping[str, str] | None) -> Iterator[Finding]:
    """Yield an error for each model that is not as its document or run says; "unchecked" without a run.

    `digests`: role → digest of what the run made; None if the run is not in this log.
    """
    if digests is None:
        yield Finding("unchecked", "files", f"run {document['run']} is not in this log")
    for role, recorded_digest in (document.get("models") or {"": document.get("digest")}).items():
        try:
            weights_digest = digest(open_checkpoint(place / role).tensors())
        except ForgeError as error:
            yield Finding("error", "files", str(error))
            continue
        if weights_digest != recorded_digest:
            short = weights_digest[:12], str(recorded_digest)[:12]
            what = "{}: its weights are {}, its document says {}".format(place / role, *short)
            yield Finding("error", "files", what)
        name = role or str(document.get("role"))
        if digests is not None and digests.get(name) != recorded_digest:
            what = f"{place / role}: the run's {name} is not {str(recorded_digest)[:12]}"
            yield Finding("error", "files", what)
