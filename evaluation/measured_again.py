"""Comparison of what was measured again with what a run has recorded, for its verification."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from evaluation.observing import Observed, Unmeasurable
from runs.history.audit import Finding


def compared(
    recorded: Observed | Unmeasurable,
    found: Observed | Unmeasurable,
    tolerance: float,
    say: Callable[[str], None],
) -> Iterator[Finding]:
    """Yield an error if a figure is off by more than `tolerance`, relative; else `say` by how much.

    What could not be measured must not be measurable again.
    """
    where = f"{recorded.measure} of {recorded.recipe_id[:12]}"
    if isinstance(recorded, Unmeasurable) or isinstance(found, Unmeasurable):
        if type(recorded) is type(found):
            say(f"measured {where} again: it cannot be measured, as recorded")
        else:
            one, other = _words(found), _words(recorded)
            yield Finding(
                "error", "fitness", f"{where}: measured again {one} found, and {other} recorded"
            )
        return
    pairs = ((found.values[name], value) for name, value in recorded.values.items())
    off = max((abs(mine - value) / max(abs(value), 1e-12) for mine, value in pairs), default=0.0)
    if off > tolerance:
        what = f"{where}: measured again it is off by {off:.2g} relative"
        yield Finding("error", "fitness", f"{what} (tolerance {tolerance:g})")
    else:
        say(f"measured {where} again: largest relative difference {off:.2g}")


def _words(event: Observed | Unmeasurable) -> str:
    return "no number is" if isinstance(event, Unmeasurable) else "numbers are"
