"""Checked loading of items and tokenizers, and a check that the packages for reading them are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from agent_forge.evaluation.data import bfcl, domains
from agent_forge.evaluation.data import items as data_items
from agent_forge.evaluation.data.builtin import corpus
from agent_forge.evaluation.data.items import Item, Text
from agent_forge.evaluation.data.slices import SLICES, Slice
from agent_forge.evaluation.lm_eval import spec as tasks
from agent_forge.evaluation.lm_eval.spec import is_task
from agent_forge.runs.errors import DataError, SourceError
from agent_forge.runs.system import packages
from agent_forge.weights.folders import model_config
from agent_forge.weights.folders.vocabularies import Tokenizer


def load_items(
    paths: tuple[str, ...],
    allow_benchmarks: bool = False,
    parameters: int = 0,
    note: Callable[[str], None] = lambda words: None,
    needed: Sequence[Slice] = SLICES,
) -> list[Item]:
    """Return a list of the run's items: of its data files and tasks, or built-in, by `parameters`.

    `parameters`: how many the models have; it selects the built-in items. `note` is called with how
    a file was read if its rows are not written as items. Each slice of `needed` must have text.
    Raises DataError, UnavailableError.
    """
    if not paths:
        return data_items.from_rows(corpus.default(max(1, parameters)))
    if domains.NAME in paths:
        if len(paths) > 1:
            raise DataError(f"{domains.NAME} is whole in itself: give no other data beside it.")
        return data_items.from_rows(domains.items())
    files = [Path(path) for path in paths if not (is_task(path) or bfcl.is_place(path))]
    more = [*bfcl.rows(paths), *tasks.rows(paths, allow_benchmarks)]
    return data_items.load(files, more, note=note, needed=needed)


def texts_of(items: Sequence[Item], on: Slice) -> dict[str, list[Text]]:
    """Return {domain: the texts of a slice, in the order of their ids}."""
    texts_by_domain: dict[str, list[Text]] = {}
    for item in sorted(items, key=lambda item: item.id):
        if isinstance(item, Text) and item.slice == on:
            texts_by_domain.setdefault(item.domain, []).append(item)
    return dict(sorted(texts_by_domain.items()))


def made_for_any_model(paths: tuple[str, ...]) -> bool:
    """Return True if `paths` is empty or names `builtin:domains`: misfit items may be left out."""
    return not paths or domains.NAME in paths


def load_tokenizer(folder: str) -> Tokenizer:
    """Return the model folder's tokenizer. Raises SourceError.

    From a folder without tokenizer files, transformers makes one for which every text is empty.
    """
    from agent_forge.weights.architectures.auto_config import AutoTokenizer

    model_config.check_tokenizer(Path(folder))
    with model_config.described(f"model {folder} has no usable tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        vocabulary = set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)
    if not vocabulary:
        raise SourceError(
            f"model {folder} has no tokenizer: files such as tokenizer.json are missing, or have no "
            "tokens. Copy them from where the model is from."
        )
    return tokenizer


def check_packages(places: Iterable[str]) -> None:
    """Raise UnavailableError if a package is missing that reading one of these files or tasks needs.

    A folder's files are not looked at. `places`: PATH, DOMAIN=PATH or lm-eval:TASK.
    """
    for place in places:
        if is_task(place):
            packages.require(place, "lm_eval")
        elif place.endswith(".parquet"):
            packages.require(place, "pyarrow")
