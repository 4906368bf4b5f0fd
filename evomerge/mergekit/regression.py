"""RegMean and RegMean++ of whole models: linear layers merged block after block, by the models' texts.

A layout says which tensors of which models make each tensor of the result, all by averaging. Here the
linear layers of the blocks are merged by `methods.regmean` instead, and written into a folder, one
file a block. A block that has its file is not merged again, so an interrupted merge goes on. Memory
is one block of each model with its grams, and the hidden states of the texts: 4 bytes · tokens ·
columns for each model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from agent_forge.events import failpoints
from agent_forge.evomerge.merging.blockwise import Blockwise
from agent_forge.evomerge.merging.kernels.chunks import ChunkPool
from agent_forge.evomerge.merging.methods import linear, regmean
from agent_forge.evomerge.merging.safetensors_sink import mapped
from agent_forge.evomerge.merging.tensor_ops import TensorOp
from agent_forge.runs.errors import ConfigError, NotFiniteError
from agent_forge.weights.codecs.feedback.calibration import Grams
from agent_forge.weights.folders.checkpoint import sync

if TYPE_CHECKING:
    from agent_forge.evomerge.mergekit.plan import Layout

Weights = Mapping[str, torch.Tensor]
Ids = NDArray[np.int64]
CPU = torch.device("cpu")
#: Tokens of a batch of windows.
BATCH = 4_096
#: (number of blocks done, number of all blocks)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class RegressionText:
    """Text of a model: windows of token ids, and where it is from."""

    model: str
    #: Files, folders or names of built-in data.
    data: tuple[str, ...]
    windows: tuple[Ids, ...]
    #: BLAKE3 of the token ids of all windows.
    digest: str

    @property
    def tokens(self) -> int:
        """Number of tokens in all windows."""
        return sum(map(len, self.windows))

    def record(self) -> dict[str, object]:
        """Return the text's entry (dict) in a merge's record: model, data, digest and sizes."""
        source = {"model": self.model, "data": list(self.data), "digest": self.digest}
        return {**source, "tokens": self.tokens, "windows": len(self.windows)}


@dataclass(frozen=True)
class Regression:
    """A method with its parameters, and each model's text in the order of the models."""

    method: str
    params: regmean.Params
    texts: tuple[RegressionText, ...]

    @property
    def own(self) -> bool:
        """True if a model's text goes through its own earlier blocks, False if through the merge's."""
        return regmean.PREFIXES[self.method][0] == "own"

    def record(self) -> dict[str, object]:
        """Return a dict for JSON of what decides the result beside the models."""
        texts = [text.record() for text in self.texts]
        return {"method": self.method, **self.params.model_dump(), "texts": texts}


def blocks(layout: Layout, device: torch.device = CPU) -> Blockwise:
    """Return a layout's model without weights (`Blockwise`), to compute on a device.

    Raises ConfigError if it has no linear layers in its blocks, a model's weight is negative, or its
    blocks cannot be carried out one by one; SourceError.
    """
    model = Blockwise(layout.config, {op.name: op.shape for op in layout.outputs}, device)
    ops = {op.name: op for op in layout.outputs}
    names = [name for number in range(model.count) for name in model.linears(number)]
    if not names:
        kind = layout.config.get("model_type")
        raise ConfigError(
            f"the blocks of a {kind} model have no linear layers (torch.nn.Linear), which is what "
            "regmean merges. Take a method that needs no text, such as linear or tsv_m."
        )
    for name in names:
        if min(_shares(ops[name])) < 0:
            raise ConfigError(f"tensor {name}: regmean takes weights from 0 on, and one above 0.")
    return model


def solve(
    layout: Layout,
    regression: Regression,
    folder: Path,
    pool: ChunkPool,
    progress: Progress = lambda done, all_: None,
) -> Weights:
    """Return {name: merged matrix} of every linear layer of the blocks, memory-mapped.

    `folder` is made, and keeps the blocks that are done. Raises NotFiniteError for NaN or Inf in
    inputs of layers or in the result, UnavailableError.
    """
    folder.mkdir(exist_ok=True)
    _Solution(layout, regression, folder, pool).make(progress)
    return mapped(folder)


