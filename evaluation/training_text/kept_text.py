"""The text of a run that trains: token streams to train on, items to measure on, and the tokenizer.

    FOLDER/streams.safetensors   domain → token ids, int32 [tokens], each document ended
    FOLDER/items.jsonl           the items to measure on
    FOLDER/…                     config.json, tokenizer and generation settings of all models

The folder is kept among this machine's inputs under its content address, and shared. It is read again
instead of being made again: tokenizing is slow, and the user's files may have changed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import blake3
import numpy as np
from safetensors import SafetensorError

from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.builtin import corpus as builtin_corpus
from agent_forge.evaluation.data.builtin import shipped_text
from agent_forge.evaluation.data.items import Item
from agent_forge.evaluation.data.packing import ItemPack, pack
from agent_forge.evaluation.data.slices import Document, Slice
from agent_forge.evaluation.loading import load_tokenizer
from agent_forge.evaluation.training_text import own_texts
from agent_forge.events import canonical_json
from agent_forge.runs.errors import DataError, SourceError, UnavailableError
from agent_forge.weights.folders import companions
from agent_forge.weights.folders.checkpoint import replace, settle
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.storage.inputs import Supply

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

STREAMS, ITEMS = "streams.safetensors", "items.jsonl"

#: Function that writes streams, items, tokenizer and configuration to a folder; returns notes on files.
Fill = Callable[[Path], Sequence[str]]


@dataclass(frozen=True)
class TextFolder:
    """A folder with the text of a run, whose contents are read when they are needed."""

    folder: Path
    #: How the user's files were read; empty for a text that was made before.
    notes: tuple[str, ...] = ()

    @cached_property
    def streams(self) -> dict[str, np.ndarray]:
        """Domain → token ids, int32 [tokens]."""
        from safetensors.numpy import load

        return load((self.folder / STREAMS).read_bytes())

    @cached_property
    def digests(self) -> dict[str, str]:
        """Domain → BLAKE3 of its token ids."""
        return {
            domain: blake3.blake3(ids.astype("<i4").tobytes()).hexdigest()
            for domain, ids in sorted(self.streams.items())
        }

    @cached_property
    def files(self) -> dict[str, str]:
        """Name → BLAKE3 of the models' config, tokenizer and generation settings."""
        return companions.digests(self.folder)

    @cached_property
    def items(self) -> str:
        """BLAKE3 (hex) of the items' file."""
        return companions.digest((self.folder / ITEMS).read_bytes())

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, read from the folder."""
        from agent_forge.weights.architectures.auto_config import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder, trust_remote_code=False)

    @cached_property
    def texts(self) -> list[data_items.Text]:
        """The texts to measure on; questions and problems are not measured here."""
        lines = (self.folder / ITEMS).read_text("utf-8").splitlines()
        every = data_items.from_rows(map(json.loads, lines))
        return [item for item in every if isinstance(item, data_items.Text)]

    def held_out(self, context: int, on: Slice) -> dict[str, ItemPack]:
        """Return {domain: the packed texts of a slice}.

        Raises DataError for a domain whose texts are too short to predict anything.
        """
        texts = [text for text in self.texts if text.slice == on]
        packs = pack(texts, self.tokenizer, context)[on]
        for domain, packed in packs.items():
            if not sum(packed.bytes):
                raise DataError(
                    f"the text of domain {domain} in the slice {on} is too short to measure on. Give "
                    "more text."
                )
        return packs


def address(streams: Mapping[str, str], files: Mapping[str, str], items: str) -> str:
    """Return the content address (64 hex digits) of a folder with these digests."""
    parts = {"streams": dict(streams), "files": dict(files), "items": items}
    return companions.digest(canonical_json(parts).encode())


class Pins(Protocol):
    """The part of a run's `started` that says which text it has."""

    @property
    def streams(self) -> dict[str, str]:
        """Domain → BLAKE3 of its token ids."""
        ...

    @property
    def files(self) -> dict[str, str]:
        """Name → BLAKE3 of tokenizer and configuration."""
        ...

    @property
    def items(self) -> str:
        """BLAKE3 of the items."""
        ...


def pinned(supply: Supply, started: Pins, from_user: bool, fill: Fill) -> TextFolder:
    """Return the TextFolder that a run has pinned: of this machine, from the store, or made again.

    `from_user`: text of the user's files. Raises DataError if the text that is made is another.
    """
    name = address(started.streams, started.files, started.items)
    place = supply.folder / name
    for fetch in (lambda: place.is_dir(), lambda: supply.fetch(name, place, STREAMS)):
        if fetch() and _address(TextFolder(place)) == name:
            return TextFolder(place)
    text = make(supply, fill)
    if text.folder.name != name:
        way = "Put the old files back" if from_user else "Go on with the version that started it"
        raise DataError(
            "the text that would be trained on here is not the text that the run has pinned: "
            f"{', '.join(_differences(text, started)) or 'its files'} differ. {way}, or start a new "
            "run."
        )
    return text


def _differences(text: TextFolder, started: Pins) -> list[str]:
    names = [d for d, digest in started.streams.items() if text.digests.get(d) != digest]
    if text.files != started.files:
        names.append("the tokenizer")
    return names + (["the items"] if text.items != started.items else [])


