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

#: Settings of the continuous genome, of paths, and of mutation.
GENOME = frozenset({"species", "layer_groups", "genome_detail"})
PATHS = frozenset({"path_repeats", "path_blocks"})
MUTATION = frozenset({
    "mutation", "mutation_rate", "mutation_sigma", "mutation_relative_to", "gene_sigma",
    "adaptive_mutation", "technique_selection",
})  # fmt: skip


class Strategy(ABC):
    """Base class of strategies.

    To add a strategy, subclass it and register the class under the entry point group
    `evomerge.strategies`.
    """

    #: Name and version that runs record, for example "tournament@1". The proposals of a version
    #: never change; the next version is another class.
    version: str
    #: The smallest population that the strategy can work with.
    fewest = 1
    #: Settings that the strategy reads, among those that not all strategies read; None: unknown.
    reads: frozenset[str] | None = None
    #: Stages of the search: a plateau lasts `convergence_patience` generations for each stage.
    stages = 1
    #: True if the strategy can search paths through layers (setting `path_repeats`).
    paths = False

    def check(self, config: EvoMergeConfig) -> str | None:
        """Return why these settings do not suit the strategy; None if they do."""
        if config.population_size < self.fewest:
            return f"population_size must be at least {self.fewest}, it is {config.population_size}"
        if config.path_repeats and not self.paths:
            return (
                "it searches no paths: leave out path_repeats, or take tournament, cma-es or nsga2"
            )
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
        return list(last.ranking[: past.settings(last.number).elite_size])

    def loser_slots(self, config: EvoMergeConfig) -> tuple[int, ...] | None:
        """Return the slots to reseed when diversity is critical; None: never reseed."""
        return None
