"""Choice, comparison and figures of an experts run. Pure.

A model is compared by the mean over the domains of its bits per byte over the given model's. The
neutral domain is left out of that mean: it is the drift.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from evaluation.measures import bootstrap
from phases.experts import beside, dispatch, solving
from phases.experts.events import Routed
from phases.experts.recipes import FITTED, GIVEN, PURPOSE
from phases.experts.search.generations import ARMS, MIXTURES, MODELS, RANDOM, Search
from phases.experts.search.objectives import mean, preferred
from phases.experts.settings import ExpertsConfig
from runs.event_types import Figure
from studies import comparison, paired_bits
from studies.observing import Observed
from studies.paired_bits import figure
from studies.run import Run
from studies.tables import FigureRule, ratio, share

Seen = Mapping[str, Observed]
#: Arm → domain → bits per byte in each resample of the windows, [resamples], the same for all.
Drawn = Mapping[str, Mapping[str, np.ndarray]]


# ---- the choice ------------------------------------------------------------------------------


def arm_of(name: str) -> str:
    """Return the arm of the comparison that a candidate is; a finalist has that of its search."""
    arm = name.rpartition("-")[0]
    return arm if arm in ARMS else name


def shares(observations: Seen, base: Observed) -> dict[str, dict[str, float]]:
    """Return name → domain → bits per byte over the given model's."""
    return {
        name: {domain: event.values[domain] / base.values[domain] for domain in sorted(base.values)}
        for name, event in observations.items()
    }


def best(config: ExpertsConfig, observations: Seen, base: Observed) -> str:
    """Return the name of the result among the candidates.

    It is the best candidate within the limit of drift if the interval of its gain lies above zero,
    else the given model, which then is passed through.
    """
    values = {
        name: mean(config, parts)
        for name, parts in shares(observations, base).items()
        if parts.get(config.neutral, 1.0) <= 1 + config.drift
    }
    if not values:
        return GIVEN
    name = min(values, key=lambda candidate: (values[candidate], candidate))
    compared = {GIVEN: base, name: observations[name]}
    low = gain(config, compared, resampled(compared, config.seed), name).low
    return name if low is not None and low > 0 else GIVEN


def best_of_arms(config: ExpertsConfig, observations: Seen, base: Observed) -> dict[str, str]:
    """Return arm of the search → the name of its best finalist.

    It is within the limit of drift, if any of the arm's is.
    """
    parts = shares(observations, base)
    arms = {
        arm: preferred(config, {name: parts[name] for name in parts if arm_of(name) == arm})
        for arm in ARMS
    }
    return {arm: names[0] for arm, names in arms.items() if names}


# ---- the comparison --------------------------------------------------------------------------


def resampled(observations: Seen, seed: int) -> Drawn:
    """Return arm → domain → bits per byte in each resample of the windows."""
    counts = {domain: len(windows) for domain, windows in observations[GIVEN].items.items()}
    draws = paired_bits.draws(counts, PURPOSE, seed)
    return {name: paired_bits.rates(event, draws) for name, event in observations.items()}


def drawn(run: Run) -> Drawn:
    """Return the resamples of all arms that are measured."""
    work = partial(resampled, run.seen, run.settings.seed)
    return run.state.remembered(("resampled", *run.seen), work)


def gain(
    config: ExpertsConfig, observations: Seen, resamples: Drawn, arm: str, over: str = GIVEN
) -> Figure:
    """Return the relative gain of a model over another one, the mean over the domains of experts."""
    domains = [domain for domain in observations[arm].values if domain != config.neutral]
    points = [1 - observations[arm].values[d] / observations[over].values[d] for d in domains]
    spread = np.mean([1 - resamples[arm][d] / resamples[over][d] for d in domains], axis=0)
    items = sum(len(observations[arm].items[domain]) for domain in domains)
    return figure(math.fsum(points) / len(points), spread, items)