def _address(text: TextFolder) -> str:
    """Return the content address of what is in the folder; '' if that cannot be read."""
    try:
        return address(text.digests, text.files, text.items)
    except (OSError, SafetensorError, ValueError):
        return ""


def make(supply: Supply, fill: Fill) -> TextFolder:
    """Return the TextFolder that `fill` writes, kept here and put into the store."""
    hidden = supply.folder / f".text.{os.getpid()}.part"
    shutil.rmtree(hidden, ignore_errors=True)
    try:
        hidden.mkdir(parents=True)
        notes = tuple(fill(hidden))
        settle(hidden)
        place = supply.folder / _address(TextFolder(hidden))
        if not place.is_dir():
            replace(hidden, place)
    except (OSError, SafetensorError) as error:
        raise UnavailableError(
            f"the text cannot be written to {supply.folder}: {error}. Free space and go on; nothing "
            "is lost."
        ) from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    text = TextFolder(place, notes)
    supply.put(place.name, {file.name: file for file in sorted(place.iterdir())})
    return text


def write_items(text: TextFolder, folder: Path) -> None:
    """Write the items to a folder, one JSONL file a domain."""
    rows: dict[str, list[str]] = {}
    for line in (text.folder / ITEMS).read_text("utf-8").splitlines():
        rows.setdefault(json.loads(line)["domain"], []).append(line)
    folder.mkdir(parents=True, exist_ok=True)
    for domain, lines in rows.items():
        (folder / f"{domain}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


Split = Mapping[Slice, Sequence[Document]]


def builtin(
    corpus: Mapping[str, Split], seed: int, characters: int, domains: Iterable[str]
) -> dict[str, Sequence[Document]]:
    """Return {domain: training documents} of built-in text, of `corpus` and of all other `domains`.

    If prose is not measured, all its documents are trained on.
    """
    texts: dict[str, Sequence[Document]] = {d: split["train"] for d, split in corpus.items()}
    rest = [domain for domain in domains if domain not in texts]
    if "prose" in rest:
        texts["prose"] = list(shipped_text.documents("prose", characters))
        rest.remove("prose")
    splits = own_texts.corpus(seed, characters, rest)
    return texts | {domain: split["train"] for domain, split in splits.items()}


def rows(documents: Mapping[str, Split], items: Iterable[Item]) -> Iterator[dict[str, object]]:
    """Yield rows: the user's text, at most as many characters as of built-in text, then the items."""
    for domain, split in documents.items():
        for slice_, texts in split.items():
            for document in builtin_corpus.held_out(texts, builtin_corpus.HELD_OUT[slice_]):
                yield {"id": document.name, "domain": domain, "slice": slice_, "text": document.text}
    for item in items:
        yield item.model_dump(mode="json", exclude_defaults=True)


def write(
    folder: Path,
    tokenizer: Tokenizer | PreTrainedTokenizerBase,
    training: Mapping[str, Sequence[Document]],
    items: Iterable[Mapping[str, object]],
    further: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> None:
    """Write into a folder the streams of training documents by domain, and the items to measure on.

    `further` are streams beside them, by name.
    """
    from safetensors.numpy import save_file

    streams = {domain: stream(documents, tokenizer) for domain, documents in training.items()}
    save_file(dict(sorted({**streams, **further}.items())), folder / STREAMS)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in items)
    (folder / ITEMS).write_text(lines, "utf-8")


def given_tokenizer(donor: Path) -> Tokenizer:
    """Return the tokenizer of a model folder. Raises SourceError if it cannot be trained with."""
    from agent_forge.weights.folders.checkpoint import HEADS, open_checkpoint

    tokenizer, checkpoint = load_tokenizer(str(donor)), open_checkpoint(donor)
    if not tokenizer.is_fast:
        raise SourceError(
            f"the tokenizer of {donor} gives no offsets of its tokens, so bits per byte cannot be "
            "measured. Save it as a fast tokenizer (tokenizer.json)."
        )
    if tokenizer.eos_token_id is None:
        raise SourceError(f"the tokenizer of {donor} has no end token to put between documents.")
    rows = [shape[0] for name, (_, shape) in checkpoint.shapes.items() if name in HEADS]
    if rows and len(tokenizer) > rows[0]:
        raise SourceError(
            f"the tokenizer of {donor} has {len(tokenizer):,} tokens, the embedding {rows[0]:,} rows: "
            "they do not fit together."
        )
    return tokenizer


def write_given(folder: Path, donor: Path, sizes: Mapping[str, object] = MappingProxyType({})) -> None:
    """Write a given model's companion files; config.json says float32 unless `sizes` has a dtype.

    `sizes` are settings in which the models to be trained differ from the given one.
    """
    companions.write(donor, folder)
    settings = companions.cleaned(json.loads((donor / companions.CONFIG).read_bytes()))
    settings.pop("torch_dtype", None)
    text = companions.as_text({**settings, "dtype": "float32", **sizes})
    (folder / companions.CONFIG).write_text(text, "utf-8")


def stream(documents: Sequence[Document], tokenizer: Tokenizer | PreTrainedTokenizerBase) -> np.ndarray:
    """Return the documents' token ids in one int32 row, the end token after each document."""
    encoded = tokenizer([d.text for d in documents], add_special_tokens=False, verbose=False)
    ids: list[int] = []
    for row in encoded["input_ids"]:
        ids += [*row, tokenizer.eos_token_id]
    return np.asarray(ids, np.int32)
