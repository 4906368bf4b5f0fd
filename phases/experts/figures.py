"""Figures of an experts run: choice of a mixture, comparison with adapters, dispatch by domain. Pure.

A model is compared by the mean over the domains of its bits per byte over the given model's. The
neutral domain is left out of that mean: it is the drift.

Experts and adapters are trained on the same windows and have about as many numbers. Compared are the
gain in an expert's own domain and the damage in the others, as means over all trained experts.

Dispatch finds a mixture of experts for each domain from a few windows. The cross-entropy method
(`weights.training.cross_entropy`) searches the factors of the experts. It begins at their mean; its
points come from keys, so that its end follows from the recorded losses.

A task of a family is solved if greedy decoding gives the tokens of its answer and then the end token
(`evaluation/answers.py`). Shares are means over the tasks of a family, figures means over families.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from agent_forge.evaluation.measures import bootstrap
from agent_forge.phases.experts import recipes
from agent_forge.phases.experts.recipes import (
    FITTED,
    GIVEN,
    LORA,
    ONLY,
    PURPOSE,
    Factors,
    Fit,
    Fitted,
    Routed,
)
from agent_forge.phases.experts.search.generations import (
    ARMS,
    MIXTURES,
    MODELS,
    RANDOM,
    Search,
    mean,
    preferred,
)
from agent_forge.phases.experts.settings import ExpertsConfig
from agent_forge.runs.event_types import Figure
from agent_forge.studies import comparison
from agent_forge.studies.comparison import figure
from agent_forge.studies.events import Observed
from agent_forge.studies.run import FigureRule, StudyRun, ratio, share
from agent_forge.weights.training import cross_entropy
from agent_forge.weights.training.cross_entropy import Normal

#: Figure → what it is, in words.
FIGURES = {
    "own": "gain in the own domain: relative gain of an expert, the mean over experts",
    "lora_own": "gain of adapters in the own domain: relative gain of as many numbers",
    "own_over_lora": "lead over adapters: what experts gain more in their own domain",
    "damage": "loss in other domains: relative loss by an expert, the mean over experts and domains",
    "lora_damage": "loss in other domains by adapters: the same of these adapters",
    "damage_over_lora": "loss beyond that of adapters: what experts lose more in other domains",
}
#: The measure of tasks that are solved.
SOLVED = "exact-answers@1"
#: Figure of tasks solved → what it is, in words.
SOLVED_FIGURES = {
    "solved": "tasks solved: share of the tasks that the result solves, the mean over families",
    "solved_given": "tasks solved by the given model: their share",
    "solved_own": "more own tasks solved: share of a family's tasks that its expert solves more",
    "solved_lora": "more own tasks solved by adapters: the same of the adapters beside it",
}

#: Domain → bits per byte in each resample, [resamples].
Rates = Mapping[str, np.ndarray]
#: A value, and the value in each resample.
Spread = tuple[float, np.ndarray]


def figures(
    domains: Sequence[str], observations: Mapping[str, Observed], drawn: Mapping[str, Rates]
) -> dict[str, Figure]:
    """Return name → figure of experts beside adapters: gains in own domains, damage elsewhere.

    `observations` and `drawn` map an arm to what was observed, and to its rates in the same resamples
    of windows. Empty without experts, and without adapters.
    """
    expert_arms = {domain: f"{recipes.ONLY}{domain}" for domain in domains}
    other = {domain: f"{recipes.LORA}{domain}" for domain in domains}
    if not domains or not {*expert_arms.values(), *other.values()} <= set(observations):
        return {}
    count, figures_by_name = (
        sum(map(len, observations[recipes.GIVEN].items.values())),
        dict[str, Figure](),
    )
    both = zip(_both(expert_arms, observations, drawn), _both(other, observations, drawn), strict=True)
    for kind, (expert, adapter) in zip(("own", "damage"), both, strict=True):
        figures_by_name[kind] = figure(*expert, count)
        figures_by_name[f"lora_{kind}"] = figure(*adapter, count)
        figures_by_name[f"{kind}_over_lora"] = figure(
            expert[0] - adapter[0], expert[1] - adapter[1], count
        )
    return figures_by_name


def _both(
    arms: Mapping[str, str], observations: Mapping[str, Observed], drawn: Mapping[str, Rates]
) -> tuple[Spread, Spread]:
    """Return (mean gain of arms in their own domains, mean loss in all others), with resamples."""
    gains, damage = list[Spread](), list[Spread]()
    base, rates = observations[recipes.GIVEN], drawn[recipes.GIVEN]
    for domain, arm in arms.items():
        for other, value in base.values.items():
            point = observations[arm].values[other] / value - 1
            spread = drawn[arm][other] / rates[other] - 1
            if other == domain:
                gains.append((-point, -spread))
            else:
                damage.append((point, spread))
    return _mean(gains), _mean(damage)


def _mean(values: Sequence[Spread]) -> Spread:
    """Return (mean of the values, mean of their resamples)."""
    points = [point for point, _ in values]
    return math.fsum(points) / len(points), np.mean([spread for _, spread in values], axis=0)


Seen = Mapping[str, Observed]
#: Arm → domain → bits per byte in each resample of the windows, [resamples], the same for all.
Drawn = Mapping[str, Mapping[str, np.ndarray]]


# ---- the choice ------------------------------------------------------------------------------


def arm_of(name: str) -> str:
    """Return the arm of a candidate: the search's for a finalist "ARM-1", else the name itself."""
    arm = name.rpartition("-")[0]
    return arm if arm in ARMS else name


