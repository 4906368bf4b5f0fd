"""Extraction of an adapter from a model: the low-rank part of its difference from a base.

For each linear layer the nearest matrix of rank r replaces the difference D = W' − W, as in mergekit's
`extract_lora` and in LoRD.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agent_forge.runs.errors import NotFiniteError, SourceError
from agent_forge.weights.adapters import pairs
from agent_forge.weights.adapters.pairs import AdapterPair, truncated
from agent_forge.weights.folders.checkpoint import Checkpoint, publish
from agent_forge.weights.folders.model_config import described
from agent_forge.weights.storage.output_folder import check_target
from agent_forge.weights.tensors import HEADS, Weights
from agent_forge.weights.training.models import low_rank

#: File that says how an adapter was made; it marks a folder that may be replaced.
RECORD = "adapter_extraction.json"
#: How many layers of the least energy are reported.
WORST = 5


@dataclass(frozen=True)
class FullModel:
    """A model whose adapter is extracted, or its base."""

    name: str
    #: The name by which peft loads a base: a Hub id, or a folder.
    known_as: str
    digest: str
    checkpoint: Checkpoint


@dataclass(frozen=True)
class Choice:
    """The rank and the layers that are extracted."""

    rank: int
    #: Last parts of the names of the layers; empty: all linear layers of the blocks.
    modules: tuple[str, ...] = ()
    #: True if embedding, head and norms that differ are saved whole (`modules_to_save`).
    whole: bool = False


def extract(base: FullModel, model: FullModel, out: Path, choice: Choice) -> dict[str, object]:
    """Write to `out` the adapter of `base` nearest to `model`; return a dict: folder, energies, losses.

    Raises ConfigError for a rank or layers that the model lacks, and the errors of models and folders.
    """
    place = check_target(out, lambda folder: (folder / RECORD).is_file())
    layers = _layers(base.checkpoint, choice)
    before, after = (source.checkpoint.tensors() for source in (base, model))
    _check_alike(base, model, before, after)
    module_pairs, energies = _pairs(before, after, layers, choice.rank)
    if not energies:
        raise SourceError(
            f"model {model.name} has no linear layer in its blocks that differs from {base.name}: "
            "there is nothing to extract."
        )
    rest = {n: d for n, d in _rest(before, after, module_pairs).items() if d > 0}
    saved = sorted({module for name in rest if (module := _module(name)) not in module_pairs})
    saved = saved if choice.whole else []
    lost = [name for name in rest if _module(name) not in saved]
    whole = sum(total for _, total in energies.values()) + sum(rest.values())
    by_rank = _by_rank(module_pairs, sum(rest[name] for name in rest if name not in lost), whole)
    record = {
        "base": {"name": base.name, "digest": base.digest},
        "model": {"name": model.name, "digest": model.digest},
        "rank": choice.rank,
        "modules": list(choice.modules),
        "energy": _share(list(energies.values())),
        "energy_by_layer": {name: _share([pair]) for name, pair in energies.items()},
        "kept": by_rank[str(choice.rank)],
        "kept_by_rank": by_rank,
        "saved": saved,
        "lost": lost,
        "lost_share": sum(rest[name] for name in lost) / whole,
    }
    settings = _settings(base, module_pairs, layers, saved)

    def fill(folder: Path) -> None:
        tensors = {name: tensor for name, tensor in after.items() if _module(name) in saved}
        tied = set(tensors) & set(HEADS) if base.checkpoint.tied else ()
        tensors |= {HEADS[name]: tensors[name].clone() for name in tied}  # peft reads both
        pairs.write(folder, module_pairs, settings, whole=tensors)
        (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
        (folder / "README.md").write_text(_card(base, record), "utf-8")

    publish(place, fill)
    return {"folder": str(place), **record, "worst": worst(record["energy_by_layer"])}


def worst(energies: Mapping[str, float]) -> dict[str, float]:
    """Return name → kept share of the `WORST` layers of which least is kept, the least first."""
    return dict(sorted(energies.items(), key=lambda row: (row[1], row[0]))[:WORST])


def _layers(checkpoint: Checkpoint, choice: Choice) -> dict[str, object]:
    """Return name → linear layer that gets an adapter. Raises ConfigError, SourceError."""
    from agent_forge.weights.architectures.auto import AutoModelForCausalLM
    from agent_forge.weights.architectures.auto_config import AutoConfig

    checkpoint.check_plain("what an adapter is extracted from")
    with described("the config describes no model that can be built"), torch.device("meta"):
        config = AutoConfig.for_model(**dict(checkpoint.config))
        module = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    return low_rank.chosen(module, choice.rank, choice.modules)


def _check_alike(base: FullModel, model: FullModel, before: Weights, after: Weights) -> None:
    """Raise SourceError unless both models have the same tensors; a tied head may be missing in one."""
    heads = set(HEADS.values())
    for name in sorted((set(before) ^ set(after)) - heads):
        has, lacks = (base, model) if name in before else (model, base)
        raise SourceError(f"tensor {name} is in {has.name} but not in {lacks.name}.")
    for name in sorted(set(before) & set(after)):
        if before[name].shape != after[name].shape:
            raise SourceError(
                f"tensor {name} is {list(before[name].shape)} in {base.name} and "
                f"{list(after[name].shape)} in {model.name}: it is no fine-tune of that base."
            )
        if not before[name].is_floating_point() or not after[name].is_floating_point():
            raise SourceError(f"tensor {name} is quantised: give models of floating-point weights.")


def _pairs(
    before: Weights, after: Weights, layers: Mapping[str, object], rank: int
) -> tuple[dict[str, AdapterPair], dict[str, tuple[float, float]]]:
    """Return (name → pair, of kinds of layers that differ; name → (kept, all) Σ σ², if not 0)."""
    pairs: dict[str, AdapterPair] = {}
    energies: dict[str, tuple[float, float]] = {}
    for name, layer in layers.items():
        tensor = f"{name}.weight"
        moved = after[tensor].double() - before[tensor].double()
        if not moved.isfinite().all():
            raise NotFiniteError(f"tensor {tensor} holds NaN or Inf in one of the models.")
        pair, *energy = truncated(moved.T if _transposed(layer) else moved, rank)
        pairs[name], energies[name] = pair, (energy[0], energy[1])
    changed = {name.rpartition(".")[2] for name, (_, total) in energies.items() if total}
    adapted = {name for name in pairs if name.rpartition(".")[2] in changed}
    return {n: pairs[n] for n in pairs if n in adapted}, {n: e for n, e in energies.items() if e[1]}


def _transposed(layer: object) -> bool:
    """Return True if a layer's matrix is [inputs, outputs], as GPT-2 has it."""
    return not isinstance(layer, torch.nn.Linear)


