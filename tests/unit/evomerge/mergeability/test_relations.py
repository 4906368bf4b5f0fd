"""Relations of task vectors, by hand, beside whole decompositions, and on matrices of no change."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agent_forge.evomerge.mergeability.relations import DIRECTIONS, leading, overlaps, relations

UP, NORM, EMBEDDING = (
    "model.layers.{}.mlp.up_proj.weight",
    "model.norm.weight",
    "model.embed_tokens.weight",
)


def test_norms_cosines_and_signs_by_hand() -> None:
    """Base of norm 5; changes (1, 0, 2, 0) and (2, 1, −1, 0): of the two that both made one agrees."""
    base = {NORM: torch.tensor([3.0, 4.0, 0.0, 0.0])}
    first = {NORM: base[NORM] + torch.tensor([1.0, 0.0, 2.0, 0.0])}
    second = {NORM: base[NORM] + torch.tensor([2.0, 1.0, -1.0, 0.0])}
    found = relations(base, [first, second])
    assert found.norms == pytest.approx([5**0.5 / 5, 6**0.5 / 5])
    (pair,) = found.pairs
    assert pair.cosine == pytest.approx(0.0, abs=1e-7)
    assert pair.same_sign == pytest.approx(0.5)
    assert (pair.left, pair.right, found.layers) == (0.0, 0.0, [])


def test_overlap_is_of_the_spaces_that_changes_write_and_read() -> None:
    """Both write into the same rows; what they read has nothing in common."""
    base = {UP.format(0): torch.ones(32, 24)}
    first, second = torch.zeros(2, 32, 24)
    first[:8, :8] = torch.diag(torch.arange(1.0, 9))
    second[:8, 12:20] = torch.diag(torch.arange(8.0, 0, -1))
    models = [{UP.format(0): base[UP.format(0)] + delta} for delta in (first, second)]
    found = relations(base, models)
    (pair,), (layer,) = found.pairs, found.layers
    assert pair.left == pytest.approx(1.0, abs=1e-4)
    assert pair.right == pytest.approx(0.0, abs=1e-4)
    assert (layer.block, layer.left) == (0, pair.left)
    assert (found.chance_left, found.chance_right) == (8 / 32, 8 / 24)


def test_layers_are_told_apart() -> None:
    base = {UP.format(n): torch.ones(4, 4) for n in (0, 1)} | {EMBEDDING: torch.ones(5, 4)}
    moved = {name: x + (0.1 if "1" in name else 0.0) for name, x in base.items()}
    other = {name: x - 0.1 for name, x in base.items()}
    found = relations(base, [moved, other])
    assert [layer.block for layer in found.layers] == [0, 1]
    assert [layer.norms[0] for layer in found.layers] == pytest.approx([0.0, 0.1], abs=1e-6)
    assert [layer.cosine for layer in found.layers] == pytest.approx([0.0, -1.0], abs=1e-5)


@pytest.mark.parametrize("shape", [(90, 40), (40, 90), (6, 5), (1, 7)])
def test_leading_vectors_are_those_of_a_whole_decomposition(shape: tuple[int, int]) -> None:
    """Spectra fall as those of trained changes do."""
    draws = torch.Generator().manual_seed(3)
    u, s, vt = torch.linalg.svd(torch.randn(shape, generator=draws), full_matrices=False)
    matrix = u @ torch.diag(s * 0.8 ** torch.arange(len(s))) @ vt
    k = min(DIRECTIONS, *shape)
    left, right = leading(matrix, k)
    for found, wanted in ((left, u[:, :k]), (right, vt[:k].T)):
        assert float((found.T @ wanted).square().sum()) == pytest.approx(k, rel=1e-3)


def test_overlaps_of_chance_and_of_nothing() -> None:
    """Random 200 × 100 matrices overlap in about 8/200 and 8/100; no change overlaps with nothing."""
    draws = torch.Generator().manual_seed(4)
    matrices = [*torch.randn(12, 200, 100, generator=draws), torch.zeros(200, 100)]
    left, right = overlaps(matrices)
    upper = np.triu_indices(12, 1)
    assert left[upper].mean() == pytest.approx(8 / 200, rel=0.2)
    assert right[upper].mean() == pytest.approx(8 / 100, rel=0.2)
    assert np.diag(left)[:12] == pytest.approx(1.0, abs=1e-4)
    assert not left[12].any()


def test_a_source_that_is_its_base_has_no_relations() -> None:
    base = {UP.format(0): torch.ones(9, 9)}
    found = relations(base, [dict(base), {UP.format(0): torch.zeros(9, 9)}])
    (pair,) = found.pairs
    assert found.norms == [0.0, 1.0]
    assert (pair.cosine, pair.same_sign, pair.left, pair.right) == (0.0, 0.0, 0.0, 0.0)
