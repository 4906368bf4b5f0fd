"""Measurements of a bake, what is chosen by them, and the figures that follow. Pure.

All divergences are of the replies that the given model wrote under a prompt, in nats a token. Of the
replies to a prompt with a check, the share that pass is measured. Intervals are the middle 95 % of a
paired bootstrap over contexts (`evaluation/measures/bootstrap.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from agent_forge.evaluation.measures import bootstrap
from agent_forge.evaluation.measures.bootstrap import Counts
from agent_forge.phases.prompt_baking import recipes
from agent_forge.phases.prompt_baking.recipes import PARENT, PURPOSE, BakeStage, Course
from agent_forge.phases.prompt_baking.settings import BakeConfig
from agent_forge.runs.event_types import Figure
from agent_forge.studies import comparison
from agent_forge.studies.comparison import CHOOSING, TEST, figure
from agent_forge.studies.events import Observe, Observed
from agent_forge.studies.run import FigureRule, StudyRun, ratio

BITS, DIVERGENCE, BEHAVIOUR = "bits-per-byte@1", "prompt-divergence@1", "behaviour@1"
#: Group of divergences under the run's prompts; under the first n alone its name is "prompt-n".
PROMPT = "prompt"
#: Beginning of the groups under other prompts; group of contexts after ordinary text; beginning of
#: the groups in which the given model has all prompts but one.
OTHER, FAR, WITHOUT = "other-", "far", "without-"
#: Arms of the given model's replies; the others have no prompt.
PROMPTED, UNPROMPTED = "prompted", "unprompted"
#: Place of contexts at the beginning of a sequence; FAR is the other place.
NEAR = "near"
#: Nats a token below which prompts count as changing nothing.
LEAST = 1e-4
#: Largest relative change of bits per byte of models that are preferred as the result.
DRIFT = 0.005
#: Figure → its largest good value; figure → its smallest good value.
LIMITS = {"ratio": 0.05, "drift": DRIFT, "shortfall": 0.02, "far_shortfall": 0.02}
FLOORS = {"kept": 0.95}

#: Number of a check → arm → figure.
Rates = Mapping[int, Mapping[str, Figure]]


# ---- what is chosen ----------------------------------------------------------------------------


def group(config: BakeConfig, stage: BakeStage) -> str:
    """Return the name of a group of divergences: "prompt", or "prompt-N" under the first N prompts."""
    return PROMPT if stage.prompts == config.prompts else f"{PROMPT}-{len(stage.prompts)}"


def active(config: BakeConfig, effect: Observed) -> tuple[BakeStage, ...]:
    """Return the stages to train: those whose prompts change something.

    `effect` is the given model's divergence under the prompts, which says what they change.
    """
    if effect.values[PROMPT] < LEAST:
        return ()
    stages = recipes.stages(config)
    return tuple(stage for stage in stages if effect.values[group(config, stage)] >= LEAST)


def choices(course: Course) -> list[Observe]:
    """Return the list of tasks that measure a stage's candidates, by which its result is chosen."""
    recipes = [candidate.recipe for candidate in course.candidates.values()]
    return [Observe(r.id, measure, CHOOSING) for r in recipes for measure in (DIVERGENCE, BITS)]


def curve(run: StudyRun, course: Course) -> dict[str, tuple[float, float]]:
    """Return name → (ratio, drift) on the selection slice, of the measured candidates.

    The ratio is of divergences from the given model under the stage's prompts.
    """
    answers, points = run.state.answers, dict[str, tuple[float, float]]()
    effect = answers.get(run.on(PARENT, DIVERGENCE).key)
    text = answers.get(run.on(PARENT, BITS).key)
    if effect is None or text is None:
        return points
    below = effect.values[group(run.settings, course.stage)]
    for name, candidate in course.candidates.items():
        apart = answers.get(Observe(candidate.recipe.id, DIVERGENCE, CHOOSING).key)
        bits = answers.get(Observe(candidate.recipe.id, BITS, CHOOSING).key)
        if apart and bits:
            points[name] = apart.values[PROMPT] / below, comparison.drift(text, bits)
    return points


def nearest(points: Mapping[str, tuple[float, float]]) -> str:
    """Return the name of the model with the least ratio among those that drift little, or among all."""
    still = [name for name, (_, change) in points.items() if change <= DRIFT]
    return min(still or points, key=lambda name: points[name][0])


