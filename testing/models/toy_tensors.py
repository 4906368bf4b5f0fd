"""Weights and items made by hand: named tensors, sources that differ a little, texts, questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from agent_forge.evaluation.data.items import Question, Text
from agent_forge.evomerge.merging.builder import Builder, Weights
from agent_forge.evomerge.recipes.recipe import Recipe, Source
from agent_forge.runs import keys

#: Two blocks, an embedding, a final norm; the names of a Qwen2 or Llama model.
SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (12, 8),
    "model.layers.0.mlp.up_proj.weight": (16, 8),
    "model.layers.0.input_layernorm.weight": (8,),
    "model.layers.1.mlp.up_proj.weight": (16, 8),
    "model.layers.1.input_layernorm.weight": (8,),
    "model.layers.2.mlp.up_proj.weight": (16, 8),
    "model.norm.weight": (8,),
}


def weights(
    seed: str, shapes: Mapping[str, tuple[int, ...]] = SHAPES, scale: float = 1.0
) -> dict[str, torch.Tensor]:
    """Return random float32 tensors, a function of `seed` and their names alone."""
    made = {}
    for name, shape in shapes.items():
        values = keys.generator("toys", seed, name).standard_normal(shape)
        made[name] = torch.from_numpy(values).float() * scale
    return made


class Toys:
    """A base and some sources as `Source` recipes, and builders that know them."""

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]] = SHAPES,
        count: int = 3,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        origin = weights("base", shapes)
        models = [origin]
        for i in range(count):
            move = weights(f"source-{i}", shapes, 0.05)
            models.append({name: origin[name] + move[name] for name in shapes})
        self.stored: dict[str, Weights] = {}
        self.known: dict[str, Recipe] = {}
        for number, model in enumerate(models):
            source = Source(digest=f"{number:064x}")
            self.known[source.id] = source
            self.stored[source.id] = {name: x.to(dtype) for name, x in model.items()}
        self.base, *sources = self.known
        self.sources = tuple(sources)

    @property
    def origin(self) -> Weights:
        """The base's weights."""
        return self.stored[self.base]

    def inputs(self) -> list[Weights]:
        """Return the sources' weights, in order."""
        return [self.stored[id_] for id_ in self.sources]

    def builder(self, recipes: Iterable[Recipe] = (), **cached: Weights) -> Builder:
        """Return a builder that also knows `recipes`; `cached`: weights at hand by recipe id."""
        known = {**self.known, **{recipe.id: recipe for recipe in recipes}}
        return Builder(known, {**self.stored, **cached}.get)

    def build(self, recipe: Recipe, *others: Recipe) -> Weights:
        """Return the weights of a recipe, rebuilt from the sources."""
        return self.builder([recipe, *others]).build(recipe)


def same(a: Weights, b: Weights) -> bool:
    """Return True if names, dtypes and bits are equal."""
    return list(a) == list(b) and all(a[n].dtype == b[n].dtype and torch.equal(a[n], b[n]) for n in a)


def distance(a: Weights, b: Weights) -> float:
    """Return the Euclidean distance over all tensors."""
    return sum(float((a[n].double() - b[n].double()).square().sum()) for n in b) ** 0.5


def t(*values: float) -> torch.Tensor:
    """Return a float32 vector."""
    return torch.tensor(values, dtype=torch.float32)


def close(found: torch.Tensor, *values: float) -> bool:
    """Return True if the values are equal to a few ulps of float32."""
    return torch.allclose(found.reshape(-1), t(*values), rtol=1e-6, atol=1e-7)


def texts(*contents: str, domain: str = "d") -> list[Text]:
    """Return texts of the test slice."""
    return [
        Text(id=f"{domain}{i}", domain=domain, slice="test", text=text)
        for i, text in enumerate(contents)
    ]


def question(answer: int = 0, **changes: Any) -> Question:
    """Return a question of two choices."""
    fields = {"id": "q", "domain": "d", "slice": "test", "prompt": "2 + 2 =", "answer": answer}
    return Question.model_validate({**fields, "choices": (" 4", " 55"), **changes})
