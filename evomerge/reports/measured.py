"""Measurements of one model in a merging run, with intervals from the outcomes of items. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from agent_forge.evaluation.data.outcomes import Outcomes
from agent_forge.evomerge.fitness import composite, paired_bootstrap
from agent_forge.evomerge.run.scores import EvaluationKey
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.event_types import Figure, Measurement

#: Figure of `Components` → what it is, in words.
WORDS = {
    "perplexity": "perplexity",
    "bits_per_byte": "bits per byte",
    "choice_accuracy": "questions right, above chance",
    "solved": "problems solved",
}


def measurements(state: RunState, digest: str) -> list[Measurement]:
    """Return a list of `Measurement` of the model whose weights have `digest`, whole slices first."""
    ids = {id_ for id_, (built, _) in state.built.items() if built == digest}
    if state.started is not None:
        models = (state.started.base, *state.started.sources)
        ids |= {record.recipe_id for record in models if record.digest == digest}
    keys = [key for key in state.evaluations if key[0] in ids]
    keys.sort(key=lambda key: (key[2] is not None, key[1], key[2] or 0))
    return [measurement for key in keys for measurement in _evaluated(state, key)]


def _evaluated(state: RunState, key: EvaluationKey) -> Iterator[Measurement]:
    """Yield `Measurement`s of one evaluation: score and figures, of a draw the score alone."""
    assert state.submitted
    _, slice_, generation = key
    fitness, best = state.fitness(key), state.reference(slice_, generation)
    measured, outcomes = state.components(key), state.outcomes(key)
    if fitness is None or best is None or measured is None or outcomes is None:
        return
    config, drawn = state.submitted.config, generation is not None
    raw, weights = config.normalise == "none", config.fitness_weights
    seed_key = (config.seed, "model", slice_, -1 if generation is None else generation)
    ends = paired_bootstrap.intervals(outcomes, best, weights, raw, *seed_key, skills=config.skills)
    by_architecture = sum(
        weights.parts[name] * fitness.normalised[name] for name in composite.ARCHITECTURE
    )
    low, high = (end + by_architecture for end in ends["judged"])
    where = f"{slice_}, generation {generation}" if drawn else slice_
    count = sum(len(o.nll) + len(o.right) + len(o.solved) for o in outcomes.values())
    score = Figure(value=fitness.scalar, low=low, high=high, n=count)
    yield Measurement(name="score", slice=where, figure=score)
    if not drawn:
        yield from _figures(measured, outcomes, ends, where)


def _figures(
    measured: composite.Components,
    outcomes: Outcomes,
    ends: dict[str, paired_bootstrap.Interval],
    where: str,
) -> Iterator[Measurement]:
    """Yield `Measurement`s: a whole slice's components, and the bits per byte of each domain."""
    windows = {domain: len(outcome.nll) for domain, outcome in sorted(outcomes.items())}
    counts = {
        "solved": sum(len(outcome.solved) for outcome in outcomes.values()),
        "choice_accuracy": sum(len(outcome.right) for outcome in outcomes.values()),
    }
    for name, words in WORDS.items():
        value = getattr(measured, name)
        if value is not None:
            low, high = ends[name]
            n = counts.get(name, sum(windows.values()))
            figure = Figure(value=value, low=low, high=high, n=n)
            yield Measurement(name=words, slice=where, figure=figure)
    for domain, n in windows.items():
        if f"bits_per_byte/{domain}" in ends:
            low, high = ends[f"bits_per_byte/{domain}"]
            value = composite.bits_per_byte(outcomes[domain])
            assert value is not None
            figure = Figure(value=value, low=low, high=high, n=n)
            yield Measurement(name=WORDS["bits_per_byte"], domain=domain, slice=where, figure=figure)
