"""Sources of a merge: from the text that a user types to opened models that fit together.

A model's name means, in this order: a local folder or GGUF file, an alias, a GGUF file elsewhere
(`gguf_names`), a model of the log (`RUN:ROLE`, `RUN/ROLE`, a registered name) or a Hub id
(`owner/name[@revision]`). It may be BASE+ADAPTER, or an adapter alone, whose settings name its base.

Sources must agree on tensors and shapes. Settings that change what the same weights compute are
compared key by key, as transformers reads them: defaults filled in, old spellings as new ones,
`text_config` inside. Only keys that are known not to change what the weights compute are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent_forge.runs import home
from agent_forge.runs.errors import SourceError, UnavailableError
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.kinds.asked import Names
from agent_forge.weights.block_names import COUNT_KEYS
from agent_forge.weights.folders import adapter_folders, gguf_names, made_folders, model_config
from agent_forge.weights.folders.gguf_names import not_fetched
from agent_forge.weights.tensors import HEADS, Shape

if TYPE_CHECKING:
    from agent_forge.weights.folders.checkpoint import Checkpoint

ALIASES = {
    "deepseek": "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
    "nemotron": "nvidia/Nemotron-Research-Reasoning-Qwen-1.5B",
    "qwen2": "Qwen/Qwen2-1.5B-Instruct",
}

#: Files that are fetched from a Hub repository; none of them can run code.
PATTERNS = ["*.safetensors", "*.json", "*.jinja", "*.model", "merges.txt", "vocab.txt"]


def resolve(
    text: str, aliases: Mapping[str, str] = ALIASES, named: Names | None = None
) -> ModelReference:
    """Return the ModelReference, with a local folder, of what the user typed; fetch it if missing.

    A GGUF file is converted into a folder of the home's cache, and BASE+ADAPTER is summed into one.

    `named` finds the models of a log. An alias stands for a name of any form. Raises SourceError or
    UnavailableError.
    """
    model = resolve_source(text, aliases, named)
    base, adapter = adapter_folders.parts(Path(model.path))
    if adapter is None:
        return model
    from agent_forge.weights.folders import adapted_folders  # imports torch

    folder = adapted_folders.folder(base, adapter, model.name)
    return model.model_copy(update={"path": str(folder)})


def resolve_source(
    text: str, aliases: Mapping[str, str] = ALIASES, named: Names | None = None
) -> ModelReference:
    """Return the ModelReference of a merge's source, as `resolve`, but BASE+ADAPTER has two folders.

    Raises SourceError or UnavailableError.
    """
    pair = split(text if _place(text) is not None else aliases.get(text, text))
    if pair is not None:
        return _pair(resolve(pair[0], aliases, named), resolve_adapter(pair[1]))
    model = _reference_of(text, aliases, named)
    if not adapter_folders.is_adapter(Path(model.path)):
        return model
    return _pair(_base_of(model), model)


def resolve_adapter(text: str) -> ModelReference:
    """Return an adapter's ModelReference, with a local folder. Raises SourceError, UnavailableError."""
    return _reference_of(text, ALIASES, None)


def make_again(folder: Path) -> Path | None:
    """Make a missing folder of the home's cache again; return it, or None for any other folder.

    Raises SourceError if its source files have changed, UnavailableError.
    """
    origin = made_folders.origin(folder) if made_folders.is_cached(folder) else None
    if origin is None:
        return None
    model = resolve(origin)
    if Path(model.path) != folder:
        raise SourceError(
            f"{origin} has changed since {folder.name} was made of it: that folder is gone, and cannot "
            "be made again. Name the model itself."
        )
    return folder


def split(text: str) -> tuple[str, str] | None:
    """Return (base, adapter), the names in BASE+ADAPTER; None for another name.

    An existing folder, or a file of the Hub or a package, may have a + in its name.
    """
    base, _, adapter = text.partition("+")
    if not base or not adapter or gguf_names.is_file(text):
        return None
    place = _place(text)
    return None if place is not None and place.exists() else (base, adapter)


