"""Files of a merged model's folder beside its weights: config, tokenizer, chat template, card, record.

Names of chat templates are mergekit's; the templates are written here after the formats that their
models document. A turn ends with a token, and a model stops at the tokens that `eos_token_id` lists:
if the two differ, the model does not stop at the end of its turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agent_forge.evomerge.mergekit import vocabulary
from agent_forge.evomerge.mergekit.inputs import ModelRows
from agent_forge.evomerge.mergekit.parser import MergeSpec, ModelPath
from agent_forge.evomerge.mergekit.plan import Layout
from agent_forge.evomerge.mergekit.regression import Regression
from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.runs.system import bounded_files
from agent_forge.weights import architectures, block_names
from agent_forge.weights.folders import companions, model_card, model_config
from agent_forge.weights.folders.confrontation import TORCH, confront
from agent_forge.weights.tensors import HEADS

#: Record of how the folder was made; it marks the folder as one that may be replaced.
MARK = "evomerge_merge.json"
#: The config, under the name that mergekit gives it.
CONFIG = "mergekit_config.yml"

_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")


def fill(
    folder: Path,
    document: MergeSpec,
    layout: Layout,
    models: Mapping[ModelPath, ModelRows],
    digest: str,
    seed: int,
    regressed: Regression | None = None,
) -> None:
    """Write the folder's files but weights. Raise ConfigError if the result could not be used."""
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


def check(
    document: MergeSpec, layout: Layout, models: Mapping[ModelPath, ModelRows], out: Path
) -> None:
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


def _check_blocks(out: Path, config: Mapping[str, object]) -> None:
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


def _config(layout: Layout, donor: Path) -> dict[str, object]:
    """Return the result's config.json as a dict: dtype of most weights, the tokenizer's special ids."""
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


def _template(folder: Path, document: MergeSpec, models: Mapping[ModelPath, ModelRows]) -> None:
    text = _template_text(document, models)
    if text is None:
        return
    (folder / "chat_template.jinja").write_text(text, "utf-8")
    file = folder / "tokenizer_config.json"
    if file.is_file():
        config = bounded_files.read_object(file)
        if config.pop("chat_template", None) is not None:
            file.write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n", "utf-8")


def _template_text(document: MergeSpec, models: Mapping[ModelPath, ModelRows]) -> str | None:
    """Return the chat template that the config asks for; None: the donor's. Raise ConfigError."""
    return chosen(document.chat_template, [model.checkpoint.folder for model in models.values()])


def warnings(
    document: MergeSpec, layout: Layout, models: Mapping[ModelPath, ModelRows]
) -> tuple[str, ...]:
    """Return (warning,) if the config's chat template ends turns that do not stop; else ()."""
    text = _template_text(document, models)
    donor = layout.vocabulary.donor.folder if layout.vocabulary else layout.donor.checkpoint.folder
    if text is None or not (donor / vocabulary.FILE).is_file():
        return ()
    names = ("tokenizer_config.json", "generation_config.json")
    tokenizer, generation = (
        bounded_files.read_object(donor / name) if (donor / name).is_file() else {} for name in names
    )
    tokens = layout.vocabulary.tokens if layout.vocabulary else ()
    ids = {token: number for number, token in enumerate(tokens) if token is not None}
    ids = ids or vocabulary.read(donor).ids
    settings = (_config(layout, donor), generation)
    warning = stop_warning(text, ids, tokenizer, settings)
    return () if warning is None else (warning,)


def check_tokens(folder: Path, config: Mapping[str, object], rows: int | None) -> None:
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


def card(document: MergeSpec, models: Mapping[ModelPath, ModelRows], digest: str) -> str:
    """Return the model card's text: front matter for the Hub, then how to make the model again."""
    ids = [text for text in map(str, models) if not Path(text).exists()]
    lines = ["---", *model_card.merged_from(ids), "library_name: transformers"]
    lines += ["tags:", "- merge", "- evomerge", "---", ""]
    lines += [f"# {document.name or 'Merged model'}", ""]
    lines += [f"Merged with `forge merge`, method {document.method}, from:", ""]
    lines += [f"- {reference}" for reference in models]
    lines += ["", "```yaml", document.text.rstrip(), "```", ""]
    lines += [f"- weights digest (BLAKE3): `{digest}`", ""]
    return "\n".join(lines)


