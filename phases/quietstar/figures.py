"""Figures and panels of a quietstar run, and the gate that follows from the figures. Pure.

An arm's figure is −log p of the hard tokens in nats a token, the mean over domains. Intervals are the
middle 95 % of a paired bootstrap: documents are resampled within each domain, the same for all arms
(`evaluation/measures/bootstrap.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from agent_forge.evaluation.measures.bootstrap import Counts
from agent_forge.phases.quietstar.recipes import (
    BASE,
    CONTINUED,
    PAUSE,
    PURPOSE,
    SHUFFLED,
    SILENT,
    START,
    THOUGHTS,
    ThoughtArm,
)
from agent_forge.runs.event_types import Figure
from agent_forge.runs.panels.panels import Gate, Gates, Matrix
from agent_forge.runs.panels.shapes import Metric
from agent_forge.studies import comparison
from agent_forge.studies.comparison import Drawn, Scale, Seen, draws, figure
from agent_forge.studies.events import Observed
from agent_forge.studies.run import FigureRule, StudyRun, bits, lead, share

#: Measures: the model as it is, with pauses, with thoughts, with thoughts of other positions.
PLAIN, PAUSED = "hard-tokens@1", "pause-hard-tokens@1"
THOUGHTFUL, EXCHANGED = "thought-hard-tokens@1", "shuffled-hard-tokens@1"
#: Parts of a measurement: the hard tokens, all tokens, the share of the thought in the mixture.
HARD, EVERY, WEIGHT = "hard", "all", "weight"
#: Share of the gain that exchanged thoughts must cost, or the gain is not due to thoughts.
GENUINE = 0.5
#: The arms that thoughts must beat.
RIVALS = (CONTINUED, PAUSE)
NATS = "nats/token"


def by_domain(event: Observed, part: str) -> dict[str, float]:
    """Return domain → mean of a part of a measurement: "hard", "all" (both nats) or "weight"."""
    start = f"{part}/"
    return {n.removeprefix(start): v for n, v in event.values.items() if n.startswith(start)}


def mean(event: Observed, part: str = HARD) -> float:
    """Return the mean over domains of a part of a measurement, by default nats a hard token."""
    values = by_domain(event, part).values()
    return math.fsum(values) / len(values)


def documents(event: Observed) -> int:
    """Return the number of documents that were measured."""
    return sum(len(losses) for name, losses in event.items.items() if name.startswith(f"{EVERY}/"))


def drawn(observations: Seen, purpose: str, seed: int, part: str = HARD) -> Drawn:
    """Return arm → mean of a part in each resample of a slice's documents, float64 [resamples]."""
    first = next(iter(observations.values()))
    sizes = {domain: len(first.items[f"{part}/{domain}"]) for domain in by_domain(first, part)}
    resamples = draws(sizes, purpose, seed, first.on)
    return {arm: _resampled(event, part, resamples) for arm, event in observations.items()}


def _resampled(event: Observed, part: str, resamples: Mapping[str, Counts]) -> Counts:
    """Return the mean over domains of a part in each resample, float64 [resamples].

    A resample of a domain in which no document has a hard token counts with the figure of all.
    """
    rates = []
    for domain, counts in resamples.items():
        name = f"{part}/{domain}"
        below = counts @ np.asarray(event.sizes[name], np.float64)
        above = counts @ np.asarray(event.items[name], np.float64)
        rate = np.full(len(below), event.values[name])
        rates.append(np.divide(above, below, out=rate, where=below > 0))
    return np.mean(rates, axis=0)


HARD_NATS = Scale(
    *(Metric(name="loss of hard tokens", unit="nat/token", better="down"), mean, documents, drawn),
    items="documents",
)


# ---- figures -------------------------------------------------------------------------------------


def _better(observations: Seen, resamples: Drawn) -> tuple[float, Counts]:
    """Return (least lead of thoughts over a rival in nats, array of that in each resample)."""
    more = [mean(observations[rival]) - mean(observations[THOUGHTS]) for rival in RIVALS]
    return min(more), np.minimum(*(resamples[rival] - resamples[THOUGHTS] for rival in RIVALS))


def _gain(run: StudyRun) -> Figure:
    return figure(*_better(run.seen, run.drawn), run.windows)


def _gain_on_selection(run: StudyRun) -> Figure:
    observations = comparison.observed(run.state, run.candidates)
    resamples = drawn(observations, PURPOSE, run.settings.seed)
    return figure(*_better(observations, resamples), documents(observations[THOUGHTS]))


def _genuine(run: StudyRun) -> Figure:
    gained, gains = _better(run.seen, run.drawn)
    lost = run.mean(SHUFFLED) - run.mean(THOUGHTS)
    losses = run.drawn[SHUFFLED] - run.drawn[THOUGHTS]
    return figure(lost - GENUINE * gained, losses - GENUINE * gains, run.windows)


def _retention(run: StudyRun) -> Figure:
    assert run.result is not None
    observations = {arm: run.seen[arm] for arm in (START, run.result)}
    resamples = drawn(observations, PURPOSE, run.settings.seed, EVERY)
    share = mean(observations[START], EVERY) / mean(observations[run.result], EVERY)
    return figure(share, resamples[START] / resamples[run.result], run.windows)


