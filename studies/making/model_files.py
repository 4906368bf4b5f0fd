"""Files of a run that makes models: folders found or written, cached weights, their verification."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runs.errors import DataError, ForgeError, SourceError
from runs.history.audit import Finding
from runs.system import bounded_files
from weights.folders import companions
from weights.folders.checkpoint import digest, open_checkpoint
from weights.folders.holding import holds
from weights.folders.kept_folders import DISK_BYTES, alone, evict, touch
from weights.storage.weight_cache import Artifacts
from weights.tensors import Weights


def fits(folder: Path, digest_: str, files: Mapping[str, str]) -> bool:
    """Return True if a folder has weights of this digest, and companions of the digests `files`."""
    try:
        return holds(folder, digest_) and companions.digests(folder) == files
    except (SourceError, OSError):
        return False


def settled(
    folders: Sequence[Path], fits_: Callable[[Path], bool], write: Callable[[Path], None]
) -> str:
    """Return the first folder that fits; if none does, write the last, once for all processes.

    Beside that one lie others of its kind: the longest unused are removed beyond the budget.
    """
    kept = folders[-1]
    for folder in folders:
        if fits_(folder):
            if folder == kept:
                touch(kept)
            return str(folder.resolve())
    kept.parent.mkdir(parents=True, exist_ok=True)
    with alone(kept.parent / f".{kept.name[:16]}.lock"):
        if not fits_(kept):  # another process may have written it
            write(kept)
    evict(kept.parent, DISK_BYTES, lambda place: shutil.rmtree(place, ignore_errors=True))
    return str(kept)


def files(
    cache: Artifacts,
    models: Mapping[str, Callable[[], Weights]],
    seconds: Callable[[str], float] = lambda digest: 0.0,
) -> list[tuple[str, Path]]:
    """Return (name in an archive, file) of weights; `models`: digest → what makes them again.

    `seconds` says how many seconds that takes, by digest.
    """
    found = []
    for digest_, weights in models.items():
        if not cache.files(digest_):
            cache.keep(digest_, weights(), seconds(digest_))
        found += [(f"{digest_}/{file.name}", file) for file in cache.files(digest_)]
    return found


@contextmanager
def from_nothing(cache: Artifacts) -> Iterator[Artifacts]:
    """Make an empty cache for a moment, with the inputs of another: all else is made again in it."""
    with tempfile.TemporaryDirectory() as empty:
        mine = Artifacts(Path(empty) / "cache")
        mine.supply = cache.supply
        yield mine


def cached(digests: Iterable[str], cache: Artifacts) -> Iterator[Finding]:
    """Yield an error for each of a run's models whose cached files have another digest."""
    for made in digests:
        if cache.check(made) is False:
            yield Finding("error", "files", f"the cached weights {made[:12]} are damaged")


def document(folder: Path, names: Iterable[str]) -> dict[str, Any] | None:
    """Return the document of a model's folder, or of the folder of all; None if there is none.

    `names`: the files that it may be in. Raises DataError if it names no run.
    """
    for name in names:
        if (folder / name).is_file():
            found = bounded_files.read_object(folder / name, error=DataError)
            if {"run", "chain_head"} <= set(found):
                return found
            raise DataError(f"{folder / name} does not say which run made the models.")
    return None


def folder(
    place: Path, document: Mapping[str, Any], made: Mapping[str, str] | None
) -> Iterator[Finding]:
    """Compare the weights in a folder with its document, and with its run.

    `made`: role → digest of what the run made; None if the run is not in this log.
    """
    if made is None:
        yield Finding("unchecked", "files", f"run {document['run']} is not in this log")
    for role, said in (document.get("models") or {"": document.get("digest")}).items():
        try:
            found = digest(open_checkpoint(place / role).tensors())
        except ForgeError as error:
            yield Finding("error", "files", str(error))
            continue
        if found != said:
            what = (
                f"{place / role}: its weights are {found[:12]}, its document says {str(said)[:12]}"
            )
            yield Finding("error", "files", what)
        name = role or str(document.get("role"))
        if made is not None and made.get(name) != said:
            what = f"{place / role}: the run's {name} is not {str(said)[:12]}"
            yield Finding("error", "files", what)
