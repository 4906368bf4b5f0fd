"""Early stopping: clearly worse candidates are dropped before their evaluation is complete. Pure.

The windows of a draw are scored in blocks, in an order from the draw's own key that is the same for
all candidates. After each block but the last, two rules are checked.

The gate: is the perplexity so far more than `gate_perplexity` times that of the worst source on the
same windows? A broken merge shows itself in the first block.

The test: is the mean difference of −log p per token to the best source, paired window by window,
above zero? Each look is a one-sided paired t-test at `stop_error` over the number of looks. By the
union bound (Bonferroni), a candidate that is not worse is then stopped with at most the probability
`stop_error`. The quantile of Student's t is the expansion of Abramowitz & Stegun 1964, 26.7.5.

A dropped candidate keeps a fitness, so that it can still be ranked. The fitness is computed on the
windows that it was scored on, with the sources' results on the same windows.

In a run all of it follows from the log, so that an audit can check why an evaluation ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

from agent_forge.evaluation.data import outcomes as recorded
from agent_forge.evaluation.data.outcomes import Draw, Draws, Outcomes
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evomerge.fitness import composite
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.event_types import EventPart
from agent_forge.weights import randomness

#: Largest number of blocks.
BLOCKS = 6


class StopRules(EventPart):
    """The two rules' thresholds: `gate_perplexity` and `stop_error`. 0 switches a rule off."""

    perplexity: float
    error: float

    @property
    def shut_off(self) -> bool:
        """True if both rules are off, so that no candidate is ever dropped."""
        return not self.perplexity and not self.error


def blocks_of(draws: Draws, least: int, *key: str | int) -> list[Draws]:
    """Return a list of blocks, {domain: Draw} each: a draw's windows, in a random order by `key`.

    A block holds at least `least` windows of each domain, and a multiple of `least`. A domain's
    last windows may be fewer; later blocks hold none of the domain.
    """
    parts: dict[str, list[tuple[int, ...]]] = {}
    for domain, draw in sorted(draws.items()):
        order = randomness.permutation(len(draw.windows), *key, domain)
        shuffled = [draw.windows[int(i)] for i in order]
        size = max(least, -(-len(shuffled) // BLOCKS))
        size = -(-size // least) * least
        parts[domain] = [
            tuple(sorted(shuffled[first : first + size])) for first in range(0, len(shuffled), size)
        ]
    count = max(map(len, parts.values()), default=0)
    empty = Draw(windows=(), questions=())
    return [
        {
            d: Draw(windows=pieces[number], questions=()) if number < len(pieces) else empty
            for d, pieces in parts.items()
        }
        for number in range(count)
    ]


def drop_reason(
    gate: StopRules, outcomes: Outcomes, sources: Mapping[str, Outcomes], looks: int
) -> str | None:
    """Return the reason why a candidate is dropped after these windows; None to go on.

    `sources` maps a name to the outcomes on the same windows. `looks` is the largest number of
    times that a candidate is checked.
    """
    components = composite.components(outcomes, 1.0, 1.0)
    if components is None:
        return None  # NaN or Inf: the evaluation itself reports it
    source_components = {
        name: composite.components(source, 1.0, 1.0) for name, source in sources.items()
    }
    perplexities = {
        name: parts.perplexity for name, parts in source_components.items() if parts is not None
    }
    if not perplexities:
        return None
    read = sum(len(outcome.nll) for outcome in outcomes.values())
    worst = max(perplexities, key=lambda name: (perplexities[name], name))
    if gate.perplexity and components.perplexity > gate.perplexity * perplexities[worst]:
        return (
            f"perplexity {components.perplexity:.4g} on the first {read} windows, more than "
            f"{gate.perplexity:g} times that of the worst source ({worst}, {perplexities[worst]:.4g})"
        )
    best = min(perplexities, key=lambda name: (perplexities[name], name))
    if gate.error and worse(outcomes, sources[best], gate.error / looks):
        return (
            f"perplexity {components.perplexity:.4g} on the first {read} windows, clearly worse than "
            f"{best} ({perplexities[best]:.4g}) at an error rate of {gate.error:g} in {looks} looks"
        )
    return None


def worse(outcomes: Outcomes, other: Outcomes, level: float) -> bool:
    """Return True if −log p a token is higher by a paired t-test at `level`; False below 8 windows."""
    differences = [
        (a - b) / n
        for domain in sorted(outcomes)
        for a, b, n in zip(
            outcomes[domain].nll, other[domain].nll, outcomes[domain].tokens, strict=True
        )
    ]
    count = len(differences)
    if count < 8:
        return False
    mean = math.fsum(differences) / count
    variance = math.fsum((d - mean) ** 2 for d in differences) / (count - 1)
    return mean > quantile(1 - level, count - 1) * math.sqrt(variance / count)


def quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t, to about 1e-3 from 7 degrees of freedom on."""
    z, n = NormalDist().inv_cdf(min(probability, 1 - 1e-15)), float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / n ** (power + 1) for power, term in enumerate(terms))


# ---- in a run -----------------------------------------------------------------------------------


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
    return blocks_of(state.draws(slice_, generation), least, *key)


def reason(
    state: RunState, gate: StopRules, slice_: Slice, sofar: Outcomes, scored: Draws, looks: int
) -> str | None:
    """Return the reason why the evaluation ends after these windows; None if it goes on."""
    return drop_reason(gate, sofar, state.sources_on(slice_, scored), looks)


def unfounded(state: RunState, event: events.Evaluated) -> str | None:
    """Return the reason why an evaluation was wrongly ended early, or not; None if it is right."""
    gate = rules(state, event.recipe_id, event.slice, event.generation)
    if gate is None:
        return "it was ended early, which it could not be" if event.stopped or event.scored else None
    draws = event.scored or state.draws(event.slice, event.generation)
    parts = blocks(state, event.slice, event.generation)
    for number in range(1, len(parts)):
        scored = recorded.joined(parts[:number])
        if set(scored) != set(draws) or not _within(scored, draws):
            break
        scored_outcomes = recorded.narrowed(event.outcomes, draws, scored)
        why = reason(state, gate, event.slice, scored_outcomes, scored, len(parts) - 1)
        if scored == event.scored:
            sound = why is not None and why == event.stopped
            return None if sound else "it was ended early for another reason"
        if why is not None:
            return "it was not ended early, which it should have been"
    return "it was ended after other windows than those of a block" if event.scored else None


def _within(subset: Draws, draws: Draws) -> bool:
    return all(set(draw.windows) <= set(draws[d].windows) for d, draw in subset.items())
