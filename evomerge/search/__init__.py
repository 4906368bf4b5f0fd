"""Search strategies, one a file. Pure: a strategy sees rankings and recipes and proposes recipes.

A strategy that has decided in a run is never changed: its next version stands beside it under another
name, so that every old run can be decided again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from evomerge.config import EvoMergeConfig
from evomerge.errors import StrategyError
from evomerge.recipe import Recipe
from evomerge.search import elite_loser
from evomerge.search.elite_loser import Family, Proposal


class Strategy(Protocol):
    """What a strategy's module offers."""

    def first_generation(self, config: EvoMergeConfig, family: Family) -> list[Proposal]:
        """The proposals for generation 0."""
        ...

    def next_generation(
        self,
        config: EvoMergeConfig,
        family: Family,
        known: Mapping[str, Recipe],
        ranking: Sequence[str],
        generation: int,
        reseeded: bool,
    ) -> list[Proposal]:
        """The proposals for a generation from the ranking of the one before."""
        ...

    def loser_slots(self, config: EvoMergeConfig) -> tuple[int, ...]:
        """The slots that a reseeding replaces."""
        ...


#: Every version that ever decided, by the name that runs record.
STRATEGIES: dict[str, Strategy] = {elite_loser.VERSION: elite_loser}

#: Setting → the version that new runs use.
CURRENT = {"elite-loser": elite_loser.VERSION}


def strategy(version: str) -> Strategy:
    """The strategy of a recorded name such as "elite-loser@1". Raises StrategyError."""
    if version not in STRATEGIES:
        raise StrategyError(
            f"strategy {version} is not in this program, which has {', '.join(STRATEGIES)}. The run "
            "was made by another version of agent-forge: use that one, or a newer one."
        )
    return STRATEGIES[version]