def shares(observations: Seen, base: Observed) -> dict[str, dict[str, float]]:
    """Return name → domain → bits per byte over the given model's."""
    return {
        name: {domain: event.values[domain] / base.values[domain] for domain in sorted(base.values)}
        for name, event in observations.items()
    }


def best(config: ExpertsConfig, observations: Seen, base: Observed) -> str:
    """Return the name of the candidate that is the result, or "given".

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

    Finalists within the limit of drift come first.
    """
    parts = shares(observations, base)
    arms = {
        arm: preferred(config, {name: parts[name] for name in parts if arm_of(name) == arm})
        for arm in ARMS
    }
    return {arm: names[0] for arm, names in arms.items() if names}


# ---- the comparison --------------------------------------------------------------------------


def resampled(observations: Seen, seed: int) -> Drawn:
    """Return arm → domain → bits per byte in each bootstrap resample of the windows."""
    counts = {domain: len(windows) for domain, windows in observations[GIVEN].items.items()}
    draws = comparison.draws(counts, PURPOSE, seed)
    return {name: comparison.rates(event, draws) for name, event in observations.items()}


def drawn(run: StudyRun) -> Drawn:
    """Return arm → domain → bits per byte in each resample, for the arms measured so far."""
    work = partial(resampled, run.seen, run.settings.seed)
    return run.state.remembered(("resampled", *run.seen), work)


def gain(
    config: ExpertsConfig, observations: Seen, resamples: Drawn, arm: str, over: str = GIVEN
) -> Figure:
    """Return as a Figure the relative gain of `arm` over `over`, the mean over the experts' domains."""
    domains = [domain for domain in observations[arm].values if domain != config.neutral]
    points = [1 - observations[arm].values[d] / observations[over].values[d] for d in domains]
    spread = np.mean([1 - resamples[arm][d] / resamples[over][d] for d in domains], axis=0)
    items = sum(len(observations[arm].items[domain]) for domain in domains)
    return figure(math.fsum(points) / len(points), spread, items)


def gains(run: StudyRun) -> dict[str, Figure]:
    """Return arm → Figure of its relative gain over the given model on the test slice."""
    arms = [arm for arm in run.seen if arm != GIVEN]
    return {arm: gain(run.settings, run.seen, drawn(run), arm) for arm in arms}


def by_domain(run: StudyRun) -> dict[str, dict[str, Figure]]:
    """Return arm → domain → Figure of the relative gain over the given model on the test slice."""
    arms = [arm for arm in run.seen if arm != GIVEN]
    return {arm: {d: _in_domain(run, arm, d) for d in run.seen[arm].values} for arm in arms}


