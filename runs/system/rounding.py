"""Values that are equal but for rounding.

Sums and exponentials of numpy differ in their last bits between processors: its libraries take other
instructions, and add in another order. So figures that follow from a log are compared with these
bounds, which are far below everything that is shown and decided by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import BaseModel

#: Largest relative difference; and largest difference of numbers near zero.
RELATIVE, ABSOLUTE = 1e-9, 1e-12


def _plain(side: object) -> object:
    return side.model_dump() if isinstance(side, BaseModel) else side


def alike(a: object, b: object) -> bool:
    """Return True if two plain values or models are equal, floats but for rounding.

    NaN is like NaN. Lists and tuples of the same content are alike.
    """
    a, b = _plain(a), _plain(b)
    if isinstance(a, float) and isinstance(b, float):
        close = math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        return close or (math.isnan(a) and math.isnan(b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        left, right = cast("Mapping[object, object]", a), cast("Mapping[object, object]", b)
        return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        first, second = cast("Sequence[object]", a), cast("Sequence[object]", b)
        return len(first) == len(second) and all(map(alike, first, second))
    # both are objects still: the checks above say nothing of them
    return type(a) is type(b) and a == b  # pyright: ignore[reportUnknownArgumentType]
