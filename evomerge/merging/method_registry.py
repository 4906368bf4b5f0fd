"""Registry of merge techniques by name: their parameters, and the merge of one tensor."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch
from pydantic import BaseModel, ValidationError

from agent_forge.evomerge.merging.kernels.chunks import ChunkPool, Merge, Stretches
from agent_forge.runs.errors import ConfigError

#: Techniques that work on each tensor alone, by their module in evomerge.merging.methods. The
#: technique `stages`, a whole pipeline, is evomerge.merging.pipelines.
TECHNIQUES = (
    "linear",
    "slerp",
    "task_arithmetic",
    "ties",
    "dare",
    "dfs",
    "della",
    "breadcrumbs",
    "sce",
    "model_stock",
    "karcher",
    "nearswap",
    "passthrough",
    "stages",
    "nuslerp",
    "multislerp",
    "arcee_fusion",
    "ram",
    "ramplus_tl",
    "tsv_m",
    "iso_c",
)
#: Techniques that draw random masks.
SEEDED = ("dare", "della", "stages")


def module(name: str) -> Any:
    """Return a technique's Python module. Raise ConfigError if the technique is unknown."""
    if name not in TECHNIQUES:
        raise ConfigError(f"there is no merge technique {name!r}: {', '.join(TECHNIQUES)}.")
    place = "pipelines" if name == "stages" else f"methods.{name}"
    return import_module(f"agent_forge.evomerge.merging.{place}")


def parameters(name: str, settings: Mapping[str, object]) -> BaseModel:
    """Return a technique's checked `Params`. Raise ConfigError naming the wrong parameter."""
    try:
        return module(name).Params.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{name}: parameter {where}: {first['msg']}") from error


def check(name: str, params: BaseModel, count: int) -> None:
    """Raise ConfigError if the parameters do not suit `count` inputs: try them on a single zero."""
    nothing = torch.zeros(1, 1)
    work = Stretches("", nothing, [nothing] * count, ChunkPool(1))
    prepare(name, work, params, 0)


def prepare(name: str, work: Stretches, params: BaseModel, seed: int) -> Merge:
    """Return the `Merge` of one tensor, after the measurements of the tensor that it needs."""
    if name in SEEDED:
        return module(name).prepare(work, params, seed)
    return module(name).prepare(work, params)
