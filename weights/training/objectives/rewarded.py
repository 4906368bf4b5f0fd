"""Objective `reinforce`, version 2: replies that a model wrote before, each with a reward.

    loss = −(1/N) Σ_i Σ_t [min(ρ_it A_i, clip(ρ_it, 1 − ε, 1 + ε) A_i) − kl (ρ_it − 1 − log ρ_it)]
    ρ_it = π(y_it | x_i, y_i<t) / π_0(y_it | x_i, y_i<t)
    A_i  = r_i − mean reward of the other replies to the same request

π_0 is the model that wrote the replies, the input `writer`. At its weights the gradient is REINFORCE's
with the leave-one-out baseline (RLOO, arXiv 2402.14740, section 3.2). Later steps of the same replies
have the clipped ratio of PPO (arXiv 1707.06347, equation 7). The last term is an unbiased estimate of
Σ KL(π_0 ‖ π) on replies of π_0.

The data are one stream of trajectories (`windows.pack`), of which `samples` in a row answer a request.
Replies to a request whose rewards are all equal teach nothing, and are not read. Each epoch has the
others once, in an order drawn by (seed, purpose, epoch).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from pydantic import Field

from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.weights import randomness
from agent_forge.weights.recipes import Frozen, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.models import prompted
from agent_forge.weights.training.models.modules import Teacher
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.next_token import Stateless, check_inputs, check_streams
from agent_forge.weights.training.token_losses import token_losses
from agent_forge.weights.training.windows import Ids, advantages, unpack

#: Role of the model that wrote the replies.
WRITER = "writer"


class RewardedParams(Frozen):
    """Parameters of the objective."""

    #: Replies to each request, which stand in a row.
    samples: int = Field(ge=2)
    #: Reward of each reply.
    rewards: tuple[float, ...]
    #: Weight of the divergence from the writer, in rewards a nat.
    kl: float = Field(default=0.0, ge=0)
    #: ε: a ratio further from 1 has no gradient where it has gained.
    clip: float = Field(default=0.2, gt=0, lt=1)


class Rewarded(Stateless):
    """Objective: the rewards of replies that were written before, as the loss to be made less."""

    Params = RewardedParams

    def __init__(
        self,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Build the writer and read the replies.

        Raises ConfigError for other inputs than the writer or several streams, SourceChangedError for
        other data, DataError for rewards that do not fit the replies, replies that teach nothing, or
        one that with its request is longer than the context.
        """
        self._params = params = self.Params.model_validate(recipe.params)
        name = recipe.objective.partition("@")[0]
        check_inputs(name, (WRITER,), recipe, inputs)
        check_streams(name, recipe, streams)
        if len(recipe.data) != 1:
            raise ConfigError(f"the objective {name} reads one stream of replies")
        self._trajectories = unpack(streams[next(iter(recipe.data))])
        if len(self._trajectories) != len(params.rewards) or len(params.rewards) % params.samples:
            raise DataError(
                f"there are {len(self._trajectories)} replies and {len(params.rewards)} rewards, and "
                f"{params.samples} replies to a request"
            )
        self._gains = advantages(params.rewards, params.samples)
        self._useful = self.useful()
        if not self._useful:
            raise DataError("all replies to each request have the same reward: they teach nothing")
        lengths = [self._trajectories[place].length for places in self._useful for place in places]
        if max(lengths) > recipe.context + 1:
            raise DataError(
                f"a request and its reply have {max(lengths)} tokens, the context is {recipe.context}"
            )
        self._module, self._recipe = module, recipe
        self._device = next(module.parameters()).device
        self._writer = Teacher(inputs[WRITER], self._device, recipe)
        #: Number of tokens of a step, the average.
        self.tokens = round(recipe.batch * sum(lengths) / len(self._useful))

    def useful(self) -> Sequence[tuple[int, ...]]:
        """Return the places of the replies of each row: single ones that have a gain."""
        return [(place,) for place, gain in enumerate(self._gains) if gain]

    def batch(self, step: int) -> Batch:
        """Return a step's rows: "tokens" [batch, replies, width] int64, 0 after each reply, and of each
        reply "starts" and "sizes", the lengths of beginning and reply, and "gains" float32.
        """
        first, count = step * self._recipe.batch, len(self._useful)
        key = (self._recipe.seed, self._recipe.purpose)
        chosen = list[tuple[int, ...]]()
        for number in range(first, first + self._recipe.batch):
            epoch, place = divmod(number, count)
            order = randomness.permutation(count, "rewarded", *key, epoch)
            chosen.append(self._useful[int(order[place])])
        rows = [self._trajectories[place] for places in chosen for place in places]
        tensors = {
            "tokens": prompted.rows([row.plain for row in rows], [row.reply for row in rows]),
            "starts": torch.tensor([len(row.plain) for row in rows]),
            "sizes": torch.tensor([len(row.reply) for row in rows]),
            "gains": torch.tensor([self._gains[place] for places in chosen for place in places]),
        }
        return {name: tensor.unflatten(0, (len(chosen), -1)) for name, tensor in tensors.items()}

    def apart(self, part: Batch) -> torch.Tensor:
        """Return log π − log π_0 at each token of the replies of some rows, one after another."""
        tokens = part["tokens"].flatten(0, 1).to(self._device)
        starts, sizes = (part[name].flatten()[:, None] for name in ("starts", "sizes"))
        indices = torch.arange(tokens.shape[1] - 1)[None]
        places = (indices >= starts - 1) & (indices < starts - 1 + sizes)
        places = places.to(self._device)
        inputs, targets = {"input_ids": tokens[:, :-1]}, tokens[:, 1:][places]
        logs = -token_losses(self._module, inputs, places, targets)
        return logs + self._writer.token_losses(inputs, places, targets)

    def loss(self, part: Batch) -> torch.Tensor:
        """Return the loss of some rows, a scalar; 0 where the model is the writer."""
        gains = part["gains"].flatten().repeat_interleave(part["sizes"].flatten()).to(self._device)
        difference, clip = self.apart(part), self._params.clip
        ratio = difference.exp()
        least = torch.minimum(ratio * gains, ratio.clamp(1 - clip, 1 + clip) * gains)
        apart = ratio - 1 - difference
        return -(least - self._params.kl * apart).sum() / len(part["tokens"])