_CHATML = """\
{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_LLAMA3 = """\
{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>

{{ message['content'] | trim }}<|eot_id|>{% endfor %}\
{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
_MISTRAL = """\
{{ bos_token }}{% set system = namespace(text='') %}{% for message in messages %}\
{% if message['role'] == 'system' %}{% set system.text = message['content'] + '\\n\\n' %}\
{% elif message['role'] == 'user' %}[INST] {{ system.text + message['content'] }} [/INST]\
{% set system.text = '' %}\
{% else %} {{ message['content'] | trim }}{{ eos_token }}{% endif %}{% endfor %}"""
_ALPACA = """\
{% for message in messages %}{% if message['role'] == 'user' %}### Instruction:
{{ message['content'] }}

{% elif message['role'] == 'assistant' %}### Response:
{{ message['content'] }}{{ eos_token }}

{% else %}{{ message['content'] }}

{% endif %}{% endfor %}{% if add_generation_prompt %}### Response:
{% endif %}"""
_EXAONE = """\
{% for message in messages %}[|{{ message['role'] }}|]{{ message['content'] }}\
{% if message['role'] != 'user' %}[|endofturn|]{% endif %}{{ '\\n' }}{% endfor %}\
{% if add_generation_prompt %}[|assistant|]{% endif %}"""
NAMED = {
    "alpaca": _ALPACA,
    "chatml": _CHATML,
    "exaone": _EXAONE,
    "llama3": _LLAMA3,
    "mistral": _MISTRAL,
}
#: What special tokens look like.
_TOKEN = re.compile(r"<\|[\w.-]{1,60}\|>|\[\|[\w.-]{1,60}\|\]|</?[a-z]{1,20}>")


def chosen(setting: str | None, folders: Sequence[Path]) -> str | None:
    """Return the text of the chat template that the config asks for; None: the donor's.

    `auto` takes the most common template of the models' `folders`, of equals the first. Raise
    ConfigError.
    """
    if setting is None:
        return None
    if setting == "auto":
        texts = [text for folder in folders if (text := of_folder(folder))]
        return max(texts, key=lambda text: (texts.count(text), -texts.index(text)), default=None)
    if setting in NAMED:
        return NAMED[setting]
    is_path = setting.endswith(".jinja") and setting.isprintable() and len(setting) < 4096
    if is_path and Path(setting).is_file():
        return bounded_files.read_text(Path(setting), model_config.MOST_BYTES, ConfigError)
    if "{" in setting and len(setting) >= 20:
        return setting
    raise ConfigError(
        f"chat_template {setting!r} is no template: give auto, {', '.join(NAMED)}, a .jinja file, or a "
        "Jinja template."
    )


def of_folder(folder: Path) -> str | None:
    """Return a model's chat template, from its file or tokenizer_config.json; None without one."""
    if (folder / "chat_template.jinja").is_file():
        return bounded_files.read_text(folder / "chat_template.jinja", model_config.MOST_BYTES).strip()
    if not (folder / "tokenizer_config.json").is_file():
        return None
    template = bounded_files.read_object(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):
        named = [t for t in template if isinstance(t, dict) and t.get("name") == "default"]
        template = named[0].get("template") if named else None
    return template.strip() if isinstance(template, str) and template.strip() else None


def stop_warning(
    template: str,
    ids: Mapping[str, int],
    tokenizer: Mapping[str, object],
    settings: Iterable[Mapping[str, object]],
) -> str | None:
    """Return a warning if a template writes no token at which a model stops; None if it does.

    `ids`: token → id of the result's tokenizer; `tokenizer`: its tokenizer_config.json; `settings`: the
    result's config.json and generation_config.json. The template is read, not run.
    """
    ends: set[int] = set()
    for part in settings:
        named = part.get("eos_token_id")
        ends |= {n for n in (named if isinstance(named, list) else [named]) if isinstance(n, int)}
    stops = sorted(token for token, number in ids.items() if number in ends)
    written = template.replace("eos_token", _content(tokenizer.get("eos_token")))
    if not stops or any(token in written for token in stops):
        return None
    tokens = list(dict.fromkeys(_TOKEN.findall(template)))[:6]
    there = [f"{token} ({ids[token]})" if token in ids else f"{token} (unknown)" for token in tokens]
    return (
        f"the chat template does not write {', '.join(stops)}, at which the result stops "
        f"(eos_token_id {', '.join(map(str, sorted(ends)))}): its replies will not end. Add the token "
        "that ends a turn to eos_token_id in generation_config.json of the result"
        + (f"; the template writes {', '.join(there)}." if there else ".")
    )


def _content(token: object) -> str:
    """Return the text of a special token, which may be described as an object; else ''."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""