def _pair(base: ModelReference, adapter: ModelReference) -> ModelReference:
    """Return base and adapter as one ModelReference, joined by +. Raises SourceError."""
    models = (base, adapter)
    if mixed := next((model for model in models if "+" in model.path), None):
        raise SourceError(f"the folder {mixed.path} has a + in its path: rename it.")
    for model in models:
        if not Path(model.path).exists():
            what = "base" if model is base else "adapter"
            raise SourceError(f"{what} {model.path} does not exist. Check the path, or give a Hub id.")
    if not adapter_folders.is_adapter(Path(adapter.path)):
        raise SourceError(
            f"{adapter.path} is no adapter: it has no {adapter_folders.CONFIG}, or holds a whole model."
        )
    return ModelReference(
        name="+".join(model.name for model in models), path="+".join(m.path for m in models)
    )


def _base_of(adapter: ModelReference) -> ModelReference:
    """Return the reference of the base (folder, file, package, Hub id) that an adapter's settings name.

    A path in settings from the Hub is another machine's. Raises SourceError for it or a missing base.
    """
    base = adapter_folders.base_of(Path(adapter.path))
    remedy = f"write BASE+{adapter.path}"
    if base is None:
        raise SourceError(f"{adapter.path} is an adapter that does not name its base: {remedy}.")
    why = f"{adapter.path} is an adapter of {base}"
    place = _place(base)
    if place is not None and (adapter.hub_id is not None or not place.exists()):
        raise SourceError(f"{why}, which is not here: {remedy}.")
    try:
        model = _reference_of(base, ALIASES, None)
    except (SourceError, UnavailableError) as error:
        raise type(error)(f"{why}: {error} If that base is elsewhere, {remedy}.") from error
    if adapter_folders.is_adapter(Path(model.path)):
        raise SourceError(f"{why}, which is an adapter itself: {remedy}, with a whole model.")
    return model


def _reference_of(text: str, aliases: Mapping[str, str], named: Names | None) -> ModelReference:
    """Return the ModelReference of a name, not BASE+ADAPTER; fetch a Hub model. Raises SourceError."""
    if not text.strip():
        raise SourceError("a model's name is empty: give a folder, a Hub id or an alias.")
    place = _place(text)
    if place is not None:
        if named is not None and not text.startswith((".", "/", "~")):
            named.hidden_by(text, place)
        return _local(place)
    meant = aliases.get(text, text)
    place = _place(meant) if meant != text else None
    if place is not None:
        return _local(place, text)
    if (file := gguf_names.named(meant)) is not None:
        return file
    model = named(meant) if named else None
    if model is not None:
        return model
    repository, _, revision = meant.partition("@")
    if repository.count("/") != 1:
        alias_names = ", ".join(sorted(aliases))
        more = ", nor a run (RUN, RUN/champion or RUN:ROLE), nor a registered model" if named else ""
        raise SourceError(
            f"model {text!r} is neither a folder here, nor a GGUF file, nor a Hub id "
            f"(owner/name[@revision]), nor an alias ({alias_names}){more}."
        )
    name = text if text in aliases else repository.split("/")[1]
    folder = _fetch(repository, revision or None)
    return ModelReference(name=name, path=str(folder), hub_id=repository, revision=folder.name)


def _local(place: Path, name: str = "") -> ModelReference:
    """Return the ModelReference of a model folder, or of a GGUF file, which it converts.

    It makes a missing folder of the home's cache again.
    """
    if (file := gguf_names.at(place, name)) is not None:
        return file
    if made_folders.is_cached(place) and not place.is_dir():
        make_again(place)
    return ModelReference(name=name or made_folders.plain_name(place), path=str(place))


def _place(text: str) -> Path | None:
    """Return the absolute path that a name means; None if it is no path that exists or begins as one.

    Raises SourceError if the name cannot be a path.
    """
    if not text.isprintable():
        raise SourceError(f"model {text[:200]!r} has characters that no name has. Leave them out.")
    try:
        path = home.expanded(text, SourceError)
        there = path.exists() or text.startswith((".", "/", "~"))
        return path.resolve() if there else None
    except (OSError, RuntimeError) as error:  # too long, links in a circle, no such user
        raise SourceError(f"model {text[:200]!r} is no path: {error}.") from error


