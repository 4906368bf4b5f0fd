"""The compiler of the codecs' loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from agent_forge.weights.codecs.search import compiler


@pytest.mark.parametrize("decorate", [compiler.compiled, compiler.compiled_fast])
def test_a_loop_without_a_place_for_its_cache_is_compiled_all_the_same(decorate: Any) -> None:
    """Numba refuses to cache a function of no file, as one of a folder that cannot be written."""
    found: dict[str, Any] = {}
    exec("def double(x):\n    return x + x\n", found)
    with pytest.raises(RuntimeError, match="cannot cache"):
        njit(cache=True)(found["double"])
    assert decorate(found["double"])(np.float32(1.5)) == 3.0


def test_plain_loops_keep_the_order_of_sums() -> None:
    """1 + 2^-53 + 2^-53 is 1 in that order; no product and sum are fused."""

    @compiler.compiled
    def total(values: Any, factor: Any) -> Any:
        result = 0.0
        for value in values:
            result += value * factor
        return result

    values = np.array([1.0, 2.0**-53, 2.0**-53])
    assert total(values, 1.0) == 1.0
    third = 1.0 / 3.0
    rounded = third * third
    assert total(np.array([-rounded / third, third]), third) == (-rounded / third) * third + rounded
