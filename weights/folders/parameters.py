"""Parameters of a module of transformers, from tensors by their names in model folders.

When transformers loads a folder, it renames some tensors (a missing `transformer.` of GPT-2), leaves
some out (masks of old files), and packs others into one (the experts of a mixture). `fill` does the
same by transformers' table, for tensors in memory and for tensors on `meta`, which only have shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Test of a name.
Test = Callable[[str], object]


@dataclass(frozen=True)
class LoadableTensors:
    """Tensors of a folder, sorted by what transformers would do with each when it loads a module."""

    #: Parameter or stored buffer of the module → its tensor.
    tensors: Mapping[str, torch.Tensor]
    #: Given name → name in the module, of every tensor that is loaded unchanged.
    renamed: Mapping[str, str]
    #: Given names of tensors that are packed with others.
    packed: frozenset[str]
    #: Given names that transformers leaves out silently, such as masks of old files.
    ignored: tuple[str, ...]
    #: Given names that have no place in the module.
    unexpected: tuple[str, ...]
    #: Names in the module without a given tensor, except those that may be missing.
    missing: tuple[str, ...]


def fill(module: PreTrainedModel, tensors: Mapping[str, torch.Tensor]) -> LoadableTensors:
    """Return a LoadableTensors: which of the tensors a module gets, and which are left over.

    The module itself is not changed. Packed tensors are computed, in the dtype and on the device of the
    given ones; all others are the given objects. Raises ValueError if tensors cannot be packed.
    Source: `convert_and_load_state_dict_in_model` of transformers 5.24.
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
    module: PreTrainedModel, slots: dict[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]
) -> tuple[dict[str, str], dict[str, object], set[str], list[str]]:
    """Return (given name → slot, slot → pack, given names in packs, given names without a place)."""
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


def _patterns(module: PreTrainedModel) -> tuple[Test, Test]:
    """Return two tests of a name: (may be left out if given, may be missing)."""
    unexpected: set[str] = set(module._keys_to_ignore_on_load_unexpected or ())
    buffers = [name for name, _ in module.named_buffers()]
    if any(name.endswith("rotary_emb.inv_freq") for name in buffers):
        unexpected.add(r"rotary_emb\.inv_freq")  # one in each block, before transformers 4.48
    if any(name.endswith("position_ids") for name in buffers):
        unexpected.add(r"(^|\.)position_ids$")
    return _any(unexpected), _any(set(module._keys_to_ignore_on_load_missing or ()))


def _any(patterns: set[str]) -> Test:
    """Return a function that searches a name for any of the patterns; its result is None if none."""
    if not patterns:
        return lambda name: None
    return re.compile("|".join(f"({pattern})" for pattern in sorted(patterns))).search


def saved_name(module: PreTrainedModel, slot: str) -> str:
    """Return the name under which transformers saves a parameter of a module."""
    from transformers.core_model_loading import revert_weight_conversion

    names = list(revert_weight_conversion(module, {slot: module.state_dict()[slot]}))
    return names[0] if len(names) == 1 else slot


def fill_buffers(module: PreTrainedModel, device: torch.device) -> None:
    """Compute on `device`, as transformers does, the buffers of a module on `meta`, in place.

    Folders do not store these buffers. The parameters stay on `meta`.
    """
    for parameter in module.parameters():
        setattr(parameter, "_is_hf_initialized", True)  # noqa: B010  an attribute of transformers
    places: dict[int, torch.Tensor] = {}
    for name, buffer in list(module.named_buffers(remove_duplicate=False)):
        parent, _, leaf = name.rpartition(".")
        place = places.setdefault(id(buffer), torch.empty_like(buffer, device=device))
        module.get_submodule(parent)._buffers[leaf] = place
    module.initialize_weights()