class _Solution:
    def __init__(self, layout: Layout, regression: Regression, folder: Path, pool: ChunkPool) -> None:
        self._sources, self._regression, self._folder = layout.sources, regression, folder
        self._ops = {op.name: op for op in layout.outputs}
        self._pool = pool
        self._model = blocks(layout, pool.device)
        self._batches = [_batches(text.windows, pool.device) for text in regression.texts]

    def make(self, progress: Progress) -> None:
        states = self._embedded()
        for number in range(self._model.count):
            file = self._folder / f"block-{number:04}.safetensors"
            last = number == self._model.count - 1
            if file.is_file():
                solved = load_file(file)
                states = [] if last else self._advanced(states, number, solved)
            else:
                grams, outputs = self._grams(states, number)
                solved = self._solved(number, grams)
                _write(file, solved)
                failpoints.hit("regression-block-written")
                if not last:
                    per_model = self._regression.own
                    states = outputs if per_model else self._advanced(states, number, solved)
            progress(number + 1, self._model.count)

    def _embedded(self) -> list[list[torch.Tensor]]:
        """Return, for each model, the first block's inputs, batch by batch."""
        edges = self._model.edges()
        states = []
        for place, batches in enumerate(self._batches):
            origin = place if self._regression.own else None
            tensors = {slot: self._tensor(name, origin) for slot, name in edges.items()}
            states.append(
                self._model.embedded(tensors, lambda origin=place: self._block(0, origin), batches)
            )
        return states

    def _grams(
        self, states: Sequence[Sequence[torch.Tensor]], number: int
    ) -> tuple[list[Weights], list[list[torch.Tensor]]]:
        """Return (each model's {layer: gram} of a block, each model's outputs of the block)."""

        def of_model(place: int) -> tuple[Weights, list[torch.Tensor]]:
            block = self._block(number, place)
            with closing(Grams(block, None)) as sums:
                outputs = [self._model.carried_out(block, number, x) for x in states[place]]
            names = self._model.names(number)
            try:
                means = sums.means()
            except NotFiniteError as error:
                model = self._regression.texts[place].model
                raise NotFiniteError(f"model {model}, block {number}: {error}.") from error
            return {names[leaf]: gram for leaf, gram in means.items()}, outputs

        pairs = self._pool.run([lambda p=p: of_model(p) for p in range(len(states))])
        return [grams for grams, _ in pairs], [outputs for _, outputs in pairs]

    def _solved(self, number: int, grams: Sequence[Weights]) -> dict[str, torch.Tensor]:
        """Return {name: merged matrix} of a block. Layers that no input reaches are left out."""

        def of_layer(name: str) -> torch.Tensor:
            op = self._ops[name]
            zero = next(g[name] for g in grams if name in g).new_zeros(())
            matrices = [self._tensor(name, place).cpu() for place in range(len(grams))]
            columns = op.shape[1]
            squares = [g[name] if name in g else zero.expand(columns, columns) for g in grams]
            merged = regmean.solve(matrices, squares, _shares(op), self._regression.params.alpha)
            rounded = merged.to(op.dtype)
            if not bool(rounded.isfinite().all()):
                dtype = str(op.dtype).removeprefix("torch.")
                raise NotFiniteError(
                    f"tensor {name} of the result holds NaN or Inf: a value left the range of {dtype}. "
                    "Choose another dtype."
                )
            return rounded

        reached = [n for n in self._model.linears(number) if any(n in g for g in grams)]
        solved = self._pool.run([lambda name=name: of_layer(name) for name in reached])
        return dict(zip(reached, solved, strict=True))

    def _advanced(
        self, states: Sequence[Sequence[torch.Tensor]], number: int, solved: Weights
    ) -> list[list[torch.Tensor]]:
        """Return, for each model, the inputs of the next block, batch by batch."""

        def of_model(place: int) -> list[torch.Tensor]:
            origin = place if self._regression.own else None
            block = self._block(number, origin, solved)
            return [self._model.carried_out(block, number, x) for x in states[place]]

        return self._pool.run([lambda p=p: of_model(p) for p in range(len(states))])

    def _block(self, number: int, place: int | None, solved: Weights | None = None) -> torch.nn.Module:
        """Return a block as a module: a model's, or the merge's if `place` is None."""
        names = self._model.names(number)
        return self._model.block(
            number, {leaf: self._tensor(name, place, solved) for leaf, name in names.items()}
        )

    def _tensor(self, name: str, place: int | None, solved: Weights | None = None) -> torch.Tensor:
        """Return a float32 tensor: a model's, or as the merge stores it if `place` is None."""
        op = self._ops[name]
        if place is None and solved is not None and name in solved:
            return solved[name].float().to(self._pool.device)
        if place is not None or op.technique is None:
            return self._read(op, place or 0)
        inputs = [self._read(op, i).cpu() for i in range(len(op.inputs))]
        merged = linear.merge(inputs, _shares(op)).to(op.dtype)
        return merged.float().to(self._pool.device)

    def _read(self, op: TensorOp, place: int) -> torch.Tensor:
        read = op.inputs[min(place, len(op.inputs) - 1)]
        rows = self._sources.rows(read)
        whole = rows[slice(0, int(rows.shape[0]))]
        dtype = torch.float32 if whole.is_floating_point() else whole.dtype
        return whole.to(self._pool.device, dtype, copy=True).reshape(op.shape)


def _shares(op: TensorOp) -> list[float]:
    """Return the models' weights for a tensor, one number each."""
    weights = op.params.weights if isinstance(op.params, linear.Params) else None
    return linear.one_each(weights, len(op.inputs))


def _batches(windows: Sequence[Ids], device: torch.device) -> list[torch.Tensor]:
    """Return batches of windows, [windows, length] int64 each, in order."""
    batches: list[list[Ids]] = []
    for window in windows:
        last = batches[-1] if batches else []
        if last and len(last[0]) == len(window) and (len(last) + 1) * len(window) <= BATCH:
            last.append(window)
        else:
            batches.append([window])
    return [torch.from_numpy(np.stack(rows).astype(np.int64)).to(device) for rows in batches]


def _write(file: Path, tensors: Weights) -> None:
    """Write a block's file, whole or not at all."""
    partial = file.with_suffix(".partial")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial)
    sync(partial)
    os.replace(partial, file)
