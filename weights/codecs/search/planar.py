"""Exact search for the nearest of many points of the plane, by cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agent_forge.weights.codecs.search.compiler import compiled


@compiled
def _nearest(points, order, starts, low, step, side, queries, found, errors):  # pyright: ignore
    """Fill `found`, indices of the nearest points, and the squared `errors`, [n] each, of queries.

    It searches cells in rings around the query's own, until a ring is farther than the best point. If a
    query q is outside of all cells, and p is the nearest place of their square, ‖q − x‖² is at least
    ‖q − p‖² + ‖p − x‖² for every x of the square.
    """
    for n in range(queries.shape[0]):
        x, y = queries[n, 0], queries[n, 1]
        place_x = min(max(x, low[0]), low[0] + step * side)
        place_y = min(max(y, low[1]), low[1] + step * side)
        outside = (x - place_x) ** 2 + (y - place_y) ** 2
        column = min(max(int((place_x - low[0]) / step), 0), side - 1)
        row = min(max(int((place_y - low[1]) / step), 0), side - 1)
        best, lowest = -1, np.inf
        for ring in range(side):
            bound = max(ring - 1.0, 0.0) * step
            if (outside + bound * bound) * (1.0 - 1e-9) > lowest:
                break
            for i in range(max(row - ring, 0), min(row + ring, side - 1) + 1):
                edge = abs(i - row) == ring
                stride = 1 if edge or ring == 0 else 2 * ring
                for j in range(column - ring, column + ring + 1, stride):
                    if j < 0 or j >= side:
                        continue
                    cell = i * side + j
                    for at in range(starts[cell], starts[cell + 1]):
                        k = order[at]
                        error = (x - points[k, 0]) ** 2 + (y - points[k, 1]) ** 2
                        if error < lowest or (error == lowest and k < best):
                            best, lowest = k, error
        found[n], errors[n] = best, lowest


def nearest(
    points: NDArray[np.float64], queries: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return (index of the nearest point, squared distance), [n] each, of [n, 2] queries.

    `points` are [k, 2]. Of equally near points the lowest index counts. All numbers must be finite.
    """
    low = points.min(0)
    extent = float((points.max(0) - low).max())
    side = max(1, int(np.sqrt(len(points) / 2)))
    step = extent / side if extent > 0.0 else 1.0
    cells = np.clip((points - low) / step, 0, side - 1).astype(np.int64)
    cell = cells[:, 1] * side + cells[:, 0]
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], np.arange(side * side + 1))
    indices, errors = np.empty(len(queries), np.int64), np.empty(len(queries))
    _nearest(
        np.ascontiguousarray(points), order, starts, low, step, side,
        np.ascontiguousarray(queries), indices, errors,
    )  # fmt: skip
    return indices, errors