def _rest(before: Weights, after: Weights, modules: Collection[str]) -> dict[str, float]:
    """Return name → squared norm of the difference of each tensor that has no pair."""
    paired = {f"{name}.weight" for name in modules}
    tied = {head: embedding for embedding, head in HEADS.items() if embedding in before}
    names = [name for name in after if name not in paired]
    return {
        name: float((after[name].double() - before[stored].double()).square().sum())
        for name in names
        if (stored := name if name in before else tied.get(name))
    }


def _module(name: str) -> str:
    """Return the name of a tensor's module: all before the last dot."""
    return name.rpartition(".")[0]


def _by_rank(module_pairs: Mapping[str, AdapterPair], saved: float, whole: float) -> dict[str, float]:
    """Return rank as a string → share of `whole`, the models' squared difference, that it keeps.

    Ranks are the powers of two below the pairs' rank, and it; `saved` is the part in whole tensors.
    """
    squares = [
        (pair.a.double().norm(dim=1) * pair.b.double().norm(dim=0)).square()
        for pair in module_pairs.values()
    ]
    rank = max(len(values) for values in squares)
    ranks = [*(1 << power for power in range((rank - 1).bit_length())), rank]
    return {
        str(r): min((saved + sum(float(values[:r].sum()) for values in squares)) / whole, 1.0)
        for r in ranks
    }


def _share(energies: Sequence[Sequence[float]]) -> float:
    """Return the share of the squared singular values that is kept; 1 if nothing differs."""
    total = sum(energy[1] for energy in energies)
    return sum(energy[0] for energy in energies) / total if total else 1.0


def _settings(
    base: FullModel,
    module_pairs: Mapping[str, AdapterPair],
    layers: Mapping[str, object],
    saved: Sequence[str],
) -> dict[str, object]:
    """Return key → value of the settings in adapter_config.json that an extraction sets."""
    settings: dict[str, object] = {
        "base_model_name_or_path": base.known_as,
        "target_modules": sorted({name.rpartition(".")[2] for name in module_pairs}),
        "fan_in_fan_out": any(_transposed(layer) for layer in layers.values()),
    }
    if saved:
        settings["modules_to_save"] = list(saved)
        settings["ensure_weight_tying"] = base.checkpoint.tied
    return settings


def _card(base: FullModel, record: Mapping[str, Any]) -> str:
    """Return the text of README.md, the model card, of an extracted adapter."""
    lost = f"\nNot in the adapter: {', '.join(record['lost'])}.\n" if record["lost"] else ""
    return "\n".join(
        [
            "---",
            "library_name: peft",
            f"base_model: {json.dumps(base.known_as)}",
            "tags:",
            "- lora",
            "---",
            "",
            f"# {record['model']['name']} as an adapter of {base.name}",
            "",
            f"Rank {record['rank']}. It keeps {record['kept']:.4f} of the squared difference of the "
            "models.",
            lost,
            f"Weights of the base: BLAKE3 `{record['base']['digest']}`; of the model: "
            f"`{record['model']['digest']}`.",
            "",
        ]
    )
