"""Relations of task vectors: how far they go, which way, and what they have in common.

    norm          ‖τ‖ / ‖base‖ over all tensors
    cosine        ⟨τᵢ, τⱼ⟩ / (‖τᵢ‖ ‖τⱼ‖) over all tensors
    same sign     share of the elements that both have changed, and in the same direction; by chance ½
    left, right   overlap of the first k left (right) singular vectors of a matrix in a block,
                  ‖Uᵢᵀ Uⱼ‖²_F / k, the mean over matrices; by chance k / rows (k / columns)

Left singular vectors are what a change writes, right ones what it reads. Weights alone say nothing of
losses: models with a cosine of 0 may merge well, and with one of ½ badly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from time import perf_counter

import numpy as np
import torch

from agent_forge.evomerge.merging.kernels.chunks import ChunkPool, Stretches, as_rows
from agent_forge.runs.system.durations import duration
from agent_forge.weights import block_names, randomness

Weights = Mapping[str, torch.Tensor]

#: Singular vectors of a matrix that are compared.
DIRECTIONS = 8
#: Further vectors that are iterated with them, so that they converge.
SPARE = 8
#: Relative change of the singular values at which they have converged, and most steps until then.
CONVERGED, STEPS = 1e-4, 100
#: Seconds from which a forecast is told.
LONG = 5.0


@dataclass
class SourcePair:
    """Two sources by their places, and how their task vectors lie to each other."""

    first: int
    second: int
    cosine: float = 0.0
    same_sign: float = 0.0
    left: float = 0.0
    right: float = 0.0


@dataclass
class Layer:
    """One block: each source's norm relative to the base's, and the mean over pairs of the rest."""

    block: int
    norms: list[float]
    cosine: float
    left: float
    right: float


@dataclass
class Relations:
    """Norms, pairs and layers of a base and its sources, from their weights alone."""

    norms: list[float]
    pairs: list[SourcePair]
    layers: list[Layer]
    #: What left and right overlap would be for directions of chance.
    chance_left: float
    chance_right: float


@dataclass
class _Sums:
    """Sums over tensors: dot products, elements changed and of one sign, overlaps of matrices."""

    base: float
    dots: np.ndarray
    changed: np.ndarray
    same: np.ndarray
    #: (left, right) [sources, sources] of each matrix, and what chance would give.
    overlaps: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    chances: list[tuple[float, float]] = field(default_factory=list)

    def add(self, other: _Sums) -> None:
        self.base += other.base
        self.dots += other.dots
        self.changed += other.changed
        self.same += other.same
        self.overlaps += other.overlaps
        self.chances += other.chances


def relations(
    base: Weights, sources: Sequence[Weights], tell: Callable[[str], None] = lambda _: None
) -> Relations:
    """Return the `Relations` of sources' task vectors: norms, pairs, layers. Models have one shape.

    `tell` hears how long it takes, once the first block is done, if that is long.
    """
    count = len(sources)
    names = [name for name, tensor in base.items() if tensor.is_floating_point()]
    order = sorted(names, key=lambda name: (block_names.block_of(name) is None, _block(name)))
    blocks: dict[int, _Sums] = {}
    began, elements = perf_counter(), 0
    total = sum(base[name].numel() for name in names)
    with ChunkPool() as pool:
        for name in order:
            block = _block(name)
            if block != 0 and elements and len(blocks) == 1:
                _tell(tell, (perf_counter() - began) * (total / elements - 1))
            sums = blocks.setdefault(block, _empty(count))
            sums.add(_of_tensor(name, base[name], [model[name] for model in sources], pool))
            elements += base[name].numel()
    whole = _empty(count)
    for block in sorted(blocks):
        whole.add(blocks[block])
    layers = [_layer(block, blocks[block], count) for block in sorted(blocks) if block >= 0]
    chances = np.mean(whole.chances, axis=0) if whole.chances else np.zeros(2)
    return Relations(_norms(whole), _pairs(whole, count), layers, float(chances[0]), float(chances[1]))


def _block(name: str) -> int:
    """Return the number of a tensor's block; −1 for a tensor outside of blocks."""
    block = block_names.block_of(name)
    return -1 if block is None else block


def _tell(tell: Callable[[str], None], seconds: float) -> None:
    if seconds > LONG:
        tell(f"comparing the weights: about {duration(seconds)} more")


