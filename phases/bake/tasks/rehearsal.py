"""Trajectories of a rehearsal: as long as the settings allow, cut from text before any is sampled.

Three steps on them tell a machine by its bits, and take as much memory as any step of the training.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from evaluation.training_text.kept_text import Text
from evaluation.trajectories.contexts import Beginnings
from phases.bake import prompts
from phases.bake.config import BakeConfig
from weights.training.trajectories import BAKED, OTHERS, Trajectory, pack
from weights.training.windows import Ids


def streams(
    text: Text, made: Beginnings, config: BakeConfig, positions: int | None
) -> Mapping[str, Ids]:
    """Return stream → trajectories of a step: contexts of the contexts' domains, their text as reply.

    `positions` is the longest sequence that the model takes.
    """
    whole = np.concatenate([text.streams[name] for name in config.contexts])
    longest = max(prompts.rehearsed(config), key=lambda one: made.room([one]), default=None)
    wanted = {BAKED: config.prompts} | ({OTHERS: (longest,)} if longest else {})
    return {
        name: pack(
            _one(whole, row, made, config, said, name == OTHERS, positions)
            for row in range(config.batch)
        )
        for name, said in wanted.items()
    }


def _one(
    whole: Ids,
    row: int,
    made: Beginnings,
    config: BakeConfig,
    said: tuple[str, ...],
    heard: bool,
    positions: int | None,
) -> Trajectory:
    """Return the trajectory at a place of a text; `heard`: the trained model reads the prompts, too."""
    size, length = config.context_tokens, config.context_tokens + config.reply_tokens
    ids = whole.take(np.arange(row * length, (row + 1) * length), mode="wrap").astype(np.int32)
    prompted = made.prompted(said, ids[:size])
    plain = prompted if heard else made.plain(ids[:size])
    room = (positions or length + len(prompted)) - config.reply_tokens
    return Trajectory(0, prompted[-room:], plain[-room:], ids[size:])
