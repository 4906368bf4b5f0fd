"""Comparison of a model folder with the module that transformers would build from it.

A folder is config.json and named tensors, and both come from anywhere: quantised codes under the names
of weights, masks of old files, a head that is stored although the config ties it. `confront` builds the
class that transformers would build, without weights, and gives it the tensors' names and shapes. It
returns which tensors the model has and under which names, or raises an error with the remedy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agent_forge.runs.errors import SourceError
from agent_forge.weights.folders import companions, model_config
from agent_forge.weights.folders.parameters import LoadableTensors, fill, saved_name
from agent_forge.weights.tensors import Shape

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: dtypes by the names that safetensors gives them.
TORCH = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F64": torch.float64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
#: Ends of the names of tensors that quantised models have beside or instead of a weight (GPTQ, AWQ,
#: bitsandbytes, compressed-tensors, fp8).
CODES = (
    *(".qweight", ".qzeros", ".scales", ".g_idx", ".SCB", ".CB", ".absmax", ".quant_map"),
    *(".weight_scale", ".weight_scale_inv", ".weight_packed", ".weight_zero_point", ".weight_format"),
    *("bitsandbytes__nf4", "bitsandbytes__fp4"),
)

#: Name → (dtype as safetensors names it, shape).
Shapes = Mapping[str, tuple[str, Shape]]


@dataclass(frozen=True)
class FolderFit:
    """Tensors of a folder, matched with those of the model that transformers builds."""

    #: Name of a tensor of the model, as transformers saves it → its name in the files.
    stored: Mapping[str, str]
    #: True if transformers packs some of the tensors together when it loads them.
    packed: bool
    #: Content of config.json; `tie_word_embeddings` agrees with the stored tensors.
    config: Mapping[str, object]
    warnings: tuple[str, ...]


def confront(
    folder: Path,
    config: Mapping[str, object],
    shapes: Shapes,
    equal: Callable[[str, str], bool] = lambda head, embedding: True,
) -> FolderFit:
    """Return the FolderFit of a model's tensors and its config.json; messages name `folder`.

    `equal` tells if two stored tensors have the same values; it is called for a head that is stored
    although the config ties it. Raises SourceError for tensors that transformers could not load, or
    would load as another model.
    """
    text = json.dumps(config, sort_keys=True, default=str)
    fit, heads = _fit(str(folder), text, tuple(sorted(shapes.items())))
    stored, settings = dict(fit.stored), dict(config)
    warnings = list(fit.warnings)
    for head, embedding in heads.items():
        if equal(stored[head], stored[embedding]):
            del stored[head]
            continue
        settings = _untied(settings)
        warnings.append(
            f"config.json of {folder.name} has tie_word_embeddings: true, yet another head is stored "
            f"({stored[head]}). Both are used, as transformers does: the model is not tied."
        )
    return FolderFit(stored, fit.packed, settings, tuple(warnings))


def _untied(config: Mapping[str, object]) -> dict[str, object]:
    """Return the config.json with `tie_word_embeddings` false, in its `text_config`, too, if there."""
    changed = {**config, "tie_word_embeddings": False}
    inner = changed.get("text_config")
    if isinstance(inner, dict) and "tie_word_embeddings" in inner:
        changed["text_config"] = {**inner, "tie_word_embeddings": False}
    return changed


@lru_cache(maxsize=32)
def _fit(
    folder: str, text: str, shapes: tuple[tuple[str, tuple[str, Shape]], ...]
) -> tuple[FolderFit, dict[str, str]]:
    """Return (fit, head → embedding of each head that is stored although the config ties it)."""
    place, config = Path(folder), json.loads(text)
    _check_quantised(place, config, dict(shapes))
    module = model_config.module(place, config)
    tensors = {
        name: torch.empty(shape, dtype=TORCH[dtype], device="meta") for name, (dtype, shape) in shapes
    }
    try:
        filled = fill(module, tensors)
    except (ValueError, RuntimeError, KeyError, IndexError, TypeError) as error:
        raise SourceError(
            f"the tensors of {place} cannot be packed as transformers packs those of a "
            f"{config.get('model_type')} model: {' '.join(str(error).split())[:200]}"
        ) from error
    tied = dict(module.get_expanded_tied_weights_keys(all_submodels=True))
    _check_names(place, config, filled, tied)
    _check_shapes(place, module, filled, tensors)
    stored = {}
    for name, slot in filled.renamed.items():
        # The embedding may be stored under the head's name only.
        source = tied.get(slot, slot)
        stored[saved_name(module, slot if source in filled.tensors else source)] = name
    stored |= {name: name for name in filled.packed}
    heads = {
        saved_name(module, head): saved_name(module, embedding)
        for head, embedding in tied.items()
        if head in filled.tensors and embedding in filled.tensors
    }
    fit = FolderFit({n: stored[n] for n in sorted(stored)}, bool(filled.packed), config, ())
    return fit, heads


def _check_quantised(folder: Path, config: Mapping[str, Any], shapes: Shapes) -> None:
    """Raise SourceError if config.json announces quantised tensors, or a dtype cannot be read."""
    inner = config.get("text_config") or {}
    settings = config.get("quantization_config") or inner.get("quantization_config")
    if settings:
        raise SourceError(_quantised(folder, _method(settings)))
    for name, (dtype, _) in shapes.items():
        if dtype not in TORCH:
            raise SourceError(_quantised(folder, f"the tensor {name} is {dtype}"))


def _method(settings: object) -> str:
    """Return a quantization_config's method and bits in words, as "gptq, 4 bits", or a phrase."""
    if not isinstance(settings, dict):
        return "quantization_config in its config.json"
    method = settings.get("quant_method") or "quantization_config in its config.json"
    bits = settings.get("bits") or settings.get("w_bit")
    for key, width in (("load_in_4bit", 4), ("load_in_8bit", 8)):
        bits = bits or (width if settings.get(key) is True else None)
    return f"{str(method)[:40]}, {bits} bits" if type(bits) is int else str(method)[:60]


