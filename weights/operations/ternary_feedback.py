"""Operation `ternary-feedback`: ternary linear layers by rounding with error feedback, no training.

GPTQ (arXiv 2210.17323, section 3) with one fixed scale for each tensor: columns are rounded one after
the other, and a column's error is spread over the columns that are left, by the inverse of
H = mean x xᵀ over the layer's inputs x on calibration text. The scale is `sigmas` standard deviations.
Of all measured roundings without training it is the best (docs/benchmarks.md): a training's baseline.

Each product and each sum is rounded by itself. The updates of a number depend on its own row, and come
in the order of the columns. So rows and columns may be taken in tiles that fit in a processor's caches,
without another bit: some twenty times as fast as updates of the whole matrix, column by column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from agent_forge.runs.errors import ConfigError, NotFiniteError, SourceChangedError
from agent_forge.runs.system.durations import timed
from agent_forge.weights import pieces
from agent_forge.weights.codecs.feedback import calibration, error_feedback
from agent_forge.weights.codecs.search.compiler import compiled
from agent_forge.weights.operations import ternary_pack
from agent_forge.weights.recipes import DataDigest, Frozen
from agent_forge.weights.tensors import Tensors
from agent_forge.weights.ternary import linears
from agent_forge.weights.threads import reproducible_products
from agent_forge.weights.training.models import modules
from agent_forge.weights.training.windows import Batches, Ids, stream_digest

#: Token ids, [windows, tokens].
Windows = NDArray[np.int64]
#: Windows of one pass of the calibration.
ROWS = 16
#: Columns whose errors are collected, and columns that get them at a time.
BLOCK, TILE = 64, 512


class Feedback(Frozen):
    """Scale, and the text that the layers' inputs are taken from."""

    #: Name of a stream of token ids → digest of its content. All count alike.
    data: dict[str, DataDigest] = Field(min_length=1)
    #: Tokens of a window, and windows.
    context: int = Field(ge=1)
    windows: int = Field(default=256, ge=1)
    #: Scale of a tensor, in its standard deviations.
    sigmas: float = Field(default=1.8, gt=0)
    #: Share of H's mean diagonal that is added to the diagonal.
    damping: float = Field(default=0.01, gt=0)


class TernaryFeedback:
    """Rounding of every linear layer's matrix with error feedback; all other tensors stay."""

    Params = Feedback
    reads_streams = True

    def apply(
        self, inputs: Mapping[str, Tensors], params: Feedback, seed: int, streams: Mapping[str, Ids]
    ) -> Tensors:
        """Return the model `of` with the matrices of its linear layers ternary, as float32.

        Raises ConfigError for other roles or a missing stream, SourceChangedError if data does not
        have its digest, NotFiniteError for NaN or Inf in a matrix or in its inputs, SourceError for
        a config that describes no such model.
        """
        if sorted(inputs) != [ternary_pack.ROLE]:
            raise ConfigError(f"ternary-feedback reads the input of, not {sorted(inputs)}")
        _check(params, streams)
        model = inputs[ternary_pack.ROLE]
        weights = dict(model.weights)
        for name in ternary_pack.matrices(model):
            if not weights[name].isfinite().all():
                raise NotFiniteError(f"{name} holds NaN or Inf: it cannot be ternary.")
        reproducible_products()
        for name, trits in _rounded(model, params, seed, streams).items():
            weights[name] = ternary_pack.assembled(trits, _scale(weights[name], params))
        return Tensors(model.config, weights)

    def seconds(
        self, inputs: Mapping[str, Tensors], params: Feedback, seed: int, streams: Mapping[str, Ids]
    ) -> float:
        """Return about how many seconds `apply` takes here: a batch and the last section are timed."""
        model, batches = inputs[ternary_pack.ROLE], _batches(params, seed, streams)
        sections = _sections(model, batches[:1])
        last, states, grams = len(sections) - 1, [dict[str, torch.Tensor]()], dict[str, torch.Tensor]()
        reading = timed(lambda: states[0].update(sections.states(0))) if last else 0.0
        adding = timed(lambda: grams.update(sections.grams(last, states)))
        _trits(model, params, dict(list(grams.items())[:1]))  # compiles
        rounding = timed(lambda: _trits(model, params, grams))
        return len(batches) * (reading + len(sections) * adding) + len(sections) * rounding


