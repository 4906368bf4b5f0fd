"""Texts of a merge that reads some (RegMean, RegMean++): loaded, cut into windows, and pinned."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from pydantic import ValidationError

from evaluation.data import domains
from evaluation.data.packing import pack
from evaluation.loading import load_items, load_tokenizer, texts_of
from evomerge.mergekit import regression as regressions
from evomerge.mergekit.parameters import Settings
from evomerge.mergekit.parser import Document, Part
from evomerge.mergekit.plan import Layout
from evomerge.mergekit.regression import Ids, Regression, Text
from evomerge.merging.methods import regmean
from runs.errors import ConfigError, DataError
from weights.training.windows import stream_digest

#: Slice of the items whose texts are read.
SLICE = "search"


def regression(
    document: Document, layout: Layout, tell: Callable[[str], None]
) -> Regression | None:
    """Return what a config's method computes by texts; None for a method that reads no text.

    `tell` hears how data is read. Raises ConfigError, DataError, SourceError, UnavailableError.
    """
    if (method := document.method.lower()) not in regmean.PREFIXES:
        return None
    if not document.whole:
        raise ConfigError(f"{document.file}: {method} merges whole models: give models, no slices.")
    if document.vocabulary.source is not None:
        raise ConfigError(
            f"{document.file}: {method} reads every model's text with one tokenizer. Leave "
            "tokenizer_source out; bring models to one vocabulary by a merge of their own first."
        )
    params = _params(document, method)
    regressions.blocks(layout)
    parts = document.slices[0].parts
    data = [_data(document, part) for part in parts]
    folder = layout.donor.checkpoint
    context = min(params.context, folder.positions or params.context)
    windows = {
        paths: _windows(paths, str(folder.folder), context, params.tokens, tell)
        for paths in dict.fromkeys(data)
    }
    texts = [
        Text(str(part.reference), paths or (domains.NAME,), *windows[paths])
        for part, paths in zip(parts, data, strict=True)
    ]
    params = params.model_copy(update={"context": context})
    return Regression(method, params, tuple(texts))


def _params(document: Document, method: str) -> regmean.Params:
    """Return the checked parameters of the method. Raises ConfigError."""
    settings = Settings(document.file, (document.parameters,), "", 0.0)
    sizes = {k: settings.get(k) for k in ("tokens", "context") if settings.raw(k) is not None}
    alpha = settings.get("alpha", regmean.PREFIXES[method][1])
    try:
        return regmean.Params.model_validate({"alpha": alpha, **sizes})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"{document.file}: {method}: parameter {where}: {first['msg']}"
        ) from error


def _data(document: Document, part: Part) -> tuple[str, ...]:
    """Return the data of a model, of all models, or none. Raises ConfigError."""
    maps = (part.parameters, document.slices[0].parameters, document.parameters)
    setting = Settings(document.file, maps, "", 0.0).raw("data")
    paths = [setting] if isinstance(setting, str) else setting
    if paths is None:
        return ()
    if not isinstance(paths, list) or not paths or not all(isinstance(p, str) for p in paths):
        line = next(m.lines["data"] for m in maps if m.get("data") is not None)
        raise ConfigError(
            f"{document.file}, line {line}: data names files, folders or {domains.NAME}: a text, or a "
            "list of texts."
        )
    return tuple(paths)


def _windows(
    paths: tuple[str, ...], folder: str, context: int, tokens: int, tell: Callable[[str], None]
) -> tuple[tuple[Ids, ...], str]:
    """Return windows of texts, each domain's in turn, up to a number of tokens, and their digest."""
    items = load_items(paths or (domains.NAME,), note=tell, needed=(SLICE,))
    texts = texts_of(items, SLICE)
    if not texts:
        raise DataError(
            f"{', '.join(paths)} holds no text in the slice {SLICE}: regmean reads the text that a "
            "model was trained on. Give text, not questions or problems."
        )
    packed = pack(
        [text for each in texts.values() for text in each], load_tokenizer(folder), context
    )
    chosen = _in_turn([domain.windows for domain in packed[SLICE].values()], tokens)
    if not chosen:
        raise DataError(f"{', '.join(paths)}: less than two tokens of text in the slice {SLICE}.")
    return tuple(chosen), stream_digest(np.concatenate(chosen).astype(np.int32))


def _in_turn(queues: Sequence[Sequence[Ids]], tokens: int) -> list[Ids]:
    """Return windows of each queue in turn, the last one cut, up to a number of tokens."""
    windows: list[Ids] = []
    for number in range(max(map(len, queues), default=0)):
        for queue in queues:
            if number < len(queue) and tokens > 1:
                windows.append(queue[number][:tokens])
                tokens -= len(windows[-1])
    return windows
