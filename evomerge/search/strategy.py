"""What every strategy is: ask and tell, rebuilt from the log.

A strategy keeps nothing. What it asks for next is a pure function of the past that it is given; what
it has learned (a distribution, a bandit's counts) is made again from the recorded generations each
time, with random numbers from keys.
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
    """Subclass it and register the class under the entry point group `evomerge.strategies`."""

    #: Name and version, as "tournament@1": what runs record. What it asks for never changes; the next
    #: version is another class.
    version: str
    #: The smallest population that it can work with.
    fewest = 1
    #: Settings that it reads, of those that not every strategy does; None: nobody knows.
    reads: frozenset[str] | None = None
    #: Stages that its search goes through: a plateau is one after `convergence_patience` for each.
    stages = 1
    #: Whether it searches paths through layers, where the settings want that.
    paths = False

    def check(self, config: EvoMergeConfig) -> str | None:
        """Why these settings do not suit it; None where they do."""
        if config.population_size < self.fewest:
            return f"population_size must be at least {self.fewest}, it is {config.population_size}"
        if config.path_repeats and not self.paths:
            return (
                "it searches no paths: leave out path_repeats, or take tournament, cma-es or nsga2"
            )
        return None

    @abstractmethod
    def ask(self, past: Past) -> list[Proposal]:
        """The candidates of generation `past.coming`, in the slots from 0 on."""

    def stayed(self, past: Past) -> list[str]:
        """Recipes of before that are measured again on the draw of generation `past.coming`."""
        return []

    def finalists(self, past: Past) -> list[str | Proposal]:
        """Who of the generation just measured is measured on the selection slice.

        Ids of it; or recipes of its own in slots after the generation's.
        """
        last = past.generations[-1]
        return list(last.ranking[: past.settings(last.number).elite_size])

    def loser_slots(self, config: EvoMergeConfig) -> tuple[int, ...] | None:
        """The slots that are seeded anew where diversity is critical; None: that never happens."""
        return None
