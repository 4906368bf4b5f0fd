"""Users' texts to train on, by domain and slice, from files, folders and data sets of the Hub.

A place of data is a file, a folder or a data set of the Hub (`hub:OWNER/NAME[@REVISION]`). Every file
of `file_formats.KINDS` is a domain of its own, called by its name; a row may name another one. With
DOMAIN=PLACE all files of the place are of that domain, in subfolders too. Texts fall into slices by
the hash of their ids, most of them into train, unless a row names its slice.

Of a Hub data set only the data files are fetched, into the Hub's own cache; no code of the data set
is run. A run reads the folder of one commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent_forge.evaluation.data import file_formats
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.file_formats import KINDS
from agent_forge.evaluation.data.items import Item, Reading, Text
from agent_forge.evaluation.data.slices import SLICES, TRAINING_SHARES, Document, Slice, check_split
from agent_forge.runs import home
from agent_forge.runs.errors import DataError
from agent_forge.weights.folders.gguf_names import not_fetched

#: DOMAIN=PLACE. A path may have "=" in it, but not before its first "/".
NAMED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9_-]{0,31})=(.+)$", re.DOTALL)
#: Place of conversations that the program makes up (`training_text.turns`).
MADE = re.compile(r"calls:([1-9][0-9]{0,4})(?:x([1-9]))?")
#: What to do about a domain without text in a slice.
REMEDY = (
    "Give more text (some dozens of texts, which fall into slices by the hash of their ids), or name "
    'the slice of each with "slice".'
)
#: Slices of the pieces of a short text, in turn: of ten, seven to train on.
IN_TURN: tuple[Slice, ...] = (
    "train",
    "train",
    "search",
    "train",
    "train",
    "selection",
    "train",
    "train",
    "test",
    "train",
)


@dataclass(frozen=True)
class Texts:
    """Documents to train and to measure on, and items that are no text."""

    #: Domain → slice → documents, in the order of their ids.
    documents: Mapping[str, Mapping[Slice, list[Document]]]
    #: Questions and problems, by id. Nothing is trained on them.
    others: Sequence[Item]
    notes: Sequence[str]


def parts(argument: str) -> tuple[str, str]:
    """Return (domain, place) of DOMAIN=PLACE; the domain is '' if none is written."""
    match = NAMED.match(argument)
    return (match[1], match[2]) if match else ("", argument)


def absolute(argument: str) -> str:
    """Return a place of data with an absolute path, its domain before it; a Hub data set is fetched.

    Raises DataError, UnavailableError.
    """
    domain, place = _parts(argument)
    if is_hub(place):
        if not domain:
            raise DataError(f"say which domain the data set is of: --data DOMAIN={place}.")
        location = str(fetch(place))
    else:
        location = data_items.absolute(place)
    return f"{domain}={location}" if domain else location


def read(data: Sequence[str]) -> Texts:
    """Return the `Texts` of all places. Raises DataError naming a file and line, or a domain."""
    notes: list[str] = []
    how = Reading(notes.append, shares=TRAINING_SHARES, turn=IN_TURN)
    files = [pair for argument in data for pair in files_of(argument, how)]
    item_lists = [list(data_items.read(file, reading)) for file, reading in files]
    for index in _short(files, item_lists):
        file, file_reading = files[index]
        item_lists[index] = list(data_items.read(file, replace(file_reading, finer=True)))
        notes.append(f"{file.name}: too few paragraphs for every slice, so cut at line ends.")
    items = data_items.by_id(pair for pairs in item_lists for pair in pairs).values()
    documents: dict[str, dict[Slice, list[Document]]] = {}
    for item in sorted(items, key=lambda item: item.id):
        if isinstance(item, Text):
            split = documents.setdefault(item.domain, {slice_: [] for slice_ in SLICES})
            split[item.slice].append(Document(item.id, item.domain, item.text))
    _check(documents)
    other_items = sorted((i for i in items if not isinstance(i, Text)), key=lambda item: item.id)
    return Texts(dict(sorted(documents.items())), other_items, tuple(dict.fromkeys(notes)))


def domains(data: Sequence[str]) -> tuple[str, ...]:
    """Return a tuple of the names of the domains that have text, in order. Raises DataError."""
    return tuple(read(data).documents)


def check_domains(who: str, names: Sequence[str], there: Sequence[str], from_user: bool) -> None:
    """Raise DataError if a name is not `there`, in the user's text (`from_user`) or the built-in."""
    for domain in names:
        if domain not in there:
            whose = "the data" if from_user else "the built-in text"
            raise DataError(
                f"{who} {domain}, and {whose} has no text of it: it has {', '.join(there)}."
            )


