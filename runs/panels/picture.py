"""A matplotlib figure without pyplot, which a notebook shows as a picture."""

from __future__ import annotations

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class Picture(Figure):
    """A figure made without pyplot that a notebook can still show."""

    def _repr_png_(self) -> bytes:
        """Return the figure as the bytes of a PNG file; notebooks call this method."""
        written = io.BytesIO()
        # its types leave the keywords open
        self.savefig(written, format="png")  # pyright: ignore[reportUnknownMemberType]
        return written.getvalue()


def empty(width: float, height: float) -> Picture:
    """Return an empty picture of this size in inches."""
    drawn = Picture(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(drawn)
    return drawn
