"""EvoMerge as the second source document calls it.

pipeline = EvoMergePipeline(EvolutionConfig(base_models=[BaseModelConfig(name, path), …]))
best = await pipeline.run_evolution()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_forge.documents import EvoMerge, EvoMergeConfig
from agent_forge.evolution import EvoMergeResult
from agent_forge.runs.errors import ConfigError

__all__ = ["BaseModelConfig", "BestCandidate", "EvoMergePipeline", "EvolutionConfig"]


@dataclass(frozen=True)
class BaseModelConfig:
    """A source. A weight other than 1 is refused: weights are genes, and are searched."""

    name: str
    path: str
    weight: float = 1.0
    domain_specialty: str | None = None

    def __post_init__(self) -> None:
        if self.weight != 1:
            raise ConfigError(
                f"model {self.name}: weight {self.weight:g} is refused, weights are genes."
            )


class EvolutionConfig(EvoMergeConfig):
    """Settings of a search together with its sources, `base_models`."""

    def __init__(self, base_models: Sequence[BaseModelConfig] = (), **inputs: object) -> None:
        self.__dict__["base_models"] = tuple(base_models)
        super().__init__(**inputs)


@dataclass(frozen=True)
class BestCandidate:
    """The champion of a run."""

    #: Its folder.
    model_path: str
    #: Its fitness on the selection slice.
    overall_fitness: float
    result: EvoMergeResult


class EvoMergePipeline(EvoMerge):
    """The search, with its sources in the settings."""

    def __init__(self, config: EvolutionConfig, home: str | Path | None = None) -> None:
        super().__init__(config, home)
        self._sources = [model.path for model in config.base_models]

    async def run_evolution(self) -> BestCandidate:
        """Evolve merges of the sources; return the champion's folder and fitness. Raises ForgeError."""
        result = await self.evolve(self._sources)
        return BestCandidate(result.artifacts["model"], result.metrics["best_fitness"], result)
