"""Operation `decode`: a model whose coded tensors are decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict

from agent_forge.runs.errors import ConfigError
from agent_forge.weights.formats import coded_file
from agent_forge.weights.formats.coded_file import CodedTensor
from agent_forge.weights.operations.encode import unpacked
from agent_forge.weights.tensors import Tensors

#: dtype of the tensors that are not coded; "own": the dtype that they have.
Rest = Literal["own", "float16"]


class Decoding(BaseModel):
    """The tensors that are decoded, in the order of the inputs "0000", "0001", …; and the others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tensors: tuple[str, ...]
    rest: Rest = "own"


class Decode:
    """Decoding: `model` gives the other tensors, and every tensor's dtype and shape."""

    Params = Decoding

    def apply(self, inputs: Mapping[str, Tensors], params: Decoding, seed: int) -> Tensors:
        """Return `model`, coded tensors decoded, others as `params.rest` says. Raises ConfigError."""
        weights = {t.name: coded_file.decode(t) for t in tensors(inputs, params)}
        return Tensors(inputs["model"].config, weights)


def role(number: int) -> str:
    """Return the role of the coded tensor of this number, from 0: "0000"."""
    return f"{number:04}"


def tensors(inputs: Mapping[str, Tensors], params: Decoding) -> Iterator[CodedTensor]:
    """Yield every tensor of the model in coded form, in order of name. Raises ConfigError."""
    coded = {name: role(number) for number, name in enumerate(params.tensors)}
    if set(inputs) != {"model", *coded.values()}:
        raise ConfigError(f"decode reads model and {len(coded)} coded tensors, not {len(inputs)}")
    for name, tensor in sorted(inputs["model"].weights.items()):
        if name in coded:
            coded_tensor = unpacked(inputs[coded.pop(name)].weights)
            if (coded_tensor.name, coded_tensor.shape) != (name, tuple(tensor.shape) or (1,)):
                raise ConfigError(
                    f"what is coded is {coded_tensor.name} {[*coded_tensor.shape]}, not {name}"
                )
            yield coded_tensor
        else:
            yield plain(name, tensor, params.rest)
    if coded:
        raise ConfigError(f"the model has no tensor {min(coded)}")


def plain(name: str, tensor: torch.Tensor, rest: Rest) -> CodedTensor:
    """Return a tensor coded by `plain@1`: a float32 one as float16 if `rest` says so and it fits."""
    tensor_dtype = str(tensor.dtype).removeprefix("torch.")
    fits = rest == "float16" and bool(torch.isfinite(tensor.to(torch.float16)).all())
    dtype = "float16" if fits and tensor_dtype == "float32" else tensor_dtype
    return coded_file.code(name, tensor, "plain@1", {"dtype": dtype})