def _in_domain(run: StudyRun, arm: str, domain: str) -> Figure:
    """Return as a Figure the relative gain of an arm over the given model in one domain."""
    resamples = drawn(run)
    return figure(
        1 - run.seen[arm].values[domain] / run.seen[GIVEN].values[domain],
        1 - resamples[arm][domain] / resamples[GIVEN][domain],
        len(run.seen[arm].items[domain]),
    )


def solved(run: StudyRun) -> dict[str, Observed]:
    """Return arm → the `observed` event of the test tasks that it solves, of the measured arms."""
    return comparison.observed(run.state, run.known.get("solved", {}))


# ---- rules of figures ------------------------------------------------------------------------


def _gain(run: StudyRun) -> Figure:
    return gain(run.settings, run.seen, drawn(run), str(run.result))


def _drift(run: StudyRun) -> Figure | None:
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


def _of_search(arm: str | None, field: str, run: StudyRun) -> Figure | None:
    """Return as a Figure `field` of the last generation of `arm` (None: of any); None without one."""
    searches: Mapping[str, Search] = run.known["searches"]
    search = searches.get(arm) if arm else next(iter(searches.values()), None)
    return None if search is None else Figure(value=getattr(search.ended[-1], field))


def _over(other: str, run: StudyRun) -> Figure | None:
    if not {MIXTURES, other} <= set(run.seen):
        return None
    return gain(run.settings, run.seen, drawn(run), MIXTURES, other)


def _beside(run: StudyRun) -> dict[str, Figure]:
    return figures([*run.known["experts"]], run.seen, drawn(run))


def solved_shares(observations: Mapping[str, Observed]) -> dict[str, dict[str, Figure]]:
    """Return arm → family → share of its tasks that are solved, with the interval."""
    return {
        arm: {
            family: figure(value, _drawn_tasks(event, family), len(event.items[family]))
            for family, value in event.values.items()
        }
        for arm, event in observations.items()
    }


def solved_figures(
    families: Sequence[str], observations: Mapping[str, Observed], result: str
) -> dict[str, Figure]:
    """Return name → figure of tasks solved, of those measured; `families` are those with an expert."""
    figures_by_name = {}
    for name, arm in (("solved", result), ("solved_given", GIVEN)):
        if arm in observations and observations[arm].values:
            event = observations[arm]
            spread = np.mean([_drawn_tasks(event, family) for family in event.values], axis=0)
            point = math.fsum(event.values.values()) / len(event.values)
            figures_by_name[name] = figure(point, spread, sum(map(len, event.items.values())))
    for name, start in (("solved_own", ONLY), ("solved_lora", LORA)):
        arms = {family: f"{start}{family}" for family in families}
        if arms and set(arms.values()) <= set(observations):
            figures_by_name[name] = _more_tasks(arms, observations)
    return figures_by_name


def _more_tasks(arms: Mapping[str, str], observations: Mapping[str, Observed]) -> Figure:
    """Return as a Figure the mean share of own tasks that arms solve more than the given model."""
    base = observations[GIVEN]
    points = [observations[arm].values[family] - base.values[family] for family, arm in arms.items()]
    spread = [
        _drawn_tasks(observations[arm], family) - _drawn_tasks(base, family)
        for family, arm in arms.items()
    ]
    count = sum(len(base.items[family]) for family in arms)
    return figure(math.fsum(points) / len(points), np.mean(spread, axis=0), count)


def _drawn_tasks(event: Observed, family: str) -> np.ndarray:
    """Return the share of a family's tasks solved in each resample, float64 [resamples]."""
    items = event.items[family]
    counts = bootstrap.draws(len(items), PURPOSE, event.on, "solved", family)
    return bootstrap.ratio(counts, items, [1.0] * len(items))


def _solving(run: StudyRun) -> dict[str, Figure]:
    families = [name for name in run.known["experts"] if name in run.settings.families]
    return solved_figures(families, solved(run), str(run.result))


def _one(figures: Callable[[StudyRun], dict[str, Figure]], name: str, run: StudyRun) -> Figure | None:
    """Return the figure `name` of those that `figures` computes together; None if it is missing."""
    return run.state.remembered((figures,), partial(figures, run)).get(name)


def _together(
    words: Mapping[str, str], figures: Callable[[StudyRun], dict[str, Figure]]
) -> dict[str, FigureRule]:
    return {n: share(text, partial(_one, figures, n)) for n, text in words.items()}


