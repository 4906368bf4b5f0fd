"""Settings of two models that change what the same weights compute, compared key by key.

Both config.json are read as transformers reads them: defaults filled in, old spellings as new ones,
`text_config` inside. Every key counts, but those that are known to have no bearing on what the weights
compute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agent_forge.weights.block_names import COUNT_KEYS
from agent_forge.weights.folders import model_config

if TYPE_CHECKING:
    from agent_forge.weights.folders.checkpoint import Checkpoint

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
#: Keys without a bearing: names, versions, what is returned, training alone, and what other parts of
#: this program compare (tensors, heads, quantisation) or other keys say (`layer_types`).
IRRELEVANT = {
    *COUNT_KEYS,
    "architectures",
    "model_type",
    "transformers_version",
    "unsloth_version",
    "unsloth_fixed",
    "_name_or_path",
    "name_or_path",
    "auto_map",
    "dtype",
    "torch_dtype",
    "quantization_config",
    "tie_word_embeddings",
    "use_cache",
    "output_hidden_states",
    "output_attentions",
    "output_router_logits",
    "output_scores",
    "return_dict",
    "return_dict_in_generate",
    "torchscript",
    "use_bfloat16",
    "chunk_size_feed_forward",
    "gradient_checkpointing",
    "pretraining_tp",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "finetuning_task",
    "task_specific_params",
    "init_std",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "max_window_layers",
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "no_rope_layer_interval",
    "temperature",
    "top_k",
    "top_p",
    "do_sample",
    "max_length",
    "min_length",
    "max_new_tokens",
    "num_beams",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
}
_IRRELEVANT_PARTS = ("dropout", "pdrop", "layerdrop", "initializer", "summary_")
_IDS = ("token_id", "token_ids", "token_index")
#: Objects of settings whose own names say nothing to a reader.
_TRANSPARENT = {"rope_parameters"}


def compare_settings(a: Checkpoint, b: Checkpoint, apart: Collection[str] = ()) -> list[str]:
    """Return a warning for each setting that differs and changes what the weights compute.

    `apart`: keys that are left out.
    """
    left, right = (
        _standard(model_config.configuration(model.given, model.config).to_dict())
        for model in (a, b)
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


def _standard(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a configuration, with the sizes of heads that follow from others."""
    settings = {
        key: _standard(value) if isinstance(value, Mapping) else value
        for key, value in config.items()
    }
    if "rope_type" in settings:
        settings.pop("type", None)  # its old name
    hidden, heads = settings.get("hidden_size"), settings.get("num_attention_heads")
    if settings.get("head_dim") is None and type(hidden) is int and type(heads) is int and heads:
        settings["head_dim"] = hidden // heads
    return settings


def _differences(
    left: Mapping[str, Any], right: Mapping[str, Any], where: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield (key, left's value, right's value) of settings that differ, objects of settings inside."""
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
    left: Mapping[str, Any], right: Mapping[str, Any], value: Any, other: Any
) -> bool:
    """Return True for lists with an entry a layer, of models with different numbers of layers."""
    if not isinstance(value, list) or not isinstance(other, list):
        return False
    counts = [next((s[k] for k in COUNT_KEYS if k in s), None) for s in (left, right)]
    return counts[0] != counts[1] and counts == [len(value), len(other)]


def _shown(value: Any) -> str:
    """Return a value for a message, short."""
    text = str(value)
    return text if len(text) <= 80 else text[:80] + "…"
