"""Objective `thoughts`: thoughts before tokens (Quiet-STaR, arXiv 2403.09629).

After every position j of a window, `passes` thoughts are sampled, and the next `ahead` tokens are
predicted from a mixture of the model with the thought and without it (`weights/thoughts`):

    loss = mean −L                                           (NLL, over positions, m ≤ ahead, passes)
         − policy · mean r⁺ · log π(thought)                 (REINFORCE, section 4.4.2)
         + kl · KL(teacher ‖ model without thoughts)

    L = (log p(x_j+m | mixture) + own · log p(x_j+m | thought)) / (1 + own)
    r = Σ_m L − its mean over the passes;   r⁺ = max(r, 0)

In the first steps, a share `settling` of all, w keeps its first value. A model that never saw a thought
predicts badly after one. It would first learn that w = 0 is best, and then no gradient would reach head
or thought. With `own` = 0 and `settling` = 0 this is the paper's loss.

π is the distribution that the thought was sampled from, at `temperature`. With `thinks` = "pause" a
pause vector stands in the place of every token of a thought: the same computation without thoughts
(arXiv 2310.02226), one pass, no reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from typing_extensions import override

from agent_forge.weights.recipes import Frozen, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.thoughts import modeling_thoughts as thinking
from agent_forge.weights.thoughts.modeling_thoughts import ThoughtPass
from agent_forge.weights.training.models import thinking as thinking_module
from agent_forge.weights.training.models.modules import TEACHER, Teacher, divergence
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.next_token import NextToken, check_inputs
from agent_forge.weights.training.windows import Ids, seeded


class ThoughtsParams(Frozen):
    """Parameters of the objective."""

    thinks: Literal["sampled", "pause"] = "sampled"
    #: Tokens of a thought; several lengths share the steps equally (as in Fast Quiet-STaR).
    lengths: tuple[int, ...] = Field(default=(4,), min_length=1)
    #: Thoughts after each position.
    passes: int = Field(default=2, ge=2)
    #: Number of tokens of the text that are predicted after a thought.
    ahead: int = Field(default=2, ge=1)
    temperature: float = Field(default=1.0, gt=0)
    #: Weight of the prediction after the thought alone, beside the mixture.
    own: float = Field(default=1.0, ge=0)
    #: Share of the steps in which the mixing head is not trained.
    settling: float = Field(default=0.5, ge=0, le=1)
    #: Weight of REINFORCE.
    policy: float = Field(default=1.0, ge=0)
    #: Weight of the divergence from a teacher; 0: there is none.
    kl: float = Field(default=0.1, ge=0)


class ThoughtsObjective(NextToken):
    """Objective: negative log-likelihood after thoughts, nats a token, with REINFORCE and a guard."""

    Params = ThoughtsParams

    def __init__(
        self,
        recipe: Train,
        module: torch.nn.Module,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Check the data, and build the teacher if there is one. The method `module` makes `module`.

        Raises ConfigError for other inputs than those that `kl` needs and for missing streams,
        SourceChangedError for other data.
        """
        self._params = params = ThoughtsParams.model_validate(recipe.params)
        needed = [TEACHER] if params.kl else []
        check_inputs("thoughts", needed, recipe, inputs)
        super().__init__(recipe.model_copy(update={"inputs": {}}), module, streams, {})
        self._recipe = recipe
        part: Any = module.get_submodule(thinking.PART)
        self._part: thinking.Thoughts = part
        self._teacher = Teacher(inputs[TEACHER], self._device, recipe) if needed else None

    @staticmethod
    def module(
        recipe: Train, start: Tensors, inputs: Mapping[str, Tensors], device: str
    ) -> torch.nn.Module:
        """Return a module of the model `start` with its part `thoughts`. Raises SourceError."""
        return thinking_module.build(start, device, recipe.attention)

    def length(self, step: int) -> int:
        """Return how many tokens a thought has in a step."""
        lengths = self._params.lengths
        return lengths[min(step * len(lengths) // self._recipe.steps, len(lengths) - 1)]

    @override
    def batch(self, step: int) -> Batch:
        """Return "tokens" [batch, context + 1] int64, "heads" [batch] bool, and "draws" of thoughts.

        "heads" is True if the mixing head is trained. "draws" are [batch, passes, length, context]
        float64 in [0, 1); for pauses they are zeros, with one pass.
        """
        recipe, params = self._recipe, self._params
        shape = (self.length(step), recipe.context)
        if params.thinks == "pause":
            draws = torch.zeros(recipe.batch, 1, *shape, dtype=torch.float64)
        else:
            key = f"{recipe.purpose}/thoughts/{step}"
            drawn = seeded(recipe.seed, key).random((recipe.batch, params.passes, *shape))
            draws = torch.from_numpy(drawn)
        heads = torch.full((recipe.batch,), step >= params.settling * recipe.steps)
        return {**super().batch(step), "draws": draws, "heads": heads}

    @override
    def loss(self, part: Batch) -> torch.Tensor:
        """Return the loss of some rows, nats a token, a scalar; the module has its formula."""
        tokens, draws = part["tokens"].to(self._device), part["draws"].to(self._device)
        passes = draws.shape[1]
        whole = tokens.repeat_interleave(passes, 0)
        text, ahead = whole[:, :-1], _ahead(whole, self._params.ahead)
        length = draws.shape[2]
        if self._params.thinks == "pause":
            ids = None
            layers = thinking.paused(self._module, self._part, length, ahead[:, :-1])
        else:
            ids = self._sampled(text, draws.flatten(0, 1))
            layers = thinking.embedded(self._module, self._part, ids, ahead[:, :-1])
        passed = thinking.forward(self._module, text, layers)
        mixture, alone = predictions(self._part, passed, ahead, bool(part["heads"][0]))
        own_weight = self._params.own
        logs = (mixture + own_weight * alone) / (1 + own_weight)
        mask = _known(ahead.shape, self._device)
        loss = -logs[:, mask].mean()
        if ids is not None and self._params.policy:
            reward = torch.where(mask, logs.detach(), 0).sum(1).unflatten(0, (-1, passes))
            gain = (reward - reward.mean(1, keepdim=True)).clamp_min(0).flatten(0, 1)
            log_likelihoods = likelihoods(passed, ids, self._params.temperature)
            loss = loss - self._params.policy * (gain * log_likelihoods).mean()
        if self._teacher is not None:
            teacher_logits = self._teacher.logits(tokens[:, :-1])
            loss = loss + self._params.kl * divergence(teacher_logits, passed.logits[::passes, 0])
        return loss

    def _sampled(self, text: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        """Return the ids of thoughts sampled by their draws, [rows, length, tokens] both.

        It samples in evaluation mode, because gradient checkpointing keeps no keys and values.
        """
        self._module.eval()
        try:
            length, temperature = draws.shape[1], self._params.temperature
            return thinking.sampled(self._module, self._part, text, length, draws, temperature)
        finally:
            self._module.train()


def predictions(
    part: thinking.Thoughts, passed: ThoughtPass, ahead: torch.Tensor, heads: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (log p of the mixture, log p after the thought alone) of the tokens after each thought.

    Both are [rows, ahead, tokens], as are the tokens `ahead`. Without a thought, token m after position
    j is predicted at position j + m − 1. Beyond the text's end the numbers mean nothing. If `heads` is
    False, no gradient reaches the mixing head.
    """
    count, tokens = ahead.shape[1:]
    first = passed.logits.shape[1] - count  # the layer of the thoughts' end
    mixtures, alone = [], []
    for m in range(count):
        places = (torch.arange(tokens, device=ahead.device) + m).clamp_max(tokens - 1)
        targets = ahead[:, m, :, None]
        base = thinking.wide(passed.logits[:, 0]).log_softmax(-1)[:, places].gather(-1, targets)
        thought = thinking.wide(passed.logits[:, first + m]).log_softmax(-1).gather(-1, targets)
        logit = part.logit(passed.states[:, 0, places], passed.states[:, first + m])
        logit = thinking.wide(logit)
        if not heads:
            logit = logit.detach() + 0.0 * logit  # its gradients are 0, not missing
        alone.append(thought.squeeze(-1))
        mixtures.append(thinking.mixed(base.squeeze(-1), alone[-1], logit))
    return torch.stack(mixtures, 1), torch.stack(alone, 1)


def likelihoods(passed: ThoughtPass, ids: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return log π of whole thoughts, [rows, tokens]; `ids` are the tokens, [rows, length, tokens]."""
    logits = thinking.wide(passed.logits[:, 1 : 1 + ids.shape[1]]) / temperature
    return logits.log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1).sum(1)


def _ahead(tokens: torch.Tensor, count: int) -> torch.Tensor:
    """Return the tokens after each position, [rows, count, tokens − 1]; 0 beyond the end."""
    padded = torch.nn.functional.pad(tokens, (0, count))
    width = tokens.shape[1] - 1
    return torch.stack([padded[:, m : m + width] for m in range(1, count + 1)], 1)


def _known(shape: torch.Size, device: torch.device) -> torch.Tensor:
    """Return [count, tokens] bool, True within the text; `shape` is [rows, count, tokens]."""
    _, count, tokens = shape
    places = torch.arange(tokens, device=device)
    return places + torch.arange(count, device=device)[:, None] < tokens
