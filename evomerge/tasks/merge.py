"""The work of `forge merge`: a config file, checked before the first write, becomes output folders.

Texts of merges that read some (RegMean, RegMean++) are loaded, cut into windows and pinned. Warnings
tell what else a source's folder holds beside weights: code, chat templates, other tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from agent_forge.evaluation.data import domains
from agent_forge.evaluation.data.packing import pack
from agent_forge.evaluation.loading import load_items, load_tokenizer, texts_of
from agent_forge.evomerge.mergekit import engine, method_map, model_folder, parser
from agent_forge.evomerge.mergekit import regression as regressions
from agent_forge.evomerge.mergekit.inputs import ModelRows
from agent_forge.evomerge.mergekit.method_map import LookupMaps
from agent_forge.evomerge.mergekit.parser import MergePart, MergeSpec, ModelPath
from agent_forge.evomerge.mergekit.plan import Layout, lay_out
from agent_forge.evomerge.mergekit.regression import Ids, Regression, RegressionText
from agent_forge.evomerge.merging.kernels.chunks import ChunkPool
from agent_forge.evomerge.merging.methods import regmean
from agent_forge.runs.errors import ConfigError, ConflictError, DataError, SourceError
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.kinds.asked import Names
from agent_forge.weights.folders import chat_template, companions, vocabularies
from agent_forge.weights.folders.adapter import Adapter
from agent_forge.weights.folders.checkpoint import SHARD_BYTES, open_checkpoint
from agent_forge.weights.folders.sources import resolve, resolve_adapter
from agent_forge.weights.storage.output_folder import check_target
from agent_forge.weights.training.windows import stream_digest

#: Called with progress: document, number of tensors done, number of all tensors, last tensor's name.
Progress = Callable[[MergeSpec, int, int, str], None]


@dataclass(frozen=True)
class PreparedMerge:
    """A checked merge: its config, models and parameters fit together."""

    document: MergeSpec
    models: Mapping[ModelPath, ModelRows]
    layout: Layout
    out: Path
    #: The regression of linear layers on the models' texts; None for methods that read no text.
    regressed: Regression | None = None

    @property
    def warnings(self) -> list[str]:
        """Warnings for the user: of the config, of unread settings, of models, of the layout."""
        opened = [model.checkpoint for model in self.models.values()]
        models = [
            ModelReference(name=m.name, path=str(m.checkpoint.folder)) for m in self.models.values()
        ]
        return [
            *self.document.warnings,
            *method_map.unread(self.document),
            *(warning for checkpoint in opened for warning in checkpoint.warnings),
            *strange(models, [checkpoint.folder for checkpoint in opened]),
            *self.layout.warnings,
        ]


def open_models(
    document: MergeSpec, merged_folders: Mapping[str, Path], named: Names | None = None
) -> dict[ModelPath, ModelRows]:
    """Return {reference: opened model} of every model of a config (headers only).

    `merged_folders` has the folders of earlier documents; `named` finds the models of a log.
    """
    models = {}
    for reference in document.references():
        place = merged_folders.get(reference.model) or Path(resolve(reference.model, named=named).path)
        adapter = None
        if reference.adapter is not None:
            adapter = Adapter(Path(resolve_adapter(reference.adapter).path))
        models[reference] = ModelRows(str(reference), open_checkpoint(place), adapter)
    return models


def prepare(
    document: MergeSpec,
    out: Path,
    merged_folders: Mapping[str, Path],
    named: Names | None = None,
    tell: Callable[[str], None] = lambda words: None,
) -> PreparedMerge:
    """Return a `PreparedMerge`: one merge, checked; `named` finds the models of a log.

    `tell` gets sentences on how data is read. Raises ConfigError, ConflictError, DataError,
    SourceError, UnavailableError.
    """
    target = check_target(out)
    models = open_models(document, merged_folders, named)
    for model in models.values():
        taken = [model.checkpoint.folder, *([model.adapter.folder] if model.adapter else [])]
        for place in (folder.resolve() for folder in taken):
            if target == place or target in place.parents or place in target.parents:
                raise ConflictError(f"the output folder {out} is, or holds, model {model.name}.")
    layout = lay_out(document, models)
    if document.vocabulary.source is None:
        folders = [model.checkpoint.folder for model in models.values()]
        tokens = other_tokens([str(reference) for reference in models], folders)
        layout = replace(layout, warnings=(*layout.warnings, *tokens))
    model_folder.check(document, layout, models, target)
    more = model_folder.warnings(document, layout, models)
    layout = replace(layout, warnings=(*layout.warnings, *more))
    return PreparedMerge(document, models, layout, target, regression(document, layout, tell))


def run(
    prepared: PreparedMerge,
    *,
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress = lambda document, done, all_, name: None,
) -> str:
    """Write the merged model's folder; return the BLAKE3 digest of its weights."""
    document, layout = prepared.document, prepared.layout
    seed = seed if document.seed is None else document.seed
    with ChunkPool(threads, device) as pool:
        return engine.merge(
            layout,
            prepared.models,
            prepared.out,
            lambda place, digest: model_folder.fill(
                place, document, layout, prepared.models, digest, seed, prepared.regressed
            ),
            seed=seed,
            pool=pool,
            shard_bytes=shard_bytes,
            progress=lambda done, all_, name: progress(document, done, all_, name),
            regressed=prepared.regressed,
        )


def outputs(documents: list[MergeSpec], out: Path) -> list[Path]:
    """Return the output folder of each merge of a file: `out` for one, folders in it for several."""
    if len(documents) == 1:
        return [out]
    return [out / str(document.name) for document in documents]


def read(config: Path) -> list[MergeSpec]:
    """Return the merges of a config file, one `MergeSpec` each. Raises ConfigError."""
    return _checked(parser.read(config))


