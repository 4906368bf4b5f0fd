"""Objective `bake`: a model that predicts without a prompt as its parent does with it.

    loss = Σ_n Σ_t KL(P(· | u, x_n, y_n<t) ‖ P_θ(· | x_n, y_n<t)) / tokens        (arXiv 2409.13697, §2)
         + others · the same along trajectories under other prompts, which the model reads, too
         + neutral · KL(P ‖ P_θ) on windows of ordinary text

u is the prompt, x_n a context, y_n a reply that the parent P wrote after both. The last two terms are
guards: without them the model drifts on other text and no longer follows other prompts. They compare
with the parent, or with a further input `guard`: in a pursuit the parent is a baked model, and the
guard is the model that it was baked from.

Version 2 has the divergences along trajectories in the other direction, KL(P_θ ‖ P). With replies that
the model itself wrote without the prompt it is on-policy distillation (GKD, arXiv 2306.13649; of a
prompt, arXiv 2602.12275): it takes away what the parent would not say, where version 1 asks for all
that the parent might say. The replies are data: the gradient is that of each token's divergence alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from pydantic import Field
from typing_extensions import override

from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.weights import randomness
from agent_forge.weights.recipes import Frozen, Train
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.training.models import prompted
from agent_forge.weights.training.models.modules import TEACHER, Teacher, divergence
from agent_forge.weights.training.objectives import Batch
from agent_forge.weights.training.objectives.next_token import Stateless, check_inputs, check_streams
from agent_forge.weights.training.windows import BAKED, OTHERS, Batches, Ids, Trajectory, unpack

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Role of the model that the guards compare with, if it is not the teacher.
GUARD = "guard"
#: Bytes of the parent's predictions that are kept in files; others are computed again, with equal bits.
KEPT_BYTES = 1 << 29
#: Bytes from which predictions are worth a file.
FILE_BYTES = 1 << 20

#: (log p of the parent along a trajectory, ids of the tokens that it is about; None: all tokens).
Wanted = tuple[torch.Tensor, torch.Tensor | None]


class BakeParams(Frozen):
    """Parameters of the objective."""

    #: Weight of the divergence from the parent on ordinary text: one window for each trajectory of a
    #: step, of `context` tokens.
    neutral: float = Field(default=1.0, ge=0)
    #: Weight of the divergence from the parent under other prompts.
    others: float = Field(default=1.0, ge=0)
    #: Likeliest tokens of the parent that are compared one by one; the rest counts as one outcome.
    #: None: the whole vocabulary.
    top: int | None = Field(default=None, ge=1)


class BakeObjective(Stateless):
    """Objective: the divergence from a prompted parent, with two guards, nats a token."""

    Params = BakeParams

    def __init__(
        self,
        recipe: Train,
        module: PreTrainedModel,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
    ) -> None:
        """Build the parent and read the trajectories.

        Raises ConfigError for other inputs than a teacher of the module's vocabulary and an optional
        guard, or if the data of a term with a weight are missing; DataError for data without
        trajectories; SourceChangedError for other data than those of the recipe.
        """
        check_inputs("bake", {TEACHER, *({GUARD} & set(inputs))}, recipe, inputs)
        self._recipe, self._module = recipe, module
        self._device = next(module.parameters()).device
        self._params = params = BakeParams.model_validate(recipe.params)
        self._windows = _windows(recipe, params, streams)
        self._teacher = Teacher(inputs[TEACHER], self._device, recipe)
        _check_vocabulary(self._teacher, module, params)
        #: The model that the guards compare with.
        self._guard = self._teacher
        if GUARD in inputs:
            self._guard = Teacher(inputs[GUARD], self._device, recipe)
            _check_vocabulary(self._guard, module, params)
        #: Stream → its weight in the loss, and its trajectories.
        names = sorted(filter(_trained_on, recipe.data), key=lambda name: name == OTHERS)
        self._terms = {name: params.others if name == OTHERS else 1.0 for name in names}
        self._known = {name: _trajectories(name, streams[name]) for name in self._terms}
        self._cache: dict[tuple[str, int], Wanted] = {}
        self._room = KEPT_BYTES
        replies = sum(map(_mean_reply, self._known.values()))
        #: Number of compared predictions of a step; for trajectories, the average.
        self.tokens = round(recipe.batch * (replies + bool(self._windows) * recipe.context))

    @staticmethod
    def between(parent_logs: torch.Tensor, model_logs: torch.Tensor) -> torch.Tensor:
        """Return KL(P ‖ P_θ) at each token, nats, [tokens], of log p [tokens, outcomes] of both."""
        return prompted.divergences(parent_logs, model_logs)

    # ---- rows --------------------------------------------------------------------------------

    def batch(self, step: int) -> Batch:
        """Return "tokens", and of each stream S: "S", trajectory numbers, and "S/scale", factors.

        "tokens" is [batch, context + 1], "S" [batch] int64. "S/scale" is [batch] float32: the sum of a
        row's divergences is multiplied by it, so that the mean over rows is the mean over tokens.
        """
        tensors: dict[str, torch.Tensor] = {}
        if self._windows:
            tensors["tokens"] = torch.from_numpy(self._windows.rows(step))
        for name in self._terms:
            first = step * self._recipe.batch
            chosen = [self._place(name, first + row) for row in range(self._recipe.batch)]
            tokens = sum(len(self._known[name][number].reply) for number in chosen)
            tensors[name] = torch.tensor(chosen)
            tensors[f"{name}/scale"] = torch.full((len(chosen),), len(chosen) / tokens)
        return tensors

    def _place(self, name: str, number: int) -> int:
        """Return the number of a stream's trajectory at a place of its endless random orders."""
        recipe, count = self._recipe, len(self._known[name])
        epoch, place = divmod(number, count)
        order = randomness.permutation(count, "bake", recipe.seed, recipe.purpose, name, epoch)
        return int(order[place])

    # ---- loss --------------------------------------------------------------------------------

    def loss(self, part: Batch) -> torch.Tensor:
        """Return the weighted sum of the divergences, nats, each a mean over tokens, a scalar."""
        total = torch.zeros((), device=self._device)
        for name, weight in self._terms.items():
            numbers, scale = part[name].tolist(), float(part[f"{name}/scale"][0])
            total = total + weight * scale / len(numbers) * self._apart(name, numbers)
        if self._windows:
            tokens = part["tokens"].to(self._device)[:, :-1]
            teacher_logits = self._guard.logits(tokens)
            logits = self._module(input_ids=tokens).logits
            total = total + self._params.neutral * divergence(teacher_logits, logits)
        return total

    def _apart(self, name: str, numbers: list[int]) -> torch.Tensor:
        """Return the sum of the divergences along these trajectories, nats, a scalar."""
        trajectories = [self._known[name][number] for number in numbers]
        replies = [trajectory.reply for trajectory in trajectories]
        tokens = prompted.rows([trajectory.plain for trajectory in trajectories], replies).to(
            self._device
        )
        logits = self._module(input_ids=tokens).logits
        sizes = [len(reply) for reply in replies]
        model_logs = prompted.at_replies(
            logits, [len(trajectory.plain) for trajectory in trajectories], sizes
        )
        predictions = [self._wanted(name, number) for number in numbers]
        if self._params.top is not None:
            ids = torch.cat([ids for _, ids in predictions if ids is not None])
            model_logs = prompted.of_likely(model_logs, ids)
        return self.between(torch.cat([logs for logs, _ in predictions]), model_logs).sum()

    @torch.no_grad()
    def _wanted(self, name: str, number: int) -> Wanted:
        """Return (log p of the parent, ids or None) along one trajectory, from a cache of limited size.

        The parent reads each trajectory alone, so that a training that is cut computes the same bits.
        """
        key = (name, number)
        if key in self._cache:
            return self._cache[key]
        trajectory, ids = self._known[name][number], None
        with torch.autocast(self._device.type, enabled=False):
            writer = self._guard if name == OTHERS else self._teacher
            logs = prompted.along(self._asking(writer), trajectory.prompted, trajectory.reply)
        if self._params.top is not None:
            ids, logs = prompted.likely(logs, self._params.top)
        size = logs.nbytes + (0 if ids is None else ids.nbytes)
        if size <= self._room:
            self._cache[key] = (_in_file(logs), ids)
            self._room -= size
        return logs, ids

    def _asking(self, model: Teacher) -> prompted.Predict:
        return lambda tokens: model.logits(tokens.to(self._device))


