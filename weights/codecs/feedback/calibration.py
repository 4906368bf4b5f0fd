"""Collection of grams: the mean of x xᵀ over the inputs x of each linear layer of a model.

A forward hook on each layer adds up xᵀ x of its inputs in float64, window by window, so the same
windows give the same grams on one machine. A gram takes 8 · columns² bytes; `names` limits how many
there are at a time. The gram of a tied head has the embedding's name.

`Sections` collects grams in pieces. A pass over the whole model keeps the hidden states between
sections of a few blocks. A section's grams begin with those states and end after its last block: they
need one pass more, and no memory for other layers. Some blocks read more than the block before gives
them, keys and values of an earlier block for example. A trial on a few tokens finds such a model,
which is then one section.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.hooks import RemovableHandle

from agent_forge.runs.errors import ConfigError, NotFiniteError
from agent_forge.runs.system import pace

NO_WINDOW = "there is no window of tokens to calibrate with"
#: Blocks of a section, and tokens of its trial.
BLOCKS, TRIAL = 3, 16


class Grams:
    """Collector of the sums of x xᵀ, by the name of the layer's weight."""

    def __init__(
        self, module: torch.nn.Module, names: Collection[str] | None, diagonal: bool = False
    ) -> None:
        """Add hooks to the linear layers whose weights have these names; None: all.

        With `diagonal` only the squares of each input are summed, [columns].
        """
        names_by_id = {id(tensor): name for name, tensor in module.named_parameters()}
        self._sums: dict[str, torch.Tensor] = {}
        self._counts: dict[str, int] = {}
        self._hooks: list[RemovableHandle] = []
        self._diagonal = diagonal
        #: The last input and its product, because query, key and value layers share their input.
        self._last: tuple[torch.Tensor, torch.Tensor] | None = None
        for layer in module.modules():
            if not isinstance(layer, torch.nn.Linear):
                continue
            name = names_by_id[id(layer.weight)]
            if names is None or name in names:
                self._hook(name, layer)
        if lacking := sorted(set(names or ()) - set(self._sums)):
            self.close()
            raise ConfigError(f"there is no linear layer with the weight {lacking[0]}")

    def _hook(self, name: str, layer: torch.nn.Linear) -> None:
        columns = layer.in_features
        shape = (columns,) if self._diagonal else (columns, columns)
        self._sums[name] = torch.zeros(shape, dtype=torch.float64)
        self._counts[name] = 0

        def add(_: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
            inputs = arguments[0].detach()
            if self._last is None or self._last[0] is not arguments[0]:
                rows = inputs.reshape(-1, columns).double()
                product = rows.square().sum(0) if self._diagonal else rows.T @ rows
                self._last = arguments[0], product.cpu()
            self._sums[name] += self._last[1]
            self._counts[name] += inputs.numel() // columns

        self._hooks.append(layer.register_forward_pre_hook(add))

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._last = None

    def means(self) -> dict[str, torch.Tensor]:
        """Return name → mean of x xᵀ, or its diagonal, of layers with inputs. Raises NotFiniteError."""
        means = {n: s for n, s in sorted(self._sums.items()) if self._counts[n]}
        for name, total in means.items():
            total /= self._counts[name]  # in place: a model's grams take as much as its weights
            if not torch.isfinite(total).all():
                raise NotFiniteError(f"the inputs of {name} are NaN or Inf on the calibration data")
        return means


def grams(
    module: torch.nn.Module, windows: Sequence[NDArray[np.int64]], names: Collection[str] | None = None
) -> dict[str, torch.Tensor]:
    """Return name of a layer's weight → its gram, [columns, columns] float64.

    It calls `module` with each window, [tokens], or batch of windows, [windows, tokens], in order.
    Layers that no window reaches are left out. Raises ConfigError without windows or for a name that
    no linear layer has, NotFiniteError.
    """
    return _collected(Grams(module, names), module, windows, lambda count: None)


def squares(
    module: torch.nn.Module,
    windows: Sequence[NDArray[np.int64]],
    after: Callable[[int], None] = lambda count: None,
) -> dict[str, torch.Tensor]:
    """Return name of a layer's weight → the diagonal of its gram, [columns] float64.

    `after` is called with the number of finished windows. Raises the errors of `grams`.
    """
    return _collected(Grams(module, None, diagonal=True), module, windows, after)


def _collected(
    collected: Grams,
    module: torch.nn.Module,
    windows: Sequence[NDArray[np.int64]],
    after: Callable[[int], None],
) -> dict[str, torch.Tensor]:
    device, training = next(module.parameters()).device, module.training
    try:
        if not len(windows):
            raise ConfigError(NO_WINDOW)
        module.eval()
        with torch.no_grad():
            for count, window in enumerate(windows, 1):
                ids = torch.from_numpy(np.ascontiguousarray(np.atleast_2d(window)))
                module(input_ids=ids.to(device))
                pace.note("windows of calibration", count, len(windows))
                after(count)
    finally:
        collected.close()
        module.train(training)
    return collected.means()


def token_counts(windows: Sequence[NDArray[np.int64]], vocabulary: int) -> torch.Tensor:
    """Return how often each token occurs in the windows, plus one, [vocabulary] float64.

    The counts weigh the rows of an embedding and of a head. Raises ConfigError for ids that are not
    below `vocabulary`.
    """
    ids = np.concatenate([*windows, np.zeros(0, np.int64)])
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
        raise ConfigError(f"a token's id is not from 0 to {vocabulary - 1}")
    return torch.from_numpy(np.bincount(ids, minlength=vocabulary) + 1.0)


class _LastBlockDone(Exception):
    """The last block that was asked for is done."""


class Sections:
    """Sections of a module, in which layers collect the grams of their inputs on batches of text."""

    def __init__(
        self, module: torch.nn.Module, names: Collection[str], batches: Sequence[NDArray[np.int64]]
    ) -> None:
        """Divide a module's blocks; `names` are the linear layers' weights, batches [windows, tokens].

        Raises ConfigError without batches.
        """
        if not batches:
            raise ConfigError(NO_WINDOW)
        self._module, self._names, self._batches = module.eval(), sorted(names), batches
        self._stem, self._blocks = _blocks(module, self._names)
        #: Values that a block returns beside the hidden states; None: it returns no tuple.
        self._rest: int | None = None
        #: First block of each section but the first.
        self._starts: Sequence[int] = range(len(self._blocks))[BLOCKS::BLOCKS]
        if self._starts and not self._is_divisible(batches[0][:1, :TRIAL]):
            self._starts = ()

    def __len__(self) -> int:
        return 1 + len(self._starts)

    def states(self, number: int) -> dict[str, torch.Tensor]:
        """Return the hidden states of batch `number` before each section but the first.

        Keys are the sections' numbers from 1, values have the shape [windows, tokens, columns].
        """
        states = self._through(self._batches[number], 0, None, self._starts)
        return {str(section): states[start] for section, start in enumerate(self._starts, 1)}

    def grams(
        self, section: int, states: Sequence[Mapping[str, torch.Tensor]]
    ) -> dict[str, torch.Tensor]:
        """Return weight's name → gram, [columns, columns] float64, of the linear layers of a section.

        `states` has the hidden states of each batch. Layers that no window reaches are left out.
        Raises NotFiniteError.
        """
        names, first, ends = self._names, 0, ()
        if self._starts:
            first, end = [0, *self._starts, len(self._blocks)][section : section + 2]
            stems, ends = tuple(f"{self._stem}{block}." for block in range(first, end)), (end,)
            names = [name for name in names if name.startswith(stems)]
        sums = Grams(self._module, names)
        try:
            for number, batch in enumerate(self._batches):
                self._through(batch, first, states[number][str(section)] if section else None, ends)
        finally:
            sums.close()
        return sums.means()

    def _is_divisible(self, batch: NDArray[np.int64]) -> bool:
        """Return True if each section makes of the states before it those that follow."""
        ends = (*self._starts, len(self._blocks))
        try:
            states = self._through(batch, 0, None, ends)
            return all(
                torch.equal(self._through(batch, first, states[first], (end,))[end], states[end])
                for first, end in pairwise(ends)
            )
        except (LookupError, AttributeError, TypeError, ValueError, RuntimeError):
            return False  # a block lacks what an earlier one gives it

    def _through(
        self, batch: NDArray[np.int64], first: int, state: torch.Tensor | None, ends: Sequence[int]
    ) -> dict[int, torch.Tensor]:
        """Return end → hidden states after that many blocks; stop after the last of `ends`.

        Blocks before `first` are not computed: they give `state`. Without `ends` the whole model is.
        """
        states: dict[int, torch.Tensor] = {}

        def keep(
            end: int, _: torch.nn.Module, __: object, output: torch.Tensor | tuple[torch.Tensor, ...]
        ) -> None:
            outputs = output if isinstance(output, tuple) else (output,)
            self._rest = len(outputs) - 1 if outputs is output else None
            states[end] = outputs[0].clone()
            if end == ends[-1]:
                raise _LastBlockDone

        def skip(*_: object, **__: object) -> object:
            return copy if self._rest is None else (copy, *[None] * self._rest)

        copy = None if state is None else state.clone()  # a block may change it in place
        with ExitStack() as stack, torch.no_grad():
            for block in self._blocks[:first]:
                block.forward = skip
                stack.callback(block.__dict__.pop, "forward")
            for end in ends:
                hook = self._blocks[end - 1].register_forward_hook(partial(keep, end))
                stack.callback(hook.remove)
            with suppress(_LastBlockDone):
                self._module(input_ids=torch.from_numpy(np.ascontiguousarray(batch)))
        return states


def _blocks(module: torch.nn.Module, names: Sequence[str]) -> tuple[str, Sequence[torch.nn.Module]]:
    """Return (stem of the blocks' names, blocks) of the list that all layers are in; else ("", ())."""
    for place, submodule in module.named_modules():
        stem = f"{place}."
        if isinstance(submodule, torch.nn.ModuleList) and all(n.startswith(stem) for n in names):
            return stem, list(submodule)
    return "", ()
