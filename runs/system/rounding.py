"""Values that are equal but for rounding.

Sums and exponentials of numpy differ in their last bits between processors: its libraries take other
instructions, and add in another order. So figures that follow from a log are compared with these
bounds, which are far below everything that is shown and decided by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

#: Largest relative difference; and largest difference of numbers near zero.
RELATIVE, ABSOLUTE = 1e-9, 1e-12


def alike(a: Any, b: Any) -> bool:
    """Return True if two plain values or models are equal, floats but for rounding.

    NaN is like NaN. Lists and tuples of the same content are alike.
    """
    a, b = (side.model_dump() if isinstance(side, BaseModel) else side for side in (a, b))
    if isinstance(a, float) and isinstance(b, float):
        close = math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
        return close or (math.isnan(a) and math.isnan(b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    return type(a) is type(b) and a == b