def expected(run: StudyRun) -> list[Observe]:
    """Return the tasks on the test slice that a forecast expects; [] once the result is known.

    The ends of trainings are in the place of the results.
    """
    courses: Sequence[Course] = run.known["courses"]
    if run.result is not None or not courses:
        return []
    measures = (DIVERGENCE, BITS, *([BEHAVIOUR] if any(run.settings.checks) else []))
    models = (run.recipes[PARENT], *(course.full for course in courses if course.full))
    return [Observe(recipe.id, measure, TEST) for recipe in models for measure in measures]


# ---- what was measured on the test slice ---------------------------------------------------------


def apart(run: StudyRun) -> dict[str, Observed]:
    """Return arm → the `observed` event of its divergences, of the arms measured so far."""
    return comparison.observed(run.state, run.known.get("apart", {}))


def behaved(run: StudyRun) -> dict[str, Observed]:
    """Return arm → the `observed` event of verdicts on its replies, of the arms measured so far."""
    return comparison.observed(run.state, run.known.get("behaved", {}))


def ratios(run: StudyRun, group: str = PROMPT) -> dict[str, Figure]:
    """Return arm → Figure of its divergence over the given model's, without the given model.

    Empty if the group was not measured, or the prompts change nothing in it.
    """
    arms = apart(run)
    base = arms.pop(PARENT, None)
    if base is None or base.values.get(group, 0.0) < LEAST:
        return {}
    return {
        name: _ratio(run, base.items[group], event.items[group], group) for name, event in arms.items()
    }


def kept(run: StudyRun) -> dict[int, Figure]:
    """Return number of a prompt → Figure of the share of its effect that the result keeps.

    1 − KL(all prompts ‖ result) / KL(all prompts ‖ all but this one). A prompt that changes less than
    `LEAST` beside the others is left out.
    """
    arms, shares = apart(run), dict[int, Figure]()
    if run.result in (None, PARENT) or not {PARENT, run.result} <= set(arms):
        return shares
    base, result = arms[PARENT], arms[run.result]
    for number in range(1, len(run.settings.prompts) + 1):
        rest = f"{WITHOUT}{number}"
        if base.values.get(rest, 0.0) >= LEAST:
            lost = _ratio(run, base.items[rest], result.items[PROMPT], PROMPT)
            assert lost.low is not None
            assert lost.high is not None
            low, high = 1 - lost.high, 1 - lost.low
            shares[number] = Figure(value=1 - lost.value, low=low, high=high, n=lost.n)
    return shares


def check_group(arm: str, place: str, check: int) -> str:
    """Return the name of a group of verdicts, "ARM/PLACE/CHECK"."""
    return f"{arm}/{place}/{check}"


def rates(run: StudyRun, place: str) -> Rates:
    """Return number of a check → arm → share of replies that pass, with its interval.

    The arms are `unprompted`, `prompted` and `baked`; `shortfall` is `prompted` less `baked`, on the
    same contexts.
    """
    return run.state.remembered(("behaviour", place), lambda: _rates(run, place))


def _rates(run: StudyRun, place: str) -> Rates:
    arms, checks = behaved(run), dict[int, Mapping[str, Figure]]()
    parent, result = arms.get(PARENT), arms.get(str(run.result))
    if parent is None or result is None:
        return checks
    for check in range(1, len(run.settings.prompts) + 1):
        verdicts = {
            "unprompted": parent.items.get(check_group(UNPROMPTED, place, check)),
            "prompted": parent.items.get(check_group(PROMPTED, place, check)),
            "baked": result.items.get(check_group(UNPROMPTED, place, check)),
        }
        items = {arm: scores for arm, scores in verdicts.items() if scores}
        if len(items) == len(verdicts):
            checks[check] = _passing(run, items, place)
    return checks


def _passing(run: StudyRun, items: Mapping[str, Sequence[float]], place: str) -> dict[str, Figure]:
    """Return arm → share of passing replies, and "shortfall"; all share the resamples."""
    size = len(items["baked"])
    counts = bootstrap.draws(size, PURPOSE, run.settings.seed, BEHAVIOUR, place)
    drawn = {arm: counts @ np.asarray(scores) / size for arm, scores in items.items()}
    points = {arm: math.fsum(scores) / size for arm, scores in items.items()}
    shares = {arm: figure(points[arm], drawn[arm], size) for arm in items}
    less = drawn["prompted"] - drawn["baked"]
    return {**shares, "shortfall": figure(points["prompted"] - points["baked"], less, size)}


# ---- figures -------------------------------------------------------------------------------------


def _drawn(run: StudyRun, size: int, what: str) -> Counts:
    """Return the count of each of `size` contexts in each resample, [resamples, size]."""
    return bootstrap.draws(size, PURPOSE, run.settings.seed, what)


