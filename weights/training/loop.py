"""The training loop: carries out some steps of a `Train` recipe.

All that lives longer than a step is in the weights and in named tensors (optimiser, objective,
watch). So a training that is cut after any step and carried on in another process gives the same bits.
The machine's part (threads, processor, versions) is the profile. Flags of torch that change numbers are
pinned while a training computes and restored afterwards.

The watch ends a training when loss or gradient is not finite, or the loss leaps.

Several processes can share each step (data-parallel): every process computes a part of the step's rows.
Gradients are averaged over a process group of torch (gloo on processors), so all processes hold the
same weights after every step. The number of processes changes the order of sums. So it belongs to the
profile, like the number of threads, and not to the recipe.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import distributed
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor

from agent_forge.runs.errors import ConfigError, TrainingDivergedError
from agent_forge.runs.system import pace, process_limits
from agent_forge.weights.algorithms import check_complete
from agent_forge.weights.recipes import Train
from agent_forge.weights.tensors import Tensors, Weights
from agent_forge.weights.threads import keep_freed_memory, reproducible_products
from agent_forge.weights.training import check, objectives, optimisers, schedules
from agent_forge.weights.training.models import modules, sharding
from agent_forge.weights.training.objectives import Batch, Objective
from agent_forge.weights.training.optimisers import Optimiser
from agent_forge.weights.training.windows import Ids


@dataclass(frozen=True)
class TrainingStep:
    """Figures of one step that was done."""

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
    """State of a training after `step` steps, and the figures of the segment before it."""

    step: int
    #: In the processor's memory: float32 parameters by name, tied ones once.
    weights: dict[str, torch.Tensor]
    #: Other tensors that the next step needs, by name: "optimiser/…", "objective/…", "divergence/…".
    optimiser: dict[str, torch.Tensor]
    #: A value for each step of the segment.
    losses: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()
    #: Tokens and seconds of the segment; the seconds do not count making this snapshot.
    tokens: int = 0
    seconds: float = field(default=0.0, compare=False)


def ignore(step: TrainingStep) -> None:
    """Do nothing with a step."""


def _never() -> bool:
    return False


def segment(
    recipe: Train,
    start: Tensors,
    optimiser: Weights | None,
    streams: Mapping[str, Ids],
    first: int,
    last: int,
    report: Callable[[TrainingStep], None] = ignore,
    should_stop: Callable[[], bool] = _never,
    *,
    inputs: Mapping[str, Tensors] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    group: ProcessGroup | None = None,
    sharded: bool = False,
) -> Snapshot:
    """Do the steps `first` … `last` − 1 of a training; return the snapshot after the last one done.

    `start` is the model after `first` steps, `optimiser` the tensors of that snapshot: None only at
    the recipe's own first step. `streams` are token ids by name, `inputs` models by role. `report`
    is called after every step. `should_stop` is called after every step but the last; if it returns
    True, the segment ends there. With a process `group` of torch, every process of the group calls this
    function with the same arguments, computes its share of each step's rows, and returns the same
    snapshot; if `sharded`, a process holds a part of the weights only (`sharding.py`).

    Raises TrainingDivergedError with the step's number, ConfigError for a recipe that is not complete
    or lacks the steps, SourceError for weights that do not fit their architecture.
    """
    check(recipe, first, last)
    _check_state(recipe, optimiser, first)
    if optimiser is not None and first == recipe.first:
        # The data may change and the loss leap, so the watch for divergence begins again.
        optimiser = {n: t for n, t in optimiser.items() if not n.startswith("divergence/")}
    keep_freed_memory(False)
    process_limits.give_back()
    with pinned(threads):
        training = Training(recipe, start, optimiser, streams, inputs or {}, device, group, sharded)
        snapshot = training.run(first, last, report, should_stop)
    del training
    process_limits.give_back()
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


class Training:
    """Training in progress: module, objective, optimiser, schedule, watch. Flags must be pinned."""

    def __init__(
        self,
        recipe: Train,
        start: Tensors,
        optimiser: Weights | None,
        streams: Mapping[str, Ids],
        inputs: Mapping[str, Tensors],
        device: str,
        group: ProcessGroup | None = None,
        sharded: bool = False,
    ) -> None:
        """Build the module with copies of the weights, and load the optimiser's tensors."""
        self._recipe = recipe
        self._device = torch.device(device)
        objective, chosen = objectives.of(recipe.objective), optimisers.of(recipe.optimiser.name)
        place = "cpu" if sharded else device
        if build_module := getattr(objective, "module", None):
            if sharded:
                raise ConfigError(f"a training by {recipe.objective} cannot be sharded")
            self.module = build_module(recipe, start, inputs, place).train()
        else:
            frozen = getattr(objective, "frozen", False) and not sharded
            self.module = modules.build(start, place, recipe.attention, frozen).train()
        if recipe.checkpointing:
            modules.checkpoint_activations(self.module)
        if sharded and group is not None:
            sharding.check(recipe)
            sharding.shard(self.module, group, self._device)
        settings = check_complete(chosen.Settings, recipe.optimiser.params, recipe.optimiser.name)
        self._objective: Objective = objective(recipe, self.module, streams, inputs)
        self._optimiser: Optimiser = chosen(self.module, settings)
        self._schedule = schedules.of(recipe.schedule.name)(**recipe.schedule.params)
        self._watch = DivergenceWatch(recipe.divergence)
        self._processes = Processes(group, recipe.batch // recipe.accumulation)
        self._trained = [p for p in self.module.parameters() if p.requires_grad]
        if optimiser is not None:
            parameters = dict(self.module.named_parameters())
            for name, part in self._parts.items():
                part.load(sharding.split(_below(optimiser, name), parameters))

    @property
    def _parts(self) -> dict[str, Optimiser | Objective | DivergenceWatch]:
        """Name → part whose state, beside the weights, lives longer than a step."""
        return {"optimiser": self._optimiser, "objective": self._objective, "divergence": self._watch}

    def run(
        self,
        first: int,
        last: int,
        report: Callable[[TrainingStep], None] = ignore,
        should_stop: Callable[[], bool] = _never,
    ) -> Snapshot:
        """Do the steps `first` … `last` − 1; return the snapshot after the last one; see `segment`."""
        done = self.advance(first, last, report, should_stop)
        self.module.zero_grad(set_to_none=True)  # a snapshot needs the room
        return self.snapshot(first, done)

    def advance(
        self,
        first: int,
        last: int,
        report: Callable[[TrainingStep], None] = ignore,
        should_stop: Callable[[], bool] = _never,
    ) -> list[TrainingStep]:
        """Do the steps in place; return a list of the TrainingStep of each one done; see `segment`."""
        began, done = time.perf_counter(), []
        freed = began
        for number in range(first, last):
            loss, rate, norm = self.step(number)
            tokens = (len(done) + 1) * self._objective.tokens
            done.append(TrainingStep(number, loss, rate, norm, tokens, time.perf_counter() - began))
            report(done[-1])
            pace.note("steps", number + 1, last)
            if time.perf_counter() - freed > process_limits.LONG:
                process_limits.give_back()
                freed = time.perf_counter()
            if number + 1 < last and self._processes.agree(should_stop()):
                break
        return done

    def snapshot(self, first: int, done: Sequence[TrainingStep]) -> Snapshot:
        """Return a Snapshot after the steps `done` from `first` on; a further step may change it."""
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
        """Do one step in place; return (loss, learning rate, norm of the gradient).

        Raises TrainingDivergedError before it changes the weights. If the objective moves parameters
        itself, the rate is 0, the norm is a distance, and the check follows the move.
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
        """Compute the gradients of a step's mean loss, part after part; return the loss, a scalar."""
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
        """Clip the gradient if the recipe says so; return its norm before that, a scalar."""
        if self._recipe.clip is None:
            gradients = [p.grad for p in self._trained if p.grad is not None]
            return sharding.whole(torch.nn.utils.get_total_norm(gradients))
        return sharding.whole(torch.nn.utils.clip_grad_norm_(self._trained, self._recipe.clip))

    def state(self) -> dict[str, torch.Tensor]:
        """Return PART/NAME → every tensor, but weights, that the next step needs, on the processor."""
        return {
            f"{name}/{key}": sharding.whole(tensor).to("cpu").contiguous()
            for name, part in self._parts.items()
            for key, tensor in part.state().items()
        }


def _below(tensors: Weights, name: str) -> dict[str, torch.Tensor]:
    """Return name without "NAME/" → tensor, of those whose names begin with it."""
    start = f"{name}/"
    return {key.removeprefix(start): t for key, t in tensors.items() if key.startswith(start)}


#: Weight of the past in the moving average of the loss, and steps before a leap can be seen.
DECAY = 0.98
SETTLED = 20


class DivergenceWatch:
    """Moving average and variance of the loss, in float64; part of every snapshot."""

    def __init__(self, sigmas: float | None) -> None:
        """Store the limit in standard deviations; None: only numbers that are not finite end it."""
        self._sigmas = sigmas
        self._count, self._mean, self._variance = 0.0, 0.0, 0.0

    def check(self, step: int, loss: float, norm: float) -> None:
        """Raise TrainingDivergedError for a loss or norm that ends a training; else count the loss."""
        if not math.isfinite(loss):
            raise TrainingDivergedError(step, f"the loss is {loss}")
        if not math.isfinite(norm):
            raise TrainingDivergedError(step, f"the norm of the gradient is {norm}")
        if self._sigmas is None:
            return
        limit = self._mean + self._sigmas * math.sqrt(self._variance)
        if self._count >= SETTLED and loss > limit:
            raise TrainingDivergedError(
                step,
                f"the loss {loss:.4f} is above {limit:.4f}, its moving average {self._mean:.4f} and "
                f"{self._sigmas:g} standard deviations (setting divergence)",
            )
        self._count_loss(loss)

    def _count_loss(self, loss: float) -> None:
        """Update mean and variance by a loss, with exponential weights, at first 1 / count."""
        self._count += 1.0
        weight = max(1.0 - DECAY, 1.0 / self._count)
        difference = loss - self._mean
        self._mean += weight * difference
        self._variance = (1.0 - weight) * (self._variance + weight * difference * difference)

    def state(self) -> dict[str, torch.Tensor]:
        """Return {"loss": [count, mean, variance] float64}; {} if the watch is off."""
        if self._sigmas is None:
            return {}
        statistics = [self._count, self._mean, self._variance]
        return {"loss": torch.tensor(statistics, dtype=torch.float64)}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore count, mean and variance from the result of `state`."""
        if self._sigmas is not None and "loss" in tensors:
            self._count, self._mean, self._variance = tensors["loss"].tolist()


class Processes:
    """One process's place in a process group; without a group there is one process."""

    def __init__(self, group: ProcessGroup | None, rows: int) -> None:
        """Store a process group of torch, or None. Raises ConfigError if it cannot share `rows`."""
        self._group = group
        self._count = 1 if group is None else distributed.get_world_size(group)
        self._rank = 0 if group is None else distributed.get_rank(group)
        if rows % self._count:
            raise ConfigError(
                f"{self._count} processes cannot share {rows} rows a part: choose a batch that is a "
                "multiple of accumulation times processes"
            )

    def own(self, part: Batch) -> Batch:
        """Return this process's rows of a part: consecutive rows, by rank."""
        if self._group is None:
            return part
        rows = len(next(iter(part.values()))) // self._count
        return {name: t[self._rank * rows : (self._rank + 1) * rows] for name, t in part.items()}

    def average(self, parameters: Sequence[torch.nn.Parameter], loss: torch.Tensor) -> torch.Tensor:
        """Replace the gradients by their mean over all processes; return the mean loss, a scalar.

        Gradients and loss travel as one float32 vector, so each process gets the same bits. Gradients
        of sharded parameters are averaged already (`sharding.py`).
        """
        if self._group is None:
            return loss
        gradients = [p.grad for p in parameters if p.grad is not None]
        gradients = [grad for grad in gradients if not isinstance(grad, DTensor)]
        whole = torch.cat([loss.reshape(1), *(g.flatten() for g in gradients)])
        distributed.all_reduce(whole, group=self._group)
        whole /= self._count
        start = 1
        for gradient in gradients:
            gradient.copy_(whole[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()
        return whole[0]

    def agree(self, stop: bool) -> bool:
        """Return True in every process if `stop` is True in any, so that all stop after one step."""
        if self._group is None:
            return stop
        vote = torch.tensor([float(stop)])
        distributed.all_reduce(vote, distributed.ReduceOp.MAX, group=self._group)
        return bool(vote)


_matmul = torch.backends.cuda.matmul
_deterministic: Any = torch.utils.deterministic

#: Name of a pinned flag → (its reader, its writer, its value in a training).
FLAGS: dict[str, tuple[Callable[[], object], Callable[[Any], object], object]] = {
    "deterministic algorithms": (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        (True, False),
    ),
    # Filling new memory costs time and changes no number of a program that reads none of it.
    "fill uninitialised memory": (
        lambda: _deterministic.fill_uninitialized_memory,
        lambda value: setattr(_deterministic, "fill_uninitialized_memory", value),
        False,
    ),
    "cudnn benchmark": (
        lambda: torch.backends.cudnn.benchmark,
        lambda value: setattr(torch.backends.cudnn, "benchmark", value),
        False,
    ),
    "cudnn attention": (
        torch.backends.cuda.cudnn_sdp_enabled,
        torch.backends.cuda.enable_cudnn_sdp,
        False,
    ),
    "TF32 in matrix products": (
        lambda: _matmul.allow_tf32,
        lambda value: setattr(_matmul, "allow_tf32", value),
        False,
    ),
    "TF32 in cudnn": (
        lambda: torch.backends.cudnn.allow_tf32,
        lambda value: setattr(torch.backends.cudnn, "allow_tf32", value),
        False,
    ),
    "reduced precision of float16 sums": (
        lambda: _matmul.allow_fp16_reduced_precision_reduction,
        lambda value: setattr(_matmul, "allow_fp16_reduced_precision_reduction", value),
        False,
    ),
    "reduced precision of bfloat16 sums": (
        lambda: _matmul.allow_bf16_reduced_precision_reduction,
        lambda value: setattr(_matmul, "allow_bf16_reduced_precision_reduction", value),
        False,
    ),
}


def flags() -> dict[str, Any]:
    """Return name → present value of every flag, and "threads" → the number of threads."""
    return {name: read() for name, (read, _, _) in FLAGS.items()} | {"threads": torch.get_num_threads()}


@contextmanager
def pinned(threads: int | None = None) -> Iterator[None]:
    """Pin all flags, and the number of threads if it is given, for the block; then restore them.

    They are restored after an error, too, because one process does tasks of several runs in turn.
    """
    before = flags()
    reproducible_products()
    try:
        for _, write, value in FLAGS.values():
            write(value)
        if threads is not None:
            torch.set_num_threads(threads)
        with torch.enable_grad():
            yield
    finally:
        for name, (_, write, _) in FLAGS.items():
            write(before[name])
        torch.set_num_threads(before["threads"])
