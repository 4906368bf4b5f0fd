"""Rounds of a tuning in which the model learns from its own replies. Pure.

In each round the model writes several replies to some requests of the slice to train on. A reply is
rewarded if it is right: it has the calls of the conversation, or none where the right one has none. The
model is trained on the replies, in one of three ways (`OBJECTIVES`), and the next round's replies are
those of the result. Beside it the model reads conversations for as many steps instead: what that gives
is no merit of the rounds.

Replies and rewards are events, so every advantage follows from the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from agent_forge.evaluation.trajectories.sampled import Kept, SampleReplies
from agent_forge.runs.kinds.setting_words import TRAINING, Labels
from agent_forge.studies import given_dtype
from agent_forge.studies.events import Observe
from agent_forge.studies.making.making import Making
from agent_forge.studies.run import Script, StudyRun
from agent_forge.studies.settings import StepsConfig
from agent_forge.studies.training_plan import adapted, reading
from agent_forge.weights.recipes import Train
from agent_forge.weights.training.windows import BAKED, advantages, pairs

#: Key of random draws: the kind's name.
PURPOSE = "tune"
#: Measures: shares of greedy replies that are right, also after demonstrations; and of a model's own
#: replies to requests, the rewards.
RIGHT, PROMPTED, REWARDS = "right-replies@1", "prompted-right-replies@1", "own-replies@1"
#: Arms: "round-N" is the model after N rounds; the one that read conversations instead.
ROUND, LONGER = "round", "longer"
#: How a round learns → its objective: by the rewards; by pairs of a right and a wrong reply; or by what
#: the model before the round predicts along the replies if it sees the right reply before the request.
OBJECTIVES = {"rewards": "reinforce@2", "preferences": "preference@1", "demonstrations": "bake@1"}
#: A ratio of probabilities further than this from 1 has no gradient where it has gained.
CLIP = 0.2


class Rounds(StepsConfig):
    """Settings of the rounds."""

    rounds: int = Field(
        0,
        ge=0,
        le=64,
        description="Rounds in which the tuned model learns from its own replies to the requests.",
    )
    learn_by: Literal["rewards", "preferences", "demonstrations"] = Field(
        "rewards",
        description="What a round learns from: rewards of right replies; preferences for a right reply "
        "over a wrong one (DPO); or demonstrations: what the model before the round predicts along its "
        "replies when it sees the right one before the request.",
    )
    requests: int = Field(64, ge=1, le=100_000, description="Requests of a round.")
    samples: int = Field(4, ge=2, le=256, description="Replies that the model writes to a request.")
    round_rate: float = Field(
        0.2, gt=0, le=10, description="Peak learning rate of a round, as a share of `rate`."
    )
    kl: float = Field(
        0.05,
        ge=0,
        allow_inf_nan=False,
        description="Weight of a round's divergence from the model before it, in rewards a nat; with "
        "preferences the β of DPO, with demonstrations of no use.",
    )

    @field_validator("kl")
    @classmethod
    def _compares(cls, kl: float, info: ValidationInfo) -> float:
        """Return the weight. Raises ValueError for preferences without a divergence."""
        if info.data.get("learn_by") == "preferences" and not kl:
            raise ValueError("preferences are relative to the model before the round: give more than 0")
        return kl


#: Labels of the settings.
LABELS: Labels = {
    TRAINING: {
        "rounds": "Rounds of own replies",
        "learn_by": "What a round learns from",
        "requests": "Requests of a round",
        "samples": "Replies to a request",
        "round_rate": "Rate of a round",
        "kl": "Weight of the divergence",
    }
}


def is_trained_on(stream_name: str) -> bool:
    """Return True if a stream's conversations are trained on."""
    return stream_name.startswith("conversations/") and stream_name.endswith("/train")


def stream(config: Rounds, number: int) -> str:
    """Return the name of a round's replies; rounds count from 1."""
    return f"{BAKED if config.learn_by == 'demonstrations' else 'own'}/{number}"


def number(stream_name: str) -> int:
    """Return the number of the round whose replies a stream has."""
    return int(stream_name.rpartition("/")[2])


def steps(run: StudyRun, rewards: Sequence[float]) -> int:
    """Return the steps of a round that reads once what teaches of its replies; 0: nothing does."""
    config = run.settings
    if config.learn_by == "demonstrations":
        useful = len(rewards)
    elif config.learn_by == "preferences":
        useful = len(pairs(rewards, config.samples))
    else:
        useful = sum(gain != 0 for gain in advantages(rewards, config.samples))
    return -(-useful // config.batch)


def most_steps(run: StudyRun) -> int:
    """Return the steps of all trainings after the first one, at most."""
    config = run.settings
    return 2 * config.rounds * -(-config.requests * config.samples // config.batch)


def script(run: StudyRun, base: str, longer: Train) -> Script:
    """Yield the steps of the rounds; return the names of the models that they give, `base` first.

    `base` is the tuned model that they begin with, `longer` a training on conversations, of any number
    of steps. The last model is the one that read conversations instead, if there was a round.
    """
    config = run.settings
    first = writer = run.recipes.get(f"{base}{given_dtype.FLOAT32}", run.recipes[base])
    names, done = [base], 0
    for place in (stream(config, number) for number in range(1, config.rounds + 1)):
        replies = (yield run.ask({place: SampleReplies(writer.id, (place,))}))[place].streams[place]
        rewarded = (yield run.ask({place: Observe(writer.id, REWARDS, place)}))[place]
        rewards = rewarded.items[place]
        count = steps(run, rewards)
        if not count:  # all right or all wrong: nothing more is learned from them
            break
        writer = trained(run, writer, place, replies, rewards, count)
        names, done = [*names, f"{ROUND}-{number(place)}"], done + count
        yield from _made(run, names[-1], writer)
    if done:
        training = {"start": first.id, "steps": done, "upto": done, "purpose": f"{longer.purpose}/on"}
        schedule = longer.schedule.model_copy(
            update={"params": {**longer.schedule.params, "peak": config.round_rate * config.rate}}
        )
        further = longer.model_copy(update={**training, "schedule": schedule})
        yield from _made(run, LONGER, further)
        names.append(LONGER)
    return names


def _made(run: StudyRun, name: str, recipe: Train) -> Script:
    """Yield the steps that make a trained model, and then what is rounded from it."""
    recipes = given_dtype.with_rounded(run.started, {name: recipe})
    run.foresee(recipes)
    yield run.make(next(iter(recipes)))
    yield run.make(name)


def trained(
    run: StudyRun, writer: Making, place: str, replies: Kept, rewards: tuple[float, ...], count: int
) -> Train:
    """Return the recipe of a round's training, of `count` steps, on a model's replies."""
    config, started = run.settings, run.started
    params = {"samples": config.samples, "rewards": list(rewards), "kl": config.kl, "clip": CLIP}
    role = "writer"
    if config.learn_by == "demonstrations":
        params, role = {"neutral": 0.0, "others": 0.0, "top": None}, "teacher"
    objective, params = adapted(config, OBJECTIVES[config.learn_by], params, "lora@2")
    peak = config.round_rate * config.rate
    purpose = f"{run.study.purpose}/{ROUND}-{number(place)}"
    recipe = reading(run.submitted, started, {}, purpose, writer.id, objective, peak)
    changes = {
        "params": params,
        "inputs": {role: writer.id},
        "data": {place: 1.0},
        "data_digests": {place: replies.digest},
        "context": started.context + config.reply_tokens,
        "steps": count,
        "upto": count,
    }
    return recipe.model_copy(update=changes)
