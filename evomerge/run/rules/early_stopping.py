"""Early stopping of a candidate's evaluation: when it may end, from the log alone.

Pure.
"""

from __future__ import annotations

from agent_forge.evaluation.data import outcomes
from agent_forge.evaluation.data.outcomes import Draws, Outcomes
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evomerge.fitness import early_stopping
from agent_forge.evomerge.fitness.early_stopping import StopRules
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState


def rules(state: RunState, recipe_id: str, slice_: Slice, generation: int | None) -> StopRules | None:
    """Return the `StopRules` by which an evaluation may be stopped early; None if it may not.

    Sources and whole slices are always scored completely, because others are compared with them.
    """
    if slice_ != "search" or generation is None or state.is_source(recipe_id):
        return None
    config = state.settings(generation)
    gate = StopRules(perplexity=config.gate_perplexity, error=config.stop_error)
    return None if gate.shut_off else gate


def blocks(state: RunState, slice_: Slice, generation: int | None) -> list[Draws]:
    """Return a list of blocks, {domain: draw} each: a draw's windows in the order of scoring.

    Each block of a domain, but for the last, has at least a batch of windows.
    """
    assert state.started
    least = max(1, state.started.profile.batch_tokens // state.started.context)
    key = (state.settings(generation or 0).seed, "blocks", slice_, str(generation))
    return early_stopping.blocks(state.draws(slice_, generation), least, *key)


def reason(
    state: RunState, gate: StopRules, slice_: Slice, sofar: Outcomes, scored: Draws, looks: int
) -> str | None:
    """Return the reason why the evaluation ends after these windows; None if it goes on."""
    return early_stopping.reason(gate, sofar, state.sources_on(slice_, scored), looks)


def unfounded(state: RunState, event: events.Evaluated) -> str | None:
    """Return the reason why an evaluation was wrongly ended early, or not; None if it is right."""
    gate = rules(state, event.recipe_id, event.slice, event.generation)
    if gate is None:
        return "it was ended early, which it could not be" if event.stopped or event.scored else None
    draws = event.scored or state.draws(event.slice, event.generation)
    parts = blocks(state, event.slice, event.generation)
    for number in range(1, len(parts)):
        scored = outcomes.joined(parts[:number])
        if set(scored) != set(draws) or not _within(scored, draws):
            break
        scored_outcomes = outcomes.narrowed(event.outcomes, draws, scored)
        why = reason(state, gate, event.slice, scored_outcomes, scored, len(parts) - 1)
        if scored == event.scored:
            sound = why is not None and why == event.stopped
            return None if sound else "it was ended early for another reason"
        if why is not None:
            return "it was not ended early, which it should have been"
    return "it was ended after other windows than those of a block" if event.scored else None


def _within(subset: Draws, draws: Draws) -> bool:
    return all(set(draw.windows) <= set(draws[d].windows) for d, draw in subset.items())
