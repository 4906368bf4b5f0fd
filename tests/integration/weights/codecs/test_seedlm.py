"""SeedLM: its generator, its exact search against all seeds, what it decodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from agent_forge.runs.errors import SourceError
from agent_forge.weights import codecs, randomness
from agent_forge.weights.codecs import Coded
from agent_forge.weights.codecs.search import seeds
from agent_forge.weights.codecs.search import seeds as seed_search

#: (C, P) of the two settings.
GEOMETRIES = [(8, 3), (12, 4)]


def gaussian(rows: int, columns: int, key: str = "seedlm") -> torch.Tensor:
    values = randomness.gaussian(rows * columns, key).reshape(rows, columns)
    return torch.from_numpy(values).float()


def matrices(size: int, count: int, width: int) -> NDArray[np.float64]:
    """[seeds, C, P] U(s) of every seed from 1 on, by the definition of the paper alone."""
    half = 1 << (width - 1)
    following = {}
    state = 1
    for _ in range((1 << width) - 1):
        bit = sum(state >> tap for tap in seeds.TAPS[width]) & 1
        following[state] = state = (state >> 1) | bit << (width - 1)
    rows = np.arange(1, 1 << width)
    step = np.zeros(1 << width, dtype=np.int64)
    step[list(following)] = list(following.values())
    columns = []
    for _ in range(size * count):
        rows = step[rows]
        columns.append(rows)
    return ((np.stack(columns, 1) - half) / (half - 1)).reshape(-1, size, count)


def all_seeds(
    block: NDArray[np.float64], u: NDArray[np.float64], inverses: NDArray[np.float64]
) -> tuple[int, float]:
    """The best seed of a block by trying all, and its squared error."""
    t = inverses @ block
    fraction, exponent = np.frexp(np.abs(t).max(1) / 7.5)
    exponent = np.clip(exponent - (fraction == 0.5), -8, 7)
    scale = np.ldexp(1.0, exponent)[:, None]
    mantissas = np.clip(np.rint(t / scale), -8, 7)
    rebuilt = np.einsum("scp,sp->sc", u, mantissas) * scale
    errors = ((rebuilt - block) ** 2).sum(1)
    # Neighbouring seeds share columns: equal reconstructions differ here by rounding only.
    lowest = errors.min()
    return int(np.flatnonzero(errors <= lowest * (1 + 1e-9) + 1e-300)[0]) + 1, float(lowest)


def test_the_register_is_the_paper_s() -> None:
    """The example of figure 4: V(4) for K = 3."""
    assert seeds.states(3, 4, 8) == [2, 5, 6, 7, 3, 1, 4, 2]


@pytest.mark.parametrize("width", seeds.TAPS)
def test_a_register_runs_through_every_state(width: int) -> None:
    order = seeds.cycle(width)
    assert sorted(order.tolist()) == list(range(1, 1 << width))
    place = seeds.places(width)[5]
    assert order[place] == seeds.states(width, 5, 1)[0]


@pytest.mark.parametrize(("size", "count"), GEOMETRIES)
def test_a_short_register_is_searched_as_by_trying_all(size: int, count: int) -> None:
    """Every block of many, with 255 seeds: also tiny, huge and nearly flat ones."""
    u = matrices(size, count, 8)
    inverses = np.linalg.pinv(u)
    table = seeds.bases(size, count, 8)
    blocks = randomness.gaussian(300 * size, "short").reshape(300, size)
    blocks *= np.exp2(np.arange(300) // 10 - 15)[:, None]
    blocks[::7] = np.rint(blocks[::7])
    blocks[::11, 2:] = 0.0
    found = seed_search.search(table, blocks)
    for block, row in zip(blocks, found, strict=True):
        if block.any():
            assert row[0] == all_seeds(block, u, inverses)[0]
        else:
            assert row.tolist() == [1, -8] + [0] * count


@pytest.mark.slow
@pytest.mark.parametrize(("size", "count"), GEOMETRIES)
def test_the_pruned_search_finds_the_seed_of_trying_all(size: int, count: int) -> None:
    """96 blocks by all 65,535 seeds: normal, heavy-tailed, and ternary, in which ties are many."""
    u = matrices(size, count, 16)
    inverses = np.linalg.pinv(u)
    blocks = randomness.gaussian(96 * size, "long").reshape(96, size)
    blocks[64:80] **= 3
    blocks[80:] = np.clip(np.rint(blocks[80:]), -1, 1)
    found = seed_search.search(seeds.bases(size, count, 16), blocks)
    best = [all_seeds(block, u, inverses)[0] for block in blocks]
    assert found[:, 0].tolist() == best


@pytest.mark.parametrize(("size", "count"), GEOMETRIES)
def test_pseudoinverses_are_numpy_s(size: int, count: int) -> None:
    """By a singular value decomposition in float64, nearly parallel columns included."""
    table = seeds.bases(size, count, 16)
    assert table.hard.size
    places = np.concatenate([np.arange(0, 65535, 97), table.hard])
    expected = np.linalg.pinv(matrices(size, count, 16)[table.seeds[places] - 1])
    worst = np.abs(table.inverses[places] - expected).max(axis=(1, 2))
    assert np.all(worst <= 1e-9 * np.abs(expected).max(axis=(1, 2)))


@pytest.mark.parametrize(("size", "count"), GEOMETRIES)
def test_no_rounding_exceeds_the_margin(size: int, count: int) -> None:
    """Energies in float32 against the projection in float64, of all seeds: the bound's premise."""
    table = seeds.bases(size, count, 16)
    block = randomness.gaussian(size, "margin")
    block /= np.linalg.norm(block)
    inverses = table.inverses
    u = matrices(size, count, 16)[table.seeds - 1]
    exact = np.einsum("scp,spd,d->sc", u, inverses, block) @ block
    tile, found = seeds.TILE, []
    energies_of = seed_search._energies_of_8 if size == 8 else seed_search._energies_of_12
    dots = np.empty(tile + count, np.float32)
    for start, whitening in zip(range(0, 65535, tile), table.whitening, strict=True):
        found.append(np.empty(tile, np.float32))
        energies_of(table.entries[start:], whitening, block.astype(np.float32), dots, found[-1])
    energies = np.concatenate(found)
    easy = np.ones(65535, dtype=bool)
    easy[table.hard] = False
    off = np.abs(energies[:65535] - exact)
    assert 0 < off[easy].max() < seed_search.MARGIN
    hard = np.empty(table.hard.size, np.float32)
    seed_search._hard_energies(table.hard_bases, block.astype(np.float32), size, hard)
    assert np.abs(hard - exact[table.hard]).max() < seed_search.MARGIN


