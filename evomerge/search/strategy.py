"""The interface of a search strategy, which keeps no state.

A strategy's proposals are a pure function of the past that it is given. Learned state (a
distribution, a bandit's counts) is rebuilt from the recorded generations each time, with random
numbers from keys.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from evomerge.config import EvoMergeConfig
from evomerge.search.history import Past
from evomerge.search.proposals import Proposal
from evomerge.search_settings import SearchSettings


class Strategy(ABC):
    """Base class of strategies.

    To add a strategy, subclass it and register the class under the entry point group
    `evomerge.strategies`. If the strategy has settings of its own, set `settings` to a subclass of
    `SearchSettings`; `ask` finds them in `past.config.search`.
    """

    #: Name and version that runs record, for example "tournament@1". The proposals of a version
    #: never change; the next version is another class.
    version: str
    #: The smallest population that the strategy can work with.
    fewest = 1
    #: Model of the settings that only this strategy has (`EvoMergeConfig.search`).
    settings: type[SearchSettings] = SearchSettings
    #: Stages of the search: a plateau lasts `convergence_patience` generations for each stage.
    stages = 1

    def check(self, config: EvoMergeConfig) -> str | None:
        """Return why these settings do not suit the strategy; None if they do."""
        size = config.search.population_size
        if size < self.fewest:
            return f"population_size must be at least {self.fewest}, it is {size}"
        return None

    @abstractmethod
    def ask(self, past: Past) -> list[Proposal]:
        """Return the candidates of generation `past.coming`, in slots from 0 on."""

    def stayed(self, past: Past) -> list[str]:
        """Return recipes of earlier generations to evaluate again on this generation's items."""
        return []

    def finalists(self, past: Past) -> list[str | Proposal]:
        """Return the candidates to measure on the selection slice, after a generation.

        They are ids of the generation just measured, or new recipes in slots after the
        generation's. By default they are its elites.
        """
        last = past.generations[-1]
        return list(last.ranking[: past.settings(last.number).search.kept])

    def loser_slots(self, config: EvoMergeConfig) -> tuple[int, ...] | None:
        """Return the slots to reseed when diversity is critical; None: never reseed."""
        return None
