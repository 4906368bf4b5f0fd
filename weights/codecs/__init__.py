"""Codecs of weight matrices, one a file: a matrix in, few bytes out, and back.

A codec is a class with `Params`, a pydantic model, and:

    encode(matrix, gram, params, seed) -> Coded   deterministic: the same arguments, the same bytes
    decode(coded) -> Tensor                       [rows, columns] float32: the codec's own definition

`matrix` is [rows, columns] float32, a linear layer's weight (output × input). `gram` is
[columns, columns] float64, the mean of x xᵀ over inputs x of the layer (GPTQ, arXiv 2210.17323,
section 3), or None: then errors count alike in every direction. A landed version never changes its
bytes, its parameters or their defaults. To decode a file, the codec's name and version, `header` and
`parts` are enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from agent_forge.events import canonical_json
from agent_forge.weights import algorithms

if TYPE_CHECKING:
    import torch

#: Name and version of a codec → its class.
CODECS: dict[str, str] = {
    "chain@1": "agent_forge.weights.codecs.chain:CodecChain",
    "gptq@1": "agent_forge.weights.codecs.gptq:Gptq",
    "hyper@1": "agent_forge.weights.codecs.hyper:Hyper",
    "plain@1": "agent_forge.weights.codecs.plain:Plain",
    "rtn@1": "agent_forge.weights.codecs.rounding:RoundToNearest",
    "seedlm@1": "agent_forge.weights.codecs.seedlm:SeedLM",
    "ternary@1": "agent_forge.weights.codecs.ternary:Ternary",
    "uniform@1": "agent_forge.weights.codecs.entropy_coded:Uniform",
    "vptq@1": "agent_forge.weights.codecs.vector:Vptq",
}


@dataclass(frozen=True)
class Coded:
    """A matrix in the coded form of a codec."""

    #: Rows and columns of the matrix.
    shape: tuple[int, int]
    #: JSON values that decoding also needs.
    header: dict[str, Any] = field(default_factory=dict)
    #: The bytes: contiguous tensors by name, in the dtypes that a file has.
    parts: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Bytes that a file takes for the matrix: header and parts."""
        parts = sum(part.numel() * part.element_size() for part in self.parts.values())
        return parts + len(canonical_json(self.header))


class Codec(Protocol):
    """The interface of a codec."""

    def encode(
        self, matrix: torch.Tensor, gram: torch.Tensor | None, params: object, seed: int
    ) -> Coded:
        """Return the coded matrix. Raises ConfigError for a shape that the codec does not take."""
        ...

    def decode(self, coded: Coded) -> torch.Tensor:
        """Return the decoded matrix, [rows, columns] float32. Raises SourceError for other bytes."""
        ...


def of(name: str) -> Any:
    """Return the class of the codec NAME@VERSION. Raises UnknownAlgorithmError."""
    return algorithms.find(CODECS, name, "codec")


def encode(
    name: str,
    matrix: torch.Tensor,
    params: Mapping[str, Any],
    gram: torch.Tensor | None = None,
    seed: int = 0,
    rows: torch.Tensor | None = None,
) -> Coded:
    """Return the matrix encoded by the codec NAME@VERSION. Raises ConfigError for other parameters.

    `rows`: how much each row matters, [rows] float64 above zero, such as the counts of an embedding's
    tokens; only codecs with `weighs_rows` get it.
    """
    codec = of(name)
    settings = codec.Params.model_validate(algorithms.complete(codec.Params, params, name))
    if rows is not None and getattr(codec, "weighs_rows", False):
        return codec().encode(matrix, gram, settings, seed, rows)
    return codec().encode(matrix, gram, settings, seed)


def decode(name: str, coded: Coded) -> torch.Tensor:
    """Return the decoded matrix, [rows, columns] float32. Raises SourceError for damaged bytes."""
    return of(name)().decode(coded)
