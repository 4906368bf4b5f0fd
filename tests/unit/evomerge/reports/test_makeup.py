"""Which source gave how much of a layer: values derived by hand."""

from __future__ import annotations

import math

import pytest
import torch

from agent_forge.evomerge.recipes.recipe import Flow, Grouped, Step
from agent_forge.evomerge.tasks.attribution import layer_of, makeup

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
FIRST, SECOND = "model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"
NORM = "model.norm.weight"
NAMES = (EMBEDDING, FIRST, SECOND, NORM, HEAD)


def model(**own: list[float]) -> dict[str, torch.Tensor]:
    """Four numbers a tensor; those not named are 1."""
    short = {"embedding": EMBEDDING, "first": FIRST, "second": SECOND, "norm": NORM, "head": HEAD}
    weights = {name: torch.ones(2, 2) for name in NAMES}
    for name, values in own.items():
        weights[short[name]] = torch.tensor(values).reshape(2, 2)
    return weights


BASE = model()
A = model(first=[3.0, 1.0, 1.0, 1.0], second=[1.0, 1.0, 2.0, 1.0])
B = model(first=[1.0, 5.0, 1.0, 1.0])


def rows(merged: dict[str, torch.Tensor], path: Flow | None = None, sources=(A, B)):
    return {row.layer: row for row in makeup(merged, BASE, list(sources), path)}


def test_a_sum_of_task_vectors_is_found_again() -> None:
    """Block 0: Δ = 0.3·(2,0,0,0) + 0.5·(0,4,0,0) = (0.6, 2, 0, 0)."""
    found = rows(model(first=[1.6, 3.0, 1.0, 1.0]))["block 0"]
    assert found.coefficients == pytest.approx([0.3, 0.5])
    assert found.explained == pytest.approx(1.0)
    assert found.moved == pytest.approx(math.sqrt(0.6**2 + 2.0**2) / 3)


def test_what_no_source_says_is_not_explained() -> None:
    """Δ = (1, 0, 1, 0): half of its square is along A's (2, 0, 0, 0)."""
    found = rows(model(first=[2.0, 1.0, 2.0, 1.0]))["block 0"]
    assert found.coefficients == pytest.approx([0.5, 0.0])
    assert found.explained == pytest.approx(0.5)


def test_where_the_merge_is_the_base_nothing_is_to_be_explained() -> None:
    found = rows(BASE)
    assert {row.explained for row in found.values()} == {None}
    assert found["block 0"].moved == 0
    assert found["embedding"].moved is None
    assert list(found) == ["embedding", "block 0", "block 1", "rest", "head"]


def test_sources_that_are_alike_share() -> None:
    """Of all sums that fit, the one with the smallest coefficients."""
    found = rows(model(first=[2.0, 1.0, 1.0, 1.0]), sources=(A, A))["block 0"]
    assert found.coefficients == pytest.approx([0.25, 0.25])


def test_a_block_that_a_path_put_there_is_compared_with_its_own() -> None:
    """A path 1, 0: the merge's block 0 is block 1 of A."""
    merged = model(first=[1.0, 1.0, 2.0, 1.0], second=[3.0, 1.0, 1.0, 1.0])
    inner = Grouped(method="ties", inputs=("a", "b"), base="c", depths=1, params=({},))
    path = Flow(merged=inner, steps=(Step(model=1, block=1), Step(model=1, block=0)))
    found = rows(merged, path)
    assert found["block 0"].coefficients == pytest.approx([1.0, 0.0])
    assert found["block 1"].coefficients == pytest.approx([1.0, 0.0])
    assert found["block 0"].explained == found["block 1"].explained == pytest.approx(1.0)


def test_stretches_do_not_change_the_result(monkeypatch) -> None:
    from agent_forge.evomerge.tasks import attribution as module

    torch.manual_seed(0)
    models = [{FIRST: torch.randn(7, 5)} for _ in range(4)]
    whole = makeup(models[0], models[1], models[2:])[0]
    monkeypatch.setattr(module, "STRETCH", 3)
    cut = makeup(models[0], models[1], models[2:])[0]
    assert cut.coefficients == pytest.approx(whole.coefficients, rel=1e-12)
    assert cut.explained == pytest.approx(whole.explained, rel=1e-12)


def test_layers_have_names() -> None:
    told = [layer_of(name) for name in (*NAMES, "transformer.wte.weight", "transformer.h.11.ln.bias")]
    assert told == ["embedding", "block 0", "block 1", "rest", "head", "embedding", "block 11"]
