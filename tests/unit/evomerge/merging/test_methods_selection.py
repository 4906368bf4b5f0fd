"""The selection techniques (dfs, frankenmerge) by hand, and properties that all techniques share."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_forge.evomerge.merging.methods import dfs, frankenmerge, linear, slerp, ties
from agent_forge.evomerge.recipes import tensor_groups
from agent_forge.runs.errors import ConfigError
from agent_forge.weights import block_names
from testing.models.toy_tensors import close, t

# Small integers: sums of them are exact in float32, so that orders can be compared bit for bit.
whole_numbers = st.lists(st.integers(-20, 20), min_size=6, max_size=6)
three_vectors = st.lists(whole_numbers, min_size=3, max_size=3)
orders = st.permutations(range(3))


# ---- dfs -----------------------------------------------------------------------------------

#: Rows 0, 0, 3: d² = ((0 + 9)/2, (0 + 9)/2, (9 + 9)/2) = (4.5, 4.5, 9), mean 6, ε·mean = 0.6;
#: importance 1/5.1, 1/5.1, 1/9.6; result 3·(1/9.6)/(2/5.1 + 1/9.6) = 3·5.1/(2·9.6 + 5.1).
OUTLIER = 3 * 5.1 / 24.3


def test_dfs_weighs_rows_by_their_agreement():
    """0.63 by hand, where the plain mean is 1: the outlier counts less."""
    assert close(dfs.merge([t(0), t(0), t(3)], 0.1), OUTLIER)


def test_dfs_judges_every_row_on_its_own():
    """Row 1 has its outlier in input 2, row 2 in input 0; columns of a row share their weight."""
    inputs = [[[0, 0], [3, 3]], [[0, 0], [0, 0]], [[3, 3], [0, 0]]]
    merged = dfs.merge([torch.tensor(x, dtype=torch.float32) for x in inputs], 0.1)
    assert close(merged, OUTLIER, OUTLIER, OUTLIER, OUTLIER)


def test_dfs_gives_an_outlier_row_less_weight():
    """Rows 0, 1, 10: d² = 50.5, 41, 90.5, mean 60⅔; the shares are as 1/(d² + 6.0667)."""
    by_hand = [1 / (d + 0.1 * (50.5 + 41 + 90.5) / 3) for d in (50.5, 41, 90.5)]
    wanted = (by_hand[1] * 1 + by_hand[2] * 10) / sum(by_hand)
    assert close(dfs.merge([t(0), t(1), t(10)], 0.1), wanted)
    assert wanted < 11 / 3


def test_dfs_with_a_large_guard_approaches_the_mean():
    """ε → ∞ makes the importances equal."""
    assert dfs.merge([t(0), t(0), t(3)], 1e6).item() == pytest.approx(1.0, abs=1e-5)


def test_dfs_copies_identical_rows_exactly():
    """Rows that nobody changed must keep their bits: 0.1 + 0.1 + 0.1 over 3 is not always 0.1."""
    rows = [torch.from_numpy(np.random.default_rng(i).normal(size=(5, 7))).float() for i in (1, 2, 3)]
    for row in rows[1:]:
        row[:4] = rows[0][:4]
    merged = dfs.merge(rows, 0.1)
    assert torch.equal(merged[:4], rows[0][:4])
    assert not torch.equal(merged[4], rows[0][4])


def test_dfs_of_zero_task_vectors_is_zero():
    """All distances are 0 and so is the guard; no 0/0."""
    assert torch.equal(dfs.merge([torch.zeros(2, 3)] * 3, 0.1), torch.zeros(2, 3))


def test_dfs_takes_a_vector_as_rows_of_one_element():
    """Norms and biases are vectors; each element is a feature."""
    inputs = [t(0, 5, 1), t(0, -5, 1), t(3, 0, 1)]
    column = dfs.merge([x.view(-1, 1) for x in inputs], 0.1).view(-1)
    assert torch.equal(dfs.merge(inputs, 0.1), column)
    assert close(column[:1], OUTLIER)


def test_dfs_refuses_two_inputs():
    """Two are equally far from each other: it would be the mean under another name."""
    with pytest.raises(ConfigError, match="plain mean"):
        dfs.merge([t(1), t(2)], 0.1)


def test_dfs_of_inputs_that_hardly_differ_is_finite():
    """Unused embedding rows and dead norms hold numbers like 1e-20; a merge must not be NaN there."""
    merged = dfs.merge([t(0, 0), t(1e-20, 1e-20), t(3e-20, 3e-20)], 0.1)
    assert bool(torch.isfinite(merged).all())


def test_dfs_of_a_single_long_row_does_not_depend_on_threads():
    """A matrix of one row (a value head) is a tensor like any other."""
    row = torch.from_numpy(np.random.default_rng(1).normal(size=(4, 1, 150_001))).float()
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(dfs.merge(list(row), 0.1))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


# ---- frankenmerge --------------------------------------------------------------------------


def test_frankenmerge_finds_blocks_and_groups_by_name():
    """Block, then embedding (n), final norm (n + 1) and head (n + 2)."""
    assert block_names.block_of("model.layers.11.mlp.up_proj.weight") == 11
    assert block_names.block_of("transformer.h.3.attn.weight") == 3
    assert block_names.block_of("model.norm.weight") is None
    names = ["model.layers.1.a", "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    assert [tensor_groups.group(name, 2) for name in names] == [1, 2, 3, 4]
    assert block_names.count(names) == 2
    assert block_names.count(["model.norm.weight"]) == 0


def test_frankenmerge_refuses_a_choice_that_does_not_fit():
    """Inside a pipeline n entries up to the number of inputs; alone n + 3 below it."""
    frankenmerge.check((0, 3, 2), 3, 3, whole=False)
    frankenmerge.check((0, 2, 1, 0, 0, 2), 3, 3, whole=True)
    for layers, whole in (((0, 1), False), ((0, 1, 2), True), ((0, 4, 0), False)):
        with pytest.raises(ConfigError, match="frankenmerge"):
            frankenmerge.check(layers, 3, 3, whole=whole)
    with pytest.raises(ConfigError, match="beyond 2"):
        frankenmerge.check((0, 3, 0, 0, 0, 0), 3, 3, whole=True)
    with pytest.raises(ConfigError, match="beyond"):
        frankenmerge.check((-1, 0, 0), 3, 3, whole=False)


# ---- properties ----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(three_vectors, orders)
def test_linear_does_not_care_about_order(vectors: list[list[int]], order: list[int]):
    """With equal weights, up to the last bit of the sum."""
    inputs = [t(*v) for v in vectors]
    again = linear.merge([inputs[i] for i in order])
    assert torch.allclose(linear.merge(inputs), again, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(three_vectors, orders, st.sampled_from([0.2, 0.5, 1.0]))
def test_ties_does_not_care_about_order(vectors: list[list[int]], order: list[int], density: float):
    """Votes and sums of small integers are exact, so the results are equal bit for bit."""
    inputs = [t(*v) for v in vectors]
    again = ties.merge([inputs[i] for i in order], density)
    assert torch.equal(ties.merge(inputs, density), again)


@settings(max_examples=60, deadline=None)
@given(three_vectors, orders)
def test_dfs_does_not_care_about_order(vectors: list[list[int]], order: list[int]):
    """Importance is a property of a row, not of its place."""
    inputs = [t(*v).view(2, 3) for v in vectors]
    again = dfs.merge([inputs[i] for i in order], 0.1)
    assert torch.allclose(dfs.merge(inputs, 0.1), again, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(three_vectors)
def test_every_technique_of_identical_inputs_is_that_input(vectors: list[list[int]]):
    """Nothing to merge: linear, slerp and dfs give the input back, ties what trimming leaves."""
    x = t(*vectors[0])
    same = [x, x.clone(), x.clone()]
    assert torch.allclose(linear.merge(same), x, atol=1e-5)
    assert torch.allclose(slerp.merge(same), x, atol=1e-5)
    assert torch.equal(ties.merge(same, 1.0), x)
    assert torch.equal(dfs.merge(same, 0.1), x)


@settings(max_examples=60, deadline=None)
@given(three_vectors)
def test_merges_stay_between_the_smallest_and_the_largest_input(vectors: list[list[int]]):
    """linear, ties and dfs are means of some of the inputs: no element can leave their range."""
    inputs = [t(*v) for v in vectors]
    stack = torch.stack(inputs)
    low, high = stack.min(dim=0).values - 1e-4, stack.max(dim=0).values + 1e-4
    for merged in (linear.merge(inputs), ties.merge(inputs, 1.0), dfs.merge(inputs, 0.1)):
        assert bool(((merged >= low) & (merged <= high)).all())
