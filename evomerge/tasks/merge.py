"""`forge merge`, from a config file to output folders; all checks come before the first write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from evomerge.mergekit import engine, method_map, model_folder, parser
from evomerge.mergekit.inputs import Model
from evomerge.mergekit.parser import Document, Reference
from evomerge.mergekit.plan import Layout, lay_out
from evomerge.mergekit.regression import Regression
from evomerge.merging.kernels.chunks import Pool
from evomerge.tasks import merge_texts, source_warnings
from runs.errors import ConflictError
from runs.event_types import ModelReference
from runs.kinds.asked import Names
from weights.folders.adapter import Adapter
from weights.folders.checkpoint import SHARD_BYTES, open_checkpoint
from weights.folders.sources import resolve, resolve_adapter
from weights.storage.output_folder import check_target

#: Hears of progress: document, number of tensors done, number of all tensors, last tensor's name.
Progress = Callable[[Document, int, int, str], None]


@dataclass(frozen=True)
class Prepared:
    """A checked merge: its config, models and parameters fit together."""

    document: Document
    models: Mapping[Reference, Model]
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
            *source_warnings.strange(models, [checkpoint.folder for checkpoint in opened]),
            *self.layout.warnings,
        ]


def open_models(
    document: Document, merged_folders: Mapping[str, Path], named: Names | None = None
) -> dict[Reference, Model]:
    """Open every model of a config (headers only).

    `merged_folders` has the folders of earlier documents; `named` finds the models of a log.
    """
    models = {}
    for reference in document.references():
        place = merged_folders.get(reference.model) or Path(
            resolve(reference.model, named=named).path
        )
        adapter = None
        if reference.adapter is not None:
            adapter = Adapter(Path(resolve_adapter(reference.adapter).path))
        models[reference] = Model(str(reference), open_checkpoint(place), adapter)
    return models


def prepare(
    document: Document,
    out: Path,
    merged_folders: Mapping[str, Path],
    named: Names | None = None,
    tell: Callable[[str], None] = lambda words: None,
) -> Prepared:
    """Check one merge and return it prepared; `named` finds the models of a log.

    `tell` hears how data is read. Raises ConfigError, ConflictError, DataError, SourceError,
    UnavailableError.
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
        tokens = source_warnings.other_tokens([str(reference) for reference in models], folders)
        layout = replace(layout, warnings=(*layout.warnings, *tokens))
    model_folder.check(document, layout, models, target)
    more = model_folder.warnings(document, layout, models)
    layout = replace(layout, warnings=(*layout.warnings, *more))
    return Prepared(
        document, models, layout, target, merge_texts.regression(document, layout, tell)
    )


def run(
    prepared: Prepared,
    *,
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress = lambda document, done, all_, name: None,
) -> str:
    """Do one merge; return the digest of its weights."""
    document, layout = prepared.document, prepared.layout
    seed = seed if document.seed is None else document.seed
    with Pool(threads, device) as pool:
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


def outputs(documents: list[Document], out: Path) -> list[Path]:
    """Return the output folder of each merge of a file: `out` for one, folders in it for several."""
    if len(documents) == 1:
        return [out]
    return [out / str(document.name) for document in documents]


def read(config: Path) -> list[Document]:
    """Return the merges of a config file. Raises ConfigError."""
    return _checked(parser.read(config))


def parse(text: str, name: str) -> list[Document]:
    """Return the merges of a config's text, which errors call by `name`. Raises ConfigError."""
    return _checked(parser.parse(text, name))


def _checked(documents: list[Document]) -> list[Document]:
    for document in documents:
        method_map.method(document)
    return documents
