"""Fork a run: the new run refers to the parent's history up to a place and continues on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from events import Context, Envelope, EventStore, New, chain
from evomerge import search
from evomerge.config import EvoMergeConfig
from evomerge.config import changed as settings_after
from evomerge.config import changes as changes_between
from evomerge.run import events
from evomerge.run.history import at_place, before_close
from evomerge.run.repository import full_name, history, stream
from evomerge.run.state import RunState, fold
from runs.errors import ConfigError, ConflictError, TamperedError
from runs.system.plain_text import check
from worker.append import actor
from worker.commands.submit import keyed_name, new_name

#: Settings that the recorded events depend on, and why they cannot change.
FIXED = {
    "fitness_weights": "the recorded scores were computed with them",
    "normalise": "the recorded scores were computed with it",
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


@dataclass(frozen=True)
class Branch:
    """A planned fork: the run, the place, the state there, and the fork's settings."""

    run: str
    place: int
    state: RunState
    last: Envelope
    changes: dict[str, Any]
    config: EvoMergeConfig
    #: The version of the fork's strategy; None if the strategy does not change.
    strategy: str | None = None


def plan(
    store: EventStore,
    run: str,
    place: int | None,
    generation: int | None,
    changes: dict[str, Any],
) -> Branch:
    """Check everything that a fork needs and return its plan; record nothing.

    `generation` forks at the place where that generation is measured but not closed yet, so that
    the fork's settings close it. Raises ConfigError, NotFoundError, TamperedError.
    """
    run = full_name(store, run)
    rows = list(history(store, run))
    if (place is None) == (generation is None):
        raise ConfigError("say where to fork: --at POSITION or --generation G, one of them.")
    if place is None:
        place = before_close(rows, generation or 0)
    past = rows[: at_place(rows, place)]
    _check_chain(past)
    state = fold(past)
    assert state.submitted
    before = state.submitted.config
    config = settings_after(before, changes)
    changes = changes_between(before, config)
    _check_allowed(state, changes, config.search.repeats != before.search.repeats)
    now = search.current(config) if changes else None
    version = now if "strategy" in changes else None
    return Branch(run, place, state, past[-1], changes, config, version)


def _check_chain(past: list[Envelope]) -> None:
    for name in dict.fromkeys(row.stream for row in past):
        findings = chain.check([row for row in past if row.stream == name])
        if findings:
            raise TamperedError(
                f"the history cannot be forked: {findings[0].message}. `forge verify` says more."
            )


def _check_allowed(state: RunState, changes: dict[str, Any], repeats: bool) -> None:
    """Raise ConfigError if a setting cannot change at this place; `repeats`: paths change."""
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
    for name in (*changes, *(["path_repeats"] if repeats else [])):
        if name in fixed and state.started:
            also = " It may change together with the strategy." if name in WITH_STRATEGY else ""
            raise ConfigError(
                f"setting {name} cannot change in a fork: {fixed[name]}.{also} Start a new run instead."
            )


def fork(
    store: EventStore,
    branch: Branch,
    output_dir: str | None = None,
    by: str | None = None,
    reason: str | None = None,
    key: str | None = None,
) -> str:
    """Record the fork; return the new run's name. The parent's events are not copied.

    The same `key` from the same user means the same fork. Raises ConflictError if the key made
    another fork.
    """
    check(reason or "", "the reason")
    run = new_name() if key is None else keyed_name(key, f"fork of {by or actor()}")
    event = events.Forked(
        run=run,
        owner=by or actor(),
        parent=branch.last.stream.partition("/")[2],
        version=branch.last.version,
        head=branch.last.hash,
        changes=branch.changes,
        config=branch.config,
        output_dir=output_dir,
        strategy=branch.strategy,
        reason=reason,
    )
    who = Context(actor=by or actor())
    done = store.append(stream(run), 0, [New(event, f"{run}/forked")], who)
    if not done.fresh and events.REGISTRY.load(done.rows[0]) != event:
        raise ConflictError(f"key {key!r} made another fork, run {run}: use another key.")
    return run