def gains(run: Run) -> dict[str, Figure]:
    """Return arm → its relative gain over the given model on the test slice."""
    arms = [arm for arm in run.seen if arm != GIVEN]
    return {arm: gain(run.settings, run.seen, drawn(run), arm) for arm in arms}


def by_domain(run: Run) -> dict[str, dict[str, Figure]]:
    """Return arm → domain → relative gain on the test slice: an expert's own, and its damage."""
    arms = [arm for arm in run.seen if arm != GIVEN]
    return {arm: {d: _in_domain(run, arm, d) for d in run.seen[arm].values} for arm in arms}


def _in_domain(run: Run, arm: str, domain: str) -> Figure:
    """Return the relative gain of an arm in one domain."""
    resamples = drawn(run)
    return figure(
        1 - run.seen[arm].values[domain] / run.seen[GIVEN].values[domain],
        1 - resamples[arm][domain] / resamples[GIVEN][domain],
        len(run.seen[arm].items[domain]),
    )


def solved(run: Run) -> dict[str, Observed]:
    """Return arm → the tasks that it solves of the test slice, of the arms that are measured."""
    return comparison.observed(run.state, run.known.get("solved", {}))


# ---- rules of figures ------------------------------------------------------------------------


def _gain(run: Run) -> Figure:
    return gain(run.settings, run.seen, drawn(run), str(run.result))


def _drift(run: Run) -> Figure | None:
    arm, neutral = str(run.result), run.settings.neutral
    if neutral not in run.seen[arm].values:
        return None
    neutral_figure = _in_domain(run, arm, neutral)
    assert neutral_figure.low is not None
    assert neutral_figure.high is not None
    return Figure(
        value=-neutral_figure.value,
        low=-neutral_figure.high,
        high=-neutral_figure.low,
        n=neutral_figure.n,
    )


def _of_search(arm: str | None, field: str, run: Run) -> Figure | None:
    """Return a number of an arm's last generation; None without that arm. No arm: of any."""
    searches: Mapping[str, Search] = run.known["searches"]
    search = searches.get(arm) if arm else next(iter(searches.values()), None)
    return None if search is None else Figure(value=getattr(search.ended[-1], field))


def _over(other: str, run: Run) -> Figure | None:
    if not {MIXTURES, other} <= set(run.seen):
        return None
    return gain(run.settings, run.seen, drawn(run), MIXTURES, other)


def _beside(run: Run) -> dict[str, Figure]:
    return beside.figures([*run.known["experts"]], run.seen, drawn(run))


def _solving(run: Run) -> dict[str, Figure]:
    families = [name for name in run.known["experts"] if name in run.settings.families]
    return solving.figures(families, solved(run), str(run.result))


def _one(figures: Callable[[Run], dict[str, Figure]], name: str, run: Run) -> Figure | None:
    """Return one of several figures that are computed together."""
    return run.state.remembered((figures,), partial(figures, run)).get(name)


def _together(
    words: Mapping[str, str], figures: Callable[[Run], dict[str, Figure]]
) -> dict[str, FigureRule]:
    return {n: share(text, partial(_one, figures, n)) for n, text in words.items()}


# ---- dispatch --------------------------------------------------------------------------------


def _routed(run: Run) -> Routed | None:
    """Return what the classifier chose; None without experts or windows."""
    event: Routed | None = run.known.get("routed")
    if event is None or dispatch.wrong_routes(len(run.known["kept"]), event) is not None:
        return None
    return event if any(event.choices) else None


