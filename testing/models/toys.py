"""The models and data that whole runs in tests are made of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Toys:
    """A base, three sources and data, tiny."""

    base: Path
    sources: tuple[Path, ...]
    data: Path

    @property
    def names(self) -> str:
        """The sources as `--base-models` takes them."""
        return ",".join(map(str, self.sources))

    @property
    def words(self) -> tuple[str, ...]:
        """Models and data as options of a command."""
        models = ("--base-models", self.names, "--base-model", str(self.base))
        return (*models, "--data", str(self.data))