def _ratio(run: StudyRun, below: Sequence[float], above: Sequence[float], what: str) -> Figure:
    """Return as a Figure the ratio `above` over `below` of two divergences, on the same resamples."""
    spread = bootstrap.ratio(_drawn(run, len(above), what), above, below)
    return figure(math.fsum(above) / math.fsum(below), spread, len(above))


def _nats(run: StudyRun, arm: str | None, groups: Sequence[str] = (PROMPT,)) -> Figure | None:
    """Return as a Figure an arm's divergence over `groups`, in nats a token; None without contexts."""
    event = apart(run)[str(arm)]
    items = [value for group in groups for value in event.items[group]]
    sizes = [size for group in groups for size in event.sizes[group]]
    if not items:
        return None
    what = PROMPT if tuple(groups) == (PROMPT,) else OTHER
    spread = bootstrap.ratio(_drawn(run, len(items), what), items, sizes)
    return figure(math.fsum(items) / sum(sizes), spread, len(items))


def _others(run: StudyRun) -> Figure | None:
    groups = [name for name in apart(run)[str(run.result)].items if name.startswith(OTHER)]
    return _nats(run, run.result, groups)


def _unheard(run: StudyRun) -> Figure | None:
    name = f"{OTHER}{len(recipes.measured(run.settings))}"
    measured = run.settings.generic and name in apart(run)[str(run.result)].items
    return _nats(run, run.result, [name]) if measured else None


def _passes(place: str, arm: str) -> Callable[[StudyRun], Figure | None]:
    """Return a function of a run: an arm's share by the check with the largest shortfall."""

    def value(run: StudyRun) -> Figure | None:
        checks = rates(run, place).values()
        return max(checks, key=lambda arms: arms["shortfall"].value)[arm] if checks else None

    return value


def _rule(words: str, value: Callable[[StudyRun], Figure | None], unit: str = "") -> FigureRule:
    """Return the rule of a figure that is None if the result is the given model."""
    return FigureRule(words, lambda run: None if run.result == PARENT else value(run), unit)


_NATS = "nats/token"
RULES = {
    "unprompted": FigureRule(
        "divergence without the prompt: nats a token of the given model from itself with it",
        lambda run: _nats(run, PARENT),
        _NATS,
    ),
    "baked": _rule(
        "divergence left: nats a token of the result without prompt from the given model with it",
        lambda run: _nats(run, run.result),
        _NATS,
    ),
    "ratio": _rule(
        "ratio of divergences: the latter over the former; 0 is a perfect bake, 1 none",
        lambda run: ratios(run)[str(run.result)],
    ),
    "strength": _rule(
        "strength: share of the way from the given to the trained model, or of its steps",
        lambda run: Figure(value=run.known["courses"][-1].candidates[run.result].share),
    ),
    "drift": _rule(
        "drift on ordinary text: largest relative change of bits per byte of a domain",
        lambda run: Figure(value=comparison.drift(run.seen[PARENT], run.seen[str(run.result)])),
        "share",
    ),
    "retention": _rule(
        "quality kept on ordinary text: bits per byte of the given model over the result's",
        ratio(PARENT, "").value,
        "share",
    ),
    "others": _rule(
        "divergence under other prompts: nats a token of the result from the given model",
        _others,
        _NATS,
    ),
    "unheard": _rule(
        "divergence under an unheard prompt: the same under one that was not rehearsed", _unheard, _NATS
    ),
    "kept": _rule(
        "least kept of a prompt: least share of what one of several changes that the result has",
        lambda run: min(kept(run).values(), key=lambda share: share.value, default=None),
        "share",
    ),
    "far_ratio": _rule(
        "ratio after ordinary text: ratio of divergences there, beyond the first tokens",
        lambda run: ratios(run, FAR).get(str(run.result)),
    ),
    "success": _rule(
        "success: share of the result's replies that pass the check with the largest shortfall",
        _passes(NEAR, "baked"),
    ),
    "shortfall": _rule(
        "shortfall: largest share of replies that the prompted model has over the result",
        _passes(NEAR, "shortfall"),
    ),
    "far_success": _rule(
        "success after ordinary text: share of passing replies to contexts there, likewise",
        _passes(FAR, "baked"),
    ),
    "far_shortfall": _rule(
        "shortfall after ordinary text: the largest on contexts there", _passes(FAR, "shortfall")
    ),
}


def met(figures: Mapping[str, Figure]) -> dict[str, bool]:
    """Return figure → True if it is within its limit, for the figures that have one."""
    most = {n: figures[n].value <= limit for n, limit in LIMITS.items() if n in figures}
    return most | {n: figures[n].value >= least for n, least in FLOORS.items() if n in figures}