def _check(params: Feedback, streams: Mapping[str, Ids]) -> None:
    """Raise ConfigError if a stream is missing, SourceChangedError if it does not have its digest."""
    for name, digest in params.data.items():
        if name not in streams:
            raise ConfigError(f"ternary-feedback lacks the data {name}")
        if stream_digest(streams[name]) != digest:
            raise SourceChangedError(f"data {name!r} is not the data that the recipe names")


def fed_back(
    weight: torch.Tensor, scale: torch.Tensor, gram: torch.Tensor, damping: float
) -> torch.Tensor:
    """Return trits [rows, columns], float32, of a float32 matrix, by H = `gram` [columns, columns].

    It works in float64, column by column (`weights.codecs.feedback`). Raises ConfigError for a bad H.
    """
    if not bool(gram.diagonal().any()):
        return ternary_pack.nearest(weight, scale)
    step = scale.double().clamp(min=1e-300).item()
    upper = np.ascontiguousarray(error_feedback.inverse_factor(gram, damping).numpy())
    trits = np.empty(weight.shape, np.int8)
    _round(np.array(weight.numpy(), np.float64, order="C"), upper, step, BLOCK, TILE, trits)
    return torch.from_numpy(trits).float()


@compiled
def _round(matrix, upper, step, block, tile, trits):  # pyright: ignore
    """Fill `trits` [rows, columns] int8; `matrix` [rows, columns] float64 is used up."""
    rows, columns = matrix.shape
    errors = np.empty((rows, block))
    for start in range(0, columns, block):
        end = min(start + block, columns)
        for row in range(rows):
            values = matrix[row]
            for j in range(start, end):
                trit = np.rint(values[j] / step)
                trit = 1.0 if trit > 1.0 else trit
                trit = -1.0 if trit < -1.0 else trit
                trits[row, j] = np.int8(trit)
                error = (values[j] - trit * step) / upper[j, j]
                errors[row, j - start] = error
                factors = upper[j]
                for k in range(j + 1, end):
                    values[k] -= error * factors[k]
        for first in range(end, columns, tile):
            last = min(first + tile, columns)
            for row in range(rows):
                values = matrix[row, first:last]
                for j in range(start, end):
                    error, factors = errors[row, j - start], upper[j, first:last]
                    for k in range(last - first):
                        values[k] -= error * factors[k]


def _scale(weight: torch.Tensor, params: Feedback) -> torch.Tensor:
    """Return the scale of a matrix, float32 [1, 1]."""
    return params.sigmas * ternary_pack.deviation(weight.float())


def _rounded(
    model: Tensors, params: Feedback, seed: int, streams: Mapping[str, Ids]
) -> dict[str, torch.Tensor]:
    """Return matrix name → trits [rows, columns], int8, of each layer that the windows reach.

    Pieces are the batches of the calibration, which give hidden states, and then some blocks each.
    """
    batches = _batches(params, seed, streams)
    sections = _sections(model, batches)
    states = pieces.each(len(batches), sections.states) if len(sections) > 1 else []

    def work(section: int) -> dict[str, torch.Tensor]:
        return _trits(model, params, sections.grams(section, states))

    results = pieces.each(len(sections), work)
    return {name: trits for section in results for name, trits in section.items()}


def _batches(params: Feedback, seed: int, streams: Mapping[str, Ids]) -> list[Windows]:
    """Return the windows of the calibration in batches, each [at most ROWS, context]."""
    rows = min(ROWS, params.windows)
    windows = Batches(
        streams, dict.fromkeys(params.data, 1.0), rows, params.context, (seed, "calibration")
    )
    return [windows.rows(step)[:, :-1] for step in range(-(-params.windows // rows))]


def _sections(model: Tensors, batches: Sequence[Windows]) -> calibration.Sections:
    """Return the sections of a new module of the model."""
    module = modules.build(model)
    return calibration.Sections(module, linears.names(module), batches)


def _trits(
    model: Tensors, params: Feedback, grams: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return matrix name → trits [rows, columns], int8, by the grams of their layers' inputs."""
    trits: dict[str, torch.Tensor] = {}
    for name, gram in grams.items():
        weight = model.weights[name].float()
        trits[name] = fed_back(weight, _scale(weight, params), gram, params.damping).to(torch.int8)
    return trits