def parse(text: str, name: str) -> list[MergeSpec]:
    """Return the merges of a config's text, which errors call by `name`. Raises ConfigError."""
    return _checked(parser.parse(text, name))


def _checked(documents: list[MergeSpec]) -> list[MergeSpec]:
    for document in documents:
        method_map.method(document)
    return documents


#: Slice of the items whose texts are read.
SLICE = "search"


def regression(document: MergeSpec, layout: Layout, tell: Callable[[str], None]) -> Regression | None:
    """Return the `Regression` by texts that a config's method needs; None for other methods.

    `tell` gets sentences on how data is read. Raises ConfigError, DataError, SourceError,
    UnavailableError.
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
        RegressionText(str(part.reference), paths or (domains.NAME,), *windows[paths])
        for part, paths in zip(parts, data, strict=True)
    ]
    params = params.model_copy(update={"context": context})
    return Regression(method, params, tuple(texts))


def _params(document: MergeSpec, method: str) -> regmean.Params:
    """Return the checked parameters of the method. Raises ConfigError."""
    settings = LookupMaps(document.file, (document.parameters,), "", 0.0)
    sizes = {k: settings.get(k) for k in ("tokens", "context") if settings.raw(k) is not None}
    alpha = settings.get("alpha", regmean.PREFIXES[method][1])
    try:
        return regmean.Params.model_validate({"alpha": alpha, **sizes})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{document.file}: {method}: parameter {where}: {first['msg']}") from error


def _data(document: MergeSpec, part: MergePart) -> tuple[str, ...]:
    """Return the data (files, folders, names) of a model, of all models, or (). Raises ConfigError."""
    maps = (part.parameters, document.slices[0].parameters, document.parameters)
    setting = LookupMaps(document.file, maps, "", 0.0).raw("data")
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
    """Return (windows of token ids, at most `tokens` in all, domains in turn; their digest)."""
    items = load_items(paths or (domains.NAME,), note=tell, needed=(SLICE,))
    texts = texts_of(items, SLICE)
    if not texts:
        raise DataError(
            f"{', '.join(paths)} holds no text in the slice {SLICE}: regmean reads the text that a "
            "model was trained on. Give text, not questions or problems."
        )
    packed = pack([text for each in texts.values() for text in each], load_tokenizer(folder), context)
    chosen = _in_turn([domain.windows for domain in packed[SLICE].values()], tokens)
    if not chosen:
        raise DataError(f"{', '.join(paths)}: less than two tokens of text in the slice {SLICE}.")
    return tuple(chosen), stream_digest(np.concatenate(chosen).astype(np.int32))


def _in_turn(queues: Sequence[Sequence[Ids]], tokens: int) -> list[Ids]:
    """Return windows of each queue in turn until they have `tokens` tokens; the last is cut."""
    windows: list[Ids] = []
    for number in range(max(map(len, queues), default=0)):
        for queue in queues:
            if number < len(queue) and tokens > 1:
                windows.append(queue[number][:tokens])
                tokens -= len(windows[-1])
    return windows


_REMEDY = (
    "A config of `forge merge` with `tokenizer_source: union` gives each token its own row: merge by "
    "one, or bring the models to one vocabulary by it first."
)


def strange(models: Sequence[ModelReference], folders: Sequence[Path]) -> tuple[str, ...]:
    """Return a warning for each file of a model that names code or has an unusual template."""
    warnings = []
    for model, folder in zip(models, folders, strict=True):
        if files := companions.naming_code(folder):
            warnings.append(
                f"{', '.join(files)} of model {model.name} name Python code (auto_map): it is not run "
                f"here, and results are written without it{_code_advice(folder)}."
            )
        warnings += [
            f"the chat template in {file} of model {model.name} {why}. Results may carry it: read it "
            "before you serve them."
            for file, why in chat_template.unusual(folder)
        ]
    return tuple(warnings)


def left_behind(models: Sequence[ModelReference], folders: Sequence[Path]) -> tuple[str, ...]:
    """Return a warning for each model with files in subfolders, which results are written without."""
    return tuple(
        f"{', '.join(names)} of model {model.name}: a run's results are written without it. Copy it "
        "to a result that needs it."
        for model, folder in zip(models, folders, strict=True)
        if (names := sorted(companions.in_folders(folder)))
    )


def _code_advice(folder: Path) -> str:
    """Return words on the files of a model's code, for those who load a result; '' if none."""
    files = companions.code_files(folder)
    return f" (to load them with it, copy {', '.join(files)} and auto_map)" if files else ""


def other_tokens(
    names: Sequence[str], folders: Sequence[Path], strict: bool = False
) -> tuple[str, ...]:
    """Return warnings about ids that stand for other tokens in two of the models.

    Vocabularies are compared with the first model's, added tokens among all. Raises SourceError if
    most ids of two vocabularies do; with `strict`, also instead of a warning.
    """
    warnings = []
    for name, folder in zip(names[1:], folders[1:], strict=True):
        difference = vocabularies.difference(folders[0], folder)
        if difference is None:
            continue
        words = difference.told(names[0], name)
        if difference.foreign:
            raise SourceError(
                f"{words}. Only models that read text alike can be merged row by row. {_REMEDY}"
            )
        warnings.append(f"{words}. {names[0]}'s are kept.")
    for added in vocabularies.added_differences(list(zip(names, folders, strict=True))):
        warnings.append(f"{added.told()}. Their rows are merged as one token's. {_REMEDY}")
    if strict and warnings:
        raise SourceError("--strict refuses what would be warnings:\n" + "\n".join(warnings))
    return tuple(dict.fromkeys(warnings))