def _fetch(repository: str, revision: str | None) -> Path:
    """Fetch a missing Hub model; return its snapshot's path, …/COMMIT. Raises UnavailableError."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    home.check_hub_cache()
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=PATTERNS))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        what = f"model {repository} is no folder here, and as a model of the Hub it"
        raise not_fetched(what, error) from error


@dataclass(frozen=True)
class OpenedModels:
    """Opened models that fit together: the base, and the sources of the merge."""

    base: Checkpoint
    sources: tuple[Checkpoint, ...]
    #: True if the merged model's head is its embedding.
    tied: bool
    warnings: tuple[str, ...]


def open_family(
    sources: Sequence[ModelReference],
    base: ModelReference | None,
    strict: bool,
    copies: Mapping[str, Path] | None = None,
) -> OpenedModels:
    """Return an OpenedModels: all models opened by their headers and compared, with warnings.

    Without `base` the first source is the base. `copies` maps given paths to folders that are read in
    their place. Raises SourceError for models that do not fit; with `strict`, also instead of warnings.
    """
    from agent_forge.weights.folders.checkpoint import (
        open_checkpoint,  # imports torch, not needed to name models
    )

    check_distinct(sources)

    def open_one(model: ModelReference) -> Checkpoint:
        folder = Path(model.path)
        return open_checkpoint((copies or {}).get(model.path, folder), folder)

    opened = [open_one(model) for model in sources]
    origin = open_one(base) if base else opened[0]
    warnings: list[str] = []
    if base is None:
        warnings.append(
            f"no base model was given: {sources[0].name}, the first source, stands in, and "
            "task-vector methods will favour it (its own task vector is zero)."
        )
    everyone = [origin, *opened] if base else opened
    for checkpoint in everyone:
        model_config.check_predicts_tokens(checkpoint.given, checkpoint.config)
        warnings += checkpoint.warnings
    tied = all(c.tied for c in everyone)
    if not tied and any(c.tied for c in everyone):
        warnings.append("some models tie their head to the embedding, others do not: all untied.")
    for other in everyone[1:]:
        _compare_shapes(origin, other, tied)
        warnings += compare_settings(origin, other)
    if strict and len(warnings) > (base is None):
        raise SourceError("--strict refuses what would be warnings:\n" + "\n".join(warnings))
    return OpenedModels(origin, tuple(opened), tied, tuple(dict.fromkeys(warnings)))


def check_distinct(sources: Sequence[ModelReference]) -> None:
    """Raise SourceError for fewer than two models, or for a model given twice."""
    if len(sources) < 2:
        have = "none was given" if not sources else f"only {sources[0].name} was given"
        raise SourceError(f"a merge needs two or more models, {have}. Use --base-models A,B,C.")
    paths = [s.path for s in sources]
    twice = sorted({p for p in paths if paths.count(p) > 1})
    if twice:
        raise SourceError(f"model {twice[0]} was given twice. Every source must be another model.")


def _shapes(checkpoint: Checkpoint, tied: bool) -> dict[str, tuple[str, Shape]]:
    shapes = dict(checkpoint.shapes)
    if not tied and checkpoint.tied:
        embedding = next((name for name in HEADS if name in shapes), None)
        if embedding:
            shapes[HEADS[embedding]] = shapes[embedding]
    return shapes


def _compare_shapes(a: Checkpoint, b: Checkpoint, tied: bool) -> None:
    kinds = [c.config.get("model_type") for c in (a, b)]
    if kinds[0] != kinds[1]:
        raise SourceError(
            f"{a.given} is a {kinds[0]} model and {b.given} a {kinds[1]} model: only models of "
            "one architecture can be merged."
        )
    left, right = _shapes(a, tied), _shapes(b, tied)
    for name in sorted(set(left) ^ set(right)):
        has, lacks = (a, b) if name in left else (b, a)
        raise SourceError(
            f"tensor {name} is in {has.given} but not in {lacks.given}: they are not of one "
            "architecture and size."
        )
    for name in sorted(left):
        if left[name][1] != right[name][1]:
            raise SourceError(
                f"tensor {name} is {list(left[name][1])} in {a.given} and "
                f"{list(right[name][1])} in {b.given}: sources must agree on shapes."
            )


#: What a difference means, for settings that users know.
MEANINGS = {
    "rope_theta": "positions are encoded with another base",
    "rope_type": "long positions are scaled otherwise",
    "factor": "long positions are scaled otherwise",
    "rms_norm_eps": "norms divide by something slightly else",
    "layer_norm_eps": "norms divide by something slightly else",
    "layer_norm_epsilon": "norms divide by something slightly else",
    "num_attention_heads": "the same matrices are cut into other heads",
    "num_key_value_heads": "the same matrices are cut into other heads",
    "n_head": "the same matrices are cut into other heads",
    "head_dim": "the same matrices are cut into other heads",
    "sliding_window": "attention sees another stretch of text",
    "use_sliding_window": "attention sees another stretch of text",
    "layer_types": "attention sees another stretch of text",
    "hidden_act": "another activation function",
    "hidden_activation": "another activation function",
    "activation_function": "another activation function",
    "vocab_size": "another number of tokens",
    "max_position_embeddings": "the longest text that the model takes",
}
_MEANING = "it changes what the same weights compute"
#: Keys that do not matter: names, versions, forms of the output, training; keys that other parts of
#: this program compare (tensors, heads, quantisation), and keys that repeat others (`layer_types`).
IRRELEVANT = {
    *COUNT_KEYS,
    *("architectures", "model_type", "transformers_version", "unsloth_version", "unsloth_fixed"),
    *("_name_or_path", "name_or_path", "auto_map", "dtype", "torch_dtype", "quantization_config"),
    *("tie_word_embeddings", "use_cache", "output_hidden_states", "output_attentions"),
    *("output_router_logits", "output_scores", "return_dict", "return_dict_in_generate", "torchscript"),
    *("use_bfloat16", "chunk_size_feed_forward", "gradient_checkpointing", "pretraining_tp"),
    *("attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "id2label"),
    *("label2id", "num_labels", "problem_type", "finetuning_task", "task_specific_params", "init_std"),
    *("router_aux_loss_coef", "router_jitter_noise", "max_window_layers", "sliding_window_pattern"),
    *("_sliding_window_pattern", "no_rope_layer_interval", "temperature", "top_k", "top_p"),
    *("do_sample", "max_length", "min_length", "max_new_tokens", "num_beams", "repetition_penalty"),
    *("length_penalty", "no_repeat_ngram_size"),
}
_IRRELEVANT_PARTS = ("dropout", "pdrop", "layerdrop", "initializer", "summary_")
_IDS = ("token_id", "token_ids", "token_index")
#: Objects of settings whose names are left out of messages.
_TRANSPARENT = {"rope_parameters"}


def compare_settings(a: Checkpoint, b: Checkpoint, apart: Collection[str] = ()) -> list[str]:
    """Return a list of warning texts, one for each setting that differs and changes computed results.

    Keys in `apart` are left out.
    """
    left, right = (
        _standard(model_config.configuration(model.given, model.config).to_dict()) for model in (a, b)
    )
    warnings = []
    for key, value, other in _differences(left, right):
        last = key.rpartition(".")[2]
        if last not in apart:
            warnings.append(
                f"{key} is {_shown(value)} in {a.given.name} and {_shown(other)} in {b.given.name}: "
                f"{MEANINGS.get(last, _MEANING)}. {a.given.name}'s is kept."
            )
    return warnings


def _standard(config: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration's settings, a dict, `head_dim` filled in and an old key removed."""
    settings = {
        key: _standard(value) if isinstance(value, Mapping) else value for key, value in config.items()
    }
    if "rope_type" in settings:
        settings.pop("type", None)  # its old name
    hidden, heads = settings.get("hidden_size"), settings.get("num_attention_heads")
    if settings.get("head_dim") is None and type(hidden) is int and type(heads) is int and heads:
        settings["head_dim"] = hidden // heads
    return settings


def _differences(
    left: Mapping[str, object], right: Mapping[str, object], where: str = ""
) -> Iterator[tuple[str, object, object]]:
    """Yield (key, left's value, right's value) of settings that matter and differ, in objects too."""
    for key in sorted(left.keys() | right.keys()):
        if key in IRRELEVANT or key.endswith(_IDS) or any(p in key for p in _IRRELEVANT_PARTS):
            continue
        value, other = left.get(key), right.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            inner = where if key in _TRANSPARENT else f"{where}{key}."
            yield from _differences(value, other, inner)
        elif value != other and not _of_other_layers(left, right, value, other):
            yield where + key, value, other


def _of_other_layers(
    left: Mapping[str, object], right: Mapping[str, object], value: object, other: object
) -> bool:
    """Return True for lists with an entry a layer, of models with different numbers of layers."""
    if not isinstance(value, list) or not isinstance(other, list):
        return False
    counts = [next((s[k] for k in COUNT_KEYS if k in s), None) for s in (left, right)]
    return counts[0] != counts[1] and counts == [len(value), len(other)]


def _shown(value: object) -> str:
    """Return a value's text for a message, of about 80 characters."""
    text = str(value)
    return text if len(text) <= 80 else text[:80] + "…"
