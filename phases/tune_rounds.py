"""Rounds of a tuning in which the model learns from its own replies, rewarded if they are right. Pure.

In each round the model writes several replies to some requests of the slice to train on. A reply is
rewarded if it is right: it has the calls of the conversation, or none where the right one has none. The
model is trained on the replies by their rewards (objective `reinforce@2`), and the next round's replies
are those of the result. Beside it the model reads conversations for as many steps instead: what that
gives is no merit of the rounds.

Replies and rewards are events, so every advantage follows from the log.
"""

from __future__ import annotations

from pydantic import Field

from agent_forge.evaluation.trajectories.sampled import Kept, SampleReplies
from agent_forge.runs.kinds.setting_words import TRAINING, Labels
from agent_forge.studies import given_dtype
from agent_forge.studies.events import Observe
from agent_forge.studies.making.making import Making
from agent_forge.studies.run import Script, StudyRun
from agent_forge.studies.settings import StepsConfig
from agent_forge.studies.training_plan import adapted, reading
from agent_forge.weights.recipes import Train
from agent_forge.weights.training.windows import advantages

#: Key of random draws: the kind's name.
PURPOSE = "tune"
#: Measures: shares of greedy replies that are right, also after demonstrations; and of a model's own
#: replies to requests, the rewards.
RIGHT, PROMPTED, REWARDS = "right-replies@1", "prompted-right-replies@1", "own-replies@1"
#: Arms: "round-N" is the model after N rounds; the one that read conversations instead.
ROUND, LONGER = "round", "longer"
#: A ratio of probabilities further than this from 1 has no gradient where it has gained.
CLIP = 0.2


class Rounds(StepsConfig):
    """Settings of the rounds."""

    rounds: int = Field(
        0,
        ge=0,
        le=64,
        description="Rounds in which the tuned model learns from its own replies to the requests, "
        "rewarded if they are right.",
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
        description="Weight of a round's divergence from the model before it, in rewards a nat.",
    )


#: Labels of the settings.
LABELS: Labels = {
    TRAINING: {
        "rounds": "Rounds of own replies",
        "requests": "Requests of a round",
        "samples": "Replies to a request",
        "round_rate": "Rate of a round",
        "kl": "Weight of the divergence",
    }
}


def is_trained_on(stream_name: str) -> bool:
    """Return True if a stream's conversations are trained on."""
    return stream_name.startswith("conversations/") and stream_name.endswith("/train")


def stream(number: int) -> str:
    """Return the name of a round's replies; rounds count from 1."""
    return f"own/{number}"


def number(stream_name: str) -> int:
    """Return the number of the round whose replies a stream has."""
    return int(stream_name.rpartition("/")[2])


def steps(run: StudyRun, useful: int) -> int:
    """Return the steps of a round that reads `useful` replies once."""
    return -(-useful // run.settings.batch)


def most_steps(run: StudyRun) -> int:
    """Return the steps of all trainings after the first one, at most."""
    config = run.settings
    return 2 * config.rounds * steps(run, config.requests * config.samples)


def script(run: StudyRun, base: str, longer: Train) -> Script:
    """Yield the steps of the rounds; return the names of the models that they give, `base` first.

    `base` is the tuned model that they begin with, `longer` a training on conversations, of any number
    of steps. The last model is the one that read conversations instead, if there was a round.
    """
    config = run.settings
    first = writer = run.recipes.get(f"{base}{given_dtype.FLOAT32}", run.recipes[base])
    names, done = [base], 0
    for place in map(stream, range(1, config.rounds + 1)):
        replies = (yield run.ask({place: SampleReplies(writer.id, (place,))}))[place].streams[place]
        rewarded = (yield run.ask({place: Observe(writer.id, REWARDS, place)}))[place]
        rewards = rewarded.items[place]
        useful = sum(gain != 0 for gain in advantages(rewards, config.samples))
        if not useful:  # all right or all wrong: nothing more is learned from them
            break
        count = steps(run, useful)
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
    objective, params = adapted(config, "reinforce@2", params, "lora@2")
    peak = config.round_rate * config.rate
    purpose = f"{run.study.purpose}/{ROUND}-{number(place)}"
    recipe = reading(run.submitted, started, {}, purpose, writer.id, objective, peak)
    changes = {
        "params": params,
        "inputs": {"writer": writer.id},
        "data": {place: 1.0},
        "data_digests": {place: replies.digest},
        "context": started.context + config.reply_tokens,
        "steps": count,
        "upto": count,
    }
    return recipe.model_copy(update=changes)
