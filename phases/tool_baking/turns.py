"""Turns of a baking run: what a model writes on tasks, under prompts; personas that it proposes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evaluation.backends.generation import end_tokens
from evaluation.backends.local_backend import ResidentModel
from evaluation.tool_tasks.base import ToolItem
from evaluation.tool_tasks.episodes import Episode, Player
from evaluation.tool_tasks.speech import Speech
from evaluation.trajectories.sampling import sample
from phases.tool_baking.settings import BakingConfig
from weights.training.trajectories import Trajectory

#: Family → tasks.
Families = Mapping[str, Sequence[ToolItem]]


def flat(families: Families) -> list[ToolItem]:
    """Return all tasks, family by family."""
    return [item for _, tasks in sorted(families.items()) for item in tasks]


def solved(
    player: Player, families: Families, prompt: str, tools: bool
) -> dict[str, tuple[float, ...]]:
    """Return family → 1 for each task that the model solves by greedy decoding, else 0."""
    episodes = iter(player.played(flat(families), prompt, tools))
    return {
        family: tuple(float(next(episodes).solved) for _ in tasks)
        for family, tasks in sorted(families.items())
    }


def written(
    player: Player,
    speech: Speech,
    families: Families,
    prompt: str,
    tools: bool,
    key: tuple[str | int, ...],
    verified: bool,
) -> list[Trajectory]:
    """Return the turns that a model samples under a prompt; of solved tasks alone if `verified`."""
    episodes: list[Episode] = player.played(flat(families), prompt, tools, key)
    return [
        turn
        for episode in episodes
        if episode.solved or not verified
        for turn in episode.trajectories(speech)
    ]


def others(
    model: ResidentModel,
    speech: Speech,
    config: BakingConfig,
    families: Families,
    key: tuple[str | int, ...],
) -> list[Trajectory]:
    """Return a turn for each task under the other prompts in turn, which both models are to read."""
    questions = [item.questions[0] for item in flat(families)]
    prompts = config.rehearsed
    begins = [
        speech.begin(prompts[n % len(prompts)], question) for n, question in enumerate(questions)
    ]
    ends = end_tokens(model, speech.tokenizer)
    replies = sample(model, begins, config.reply_tokens, ends, *key, "others")
    both = zip(begins, replies, strict=True)
    return [Trajectory(n % len(prompts), b, b, turn) for n, (b, turn) in enumerate(both)]


def personas(
    model: ResidentModel, speech: Speech, config: BakingConfig, key: tuple[str | int, ...]
) -> tuple[str, ...]:
    """Return the different personas that a model proposes: continuations of `proposal`, one line each.

    There are fewer than asked for if some are equal or add nothing.
    """
    ids = speech.tokenizer.encode(config.proposal, add_special_tokens=False)
    begins = [np.asarray(ids, np.int32)] * config.personas
    ends = end_tokens(model, speech.tokenizer)
    replies = sample(model, begins, config.persona_tokens, ends, *key, "personas")
    lines = [" ".join(speech.text(reply).strip().split("\n")[0].split()) for reply in replies]
    texts = [f"{config.proposal.rstrip()} {line}\n" for line in lines if line]
    return tuple(dict.fromkeys(texts))
