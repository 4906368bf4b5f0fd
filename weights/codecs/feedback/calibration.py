"""Collection of grams: the mean of x xᵀ over the inputs x of each linear layer of a model.

A forward hook on each layer adds up xᵀ x of its inputs in float64, window by window, so the same
windows give the same grams on one machine. A gram takes 8 · columns² bytes; `names` limits how many
there are at a time. The gram of a tied head has the embedding's name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.hooks import RemovableHandle

from agent_forge.runs.errors import ConfigError, NotFiniteError
from agent_forge.runs.system import pace


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
            raise ConfigError("there is no window of tokens to calibrate with")
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
