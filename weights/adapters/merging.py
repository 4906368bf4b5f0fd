"""Merge of adapters of one base into an adapter, module by module."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runs.errors import ConfigError, SourceError
from weights.adapters import pairs
from weights.adapters.choices import Combination
from weights.adapters.combinations import combined
from weights.adapters.pairs import Pair, PairFolder
from weights.folders.checkpoint import publish
from weights.storage.output_folder import check_target

#: File that says how an adapter was made; it marks a folder that may be replaced.
RECORD = "adapter_merge.json"
#: Keys of adapter_config.json that choose layers beside `target_modules`.
_CHOOSING = ("layers_to_transform", "layers_pattern", "exclude_modules")


def merge(
    folders: Sequence[Path], weights: Sequence[float], how: Combination, out: Path
) -> dict[str, Any]:
    """Merge adapters into a folder that peft loads; return what was written, as JSON has it.

    Raises ConfigError, ConflictError, SourceError, UnavailableError.
    """
    place = check_target(out, lambda folder: (folder / RECORD).is_file())
    if len(folders) < 2 or len(set(folders)) < len(folders):
        raise ConfigError("a merge of adapters needs two or more, each given once.")
    how.check(weights, len(folders))
    opened = [PairFolder(folder) for folder in folders]
    modules = sorted({module for adapter in opened for module in adapter.modules})
    first = [adapter.pair(min(adapter.modules)) for adapter in opened]
    rank = how.rank or max(
        _rank(adapter, pair) for adapter, pair in zip(opened, first, strict=True)
    )
    module_pairs = {module: _module(module, opened, weights, how, rank) for module in modules}
    bases = [str(adapter.settings.get("base_model_name_or_path")) for adapter in opened]
    settings = {
        "base_model_name_or_path": bases[0],
        "target_modules": _targets(opened, modules),
        "fan_in_fan_out": _same(opened, "fan_in_fan_out"),
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


def _rank(adapter: PairFolder, pair: Pair) -> int:
    """Return the largest rank of an adapter, as its settings say it."""
    ranks = [adapter.settings.get("r", pair.rank)]
    ranks += (adapter.settings.get("rank_pattern") or {}).values()
    return max((rank for rank in ranks if type(rank) is int), default=pair.rank)


def _module(
    module: str,
    opened: Sequence[PairFolder],
    weights: Sequence[float],
    how: Combination,
    rank: int,
) -> Pair:
    """Return the pair of a module, of the adapters that change it. Raises SourceError for shapes."""
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
    """Return the union of the adapters' `target_modules`; whole names if these do not say it all."""
    lists = [adapter.settings.get("target_modules") for adapter in opened]
    chosen = any(adapter.settings.get(key) for adapter in opened for key in _CHOOSING)
    if chosen or not all(isinstance(names, list) for names in lists):
        return list(modules)
    return sorted({str(name) for names in lists for name in names or ()})


def _same(opened: Sequence[PairFolder], key: str) -> bool:
    """Return a setting that all adapters must have alike. Raises ConfigError."""
    values = {bool(adapter.settings.get(key)) for adapter in opened}
    if len(values) > 1:
        raise ConfigError(f"the adapters differ in {key}: they are of different bases.")
    return values.pop()


def _card(base: str, record: dict[str, Any]) -> str:
    """Return the card of a merged adapter."""
    how = record["combination"]
    parameters = [f"{key} {how[key]}" for key in ("density", "rank") if how[key] is not None]
    rows = [
        f"| {adapter['name']} | {adapter['weight']:g} | `{adapter['files']['adapter_model.safetensors'][:12]}` |"
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
