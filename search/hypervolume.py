"""Hypervolume of fronts with many points or objectives: slices, without the points that add nothing.

The volume that points dominate above a reference point, all objectives to be maximised. Slices along
the last objective (Knowles 2002; Fonseca et al. 2006); each slice keeps only the points that no other
one beats in the objectives that are left, and two objectives are swept. `pareto.hypervolume` is the
plain form of the same. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

Point = tuple[float, ...]


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """Return the volume that the points dominate above the reference point."""
    low = tuple(reference)
    # Distances from the reference: it becomes the origin.
    moved = {tuple(x - r for x, r in zip(point, low, strict=True)) for point in points}
    return _volume(sorted((p for p in moved if min(p) > 0), reverse=True), len(low))


def _volume(points: list[Point], size: int) -> float:
    """Return the volume above the origin in the first `size` objectives; points in descending order."""
    if not points:
        return 0.0
    if size == 1:
        return max(point[0] for point in points)
    if size == 2:
        return _swept(points)
    last, total = size - 1, 0.0
    order = sorted(points, key=lambda p: p[last], reverse=True)
    front: list[Point] = []
    for place, point in enumerate(order):
        _keep(front, point, last)
        below = order[place + 1][last] if place + 1 < len(order) else 0.0
        if point[last] > below:
            total += (point[last] - below) * _volume(sorted(front, reverse=True), last)
    return total


def _swept(points: list[Point]) -> float:
    """Return the area above the origin of points in descending order of the first objective."""
    area, top = 0.0, 0.0
    for x, y, *_ in points:
        if y > top:
            area += x * (y - top)
            top = y
    return area


def _keep(front: list[Point], point: Point, size: int) -> None:
    """Add `point` to `front` unless one is as good in the first `size` objectives; drop the beaten."""
    head = point[:size]
    for other in front:
        if all(a >= b for a, b in zip(other, head, strict=False)):
            return
    front[:] = [o for o in front if not all(a <= b for a, b in zip(o, head, strict=False))]
    front.append(point)
