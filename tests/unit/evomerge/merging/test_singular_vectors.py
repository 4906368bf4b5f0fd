"""TSV-M and ISO-C: by hand, beside the authors' own way of writing them, and on hostile matrices."""

from __future__ import annotations

import pytest
import torch

from agent_forge.evomerge.merging import method_registry
from agent_forge.evomerge.merging.kernels.chunks import CHUNK, whole
from agent_forge.evomerge.merging.methods import tsv_m


def merged(name: str, *inputs: torch.Tensor, **params: object) -> torch.Tensor:
    """Return what a merge computes of float32 task vectors."""
    checked = method_registry.parameters(name, params)
    return whole(inputs, lambda work: method_registry.prepare(name, work, checked, 0))


def tasks(seed: int, count: int, *shape: int) -> list[torch.Tensor]:
    """Return float32 task vectors that have something in common."""
    draws = torch.Generator().manual_seed(seed)
    common = torch.randn(shape, generator=draws)
    return [torch.randn(shape, generator=draws) + 0.5 * common for _ in range(count)]


def test_tsv_m_of_tasks_that_do_not_meet_is_their_sum() -> None:
    """Singular vectors that are orthogonal already stay as they are: 4 and 3 in their own places."""
    first, second = torch.zeros(2, 4, 4)
    first[0, 1], second[2, 3] = 4.0, -3.0
    torch.testing.assert_close(merged("tsv_m", first, second), first + second)


def test_tsv_m_keeps_a_part_of_the_singular_values() -> None:
    """Two models keep two of four singular values each: 9 and 5, 8 and 7; 2 and 1, 6 and 3 go."""
    first, second = (torch.diag(torch.tensor([9.0, 5, 2, 1])), torch.diag(torch.tensor([3.0, 6, 8, 7])))
    torch.testing.assert_close(merged("tsv_m", first, second), torch.diag(torch.tensor([9.0, 5, 8, 7])))


def test_tsv_m_turns_two_directions_apart_by_the_same_angle() -> None:
    """Left vectors at 60° become orthogonal, each turned by 15° away from the other."""
    angle = torch.tensor([-torch.pi / 6, torch.pi / 6])
    wanted = torch.tensor([-torch.pi / 4, torch.pi / 4])
    right = torch.eye(2)
    made = merged("tsv_m", *(_rank_one(a, r) for a, r in zip(angle, right, strict=True)))
    torch.testing.assert_close(made, sum(_rank_one(a, r) for a, r in zip(wanted, right, strict=True)))