class ReverseBake(BakeObjective):
    """Objective, version 2: the divergence of the model from a prompted parent, nats a token."""

    @staticmethod
    @override
    def between(parent_logs: torch.Tensor, model_logs: torch.Tensor) -> torch.Tensor:
        """Return KL(P_θ ‖ P) at each token, nats, [tokens], of log p [tokens, outcomes] of both."""
        return prompted.divergences(model_logs, parent_logs)


def _in_file(tensor: torch.Tensor) -> torch.Tensor:
    """Return a processor's large tensor in a mapped file without a name: no private memory holds it."""
    if tensor.device.type != "cpu" or tensor.nbytes < FILE_BYTES:
        return tensor
    try:
        with tempfile.TemporaryFile() as file:
            file.write(tensor.numpy().data)
            file.flush()
            return torch.from_numpy(np.memmap(file, np.float32, "c", shape=tuple(tensor.shape)))
    except OSError:  # the disk is full
        return tensor


def _windows(recipe: Train, params: BakeParams, streams: Mapping[str, Ids]) -> Batches | None:
    """Return the Batches (windows) of ordinary text; None if the recipe has no such text.

    Raises ConfigError unless the recipe has the data of every term, and no others;
    SourceChangedError for other data than those of the recipe.
    """
    baked = any(_trained_on(name) and name != OTHERS for name in recipe.data)
    for name, there, weight in ((BAKED, baked, 1.0), (OTHERS, OTHERS in recipe.data, params.others)):
        if there != bool(weight):
            verb = "lacks" if weight else "has no use for"
            raise ConfigError(f"the objective bake {verb} the data {name}")
    text = {name: share for name, share in recipe.data.items() if not _trained_on(name)}
    if bool(text) != bool(params.neutral):
        verb = "lacks" if params.neutral else "has no use for"
        raise ConfigError(f"the objective bake {verb} ordinary text")
    check_streams("bake", recipe, streams)
    key = (recipe.seed, recipe.purpose)
    return Batches(streams, text, recipe.batch, recipe.context, key) if text else None


def _trained_on(name: str) -> bool:
    """Return True if a stream of this name holds trajectories: BAKED, BAKED with "/N", or OTHERS."""
    return name in (BAKED, OTHERS) or name.startswith(f"{BAKED}/")


def _check_vocabulary(teacher: Teacher, module: PreTrainedModel, params: BakeParams) -> None:
    """Raise ConfigError unless both models predict the same tokens, more than are compared."""
    teacher.check_vocabulary(module)
    if params.top is not None and params.top >= teacher.vocabulary:
        raise ConfigError(f"top is {params.top}, the vocabulary has {teacher.vocabulary} tokens")


def _mean_reply(trajectories: Sequence[Trajectory]) -> float:
    """Return the mean number of tokens of the replies."""
    return sum(len(trajectory.reply) for trajectory in trajectories) / len(trajectories)


def _trajectories(name: str, stream: Ids) -> list[Trajectory]:
    """Return the list of trajectories of the stream `name`. Raises DataError if there are none."""
    trajectories = unpack(stream)
    if not trajectories:
        raise DataError(f"the data {name} hold no trajectory")
    return trajectories