@pytest.mark.slow
@pytest.mark.parametrize(("width", "expected"), [(4, 0.123), (3, 0.226)])
def test_the_relative_error_of_gaussian_weights_is_the_published_one(
    width: int, expected: float
) -> None:
    """The replication of the paper gives it, within 2 %, whatever the scale."""
    matrix = gaussian(192, 256) * 0.003
    coded = codecs.encode("seedlm@1", matrix, {"bits": width})
    decoded = codecs.decode("seedlm@1", coded)
    error = ((decoded - matrix).norm() / matrix.norm()).item()
    assert error == pytest.approx(expected, rel=0.02)
    payload = sum(part.numel() for part in coded.parts.values())
    assert payload * 8 / matrix.numel() == pytest.approx(width, rel=1e-3)


def test_scaling_by_a_power_of_two_scales_what_is_decoded() -> None:
    """The 4-bit exponent alone would not reach weights of a standard deviation below 0.01."""
    matrix = gaussian(4, 64)
    plain = codecs.decode("seedlm@1", codecs.encode("seedlm@1", matrix, {}))
    small = codecs.decode("seedlm@1", codecs.encode("seedlm@1", matrix * 2.0**-30, {}))
    assert torch.equal(small, plain * 2.0**-30)


def test_zeros_and_constants_are_decoded() -> None:
    zeros = torch.zeros(3, 7)
    assert torch.equal(codecs.decode("seedlm@1", codecs.encode("seedlm@1", zeros, {})), zeros)
    ones = torch.full((2, 16), -0.25)
    decoded = codecs.decode("seedlm@1", codecs.encode("seedlm@1", ones, {}))
    assert (decoded - ones).norm() < 0.13 * ones.norm()


def changed(coded: Coded, **parts: torch.Tensor) -> Coded:
    return Coded(coded.shape, coded.header, {**coded.parts, **parts})


def test_bytes_that_are_no_coded_matrix_are_refused() -> None:
    coded = codecs.encode("seedlm@1", gaussian(2, 16), {})
    seeds = coded.parts["seeds"].clone()
    seeds[2:4] = 0
    with pytest.raises(SourceError, match="block 1 has seed 0"):
        codecs.decode("seedlm@1", changed(coded, seeds=seeds))
    with pytest.raises(SourceError, match="mantissas must be"):
        codecs.decode("seedlm@1", changed(coded, mantissas=coded.parts["mantissas"][:-1]))
    with pytest.raises(SourceError, match="missing"):
        codecs.decode("seedlm@1", Coded(coded.shape, coded.header, {}))
    with pytest.raises(SourceError, match="exponent"):
        codecs.decode("seedlm@1", Coded(coded.shape, {"bits": 4, "exponent": 1.5}, coded.parts))
