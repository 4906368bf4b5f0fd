"""Checks of a model folder's config and tokenizer files, before anything is built from them.

These files come from anywhere: they may have a billion layers, a word for a number, a list for an
object. `check` compares config.json with the stored tensors. `check_tokenizer` checks the tokenizer's
files. `described` turns other errors, which a library raises, into errors that name the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_forge.runs.errors import ForgeError, SourceError
from agent_forge.runs.system import bounded_files
from agent_forge.weights import block_names
from agent_forge.weights.block_names import COUNT_KEYS
from agent_forge.weights.tensors import Shape

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

FILE = "config.json"
#: Bytes of the largest config.json that is read.
MOST_BYTES = 4 << 20
#: The most blocks of a model whose tensors do not show the number.
MOST_BLOCKS = 10_000
#: Sizes and counts that are at most the longest side of a tensor.
SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "n_embd",
    "n_inner",
    "d_model",
    "moe_intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "n_head",
    "head_dim",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
)
#: Numbers of tokens, which need not be the side of any tensor.
POSITIONS = ("max_position_embeddings", "n_positions", "sliding_window")
MOST_POSITIONS = 1 << 31
#: Settings whose value is an object of settings.
OBJECTS = ("text_config", "rope_parameters", "rope_scaling")
#: Token ids are below this bound: every id has a row in the embedding.
MOST_IDS = 1 << 24
#: Files that transformers reads for a tokenizer.
TOKENIZER_FILES = (
    "tokenizer*.json",
    "*config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "chat_template.json",
    "*.txt",
    "*.jinja",
    "*.model",
)


def read(folder: Path) -> dict[str, object]:
    """Return the content of a folder's config.json. Raises SourceError if it is no JSON object."""
    return bounded_files.read_object(folder / FILE, MOST_BYTES)


def check(file: Path, config: Mapping[str, Any], shapes: Mapping[str, Shape]) -> None:
    """Raise SourceError, with file and key, if a setting does not fit the tensors' shapes."""
    kind = config.get("model_type")
    if kind is not None and not (isinstance(kind, str) and re.fullmatch(r"[\w.-]{1,100}", kind)):
        raise SourceError(f"{file}: model_type is {_shown(kind)}, not the name of an architecture.")
    for key in OBJECTS:
        if not isinstance(config.get(key), dict | None):
            raise SourceError(f"{file}: {key} is {_shown(config[key])}, not an object of settings.")
    stored = block_names.count(list(shapes)) or MOST_BLOCKS
    if stored > max(len(shapes), MOST_BLOCKS):
        raise SourceError(f"{file.parent}: a tensor is of block {stored - 1:,}, of few that there are.")
    longest = max((side for shape in shapes.values() for side in shape), default=0)
    for where, settings in (("", config), ("text_config.", config.get("text_config") or {})):
        for keys, most, why in (
            (COUNT_KEYS, stored, f"the weights hold {stored:,} blocks"),
            (SIZES, longest, f"no tensor has a side longer than {longest:,}"),
            (POSITIONS, MOST_POSITIONS, f"{MOST_POSITIONS:,} is the most"),
        ):
            for key in keys:
                _check_number(f"{file}: {where}{key}", settings.get(key), most, why)


def _check_number(name: str, value: object, most: int, why: str) -> None:
    """Raise SourceError unless the value is None, a whole number up to `most`, or a list of these."""
    for number in value if isinstance(value, list) else [value]:
        if number is None:
            continue
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise SourceError(f"{name} is {_shown(number)}, not a whole number.")
        if number > most:
            raise SourceError(f"{name} is {_shown(number)}, but {why}.")


def _shown(value: object) -> str:
    """Return a value's repr for a message, of about 60 characters, without control characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def check_predicts_tokens(folder: Path, config: Mapping[str, object]) -> None:
    """Raise SourceError if config.json names a class of transformers that is no causal language model.

    A class that transformers does not know passes: a later check of the tensors' names decides.
    """
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    named = config.get("architectures")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    if not names or set(names) & set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()):
        return
    other_classes = sorted(set(names) & set(dir(transformers)))  # `dir` imports none, and takes 0.3 s
    if other_classes:
        raise SourceError(
            f"{folder} holds a {other_classes[0]}, which does not predict the next token: a "
            "run compares "
            "causal language models. `forge merge` merges models of other kinds, without a search."
        )


def load(folder: Path) -> PreTrainedConfig:
    """Return the transformers configuration of a causal language model's folder. Raises SourceError."""
    settings = read(folder)
    check_predicts_tokens(folder, settings)
    return configuration(folder, settings)