def _quantised(folder: Path, why: str) -> str:
    """Return the error message about a quantised model, with the reason and the remedy."""
    return (
        f"model {folder} is quantised ({why}): its tensors are codes, not weights, and codes cannot be "
        "merged, trained or measured here. Give the model that it was made of, or dequantise it first "
        "with the library that made it (in transformers: model.dequantize(), then save_pretrained)."
    )


def _check_names(
    folder: Path, config: Mapping[str, object], filled: LoadableTensors, tied: Mapping[str, str]
) -> None:
    """Raise SourceError for tensors that are missing, are codes, or have no place in the model."""
    kind = config.get("model_type")
    codes = next((name for name in filled.unexpected if name.endswith(CODES)), None)
    if codes is not None:
        raise SourceError(_quantised(folder, f"it holds the tensor {codes}"))
    if filled.unexpected:
        names = ", ".join(filled.unexpected[:3])
        raise SourceError(
            f"{folder}: tensor {names} has no place in the {kind} model of its {companions.CONFIG}. "
            "The files are of another model, or of a class with code of its own."
        )
    lacking = [name for name in filled.missing if not _covered(name, tied, filled)]
    if not lacking:
        return
    embedding = _embedding(lacking[0], filled)
    if embedding is not None:
        raise SourceError(
            f"{folder}: {companions.CONFIG} says tie_word_embeddings: false, but no head "
            f"({lacking[0]}) is stored: transformers would draw one at random. Set "
            "tie_word_embeddings to true in it if the head is the embedding."
        )
    raise SourceError(
        f"{folder} lacks the tensor {lacking[0]}, which its {companions.CONFIG} describes."
    )


def _covered(name: str, tied: Mapping[str, str], filled: LoadableTensors) -> bool:
    """Return True if a missing tensor is tied to a stored one."""
    if name in tied:
        return tied[name] in filled.tensors
    return any(embedding == name and head in filled.tensors for head, embedding in tied.items())


def _embedding(name: str, filled: LoadableTensors) -> str | None:
    """Return the stored embedding's name if `name` is a head's; else, or if there is none, None."""
    if name.rpartition(".")[0].rpartition(".")[2] not in ("lm_head", "embed_out"):
        return None
    ends = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight")
    return next((slot for slot in filled.tensors if slot.endswith(ends)), None)


def _check_shapes(
    folder: Path, module: PreTrainedModel, filled: LoadableTensors, tensors: Mapping[str, torch.Tensor]
) -> None:
    """Raise SourceError for a tensor of another shape than the module's, or of integers."""
    slots = module.state_dict()
    names = {slot: name for name, slot in filled.renamed.items()}
    for slot, tensor in filled.tensors.items():
        name, described = names.get(slot, slot), slots[slot]
        if described.is_floating_point() and not tensor.is_floating_point():
            raise SourceError(_quantised(folder, f"the tensor {name} holds {tensor.dtype}"))
        if tensor.shape != described.shape:
            raise SourceError(
                f"{folder}: tensor {name} has the shape {list(tensor.shape)}, and "
                f"{companions.CONFIG} describes {list(described.shape)}."
            )
