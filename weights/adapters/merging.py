"""Merge of LoRA adapters of one base into an adapter, module by module.

The combinations are the eleven of peft's `add_weighted_adapter`. With Δᵢ = sᵢ Bᵢ Aᵢ and weights wᵢ:

    cat, svd              Σ wᵢ Δᵢ, exactly; svd: the nearest matrix of a rank
    NAME_svd              a merge NAME of the Δᵢ themselves, then the nearest matrix of a rank
    NAME                  the merge NAME of the Aᵢ and of the Bᵢ, each with weights √|wᵢ sᵢ|; a negative
                          weight stands at A. B A of the sums has products of different adapters, too

NAME is `linear`, `ties`, `dare_linear`, `dare_ties` or `magnitude_prune` (svd is linear_svd). TIES
(arXiv 2306.01708) elects signs without weights, as peft does; DARE (arXiv 2311.03099) divides by the
density.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from agent_forge.events.envelope import Plain
from agent_forge.runs.errors import ConfigError, SourceError
from agent_forge.weights import randomness
from agent_forge.weights.adapters import pairs
from agent_forge.weights.adapters.choices import Combination
from agent_forge.weights.adapters.pairs import AdapterPair, PairFolder, truncated
from agent_forge.weights.folders.checkpoint import publish
from agent_forge.weights.storage.output_folder import check_target

#: File that says how an adapter was made; it marks a folder that may be replaced.
RECORD = "adapter_merge.json"
#: Keys of adapter_config.json that choose layers beside `target_modules`.
_CHOOSING = ("layers_to_transform", "layers_pattern", "exclude_modules")


def merge(folders: Sequence[Path], weights: Sequence[float], how: Combination, out: Path) -> Plain:
    """Merge adapters into `out`, for peft; return a dict: folder, rank, module count, notes, record.

    Raises ConfigError, ConflictError, SourceError, UnavailableError.
    """
    place = check_target(out, lambda folder: (folder / RECORD).is_file())
    if len(folders) < 2 or len(set(folders)) < len(folders):
        raise ConfigError("a merge of adapters needs two or more, each given once.")
    how.check(weights, len(folders))
    opened = [PairFolder(folder) for folder in folders]
    modules = sorted({module for adapter in opened for module in adapter.modules})
    first = [adapter.pair(min(adapter.modules)) for adapter in opened]
    rank = how.rank or max(_rank(adapter, pair) for adapter, pair in zip(opened, first, strict=True))
    module_pairs = {module: _module(module, opened, weights, how, rank) for module in modules}
    bases = [str(adapter.settings.get("base_model_name_or_path")) for adapter in opened]
    settings = {
        "base_model_name_or_path": bases[0],
        "target_modules": _targets(opened, modules),
        "fan_in_fan_out": _common_flag(opened, "fan_in_fan_out"),
        "task_type": opened[0].settings.get("task_type"),
    }
    record = {
        "combination": asdict(how),
        "adapters": [
            {"name": adapter.folder.name, "weight": weight, "files": adapter.digests}
            for adapter, weight in zip(opened, weights, strict=True)
        ],
    }

    def fill(folder: Path) -> None:
        pairs.write(folder, module_pairs, settings, opened[0].dtype)
        (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
        (folder / "README.md").write_text(_card(bases[0], record), "utf-8")

    publish(place, fill)
    notes = [f"the adapters name other bases: {', '.join(dict.fromkeys(bases))}"]
    return {
        "folder": str(place),
        "rank": max(pair.rank for pair in module_pairs.values()),
        "modules": len(module_pairs),
        "notes": notes if len(set(bases)) > 1 else [],
        **record,
    }


def _rank(adapter: PairFolder, pair: AdapterPair) -> int:
    """Return an adapter's largest rank by its settings (`r`, `rank_pattern`), else that of `pair`."""
    ranks = [adapter.settings.get("r", pair.rank)]
    ranks += (adapter.settings.get("rank_pattern") or {}).values()
    return max((rank for rank in ranks if type(rank) is int), default=pair.rank)


def _module(
    module: str, opened: Sequence[PairFolder], weights: Sequence[float], how: Combination, rank: int
) -> AdapterPair:
    """Return the merged AdapterPair of a module. Raises SourceError if the adapters' shapes differ."""
    changing = [
        (opened_adapter, w)
        for opened_adapter, w in zip(opened, weights, strict=True)
        if module in opened_adapter.modules
    ]
    parts = [adapter.pair(module) for adapter, _ in changing]
    for (adapter, _), part in zip(changing, parts, strict=True):
        if (part.sides, part.embedding) != (parts[0].sides, parts[0].embedding):
            raise SourceError(
                f"{module} is {list(parts[0].sides)} in adapter {changing[0][0].folder} and "
                f"{list(part.sides)} in {adapter.folder}: they are of different bases."
            )
    return combined(how, module, parts, [weight for _, weight in changing], rank)


def _targets(opened: Sequence[PairFolder], modules: Sequence[str]) -> list[str]:
    """Return the sorted union of `target_modules`; `modules` if one is no list or other keys choose."""
    lists = [adapter.settings.get("target_modules") for adapter in opened]
    chosen = any(adapter.settings.get(key) for adapter in opened for key in _CHOOSING)
    if chosen or not all(isinstance(names, list) for names in lists):
        return list(modules)
    return sorted({str(name) for names in lists for name in names or ()})


