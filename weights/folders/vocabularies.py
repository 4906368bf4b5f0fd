"""Comparison of tokenizers' vocabularies: do the same ids stand for the same tokens in two models?

Models may have the same number of tokens, and different tokens. A merge then adds rows of embeddings
that stand for different tokens. Tokens that a fine-tuning added after the vocabulary are compared
separately: two models with one vocabulary may use the same next id for two tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from agent_forge.runs.errors import SourceError
from agent_forge.runs.system import bounded_files

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend
    from transformers import BatchEncoding

FILE = "tokenizer.json"


class Tokenizer(Protocol):
    """Interface of a tokenizer of transformers: the parts that this program uses."""

    name_or_path: str
    is_fast: bool
    backend_tokenizer: Backend
    chat_template: str | dict[str, str] | None
    special_tokens_map: Mapping[str, object]
    bos_token_id: int | None
    eos_token_id: Any  # None for a few: not for those that are trained
    unk_token: str | None
    bos_token: str | None
    eos_token: str | None
    encode: Callable[..., list[int]]
    decode: Callable[..., str]
    batch_decode: Callable[..., list[str]]
    get_vocab: Callable[[], dict[str, int]]
    get_chat_template: Callable[[None, list[dict] | None], str]

    def __len__(self) -> int: ...

    def __call__(self, text: str | list[str], **options: object) -> BatchEncoding:
        """Return the token ids of texts (`input_ids`), and the further fields that options ask for."""
        ...


class Difference(NamedTuple):
    """Difference of two vocabularies: the ids that stand for different tokens."""

    #: Number of ids that both have, and of those with different tokens.
    shared: int
    other: int
    #: The first such id, and its tokens.
    number: int
    tokens: tuple[str, str]

    @property
    def foreign(self) -> bool:
        """True if most ids stand for different tokens, so that the models need different tokenizers."""
        return 2 * self.other > self.shared

    def told(self, name: str, other: str) -> str:
        """Return a sentence about the difference, with the names of the two models."""
        first, second = (repr(token)[:60] for token in self.tokens)
        return (
            f"{name} and {other} have other tokenizers: {self.other:,} of {self.shared:,} "
            "numbers stand "
            f"for other tokens, {self.number} for {first} and {second}"
        )


class AddedDifference(NamedTuple):
    """Difference of two models' added tokens: ids that stand for different tokens."""

    models: tuple[str, str]
    other: int
    #: The first such id, and its tokens.
    number: int
    tokens: tuple[str, str]

    def told(self) -> str:
        """Return a sentence about the difference, with the names of both models."""
        first, second = (repr(token)[:60] for token in self.tokens)
        more = f" ({self.other:,} numbers in all)" if self.other > 1 else ""
        return (
            f"{self.models[0]} and {self.models[1]} have other added tokens: number {self.number} is "
            f"{first} and {second}{more}"
        )


def added_differences(models: Sequence[tuple[str, Path]]) -> list[AddedDifference]:
    """Return a list with an AddedDifference for each two models whose added tokens differ.

    `models` are (name, folder). Each id is compared with the first model that has it.
    """
    first: dict[int, tuple[str, str, bool]] = {}
    wrong: dict[tuple[str, str], list[int]] = {}
    tokens: dict[str, dict[int, str]] = {}
    for name, folder in models:
        if not (folder / FILE).is_file():
            continue
        plain, added = _read(folder / FILE)
        tokens[name] = {**plain, **added}
        for number, token in tokens[name].items():
            owner, its, was_added = first.setdefault(number, (name, token, number in added))
            if its != token and (was_added or number in added):
                wrong.setdefault((owner, name), []).append(number)
    return [
        AddedDifference(
            pair,
            len(numbers),
            min(numbers),
            (tokens[pair[0]][min(numbers)], tokens[pair[1]][min(numbers)]),
        )
        for pair, numbers in wrong.items()
    ]


def difference(folder: Path, other: Path) -> Difference | None:
    """Return the Difference of two model folders' vocabularies; None if there is none.

    None is returned, too, if one of the folders has no vocabulary in a tokenizer.json.
    """
    files = folder / FILE, other / FILE
    if not all(file.is_file() for file in files) or files[0].samefile(files[1]):
        return None
    left, right = (_read(file)[0] for file in files)
    wrong = sorted(n for n in left if n in right and left[n] != right[n])
    if not wrong:
        return None
    shared = sum(number in right for number in left)
    return Difference(shared, len(wrong), wrong[0], (left[wrong[0]], right[wrong[0]]))


def _read(file: Path) -> tuple[dict[int, str], dict[int, str]]:
    """Return (id → token of the vocabulary, id → added token) of a tokenizer.json.

    Both are empty if the file has another form. Results are cached: models are compared in pairs.
    """
    state = file.stat()
    return _parsed(file.resolve(), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=8)
def _parsed(file: Path, *_stamp: int) -> tuple[dict[int, str], dict[int, str]]:
    try:
        document = bounded_files.read_object(file)
    except SourceError:
        return {}, {}  # what loads the tokenizer says what is wrong with it
    return _vocabulary(document.get("model")), _added(document.get("added_tokens"))


def _vocabulary(model: object) -> dict[int, str]:
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):  # a unigram model: tokens with scores, in order
        pairs = (
            (n, entry[0]) for n, entry in enumerate(vocabulary) if isinstance(entry, list) and entry
        )
    elif isinstance(vocabulary, dict):
        pairs = ((number, token) for token, number in vocabulary.items())
    else:
        return {}
    return {n: token for n, token in pairs if isinstance(n, int) and isinstance(token, str)}


def _added(tokens: object) -> dict[int, str]:
    listed = [t for t in tokens if isinstance(t, dict)] if isinstance(tokens, list) else []
    pairs = ((token.get("id"), token.get("content")) for token in listed)
    return {n: token for n, token in pairs if isinstance(n, int) and isinstance(token, str)}
