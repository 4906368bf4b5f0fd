"""Measurements of a quietstar run, and the conclusions from them. Pure.

An arm's figure is −log p of the hard tokens in nats a token, the mean over domains. Intervals are the
middle 95 % of a paired bootstrap: documents are resampled within each domain, the same for all arms
(`evaluation/measures/bootstrap.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from evaluation.measures.bootstrap import Counts
from phases.quietstar import plan
from phases.quietstar.events import Freeze, HardTokensFrozen, QuietstarState, ThoughtArm
from runs.event_types import Figure
from studies import comparison
from studies.comparison import CHOOSING, TEST
from studies.events import MODEL, Result
from studies.making.events import Making
from studies.observing import Observe, Observed
from studies.paired_bits import draws, figure

#: Measures: the model as it is, with pauses, with thoughts, with thoughts of other positions.
PLAIN, PAUSED = "hard-tokens@1", "pause-hard-tokens@1"
THOUGHTFUL, EXCHANGED = "thought-hard-tokens@1", "shuffled-hard-tokens@1"
#: Parts of a measurement: the hard tokens, all tokens, the share of the thought in the mixture.
HARD, EVERY, WEIGHT = "hard", "all", "weight"
#: Share of the gain that exchanged thoughts must cost, or they were no thoughts.
GENUINE = 0.5

#: Figure → what it is, in words.
FIGURES = {
    "gain": "nats a hard token that the better one of continued training and pauses needs more than "
    "thoughts",
    "over_continued": "nats a hard token that continued training needs more than thoughts",
    "over_pause": "nats a hard token that pauses need more than thoughts",
    "genuine": "nats a hard token that exchanged thoughts need more than thoughts, beyond half of the "
    "gain",
    "exchanged": "nats a hard token that exchanged thoughts need more than thoughts",
    "gain_on_selection": "nats a hard token of the gain, on the slice selection",
    "hard_nats": "nats a hard token with thoughts",
    "moved": "nats a hard token that continued training took off the common base",
    "weight": "share of the thought in the mixture, the mean over all tokens",
    "retention": "nats a token of the given model, over those of the result without thoughts",
}


def freezing(state: QuietstarState) -> list[Freeze]:
    """Return the tasks that find the hard tokens of both slices."""
    first = plan.recipes(state)[plan.START].id
    return [Freeze(first, on) for on in (CHOOSING, TEST)]


def frozen(state: QuietstarState, on: str) -> HardTokensFrozen | None:
    """Return the hard tokens of a slice; None before they are known."""
    found = state.answers.get(Freeze("", on).key)
    return found if isinstance(found, HardTokensFrozen) else None


def measuring(state: QuietstarState, on: str) -> dict[str, Observe]:
    """Return arm → its measurement on a slice; on the slice selection, of the arms of the gate."""
    recipes = plan.recipes(state)
    how = {
        plan.START: (plan.START, PLAIN),
        plan.BASE: (plan.BASE, PLAIN),
        plan.CONTINUED: (plan.CONTINUED, PLAIN),
        plan.PAUSE: (plan.PAUSE, PAUSED),
        plan.THOUGHTS: (plan.THOUGHTS, THOUGHTFUL),
        plan.SHUFFLED: (plan.THOUGHTS, EXCHANGED),
        plan.SILENT: (plan.SILENT, PLAIN),
    }
    if on == CHOOSING:
        how = {arm: how[arm] for arm in (plan.CONTINUED, plan.PAUSE, plan.THOUGHTS)}
    return {arm: Observe(recipes[name].id, measure, on) for arm, (name, measure) in how.items()}


def observations(state: QuietstarState) -> list[Observe]:
    """Return everything that is measured; a model that has two names once."""
    both = (*measuring(state, CHOOSING).values(), *measuring(state, TEST).values())
    return list({task.key: task for task in both}.values())


def found(state: QuietstarState, on: str = TEST) -> dict[str, Observed]:
    """Return arm → what was observed on a slice, of those that are measured."""
    return comparison.observed(state, measuring(state, on))


def by_domain(event: Observed, part: str) -> dict[str, float]:
    """Return domain → figure of a part of a measurement."""
    start = f"{part}/"
    return {n.removeprefix(start): v for n, v in event.values.items() if n.startswith(start)}


def mean(event: Observed, part: str = HARD) -> float:
    """Return the figure of a part, the mean over domains."""
    values = by_domain(event, part).values()
    return math.fsum(values) / len(values)


def drawn(state: QuietstarState, event: Observed, part: str = HARD) -> Counts:
    """Return the figure of a part in each resample of the documents, the mean over domains.

    A resample of a domain in which no document has a hard token counts with the figure of all.
    """
    domains = sorted(by_domain(event, part))
    sizes = {domain: len(event.items[f"{part}/{domain}"]) for domain in domains}
    resamples = draws(sizes, plan.PURPOSE, state.submitted.config.seed, event.on)
    rates = []
    for domain, counts in resamples.items():
        name = f"{part}/{domain}"
        below = counts @ np.asarray(event.sizes[name], np.float64)
        above = counts @ np.asarray(event.items[name], np.float64)
        rate = np.full(len(below), event.values[name])
        rates.append(np.divide(above, below, out=rate, where=below > 0))
    return np.mean(rates, axis=0)


def documents(event: Observed) -> int:
    """Return the number of documents that were measured."""
    return sum(len(some) for name, some in event.items.items() if name.startswith(f"{EVERY}/"))


def _more(state: QuietstarState, seen: Mapping[str, Observed], rival: str) -> tuple[float, Counts]:
    """Return the nats that a rival needs more than thoughts: of all documents, of each resample."""
    ours, theirs = seen[plan.THOUGHTS], seen[rival]
    return mean(theirs) - mean(ours), drawn(state, theirs) - drawn(state, ours)


def _gain(state: QuietstarState, seen: Mapping[str, Observed]) -> tuple[float, Counts]:
    """Return what the better one of both rivals needs more than thoughts."""
    (one, a), (two, b) = (_more(state, seen, rival) for rival in (plan.CONTINUED, plan.PAUSE))
    return min(one, two), np.minimum(a, b)


def lead(state: QuietstarState, rival: str) -> Figure:
    """Return the nats a hard token that an arm needs more than thoughts, with the interval."""
    seen = found(state)
    return figure(*_more(state, seen, rival), documents(seen[rival]))


def figures(state: QuietstarState) -> dict[str, Figure]:
    """Return the figures of a run whose arms are all measured."""
    seen, count = found(state), documents(found(state)[plan.THOUGHTS])
    gained, gains = _gain(state, seen)
    lost, losses = _more(state, seen, plan.SHUFFLED)
    ours, early = seen[plan.THOUGHTS], found(state, CHOOSING)
    base, after = seen[plan.BASE], seen[plan.CONTINUED]
    told = {
        "gain": figure(gained, gains, count),
        "over_continued": lead(state, plan.CONTINUED),
        "over_pause": lead(state, plan.PAUSE),
        "genuine": figure(lost - GENUINE * gained, losses - GENUINE * gains, count),
        "exchanged": figure(lost, losses, count),
        "gain_on_selection": figure(*_gain(state, early), documents(early[plan.THOUGHTS])),
        "hard_nats": figure(mean(ours), drawn(state, ours), count),
        "moved": figure(mean(base) - mean(after), drawn(state, base) - drawn(state, after), count),
        "weight": Figure(value=mean(ours, WEIGHT)),
    }
    start = seen[plan.START]
    result = seen[plan.SILENT] if passes(told) else start
    kept = drawn(state, start, EVERY) / drawn(state, result, EVERY)
    told["retention"] = figure(mean(start, EVERY) / mean(result, EVERY), kept, count)
    return told


def passes(told: Mapping[str, Figure]) -> bool:
    """Return True if thoughts pass the gate: the worse ends of the gain and of what is genuine.

    The gain is above 0, and exchanged thoughts cost at least half of it.
    """
    gain, genuine = told["gain"].low, told["genuine"].low
    assert gain is not None
    assert genuine is not None
    return gain > 0 and genuine >= 0


def chosen(state: QuietstarState) -> str | None:
    """Return the arm that is the result; None before all are measured."""
    if state.started is None or any(t.key not in state.answers for t in observations(state)):
        return None

    def judged() -> str:
        return plan.THOUGHTS if passes(figures(state)) else plan.START

    return state.remembered(("chosen",), judged)


def named(state: QuietstarState) -> dict[str, Making]:
    """Return name → recipe of all that the run makes; the first is its result once it is known."""
    recipes, best = plan.recipes(state), chosen(state)
    if best is None:
        return recipes
    return {MODEL: recipes[plan.SILENT if best == plan.THOUGHTS else plan.START], **recipes}


def results(state: QuietstarState) -> dict[str, Result]:
    """Return role → model of a run whose result is chosen."""
    id_ = named(state)[MODEL].id
    return {MODEL: Result(recipe_id=id_, digest=state.made[id_].digest)}


def arms(state: QuietstarState) -> dict[str, ThoughtArm]:
    """Return arm → what was compared, as the event of the end has it."""
    return {
        arm: ThoughtArm(
            recipe_id=event.recipe_id, hard=by_domain(event, HARD), every=by_domain(event, EVERY)
        )
        for arm, event in found(state).items()
    }
