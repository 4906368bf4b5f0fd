"""Family tree of a model as SVG.

Pure. Written without a library; the same family gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Protocol

#: Width and height of a box, and the space between two, in pixels.
BOX, ROW, GAP, DROP = 210, 44, 18, 40
#: Letters that fit into a box.
LETTERS = 29


class Member(Protocol):
    """A model of the family: the fields that are drawn."""

    @property
    def recipe_id(self) -> str:
        """The model's recipe id."""
        ...

    @property
    def place(self) -> str:
        """The model's place in its run: "candidate 3/5", "baseline mean", "given"."""
        ...

    @property
    def what(self) -> str:
        """The model in a few words."""
        ...

    @property
    def depth(self) -> int:
        """The number of steps from the candidate, at most."""
        ...


def family(nodes: Sequence[Member], edges: Sequence[tuple[str, str]]) -> str:
    """Return the family tree as an SVG document.

    The oldest models are at the top, the candidate at the bottom; a line leads from every parent to
    its child.
    """
    deepest = max(node.depth for node in nodes)
    rows = [[node for node in nodes if node.depth == depth] for depth in range(deepest, -1, -1)]
    width = max(len(row) for row in rows) * (BOX + GAP) + GAP
    height = len(rows) * (ROW + DROP) - DROP + 2 * GAP
    at: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = (width - len(row) * (BOX + GAP) + GAP) / 2
        for column, node in enumerate(row):
            at[node.recipe_id] = (left + column * (BOX + GAP), GAP + number * (ROW + DROP))
    lines = [_line(at[parent], at[child]) for parent, child in edges]
    boxes = [_box(node, *at[node.recipe_id]) for node in nodes]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
        + "".join((*lines, *boxes))
        + "</svg>"
    )


def _line(above: tuple[float, float], below: tuple[float, float]) -> str:
    x1, y1 = above[0] + BOX / 2, above[1] + ROW
    x2, y2 = below[0] + BOX / 2, below[1]
    middle = (y1 + y2) / 2
    curve = f"M{x1:g} {y1:g}C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"
    return f'<path d="{curve}" fill="none" stroke="#999"/>'


def _box(node: Member, x: float, y: float) -> str:
    colour = "#dcebff" if node.depth == 0 else "#eeeeee" if node.place == "given" else "#ffffff"
    label = f"{node.recipe_id[:12]}  {node.place}"
    return (
        f"<g><title>{escape(node.what)}</title>"
        f'<rect x="{x:g}" y="{y:g}" width="{BOX}" height="{ROW}" rx="4" fill="{colour}" '
        f'stroke="#666"/>{_text(label, x, y + 17, "#000")}{_text(node.what, x, y + 34, "#444")}</g>'
    )


def _text(text: str, x: float, y: float, colour: str) -> str:
    shown = text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
    return f'<text x="{x + 8:g}" y="{y:g}" fill="{colour}">{escape(shown)}</text>'
