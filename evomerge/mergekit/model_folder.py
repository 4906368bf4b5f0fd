"""Files of a merged model's folder beside its weights: config, tokenizer, card, merge record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evomerge.mergekit import chat_templates, vocabulary
from evomerge.mergekit.inputs import Model
from evomerge.mergekit.parser import Document, Reference
from evomerge.mergekit.plan import Layout
from evomerge.mergekit.regression import Regression
from runs.errors import ConfigError, SourceError
from runs.system import bounded_files
from weights import architectures, block_names
from weights.folders import companions, model_card, model_config
from weights.folders.confrontation import TORCH, confront
from weights.tensors import HEADS

#: Record of how the folder was made; it marks the folder as one that may be replaced.
MARK = "evomerge_merge.json"
#: The config, under the name that mergekit gives it.
CONFIG = "mergekit_config.yml"

_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")


def fill(
    folder: Path,
    document: Document,
    layout: Layout,
    models: Mapping[Reference, Model],
    digest: str,
    seed: int,
    regressed: Regression | None = None,
) -> None:
    """Write everything but weights. Raise ConfigError if the result could not be used."""
    donor = layout.vocabulary.donor.folder if layout.vocabulary else layout.donor.checkpoint.folder
    companions.write(donor, folder)
    for name, file in companions.in_folders(donor).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(file.read_bytes())
    config = _config(layout, donor)
    (folder / companions.CONFIG).write_text(companions.as_text(config), "utf-8")
    if layout.vocabulary is not None:
        vocabulary.write(folder, layout.vocabulary)
    _template(folder, document, models)
    check_tokens(folder, config, _rows(layout))
    (folder / CONFIG).write_text(document.text.rstrip() + "\n", "utf-8")
    record = {
        "digest": digest,
        "seed": seed,
        "method": document.method,
        "name": document.name,
        "models": {str(r): str(m.checkpoint.folder) for r, m in models.items()},
        "warnings": list(layout.warnings),
    }
    if regressed is not None:
        record["regression"] = regressed.record()
    (folder / MARK).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    text = card(document, models, digest)
    text += model_card.section(config) + architectures.note(config)
    (folder / "README.md").write_text(text, "utf-8")


def check(document: Document, layout: Layout, models: Mapping[Reference, Model], out: Path) -> None:
    """Raise an error if the result could not be used; nothing is written.

    ConfigError for what `fill` would find: links, template, tokens, special ids. SourceError if
    transformers could not load the result from `out`.
    """
    _template_text(document, models)
    donor = layout.vocabulary.donor.folder if layout.vocabulary else layout.donor.checkpoint.folder
    companions.found(donor)  # raises for a link out of the folder
    companions.in_folders(donor)
    config = _config(layout, donor)
    check_tokens(donor, config, _rows(layout))
    names = {dtype: name for name, dtype in TORCH.items()}
    shapes = {op.name: (names[op.dtype], op.shape) for op in layout.outputs}
    confront(out, config, shapes)
    _check_blocks(out, config)


def _check_blocks(out: Path, config: Mapping[str, Any]) -> None:
    """Raise SourceError if transformers would read a list of blocks otherwise than it is meant."""
    meant = block_names.per_block(config)
    read = block_names.per_block(model_config.configuration(out, config).to_dict())
    for key in sorted(meant):
        if key in read and read[key] != meant[key]:
            raise SourceError(
                f"the merge's blocks need {key} = {meant[key]} in {companions.CONFIG}, and "
                f"transformers makes {read[key]} of it: it derives {key} from other settings, so "
                "these slices cannot be written as a model."
            )


def _config(layout: Layout, donor: Path) -> dict[str, Any]:
    """Return config.json: dtype of most weights, special tokens of the tokenizer's model."""
    config = companions.cleaned(layout.config)
    sizes: dict[str, int] = {}
    for op in layout.outputs:
        name = str(op.dtype).removeprefix("torch.")
        sizes[name] = sizes.get(name, 0) + 1
    config["dtype"] = max(sorted(sizes), key=lambda name: sizes[name])
    if donor != layout.donor.checkpoint.folder:
        donor_config = model_config.read(donor)
        for key in _SPECIAL:
            if key in donor_config:
                config[key] = donor_config[key]
    return config


