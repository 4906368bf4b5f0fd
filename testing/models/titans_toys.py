"""Tiny titans_mag models made by hand, as `toy_models` makes those of Qwen2; and their toy training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_forge.weights import operations
from agent_forge.weights.architectures.titans_mag.modeling_titans_mag import TitansMagForCausalLM
from agent_forge.weights.operations import titans_mag_init
from agent_forge.weights.recipes import Transform
from agent_forge.weights.tensors import Tensors
from testing.models import toy_models
from testing.models.toys import Toys

SHAPE: dict[str, Any] = {
    "vocabulary": 320,
    "hidden": 16,
    "layers": 3,
    "heads": 2,
    "kv_heads": 1,
    "intermediate": 32,
    "context": 64,
    "window": 8,
    "chunk": 8,
    "persistent": 2,
    "memory": "linear",
}


def module(**changes: Any) -> TitansMagForCausalLM:
    """Return a model of three blocks, 16 wide, in which projections are large enough to matter."""
    scale = changes.pop("initializer_range", 0.02)
    config = titans_mag_init.configuration(titans_mag_init.TitansMagShape(**{**SHAPE, **changes}))
    config.initializer_range = scale
    return TitansMagForCausalLM(config)


def family(folder: Path, count: int = 3, **changes: Any) -> tuple[Path, list[Path]]:
    """Write a base and sources; return the folders."""
    return toy_models.family(folder, count, of=module, **changes)


def toys(folder: Path, **changes: Any) -> Toys:
    """Write a base, three sources and data; return them."""
    base, sources = family(folder / "models", **changes)
    return Toys(base, tuple(sources), toy_models.data(folder / "data"))


def initial(**changes: Any) -> Tensors:
    """Return the model that toy trainings start from, two blocks with 64 tokens."""
    shape = {**SHAPE, "vocabulary": 64, "layers": 2, "context": 32, "window": 4, "chunk": 4}
    recipe = Transform(operation="titans-mag-init@1", params={**shape, **changes}, seed=3)
    return operations.apply(operations.complete(recipe), {})
