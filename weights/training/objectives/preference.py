"""Objective `preference`: replies that are preferred to others of the same request (DPO).

    loss = −mean log σ(kl · [log π(y⁺|x)/π_0(y⁺|x) − log π(y⁻|x)/π_0(y⁻|x)])   (arXiv 2305.18290, eq. 7)

π_0 is the input `writer`, the model before the training, and `kl` the paper's β. The data and their
order are those of `reinforce@2`; a row is a pair of replies to a request. The reply with the highest
reward is preferred to that with the lowest, the second highest to the second lowest, and so on while
they differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch.nn import functional as F
from typing_extensions import override

from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.rewarded import Rewarded, RewardedParams
from agent_forge.weights.training.windows import pairs


class PreferenceParams(RewardedParams):
    """Parameters of the objective."""

    #: β: weight of the divergence from the writer.
    kl: float = Field(default=0.1, gt=0)


class Preference(Rewarded):
    """Objective: the preferences between replies that were written before."""

    Params = PreferenceParams

    @override
    def useful(self) -> Sequence[tuple[int, ...]]:
        """Return the places of the replies of each row: the better and the worse one of a pair."""
        return pairs(self._params.rewards, self._params.samples)

    @override
    def loss(self, part: Batch) -> torch.Tensor:
        """Return the loss of some rows, a scalar; log 2 where the model is the writer."""
        sums = [each.sum() for each in self.apart(part).split(part["sizes"].flatten().tolist())]
        better, worse = torch.stack(sums).unflatten(0, (-1, 2)).unbind(1)
        return -F.logsigmoid(self._params.kl * (better - worse)).mean()