def _rank_one(angle: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.outer(torch.stack([angle.cos(), angle.sin()]), right)


def test_tsv_m_of_equal_models_is_their_first_singular_values() -> None:
    """The singular vectors of all are one; nothing is filled up with directions of chance."""
    task = torch.diag(torch.tensor([4.0, 3, 2, 1]))
    made = merged("tsv_m", task, task)
    torch.testing.assert_close(made, torch.diag(torch.tensor([4.0, 3, 0, 0])))


def test_weights_are_factors_of_singular_values() -> None:
    """A model's weight of 0 leaves the others as they are; a sum of two is the sum of the parts."""
    x = tasks(1, 2, 9, 6)
    both = merged("tsv_m", *x, weights=[0.5, -2.0], scale=3.0)
    apart = 1.5 * merged("tsv_m", *x, weights=[1, 0]) - 6.0 * merged("tsv_m", *x, weights=[0, 1])
    torch.testing.assert_close(both, apart)


def test_iso_c_makes_singular_values_equal() -> None:
    """4, 3, 2 and −1 have the mean 2½; signs stay with the vectors."""
    first, second = (
        torch.diag(torch.tensor([4.0, 0, 2, 0])),
        torch.diag(torch.tensor([0.0, 3, 0, -1])),
    )
    made = merged("iso_c", first, second, scale=2.0)
    torch.testing.assert_close(made, torch.diag(torch.tensor([5.0, 5, 5, -5])))


def test_iso_c_of_low_rank_leaves_the_other_directions_alone() -> None:
    """Rank 2 of 6: the mean is over two singular values, and the result has rank 2."""
    task = torch.zeros(6, 6)
    task[0, 0], task[1, 1] = 3.0, 1.0
    wanted = torch.zeros(6, 6)
    wanted[0, 0] = wanted[1, 1] = 2.0
    torch.testing.assert_close(merged("iso_c", task), wanted)


def by_the_authors(name: str, x: list[torch.Tensor]) -> torch.Tensor:
    """Return the merge of full-rank matrices as the authors' code has it: whole decompositions.

    TSV-M lays each model's first k = int(r / T) singular vectors beside those before it in matrices
    of the full size, and takes the orthogonal factors of their decompositions.
    """
    wide = [task.double() for task in x]
    if name == "iso_c":
        u, s, vt = torch.linalg.svd(torch.stack(wide).sum(dim=0), full_matrices=False)
        return u @ torch.diag(torch.full_like(s, float(s.mean()))) @ vt
    rank = min(wide[0].shape)
    k = rank // len(wide)
    us, vs = (
        torch.zeros(wide[0].shape[0], rank).double(),
        torch.zeros(rank, wide[0].shape[1]).double(),
    )
    values = torch.zeros(rank).double()
    for i, task in enumerate(wide):
        u, s, vt = torch.linalg.svd(task, full_matrices=False)
        place = slice(i * k, (i + 1) * k)
        us[:, place], values[place], vs[place] = u[:, :k], s[:k], vt[:k]
    p, _, q = torch.linalg.svd(us, full_matrices=False)
    r, _, t = torch.linalg.svd(vs, full_matrices=False)
    return p @ q @ torch.diag(values) @ r @ t


@pytest.mark.parametrize("shape", [(40, 24), (24, 40), (33, 33), (9, 2), (CHUNK // 32 + 5, 32)])
@pytest.mark.parametrize("name", ["tsv_m", "iso_c"])
def test_a_merge_is_that_of_the_authors(name: str, shape: tuple[int, int]) -> None:
    for count in (2, 3, 5):
        if name == "iso_c" or min(shape) >= count:
            x = tasks(count, count, *shape)
            wanted = by_the_authors(name, x)
            error = (merged(name, *x).double() - wanted).abs().max() / wanted.abs().max()
            assert float(error) < 1e-5


@pytest.mark.parametrize("name", ["tsv_m", "iso_c"])
def test_tensors_that_are_no_matrices_are_averaged(name: str) -> None:
    for shape in ((7,), (3, 4, 5)):
        x = tasks(2, 3, *shape)
        made = merged(name, *x, weights=[1, 2, 3], scale=0.5)
        torch.testing.assert_close(made, (x[0] + 2 * x[1] + 3 * x[2]) / 6)


def test_tsv_m_averages_what_has_fewer_singular_values_than_models() -> None:
    x = tasks(3, 3, 2, 9)
    torch.testing.assert_close(merged("tsv_m", *x), sum(x) / 3)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
@pytest.mark.parametrize("name", ["tsv_m", "iso_c"])
def test_what_is_not_finite_stays_so(name: str, shape: tuple[int, int]) -> None:
    """No decomposition fails on it: who builds the model finds it and says where it is."""
    x = tasks(4, 2, *shape)
    x[1][2, 3] = torch.nan
    checked = method_registry.parameters(name, {})
    with pytest.raises(AssertionError):
        torch.testing.assert_close(merged(name, *x), merged(name, *x))  # NaN is unlike itself
    assert method_registry.check(name, checked, 2) is None


@pytest.mark.parametrize("name", ["tsv_m", "iso_c"])
def test_no_change_gives_no_change(name: str) -> None:
    zero = torch.zeros(5, 4)
    assert not merged(name, zero, zero).any()
    assert torch.isfinite(merged(name, zero, *tasks(5, 1, 5, 4))).all()


def test_merges_of_one_tensor_share_its_decompositions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates of a search differ in weights alone: the expensive part is done once."""
    calls = []
    decompose = tsv_m._decomposed
    monkeypatch.setattr(tsv_m, "_decomposed", lambda *given: calls.append(1) or decompose(*given))

    def prepare(work):
        for weights in ([1, 1], [0.5, 0.2]):
            params = method_registry.parameters("tsv_m", {"weights": weights})
            merge = method_registry.prepare("tsv_m", work, params, 0)
        return merge

    whole(tasks(6, 2, 8, 8), prepare)
    assert len(calls) == 1
