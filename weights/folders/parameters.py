"""Parameters of a module of transformers, from tensors as model folders name them.

transformers renames some tensors when it loads a folder (a missing `transformer.` of GPT-2), leaves
some out (masks of old files), and packs others into one (the experts of a mixture). `fill` does the
same with transformers' own table, for tensors in memory as well as for tensors on `meta`, which only
have shapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class LoadableTensors:
    """Tensors that transformers would load into a module, and those that it would not."""

    #: Parameter or stored buffer of the module → its tensor.
    tensors: Mapping[str, torch.Tensor]
    #: Given name → name in the module, of every tensor that goes there as it is.
    renamed: Mapping[str, str]
    #: Given names of tensors that are packed with others.
    packed: frozenset[str]
    #: Given names that transformers leaves out without a word, such as masks of old files.
    ignored: tuple[str, ...]
    #: Given names that have no place in the module.
    unexpected: tuple[str, ...]
    #: Names in the module that no tensor was given for, without those that may be left out.
    missing: tuple[str, ...]


def fill(module: Any, tensors: Mapping[str, torch.Tensor]) -> LoadableTensors:
    """Return the parameters and stored buffers of a module that tensors of these names give.

    The module itself is not changed. Tensors that are packed are computed, in the dtype and on the
    device of those given; all others are the given objects. Raises ValueError if tensors cannot be
    packed. Source: `convert_and_load_state_dict_in_model` of transformers 5.24.
    """
    slots = module.state_dict()
    ignored_names, optional_names = _patterns(module)
    filled: dict[str, torch.Tensor] = {}
    renamed: dict[str, str] = {}
    leftover: list[str] = []
    if set(tensors) <= set(slots):
        filled, renamed = dict(tensors), {name: name for name in tensors}
        packs: dict[str, Any] = {}
        members: set[str] = set()
    else:
        renamed, packs, members, leftover = _placed(module, slots, tensors)
        filled = {slot: tensors[name] for name, slot in renamed.items()}
    for slot, pack in packs.items():
        for name, tensor in pack.convert(slot, model=module, config=module.config).items():
            filled[name] = tensor[0] if isinstance(tensor, list) else tensor
    missing = set(slots) - set(filled)
    return LoadableTensors(
        filled,
        renamed,
        frozenset(members),
        tuple(name for name in leftover if ignored_names(name)),
        tuple(name for name in leftover if not ignored_names(name)),
        tuple(sorted(name for name in missing if not optional_names(name))),
    )


def _placed(
    module: Any, slots: dict[str, Any], tensors: Mapping[str, torch.Tensor]
) -> tuple[dict[str, str], dict[str, Any], set[str], list[str]]:
    """Return where tensors go: one to one, into which packs, and the names without a place."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import (
        WeightConverter,
        WeightRenaming,
        dot_natural_key,
        rename_source_key,
    )

    transforms = get_model_conversion_mapping(module)
    renamings = [each for each in transforms if isinstance(each, WeightRenaming)]
    converters = [each for each in transforms if isinstance(each, WeightConverter)]
    by_pattern = {p: converter for converter in converters for p in converter.source_patterns}
    prefix = module.base_model_prefix
    renamed: dict[str, str] = {}
    packs: dict[str, Any] = {}
    members: set[str] = set()
    leftover: list[str] = []
    for name in sorted(tensors, key=dot_natural_key):
        slot, pattern = rename_source_key(name, renamings, converters, prefix, slots)
        if slot not in slots and name in slots:
            slot, pattern = name, None
        if slot not in slots:
            leftover.append(name)
        elif pattern is None:
            renamed[name] = slot
        else:
            pack = packs.setdefault(slot, deepcopy(by_pattern[pattern]))
            pack.add_tensor(slot, name, pattern, tensors[name])
            members.add(name)
    return renamed, packs, members, leftover


def _patterns(module: Any) -> tuple[Any, Any]:
    """Return two tests of names: may be left out if given, may be missing."""
    unexpected: set[str] = set(module._keys_to_ignore_on_load_unexpected or ())
    buffers = [name for name, _ in module.named_buffers()]
    if any(name.endswith("rotary_emb.inv_freq") for name in buffers):
        unexpected.add(r"rotary_emb\.inv_freq")  # one in each block, before transformers 4.48
    if any(name.endswith("position_ids") for name in buffers):
        unexpected.add(r"(^|\.)position_ids$")
    return _any(unexpected), _any(set(module._keys_to_ignore_on_load_missing or ()))


def _any(patterns: set[str]) -> Any:
    """Return the search for any of some patterns of transformers; it finds nothing without one."""
    if not patterns:
        return lambda name: None
    return re.compile("|".join(f"({pattern})" for pattern in sorted(patterns))).search


def saved_name(module: Any, slot: str) -> str:
    """Return the name under which transformers saves a parameter of a module."""
    from transformers.core_model_loading import revert_weight_conversion

    names = list(revert_weight_conversion(module, {slot: module.state_dict()[slot]}))
    return names[0] if len(names) == 1 else slot


def fill_buffers(module: Any, device: torch.device) -> None:
    """Compute the buffers of a module on `meta` that no folder stores, as transformers does on loading.

    Its parameters stay where they are.
    """
    for parameter in module.parameters():
        parameter._is_hf_initialized = True
    places: dict[int, torch.Tensor] = {}
    for name, buffer in list(module.named_buffers(remove_duplicate=False)):
        parent, _, leaf = name.rpartition(".")
        place = places.setdefault(id(buffer), torch.empty_like(buffer, device=device))
        module.get_submodule(parent)._buffers[leaf] = place
    module.initialize_weights()
