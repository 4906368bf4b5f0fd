"""Trainings of `forge cognate` as recipes: a base from a fresh model, and specialists of the base."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from phases.cognate.presets import Preset
from weights.model import Model
from weights.recipes import Algorithm, Train
from weights.training import complete
from weights.training.loop import Step, segment
from weights.training.windows import stream_digest

CLIP = 1.0
#: Reports of a phase.
REPORTS = 20


@dataclass(frozen=True)
class Progress:
    """Progress of a training phase, reported about twenty times in it."""

    phase: str
    step: int
    steps: int
    #: Mean cross-entropy in nats a token since the last report.
    loss: float
    tokens_per_second: float


def recipe(
    preset: Preset,
    streams: Mapping[str, np.ndarray],
    shares: Mapping[str, float],
    *,
    phase: str,
    start: str,
    tokens: int,
    peak: float,
    seed: int,
) -> Train:
    """Return the recipe of a phase: AdamW, warm-up and a cosine to a tenth of `peak`.

    `streams` are token ids by domain, of which the domains of `shares` are read; `start` is the id
    of the recipe that the phase starts from.
    """
    steps = max(1, tokens // (preset.batch * preset.context))
    return complete(
        Train(
            objective="lm@1",
            start=start,
            data=dict(shares),
            data_digests={domain: stream_digest(streams[domain]) for domain in shares},
            batch=preset.batch,
            context=preset.context,
            optimiser=Algorithm(name="adamw@1"),
            schedule=Algorithm(name="cosine@1", params={"peak": peak, "warmup": preset.warmup}),
            clip=CLIP,
            seed=seed,
            purpose=phase,
            steps=steps,
            upto=steps,
        )
    )


def train(
    recipe: Train,
    start: Model,
    streams: Mapping[str, np.ndarray],
    report: Callable[[Progress], None],
) -> Model:
    """Carry out a phase from its first step to its last and return the trained model."""
    losses: list[float] = []
    every = max(1, recipe.steps // REPORTS)

    def told(step: Step) -> None:
        losses.append(step.loss)
        done = step.number + 1
        if done % every == 0 or done == recipe.steps:
            mean, speed = float(np.mean(losses)), step.tokens / step.seconds
            report(Progress(recipe.purpose, done, recipe.steps, mean, speed))
            losses.clear()

    made = segment(recipe, start, None, streams, recipe.first, recipe.upto, told)
    return Model(start.config, made.weights)
