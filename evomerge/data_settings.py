"""Checks that the settings of a run fit its data, and the data of a run that names none.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agent_forge.evaluation.data import domains
from agent_forge.evaluation.data.items import Item, absolute
from agent_forge.evaluation.data.slices import SLICES
from agent_forge.evomerge.config import EvoMergeConfig
from agent_forge.evomerge.fitness.composite import Weighting
from agent_forge.runs.errors import DataError

#: What a run without data is scored on, for users.
SCORED_ON = "scored on Python code, arithmetic and tables, which may not be what your models are for"


def given(paths: Iterable[str | Path], weighting: Weighting) -> tuple[str, ...]:
    """Return a tuple of `paths` made absolute; without any, of the built-in domains if weighed, or ().

    Fitness that weighs domains is measured on the four built-in domains unless data is given.
    """
    named = tuple(map(absolute, paths))
    return named or ((domains.NAME,) if weighting.domains else ())


def check_settings(items: Sequence[Item], config: EvoMergeConfig) -> None:
    """Raise DataError if the settings name a domain that lacks items in a slice other than train."""
    check_weights(items, config.fitness_weights.domains)
    objectives = config.search.front_objectives
    names = [name.partition("/")[2] for name in objectives if name.startswith("domain/")]
    check_weights(items, dict.fromkeys(names, 1.0), "objectives names")


def check_weights(
    items: Iterable[Item], weights: Mapping[str, float], who: str = "fitness_weights weighs"
) -> None:
    """Raise DataError if a slice but train lacks items of a domain in `weights`.

    `who` begins the message, with the setting that names the domain.
    """
    there: dict[str, set[str]] = {}
    for item in items:
        there.setdefault(item.domain, set()).add(item.slice)
    for domain in sorted(weights):
        missing = [s for s in SLICES if s != "train" and s not in there.get(domain, ())]
        if missing:
            raise DataError(
                f"{who} the domain {domain!r}, but the data has no item of it in the "
                f"slice{'s' if len(missing) > 1 else ''} {', '.join(missing)}. The data's domains are "
                f"{', '.join(sorted(there))}; `--data builtin:domains` has code, data, math and "
                "multilingual."
            )