def _dispatch(run: Run) -> Figure | None:
    """Return the relative gain in nats a token of windows' rests, the mean over domains of experts."""
    event, config = _routed(run), run.settings
    if event is None:
        return None
    points, spread = [], []
    domains = [domain for domain in sorted(event.items) if domain != config.neutral]
    for domain in domains:
        losses, base, sizes = event.items[domain], event.given[domain], event.sizes[domain]
        counts = bootstrap.draws(len(losses), PURPOSE, config.seed, "route", domain)
        points.append(1 - math.fsum(losses) / math.fsum(base))
        share = bootstrap.ratio(counts, losses, sizes) / bootstrap.ratio(counts, base, sizes)
        spread.append(1 - share)
    count = sum(len(event.items[domain]) for domain in domains)
    return figure(math.fsum(points) / len(points), np.mean(spread, axis=0), count)


def _dispatched(run: Run) -> Figure | None:
    """Return the share of windows whose own expert was chosen; of other domains: none."""
    event = _routed(run)
    if event is None:
        return None
    numbers = {domain: number for number, domain in enumerate(run.known["kept"], start=1)}
    hits = [
        float(choice == numbers.get(domain, 0))
        for domain, choices in sorted(event.choices.items())
        for choice in choices
    ]
    counts = bootstrap.draws(len(hits), PURPOSE, run.settings.seed, "choices")
    spread = bootstrap.ratio(counts, hits, [1.0] * len(hits))
    return figure(math.fsum(hits) / len(hits), spread, len(hits))


def _few_shot(run: Run) -> Figure | None:
    """Return the gain if each domain has its own mixture, on the test slice; None if there is none."""
    fitted = comparison.observed(run.state, run.known.get("fitted", {}))
    events = {name.removeprefix(FITTED): event for name, event in fitted.items()}
    events.pop(run.settings.neutral, None)
    if not events:
        return None
    base = run.seen[GIVEN]
    resamples = resampled({GIVEN: base, **events}, run.settings.seed)
    points, spread, count = list[float](), [], 0
    for domain, event in events.items():
        points.append(1 - event.values[domain] / base.values[domain])
        spread.append(1 - resamples[domain][domain] / resamples[GIVEN][domain])
        count += len(event.items[domain])
    return figure(math.fsum(points) / len(points), np.mean(spread, axis=0), count)


def _kept(run: Run) -> Figure:
    experts: Sequence[str] = run.known["kept"]
    return Figure(value=len(experts))


RULES: Mapping[str, FigureRule] = {
    "gain": share(
        "fewer bits per byte: relative gain of the result, the mean over the domains of experts",
        _gain,
    ),
    "drift": share("loss on neutral text: relative loss of the result", _drift),
    "retention": ratio(
        GIVEN, "quality kept in its domains: the given model's mean bits per byte over the result's"
    ),
    "experts": FigureRule(
        "useful experts: those that predict their own domain better than the given model",
        _kept,
        "count",
    ),
    "evaluations": FigureRule(
        "mixtures measured: those of each arm of the search",
        partial(_of_search, None, "evaluations"),
        "count",
    ),
    "hypervolume": FigureRule(
        "hypervolume: volume that the search's front dominates, beyond 1.05 of the given model",
        partial(_of_search, MIXTURES, "hypervolume"),
    ),
    "hypervolume_random": FigureRule(
        "hypervolume of random mixtures: the same of as many",
        partial(_of_search, RANDOM, "hypervolume"),
    ),
    "hypervolume_models": FigureRule(
        "hypervolume of models alone: the same of as many mixtures of them",
        partial(_of_search, MODELS, "hypervolume"),
    ),
    "over_random": share(
        "lead over random mixtures: gain of the best one over them", partial(_over, RANDOM)
    ),
    "over_models": share(
        "lead over models alone: gain of the best mixture over them", partial(_over, MODELS)
    ),
    **_together(beside.FIGURES, _beside),
    **_together(solving.FIGURES, _solving),
    "dispatch": share(
        "gain of dispatch: relative gain by a classifier, after the beginning", _dispatch
    ),
    "dispatched": share("right dispatch: share of windows whose expert was chosen", _dispatched),
    "few_shot": share(
        "gain of few-shot dispatch: relative gain by mixtures from a few windows a domain",
        _few_shot,
    ),
}