def _parts(argument: str) -> tuple[str, str]:
    """Return (domain, place) as `parts` does; no domain if a file or folder has the whole name.

    Raises DataError for a text that no path can have.
    """
    try:
        return ("", argument) if Path(argument).exists() else parts(argument)
    except OSError as error:
        raise DataError(f"data {argument[:200]!r} is no path: {error.strerror}.") from error


def files_of(argument: str, how: Reading) -> Iterator[tuple[Path, Reading]]:
    """Yield (file, how it is read) for the files of a place of data."""
    domain, place = _parts(argument)
    path = Path(place)
    if not domain or not path.is_dir():
        reading = replace(how, domain=domain or None, name=f"{domain}/{path.name}" if domain else "")
        yield from ((file, reading) for file in data_items.files([path], how.note))
        return
    inside = sorted(p for p in path.rglob("*") if p.is_file() and file_formats.kind(p))
    if not inside:
        raise DataError(
            f"data folder {path} has no {', '.join(file_formats.KINDS)} in it. Plain text ends in .txt."
        )
    for file in inside:
        name = f"{domain}/{file.relative_to(path).as_posix()}"
        yield file, replace(how, domain=domain, name=name)


def _short(
    files: Sequence[tuple[Path, Reading]], item_lists: Sequence[list[tuple[str, Item]]]
) -> list[int]:
    """Return a list of the indices of the text files whose domain lacks text in a slice."""
    slices: dict[str, set[str]] = {}
    for pairs in item_lists:
        for _, item in pairs:
            if isinstance(item, Text):
                slices.setdefault(item.domain, set()).add(item.slice)
    return [
        index
        for index, (file, how) in enumerate(files)
        if file_formats.kind(file) == ".txt"
        and len(slices.get(how.domain or file_formats.domain(file), ())) < len(SLICES)
    ]


def _check(documents: Mapping[str, Mapping[Slice, Sequence[Document]]]) -> None:
    """Raise DataError if there is no text, or a domain lacks some to train or to measure on."""
    if not documents:
        raise DataError("the data has no text to train on: it has questions and problems only.")
    for domain, split in documents.items():
        check_split(domain, split, REMEDY)


PREFIX = "hub:"


def is_hub(place: str) -> bool:
    """Return True if a place of data names a data set of the Hub."""
    return place.startswith(PREFIX)


def fetch(place: str) -> Path:
    """Return the folder of a Hub data set's files, which is fetched and named by its commit.

    Raises DataError for an impossible name, UnavailableError if the data set cannot be fetched.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    repository, _, revision = place.removeprefix(PREFIX).partition("@")
    if repository.count("/") != 1:
        raise DataError(f"{place}: a data set of the Hub is hub:OWNER/NAME or hub:OWNER/NAME@REVISION.")
    home.check_hub_cache()
    endings = [f"{kind}{packed}" for kind in KINDS for packed in ("", ".gz")]
    patterns = ["*" + "".join(f"[{c}{c.upper()}]" for c in ending) for ending in endings]
    try:
        return Path(
            snapshot_download(
                repository,
                repo_type="dataset",
                revision=revision or None,
                allow_patterns=patterns,
                ignore_patterns=["dataset_infos.json", "*/dataset_infos.json"],
            )
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise not_fetched(f"data set {repository}", error) from error
