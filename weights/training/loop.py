"""The training loop: carries out some steps of a `Train` recipe.

All that lives longer than a step is in the weights and in named tensors (optimiser, objective,
watch), so a training that is cut after any step and carried on in another process gives the same
bits. What the machine imposes (threads, processor, versions) is the profile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runs.errors import ConfigError
from runs.system import freed_memory
from weights.algorithms import check_complete
from weights.model import Model
from weights.recipes import Train
from weights.tensors import Weights
from weights.training import check, objectives, optimisers, schedules
from weights.training.divergence import DivergenceWatch
from weights.training.models import modules, sharding
from weights.training.objectives import Batch, Objective
from weights.training.optimisers import Optimiser
from weights.training.pinned import pinned
from weights.training.processes import Processes
from weights.training.windows import Ids


@dataclass(frozen=True)
class Step:
    """One step that was done."""

    #: Its number, from 0.
    number: int
    #: Mean loss before the step, in the unit of the objective (lm: nats a token).
    loss: float
    #: Learning rate.
    rate: float
    #: Norm of the whole gradient before it was clipped.
    norm: float
    #: Tokens and seconds of the segment so far.
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Snapshot:
    """State of a training after `step` steps, and what was measured in the segment before it."""

    step: int
    #: Copies, in the processor's memory: float32 parameters by name, tied ones once.
    weights: dict[str, torch.Tensor]
    #: All else that the next step depends on, by name: "optimiser/…", "objective/…", "divergence/…".
    optimiser: dict[str, torch.Tensor]
    #: A value for each step of the segment.
    losses: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()
    #: Tokens and seconds of the segment; the seconds do not count making this snapshot.
    tokens: int = 0
    seconds: float = field(default=0.0, compare=False)


def ignore(step: Step) -> None:
    """Do nothing with a step."""


def _never() -> bool:
    """Return False: do not stop."""
    return False


def segment(
    recipe: Train,
    start: Model,
    optimiser: Weights | None,
    streams: Mapping[str, Ids],
    first: int,
    last: int,
    report: Callable[[Step], None] = ignore,
    should_stop: Callable[[], bool] = _never,
    *,
    inputs: Mapping[str, Model] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    group: Any | None = None,
    sharded: bool = False,
) -> Snapshot:
    """Do the steps `first` … `last` − 1 of a training and return the snapshot after them.

    `start` is the model after `first` steps, `optimiser` the tensors of that snapshot: None only at
    the recipe's own first step. `streams` are token ids by name, `inputs` models by role. `report`
    is called after every step. `should_stop` is asked after every step but the last; if it returns
    True, the snapshot of that step is returned. With a process `group` of torch, every process of it
    calls this with the same arguments, computes its share of each step's rows, and returns the same
    snapshot; if `sharded`, it holds a part of the weights only (`sharding.py`).

    Raises TrainingDivergedError naming the step, ConfigError for a recipe that is not complete or
    for steps that it has not, SourceError for weights that do not fit their architecture.
    """
    check(recipe, first, last)
    _check_state(recipe, optimiser, first)
    if optimiser is not None and first == recipe.first:
        optimiser = _carried(optimiser)
    with pinned(threads):
        training = Training(recipe, start, optimiser, streams, inputs or {}, device, group, sharded)
        snapshot = training.run(first, last, report, should_stop)
    del training
    freed_memory.give_back()
    return snapshot


def _check_state(recipe: Train, optimiser: Weights | None, first: int) -> None:
    """Raise ConfigError if the optimiser's tensors are missing, or must not be there.

    Without them a training goes on with other numbers, and its loss looks plausible.
    """
    needed = first > recipe.first or recipe.carries
    if needed and optimiser is None:
        raise ConfigError(f"step {first} needs the optimiser's tensors of the step before")
    if optimiser is not None and not needed:
        raise ConfigError(f"step {first} is the first: its optimiser begins without tensors")


def _carried(optimiser: Weights) -> Weights:
    """Return the tensors that a training takes over from another: its data may be others.

    The loss may leap where the data change, so the watch over it begins again.
    """
    return {name: t for name, t in optimiser.items() if not name.startswith("divergence/")}


class Training:
    """A module with its objective, optimiser, schedule and watch. Torch's flags must be pinned."""

    def __init__(
        self,
        recipe: Train,
        start: Model,
        optimiser: Weights | None,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Model],
        device: str,
        group: Any | None = None,
        sharded: bool = False,
    ) -> None:
        """Build the module with copies of the weights, and take back the optimiser's tensors."""
        self._recipe = recipe
        self._device = torch.device(device)
        objective, chosen = objectives.of(recipe.objective), optimisers.of(recipe.optimiser.name)
        place = "cpu" if sharded else device
        if build_module := getattr(objective, "module", None):
            _check_whole(recipe, sharded)
            self.module = build_module(recipe, start, inputs, place).train()
        else:
            frozen = getattr(objective, "frozen", False) and not sharded
            self.module = modules.build(start, place, recipe.attention, frozen).train()
        if recipe.checkpointing:
            modules.checkpoint_activations(self.module)
        if sharded:
            sharding.check(recipe)
            sharding.shard(self.module, group, self._device)
        settings = check_complete(chosen.Settings, recipe.optimiser.params, recipe.optimiser.name)
        self._objective: Objective = objective(recipe, self.module, streams, inputs)
        self._optimiser: Optimiser = chosen(self.module, settings)
        self._schedule: Any = schedules.of(recipe.schedule.name)(**recipe.schedule.params)
        self._watch = DivergenceWatch(recipe.divergence)
        self._processes = Processes(group, recipe.batch // recipe.accumulation)
        self._trained = [p for p in self.module.parameters() if p.requires_grad]
        if optimiser is not None:
            parameters = dict(self.module.named_parameters())
            for name, part in self._parts.items():
                part.load(sharding.split(_below(optimiser, name), parameters))

    @property
    def _parts(self) -> dict[str, Any]:
        """Everything but the weights that lives longer than a step, by name."""
        return {
            "optimiser": self._optimiser,
            "objective": self._objective,
            "divergence": self._watch,
        }

    def run(
        self,
        first: int,
        last: int,
        report: Callable[[Step], None] = ignore,
        should_stop: Callable[[], bool] = _never,
    ) -> Snapshot:
        """Do the steps and return the snapshot after them; see `segment`."""
        return self.snapshot(first, self.advance(first, last, report, should_stop))

    def advance(
        self,
        first: int,
        last: int,
        report: Callable[[Step], None] = ignore,
        should_stop: Callable[[], bool] = _never,
    ) -> list[Step]:
        """Do the steps in place and return those that were done; see `segment`."""
        began, done = time.perf_counter(), []
        freed = began
        for number in range(first, last):
            loss, rate, norm = self.step(number)
            tokens = (len(done) + 1) * self._objective.tokens
            done.append(Step(number, loss, rate, norm, tokens, time.perf_counter() - began))
            report(done[-1])
            if time.perf_counter() - freed > freed_memory.LONG:
                freed_memory.give_back()
                freed = time.perf_counter()
            if number + 1 < last and self._processes.agree(should_stop()):
                break
        return done

    def snapshot(self, first: int, done: Sequence[Step]) -> Snapshot:
        """Return the state after the steps that `advance` has done, the first of them `first`."""
        return Snapshot(
            step=first + len(done),
            weights=modules.weights(self.module),
            optimiser=self.state(),
            losses=tuple(step.loss for step in done),
            rates=tuple(step.rate for step in done),
            norms=tuple(step.norm for step in done),
            tokens=done[-1].tokens if done else 0,
            seconds=done[-1].seconds if done else 0.0,
        )

    def step(self, number: int) -> tuple[float, float, float]:
        """Do one step in place; return its loss, learning rate and norm of the gradient.

        Raises TrainingDivergedError before the weights are touched. An objective that moves the
        parameters itself has no rate and a distance for the norm, and is checked after it has moved.
        """
        if move := getattr(self._objective, "move", None):
            loss, norm = move(number)
            self._watch.check(number, loss, norm)
            return loss, 0.0, norm
        rate = self._schedule.rate(number, self._recipe.steps)
        total = self._backward(self._objective.batch(number))
        # One transfer of both: the step waits once for a GPU.
        loss, norm = torch.stack([total, self._clip()]).tolist()
        self._watch.check(number, loss, norm)
        self._optimiser.step(rate)
        for parameter in self._trained:
            parameter.grad = None
        return loss, rate, norm

    def _backward(self, batch: Batch) -> torch.Tensor:
        """Compute the gradients of a step's mean loss, part after part; return the loss."""
        parts = self._recipe.accumulation
        rows = self._recipe.batch // parts
        bf16 = self._recipe.precision == "bfloat16"
        total = torch.zeros((), device=self._device)
        for index in range(parts):
            part = {n: t[index * rows : (index + 1) * rows] for n, t in batch.items()}
            with torch.autocast(self._device.type, torch.bfloat16, enabled=bf16):
                loss = self._objective.loss(self._processes.own(part)) / parts
            loss.backward()
            total += loss.detach()
        return self._processes.average(self._trained, total)

    def _clip(self) -> torch.Tensor:
        """Clip the gradient if the recipe says so; return its norm before."""
        if self._recipe.clip is None:
            gradients = [p.grad for p in self._trained if p.grad is not None]
            return sharding.whole(torch.nn.utils.get_total_norm(gradients))
        return sharding.whole(torch.nn.utils.clip_grad_norm_(self._trained, self._recipe.clip))

    def state(self) -> dict[str, torch.Tensor]:
        """Return copies of all that the next step depends on beside the weights."""
        return {
            f"{name}/{key}": sharding.whole(tensor).to("cpu").contiguous()
            for name, part in self._parts.items()
            for key, tensor in part.state().items()
        }


def _check_whole(recipe: Train, sharded: bool) -> None:
    """Raise ConfigError for a sharded training of an objective that builds its module itself."""
    if sharded:
        raise ConfigError(f"a training by {recipe.objective} cannot be sharded")


def _below(tensors: Weights, name: str) -> dict[str, torch.Tensor]:
    """Return the tensors of one part, by the names that it gave them."""
    start = f"{name}/"
    return {key.removeprefix(start): t for key, t in tensors.items() if key.startswith(start)}