def configuration(folder: Path, settings: Mapping[str, object]) -> PreTrainedConfig:
    """Return the transformers configuration of a config.json's content; messages name `folder`.

    Raises SourceError if transformers has no such model.
    """
    import transformers
    from transformers import CONFIG_MAPPING

    from agent_forge.weights.architectures import auto_config  # noqa: F401 - registers the configurations

    kind, code = settings.get("model_type"), settings.get("auto_map")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        named = f"is a {_shown(kind)} model" if kind else "names no model_type"
        remedy = "Check model_type, or use a transformers that has it."
        if code:
            remedy = (
                f"Its auto_map names code of its own ({_shown(code)}), and code that comes with a "
                "model is never run here."
            )
        raise SourceError(
            f"{folder / FILE} {named}, which transformers {transformers.__version__} has no class for: "
            f"nothing here could build it. {remedy}"
        )
    with described(f"{folder / FILE} is no configuration that transformers can use"):
        return CONFIG_MAPPING[kind].from_dict(dict(settings))


def empty(folder: Path, config: PreTrainedConfig) -> PreTrainedModel:
    """Return a configuration's causal language model on `meta`, without weights. Raises SourceError."""
    import torch

    from agent_forge.weights.architectures.auto import AutoModelForCausalLM

    with described(f"{folder / FILE} describes no model that can be built"), torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def module(folder: Path, settings: Mapping[str, object]) -> PreTrainedModel:
    """Return the module, on `meta`, that transformers builds from a config.json's content.

    If `architectures` names another class than a causal language model, such as one that also reads
    pictures, the module has that class. Raises SourceError if there is no such module.
    """
    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from agent_forge.weights.architectures.auto import AutoModelForCausalLM

    config = configuration(folder, settings)
    named = settings.get("architectures")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    if set(names) & set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()):
        return empty(folder, config)
    classes = [getattr(transformers, name, None) for name in names]
    model_classes = [c for c in classes if isinstance(c, type) and hasattr(c, "_from_config")]
    if not model_classes and type(config) in AutoModelForCausalLM._model_mapping:
        return empty(folder, config)
    with described(f"{folder / FILE} describes no model that can be built"), torch.device("meta"):
        if model_classes:
            return model_classes[0]._from_config(config)
        return transformers.AutoModel.from_config(config, trust_remote_code=False)


def check_tokenizer(folder: Path) -> None:
    """Raise SourceError, with file and key, if a tokenizer file is too large or has a wrong form."""
    for pattern in TOKENIZER_FILES:
        for file in sorted(folder.glob(pattern)):
            if file.suffix != ".json":
                bounded_files.check_size(file)
            elif file.name.startswith("tokenizer."):
                check_ids(file, bounded_files.read_object(file))
            else:
                _check_settings(file, bounded_files.read_object(file))


def _check_settings(file: Path, settings: Mapping[str, object]) -> None:
    """Raise SourceError for a wrong type in tokenizer_config.json; other files pass."""
    if file.name != "tokenizer_config.json":
        return
    if not isinstance(settings.get("tokenizer_class"), str | None):
        shown = _shown(settings["tokenizer_class"])
        raise SourceError(f"{file}: tokenizer_class is {shown}, not the name of a class.")
    if not isinstance(settings.get("model_max_length"), int | float | None):
        raise SourceError(
            f"{file}: model_max_length is {_shown(settings['model_max_length'])}, not a number."
        )


def check_ids(file: Path, content: Mapping[str, object]) -> None:
    """Raise SourceError if tokenizer.json has no model, or gives a token an id that no row can have."""
    model, added = content.get("model"), content.get("added_tokens") or []
    if not isinstance(model, dict):
        raise SourceError(f"{file}: model is {_shown(model)}, not an object of settings.")
    vocab = model.get("vocab")
    ids = dict(vocab) if isinstance(vocab, dict) else {}
    for token in added if isinstance(added, list) else [added]:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            raise SourceError(f"{file}: added_tokens has {_shown(token)}, which is no token.")
        ids[token["content"]] = token.get("id")
    for token, id_ in ids.items():
        if not isinstance(id_, int) or not 0 <= id_ < MOST_IDS:
            raise SourceError(
                f"{file}: token {_shown(token)} has the id {_shown(id_)}: ids are whole numbers from 0 "
                f"to {MOST_IDS - 1:,}."
            )


@contextmanager
def described(what: str) -> Iterator[None]:
    """Turn any library's error in the block into a SourceError that begins with `what`."""
    try:
        yield
    except ForgeError:
        raise
    except BaseException as error:
        panic = type(error).__module__ == "pyo3_runtime"  # of a library written in Rust
        if not (panic or isinstance(error, Exception)):
            raise
        message = " ".join(str(error).split())[:300]
        raise SourceError(f"{what}: {type(error).__name__}: {message}") from error