def _common_flag(opened: Sequence[PairFolder], key: str) -> bool:
    """Return a true-or-false setting of all adapters. Raises ConfigError if they differ in it."""
    values = {bool(adapter.settings.get(key)) for adapter in opened}
    if len(values) > 1:
        raise ConfigError(f"the adapters differ in {key}: they are of different bases.")
    return values.pop()


def _card(base: str, record: Plain) -> str:
    """Return the text of README.md, the model card, of a merged adapter."""
    how = record["combination"]
    parameters = [f"{key} {how[key]}" for key in ("density", "rank") if how[key] is not None]
    rows = [
        f"| {adapter['name']} | {adapter['weight']:g} | "
        f"`{adapter['files']['adapter_model.safetensors'][:12]}` |"
        for adapter in record["adapters"]
    ]
    return "\n".join(
        [
            "---",
            "library_name: peft",
            f"base_model: {json.dumps(base)}",
            "tags:",
            "- lora",
            "- merge",
            "---",
            "",
            f"# A merge of {len(rows)} adapters by {', '.join([how['name'], *parameters])}",
            "",
            "| adapter | weight | BLAKE3 of its weights |",
            "|---|---:|---|",
            *rows,
            "",
        ]
    )


#: (number of the adapter, its part, count) → uniform random numbers in (0, 1), float64 [count].
Draw = Callable[[int, str, int], torch.Tensor]


def combined(
    how: Combination, module: str, pairs: Sequence[AdapterPair], weights: Sequence[float], rank: int
) -> AdapterPair:
    """Return the combination of a module's pairs, as an AdapterPair of scale 1.

    `rank` is that of the result of `svd` and `…_svd`. Raises ConfigError for pairs of several ranks
    if the method needs one rank.
    """
    scaled = [weight * pair.scale for weight, pair in zip(weights, pairs, strict=True)]
    embedding = pairs[0].embedding

    def draw(adapter: int, part: str, count: int) -> torch.Tensor:
        key = (how.seed, "adapter-mask", adapter, part, module)
        return torch.from_numpy(randomness.uniform(count, *key))

    if how.name in ("cat", "svd"):
        a = torch.cat([pair.a * weight for pair, weight in zip(pairs, scaled, strict=True)])
        b = torch.cat([pair.b for pair in pairs], dim=1)
        a, b = (a, b) if how.name == "cat" else _nearest(a, b, rank)
        return AdapterPair(a, b, embedding=embedding)
    if how.name.endswith("_svd"):
        deltas = [pair.delta() for pair in pairs]
        total = _merged(how, how.name.removesuffix("_svd"), deltas, weights, "delta", draw)
        return replace(truncated(total.double(), rank)[0], embedding=embedding)
    if len({pair.rank for pair in pairs}) > 1:
        ranks = ", ".join(str(pair.rank) for pair in pairs)
        raise ConfigError(
            f"{how.name} merges matrices of one rank, and {module} has the ranks {ranks}. Take "
            f"{'cat or svd' if how.name == 'linear' else f'cat, svd or {how.name}_svd'}."
        )
    roots = [abs(weight) ** 0.5 for weight in scaled]
    signed = [-root if weight < 0 else root for root, weight in zip(roots, scaled, strict=True)]
    a = _merged(how, how.name, [pair.a for pair in pairs], signed, "A", draw)
    b = _merged(how, how.name, [pair.b for pair in pairs], roots, "B", draw)
    return AdapterPair(a, b, embedding=embedding)


def _merged(
    how: Combination,
    name: str,
    tensors: Sequence[torch.Tensor],
    weights: Sequence[float],
    part: str,
    draw: Draw,
) -> torch.Tensor:
    """Return the weighted merge of tensors of one shape by the method `name` of `PLAIN`, same shape."""
    density = 1.0 if how.density is None else how.density
    if name.startswith("dare"):
        tensors = [_dropped(t, density, draw(i, part, t.numel())) for i, t in enumerate(tensors)]
    elif name != "linear":
        tensors = [_largest(t, density) for t in tensors]
    stacked = torch.stack(list(tensors))
    factors = torch.tensor(list(weights)).reshape(-1, *[1] * tensors[0].dim())
    if not name.endswith("ties"):
        return (stacked * factors).sum(0)
    votes = stacked.sign().sum(0) if how.sign == "frequency" else stacked.sum(0)
    agrees = stacked.sign() == torch.where(votes >= 0, 1, -1)
    return (stacked * factors * agrees).sum(0) / agrees.sum(0).clamp(min=1)


def _largest(tensor: torch.Tensor, density: float) -> torch.Tensor:
    """Return the tensor with all but its ⌊density · n⌋ largest numbers, by magnitude, set to 0."""
    if density >= 1:
        return tensor
    flat, count = tensor.flatten(), int(density * tensor.numel())
    places = flat.abs().topk(count).indices
    return torch.zeros_like(flat).index_copy(0, places, flat[places]).reshape(tensor.shape)


def _dropped(tensor: torch.Tensor, density: float, drawn: torch.Tensor) -> torch.Tensor:
    """Return the tensor over `density`, with the numbers of `drawn` ≥ density set to 0."""
    if density >= 1:
        return tensor
    return tensor * (drawn < density).reshape(tensor.shape) / density


def _nearest(a: torch.Tensor, b: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (A [rank, inputs], B [outputs, rank]) whose product is nearest to B A, by QR of both."""
    left, upper = torch.linalg.qr(b.double())
    right, lower = torch.linalg.qr(a.double().T)
    u, s, vh = torch.linalg.svd(upper @ lower.T)
    columns = min(rank, len(s))
    return ((vh[:columns] @ right.T).float(), (left @ u[:, :columns] * s[:columns]).float())