def _rows(layout: Layout) -> int | None:
    """Return the number of rows of the embedding; None if there is no embedding."""
    return next((o.shape[0] for o in layout.outputs if o.name in HEADS), None)


def _template(folder: Path, document: Document, models: Mapping[Reference, Model]) -> None:
    text = _template_text(document, models)
    if text is None:
        return
    (folder / "chat_template.jinja").write_text(text, "utf-8")
    file = folder / "tokenizer_config.json"
    if file.is_file():
        config = bounded_files.read_object(file)
        if config.pop("chat_template", None) is not None:
            file.write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n", "utf-8")


def _template_text(document: Document, models: Mapping[Reference, Model]) -> str | None:
    """Return the template that the config asks for; None: the donor's. Raise ConfigError."""
    return chat_templates.chosen(
        document.chat_template, [model.checkpoint.folder for model in models.values()]
    )


def warnings(
    document: Document, layout: Layout, models: Mapping[Reference, Model]
) -> tuple[str, ...]:
    """Return a warning if a chat template that the config asks for ends turns that do not stop."""
    text = _template_text(document, models)
    donor = layout.vocabulary.donor.folder if layout.vocabulary else layout.donor.checkpoint.folder
    if text is None or not (donor / vocabulary.FILE).is_file():
        return ()
    names = ("tokenizer_config.json", "generation_config.json")
    tokenizer, generation = (
        bounded_files.read_object(donor / name) if (donor / name).is_file() else {}
        for name in names
    )
    tokens = layout.vocabulary.tokens if layout.vocabulary else ()
    ids = {token: number for number, token in enumerate(tokens) if token is not None}
    ids = ids or vocabulary.read(donor).ids
    settings = (_config(layout, donor), generation)
    warning = chat_templates.stop_warning(text, ids, tokenizer, settings)
    return () if warning is None else (warning,)


def check_tokens(folder: Path, config: Mapping[str, Any], rows: int | None) -> None:
    """Raise ConfigError if a token, or a special id of the config, has no embedding row."""
    if rows is None:
        return
    if (folder / vocabulary.FILE).is_file():
        need = vocabulary.read(folder).rows
        if need > rows:
            raise ConfigError(
                f"the tokenizer has tokens up to id {need - 1}, but the embedding has {rows} rows: "
                "say tokenizer_source: union, base or the model whose tokenizer fits."
            )
    settings = {"config.json": config}
    generation = folder / "generation_config.json"
    if generation.is_file():
        settings["generation_config.json"] = bounded_files.read_object(generation)
    for file, content in settings.items():
        for key in _SPECIAL:
            ids = content.get(key)
            for id_ in ids if isinstance(ids, list) else [ids]:
                if isinstance(id_, int) and id_ >= rows:  # negative means none
                    raise ConfigError(
                        f"{key} in {file} is {id_}, but the embedding has {rows} rows: set it right in "
                        "the model that it comes from."
                    )


def card(document: Document, models: Mapping[Reference, Model], digest: str) -> str:
    """Return the model card: front matter for the Hub, then how to make the model again."""
    ids = [text for text in map(str, models) if not Path(text).exists()]
    lines = ["---", *model_card.merged_from(ids), "library_name: transformers"]
    lines += ["tags:", "- merge", "- evomerge", "---", ""]
    lines += [f"# {document.name or 'Merged model'}", ""]
    lines += [f"Merged with `forge merge`, method {document.method}, from:", ""]
    lines += [f"- {reference}" for reference in models]
    lines += ["", "```yaml", document.text.rstrip(), "```", ""]
    lines += [f"- weights digest (BLAKE3): `{digest}`", ""]
    return "\n".join(lines)