# ---- dispatch --------------------------------------------------------------------------------


def _routed(run: StudyRun) -> Routed | None:
    """Return the event with the classifier's choices; None without experts or windows."""
    event: Routed | None = run.known.get("routed")
    if event is None or wrong_routes(len(run.known["kept"]), event) is not None:
        return None
    return event if any(event.choices) else None


def _dispatch(run: StudyRun) -> Figure | None:
    """Return as a Figure the relative gain in nats by dispatch, the mean over domains; or None."""
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


def _dispatched(run: StudyRun) -> Figure | None:
    """Return as a Figure the share of windows with the right choice of an expert; None without any."""
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


def _few_shot(run: StudyRun) -> Figure | None:
    """Return as a Figure the relative gain if each domain has its own mixture; None without any."""
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


RULES: Mapping[str, FigureRule] = {
    "gain": share(
        "fewer bits per byte: relative gain of the result, the mean over the domains of experts", _gain
    ),
    "drift": share("loss on neutral text: relative loss of the result", _drift),
    "retention": ratio(
        GIVEN, "quality kept in its domains: the given model's mean bits per byte over the result's"
    ),
    "experts": FigureRule(
        "useful experts: those that predict their own domain better than the given model",
        lambda run: Figure(value=len(run.known["kept"])),
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
    **_together(FIGURES, _beside),
    **_together(SOLVED_FIGURES, _solving),
    "dispatch": share(
        "gain of dispatch: relative gain by a classifier, after the beginning", _dispatch
    ),
    "dispatched": share("right dispatch: share of windows whose expert was chosen", _dispatched),
    "few_shot": share(
        "gain of few-shot dispatch: relative gain by mixtures from a few windows a domain", _few_shot
    ),
}


#: Standard deviation of the first points, and the least standard deviation.
FIRST, LEAST = 0.5, 0.02
#: Points of a round for each that is followed.
SHARE = 4


def begin(experts: int) -> Normal:
    """Return the normal distribution of factors that the search of a mixture starts from."""
    return Normal((round(1 / experts, 6),) * experts, (FIRST,) * experts)


def points(config: ExpertsConfig, domain: str, number: int, normal: Normal) -> list[Factors]:
    """Return the list of `config.points` mixtures (factors) to try in round `number`, drawn by key."""
    key = (config.seed, "experts", "fit", domain, number)
    return cross_entropy.drawn(normal, config.points, *key)


def follow(config: ExpertsConfig, candidates: Sequence[Factors], losses: Sequence[float]) -> Normal:
    """Return the distribution of factors after a round, by the losses of its candidates."""
    return cross_entropy.followed(candidates, losses, config.points // SHARE, LEAST)


def factors(
    config: ExpertsConfig, domain: str, experts: int, losses: Sequence[Sequence[float]]
) -> Factors:
    """Return the factors that recorded losses lead to: the mean after the last round."""
    normal = begin(experts)
    for number, row in enumerate(losses):
        normal = follow(config, points(config, domain, number, normal), row)
    return normal.mean


def wrong_fit(config: ExpertsConfig, experts: int, task: Fit, event: Fitted) -> str | None:
    """Return why an event does not answer the task of a mixture; None if it does. For the audit."""
    if event.domain != task.domain:
        return "a mixture was found for another domain than was asked for"
    if [len(row) for row in event.losses] != [config.points] * config.rounds:
        return "it has another number of losses than rounds have points"
    followed = factors(config, task.domain, experts, event.losses)
    return None if followed == event.factors else "its factors do not follow from its losses"


def wrong_routes(experts: int, event: Routed) -> str | None:
    """Return why recorded choices of experts are inconsistent; None if they are valid."""
    parts: Sequence[Mapping[str, Sequence[float]]] = (event.items, event.given, event.sizes)
    counts = {domain: len(choices) for domain, choices in event.choices.items()}
    if any({domain: len(numbers) for domain, numbers in part.items()} != counts for part in parts):
        return "its choices, items and sizes are not of the same windows"
    if any(choice > experts for choices in event.choices.values() for choice in choices):
        return "an expert was chosen that there is not"
    return None