FIGURES = {
    "gain": FigureRule(
        "gain from thoughts: nats a hard token that the better one of continued training and pauses "
        "needs more than thoughts",
        _gain,
        NATS,
    ),
    "over_continued": lead(
        CONTINUED, "lead over continued training: nats a hard token that it needs more", NATS
    ),
    "over_pause": lead(
        PAUSE, "lead over pauses: nats a hard token that pauses need more than thoughts", NATS
    ),
    "genuine": FigureRule(
        "lead over exchanged thoughts beyond half of the gain: nats a hard token that thoughts of "
        "other positions need more than own ones, minus half of the gain",
        _genuine,
        NATS,
    ),
    "exchanged": lead(
        SHUFFLED, "lead over exchanged thoughts: nats a hard token that they need more", NATS
    ),
    "gain_on_selection": FigureRule(
        "gain on the selection slice: the same there, nats a hard token", _gain_on_selection, NATS
    ),
    "hard_nats": bits("loss of hard tokens: nats a hard token with thoughts", NATS),
    "moved": lead(
        BASE,
        "gain of continued training: nats a hard token that it took off the common base",
        NATS,
        CONTINUED,
    ),
    "weight": share(
        "weight of thoughts: share of the thought in the mixture, the mean over all tokens",
        lambda run: Figure(value=mean(run.seen[THOUGHTS], WEIGHT)),
    ),
    "retention": share(
        "quality kept without thoughts: nats a token of the given model, over those of the result",
        _retention,
    ),
}


# ---- gate ----------------------------------------------------------------------------------------


def decided(run: StudyRun) -> str:
    """Return the name of the result of a measured run: "silent" if the gate passes, or "start"."""
    gate = {name: FIGURES[name].value(run) for name in ("gain", "genuine")}
    return (
        SILENT
        if passes({name: gate_figure for name, gate_figure in gate.items() if gate_figure})
        else START
    )


def passes(figures: Mapping[str, Figure]) -> bool:
    """Return True if both gate figures pass at the worse ends of their intervals.

    The gain is above 0, and exchanged thoughts cost at least half of it.
    """
    gain, genuine = figures["gain"].low, figures["genuine"].low
    assert gain is not None
    assert genuine is not None
    return gain > 0 and genuine >= 0


def arms(observations: Seen) -> dict[str, ThoughtArm]:
    """Return arm → recipe id and losses by domain, as `completed` records them."""
    return {
        arm: ThoughtArm(
            recipe_id=event.recipe_id, hard=by_domain(event, HARD), every=by_domain(event, EVERY)
        )
        for arm, event in observations.items()
    }


# ---- costs ---------------------------------------------------------------------------------------


def costs(observations: Seen) -> dict[str, float]:
    """Return arm → seconds of its measurement over those of the arm without thoughts."""
    plain = observations[CONTINUED].seconds if CONTINUED in observations else 0.0
    arms = (PAUSE, THOUGHTS, SHUFFLED)
    return {arm: observations[arm].seconds / plain for arm in arms if arm in observations and plain}


def step_seconds(run: StudyRun) -> dict[str, float]:
    """Return arm → mean seconds of a training step, of the arms that have trained."""
    seconds = {}
    for name in (*RIVALS, THOUGHTS):
        events = run.state.advanced.get(run.trainings[name].stem, {}).values()
        if steps := sum(event.step - event.begin for event in events):
            seconds[name] = sum(event.seconds for event in events) / steps
    return seconds


# ---- panels --------------------------------------------------------------------------------------

ANY = Metric(name="loss", unit="nat/token", better="down")
GAIN = Metric(name="gain on hard tokens", unit="nat/token", better="up")
COST = Metric(name="time to measure", unit="times continued", better="down")


def gate(figures: Mapping[str, Figure]) -> Gates:
    """Return the panel of the gate's two conditions, with their intervals."""
    rows = []
    for name in ("gain", "genuine"):
        figure: Any = figures[name]  # with an interval
        met = figure.low > 0 if name == "gain" else figure.low >= 0
        rows.append(
            Gate(
                name=FIGURES[name].words,
                metric=GAIN,
                value=figure.value,
                low=figure.low,
                high=figure.high,
                limit=0.0,
                verdict="pass" if met else "pass unchanged",
            )
        )
    return Gates(
        name="gate",
        title="Gate: is it the thoughts?",
        says="The worse end of both intervals must reach 0; else the given model is the result.",
        gates=tuple(rows),
    )


def domains(names: list[str], observations: Seen, result_name: str) -> Matrix:
    """Return the table panel of nats a token by domain and arm, for hard tokens and all."""
    measured = by_domain(observations[result_name], HARD)
    parts = {f"{domain}, hard": f"{HARD}/{domain}" for domain in measured}
    parts |= {f"{domain}, all": f"{EVERY}/{domain}" for domain in measured}
    return Matrix(
        name="quality",
        title="Loss by domain",
        says="Nats a token on the test slice, of the hard tokens and of all; fewer are better.",
        rows=tuple(parts),
        columns=tuple(names),
        metrics=(ANY,),
        values=tuple(tuple(observations[n].values[part] for n in names) for part in parts.values()),
        ours=result_name,
    )
