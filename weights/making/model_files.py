"""Files of a run that makes models, checked for its verification: cached weights, folders of models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from runs.errors import DataError, ForgeError
from runs.history.audit import Finding
from runs.system import bounded_files
from weights.folders.checkpoint import digest, open_checkpoint
from weights.storage.weight_cache import Artifacts


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