def _empty(count: int) -> _Sums:
    dots, changed, same = np.zeros((3, count, count))
    return _Sums(0.0, dots, changed, same)


def _of_tensor(name: str, base: torch.Tensor, models: Sequence[torch.Tensor], pool: ChunkPool) -> _Sums:
    """Return the `_Sums` of one tensor."""
    work = Stretches(name, as_rows(base), [as_rows(model) for model in models], pool)
    sums = _empty(work.count)
    sums.dots += work.gram()

    def measure(cut: slice, x: torch.Tensor) -> tuple[float, np.ndarray, np.ndarray]:
        signs = x[1:].flatten(1).sign()
        there = signs.abs()
        changed, net = (there @ there.T).double(), (signs @ signs.T).double()
        square = float(work.floats(as_rows(base), cut).double().square().sum())
        return square, changed.numpy(), ((changed + net) / 2).numpy()

    for square, changed, same in work.each(measure):
        sums.base += square
        sums.changed += changed
        sums.same += same
    if block_names.block_of(name) is not None and base.dim() == 2 and min(base.shape) > 1:
        deltas = [model.float() - base.float() for model in models]
        left, right = overlaps(deltas)
        k = min(DIRECTIONS, *base.shape)
        sums.overlaps.append((left, right))
        sums.chances.append((k / base.shape[0], k / base.shape[1]))
    return sums


def overlaps(matrices: Sequence[torch.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """Return the (left, right) overlaps of first singular vectors, [matrices, matrices] each.

    A matrix of zeros has none, and overlaps with nothing.
    """
    directions = [leading(matrix, min(DIRECTIONS, *matrix.shape)) for matrix in matrices]
    sides = []
    for side in (0, 1):
        rows = [
            [float((a[side].T @ b[side]).square().sum() / a[side].shape[1]) for b in directions]
            for a in directions
        ]
        sides.append(np.array(rows))
    return sides[0], sides[1]


def leading(matrix: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (left, right): the first k singular vectors, [rows, k] and [columns, k], of a matrix.

    Subspace iteration from fixed vectors (Halko et al. 2011, arXiv 0909.4061, algorithm 4.4), until
    the singular values stand still to four digits.
    """
    rows, columns = matrix.shape
    if not bool(matrix.any()):
        return torch.zeros(rows, k), torch.zeros(columns, k)
    width = min(k + SPARE, rows, columns)
    start = randomness.uniform(columns * width, "mergeability") - 0.5
    basis = torch.from_numpy(start).float().view(columns, width)
    values = torch.zeros(width)
    for _ in range(STEPS):
        q, _ = torch.linalg.qr(matrix @ basis)
        u, new, basis_t = torch.linalg.svd(q.T @ matrix, full_matrices=False)
        basis = basis_t.T
        left = q @ u
        if float((new[:k] - values[:k]).abs().max()) <= CONVERGED * float(new[0]):
            break
        values = new
    return left[:, :k], basis[:, :k]


def _norms(sums: _Sums) -> list[float]:
    base = max(sums.base, 1e-300)
    return [float(np.sqrt(square / base)) for square in np.diag(sums.dots)]


def _cosine(sums: _Sums, i: int, j: int) -> float:
    scale = float(np.sqrt(sums.dots[i, i] * sums.dots[j, j]))
    return float(sums.dots[i, j]) / scale if scale else 0.0


def _overlap(sums: _Sums, side: int, i: int, j: int) -> float:
    values = [both[side][i, j] for both in sums.overlaps]
    return float(np.mean(values)) if values else 0.0


def _pairs(sums: _Sums, count: int) -> list[SourcePair]:
    return [
        SourcePair(
            i,
            j,
            _cosine(sums, i, j),
            float(sums.same[i, j] / sums.changed[i, j]) if sums.changed[i, j] else 0.0,
            _overlap(sums, 0, i, j),
            _overlap(sums, 1, i, j),
        )
        for i, j in combinations(range(count), 2)
    ]


def _layer(block: int, sums: _Sums, count: int) -> Layer:
    pairs = _pairs(sums, count)
    means = [float(np.mean([getattr(p, name) for p in pairs])) for name in ("cosine", "left", "right")]
    return Layer(block, _norms(sums), *means)
