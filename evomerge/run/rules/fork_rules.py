"""Settings that a fork of a merging run may change, and why others may not. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from agent_forge.evomerge.config import changed
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.errors import ConfigError

#: Settings that the recorded events depend on, and why they cannot change.
FIXED = {
    "fitness_weights": "the recorded scores were computed with them",
    "normalise": "the recorded scores were computed with it",
    "skills": "the recorded scores were computed with it",
    "context": "the recorded items were cut by it",
    "batch_tokens": "it belongs to the profile that the run is pinned to",
    "evaluation_dtype": "it belongs to the profile that the run is pinned to",
    "evaluation_compile": "it belongs to the profile that the run is pinned to",
    "allow_benchmarks": "the recorded items are what they are",
    "device": "it belongs to the profile that the run is pinned to",
    "path_repeats": "candidates with paths and without cannot be bred together",
    "strict": "the models are accepted already",
}

#: Settings that a strategy depends on from generation 0: they change only with the strategy.
WITH_STRATEGY = {
    "population_size": "the ranking that the next generation is bred from has that size",
    "elite_size": "the ranking that the next generation is bred from has that shape",
    "mutants_per_elite": "the ranking that the next generation is bred from has that shape",
    "species": "the strategy's distribution is made again from the generations recorded with it",
    "layer_groups": "the strategy's distribution is made again from the generations recorded with it",
    "genome_detail": "the strategy's distribution is made again from the generations recorded with it",
    "path_blocks": "the strategy's distribution is made again from the generations recorded with it",
    "search_sigma": "the strategy's distribution is made again from the generations recorded with it",
}


def check(state: RunState, changes: Mapping[str, object]) -> None:
    """Raise ConfigError if the run has completed, or a fork here may not change these settings."""
    if state.completed:
        raise ConfigError(
            "the run had ended there, so a fork has no future. Fork it earlier, for instance at its "
            f"last generation: --generation {len(state.generations) - 1}."
        )
    if changes and state.converged:
        raise ConfigError(
            "the search had ended there, so settings change nothing. Fork it earlier, for instance "
            f"at its last generation: --generation {len(state.generations) - 1}."
        )
    fixed = FIXED if "strategy" in changes else FIXED | WITH_STRATEGY
    for name in (*changes, *_paths(state, changes)):
        if name in fixed and state.started:
            also = " It may change together with the strategy." if name in WITH_STRATEGY else ""
            raise ConfigError(
                f"setting {name} cannot change in a fork: {fixed[name]}.{also} Start a new run instead."
            )


def _paths(state: RunState, changes: Mapping[str, object]) -> tuple[str, ...]:
    """Return ("path_repeats",) if the changes change paths, also by the strategy; else ()."""
    assert state.submitted
    before = state.submitted.config
    same = changed(before, changes).search.repeats == before.search.repeats
    return () if same else ("path_repeats",)
