"""World to search in that is made of trained specialists: every answer is measured."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from agent_forge.evaluation.data.outcomes import Draws, Outcomes, Pool
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.evaluate import evaluate
from agent_forge.evomerge.config import parse
from agent_forge.evomerge.merging.builder import Builder, Weights
from agent_forge.evomerge.merging.layer_fitness import swap_gains
from agent_forge.evomerge.merging.sketch import sketch
from agent_forge.evomerge.recipes.recipe import Pipeline, Recipe, path
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.evomerge.search.strategy import SourceFamily
from agent_forge.evomerge.tasks.context import MergeContext
from agent_forge.runs.home import Home
from agent_forge.weights.folders.sources import resolve
from agent_forge.weights.storage.weight_cache import Artifacts
from benchmarks.common import shortened

#: Characters of text of each domain and slice that are kept.
KEPT = {"train": 3_000, "search": 12_000, "selection": 8_000, "test": 24_000}
#: Most candidates whose weights are kept.
CACHED = 64


class Specialists:
    """World of the models of `forge cognate --out FOLDER` and the text of its items, cut short."""

    def __init__(self, folder: Path, windows: int = 8) -> None:
        self.name = folder.parent.name if folder.name == "models" else folder.name
        self._settings: dict[str, object] = {
            "search_windows": windows,
            "search_questions": 0,
            "search_problems": 0,
            "fitness_weights": {"perplexity": 0.4, "accuracy": 0.3, "speed": 0.2, "memory": 0.1},
        }
        self._place = tempfile.TemporaryDirectory()
        items = shortened(folder / "items", Path(self._place.name) / "items", KEPT)
        names = sorted(p.parent.name for p in folder.glob("*/config.json"))
        names.remove("base")
        submitted = events.Submitted(
            run="r",
            owner="b",
            config=parse({**self._settings, "strategy": "elite-loser"}),
            sources=tuple(resolve(str(folder / n)) for n in names),
            base=resolve(str(folder / "base")),
            data=(str(items),),
        )
        state = RunState()
        state.take(submitted)
        home = Home(Path(self._place.name) / "home")
        self._bench = MergeContext(state, Artifacts(home.artifacts))
        self._started = self._bench.started()
        state.take(self._started)
        self._sources = dict(
            zip(
                (s.recipe_id for s in (self.started.base, *self.started.sources)),
                (self._bench.origin, *self._bench.source_weights),
                strict=True,
            )
        )
        self._made: dict[str, Weights] = {}

    @property
    def settings(self) -> dict[str, object]:
        """Sizes of draws and weights of the fitness."""
        return self._settings

    @property
    def started(self) -> events.Started:
        """The event of a run's start."""
        return self._started

    @property
    def family(self) -> SourceFamily:
        """Base and sources."""
        sources = tuple(s.recipe_id for s in self.started.sources)
        return SourceFamily(sources, self.started.base.recipe_id, self.started.blocks)

    @property
    def pools(self) -> dict[Slice, dict[str, Pool]]:
        """Slice → domain → pool of items."""
        return self.started.pools

    def outcomes(
        self, recipe: Recipe, known: Mapping[str, Recipe], draws: Draws, slice_: Slice
    ) -> Outcomes:
        """Measure the outcomes of a recipe's model on these items."""
        taken = path(recipe, known)
        blocks = None if taken is None else len(taken.steps)
        self._bench.resident.load(self._weights(recipe, known), blocks)
        data = self._bench.packed[slice_]
        return evaluate(self._bench.resident, data, draws, self._bench.judge).outcomes

    def sketch(self, recipe: Recipe, known: Mapping[str, Recipe]) -> str:
        """Return the sketch of the built weights."""
        return sketch(
            self._weights(recipe, known),
            Builder(known, self._stored).origin(recipe, self._bench.origin),
        )

    def gains(self, recipe: Recipe, known: Mapping[str, Recipe]) -> tuple[tuple[float, ...], ...]:
        """Measure layer fitness by swapping blocks."""
        assert isinstance(recipe, Pipeline)
        inputs = [self._weights(known[i], known) for i in recipe.inputs]
        merged = self._weights(recipe, known)
        found = swap_gains(self._bench.resident, merged, inputs, self._bench.packed["train"])
        return tuple(map(tuple, found))

    def _weights(self, recipe: Recipe, known: Mapping[str, Recipe]) -> Weights:
        id_ = recipe.id
        found = self._stored(id_)
        if found is None:
            found = Builder(known, self._stored).build(recipe)
            while len(self._made) >= CACHED:
                self._made.pop(next(iter(self._made)))
            self._made[id_] = found
        return found

    def _stored(self, id_: str) -> Weights | None:
        return self._sources.get(id_) or self._made.get(id_)
