"""Operations `encode`, one tensor of a model by a codec, and `decode`, a model of coded tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch

from agent_forge.events import canonical_json
from agent_forge.runs.errors import ConfigError
from agent_forge.weights.codecs import Coded
from agent_forge.weights.formats import coded_file
from agent_forge.weights.formats.coded_file import CodedTensor
from agent_forge.weights.recipes import Parameters, Versioned
from agent_forge.weights.tensors import Tensors, Weights

#: Name of the tensor with the other fields of a coded tensor, as JSON in UTF-8 bytes.
HEADER = "header"
#: Prefix of the names of a coded tensor's parts.
PART = "part/"
#: Prefix of the name of a vector that says how much each row of the matrix matters.
ROWS = "rows/"


class Encoding(Parameters):
    """A tensor by name, and the codec with its parameters, all of them written out."""

    tensor: str
    codec: Versioned
    params: dict[str, Any]


class Encode:
    """Encoding of one tensor of `model`.

    `grams` has the grams of its linear layers by name, and under ROWS how much an embedding's rows
    matter.

    The result's tensors are the parts of the coded tensor and a header (`unpacked`).
    """

    Params = Encoding

    def apply(self, inputs: Mapping[str, Tensors], params: Encoding, seed: int) -> Tensors:
        """Return the coded tensor as a model of its parts. Raises ConfigError, NotFiniteError."""
        if not {"model"} <= set(inputs) <= {"model", "grams"}:
            raise ConfigError(f"encode reads the inputs model and grams, not {sorted(inputs)}")
        tensor = inputs["model"].weights.get(params.tensor)
        if tensor is None:
            raise ConfigError(f"the model has no tensor {params.tensor}")
        grams = inputs["grams"].weights if "grams" in inputs else {}
        gram, rows = grams.get(params.tensor), grams.get(f"{ROWS}{params.tensor}")
        coded = coded_file.code(params.tensor, tensor, params.codec, params.params, gram, seed, rows)
        return Tensors({}, packed(coded))


def packed(tensor: CodedTensor) -> dict[str, torch.Tensor]:
    """Return name → tensor: the coded tensor's parts, and its other fields as "header", uint8."""
    coded = tensor.coded
    header = {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "codec": tensor.codec,
        "matrix": list(coded.shape),
        "header": coded.header,
    }
    raw = torch.frombuffer(bytearray(canonical_json(header).encode()), dtype=torch.uint8)
    # A copy has the usual strides also where a dimension is one long.
    parts = {n: p.clone(memory_format=torch.contiguous_format) for n, p in coded.parts.items()}
    return {HEADER: raw, **{f"{PART}{name}": part for name, part in parts.items()}}


def unpacked(weights: Weights) -> CodedTensor:
    """Return the CodedTensor of which `packed` made `weights`."""
    header = json.loads(bytes(weights[HEADER].numpy()))
    rows, columns = header["matrix"]
    parts = {n.removeprefix(PART): t for n, t in weights.items() if n != HEADER}
    coded = Coded((rows, columns), header["header"], parts)
    shape = tuple(header["shape"])
    return CodedTensor(header["name"], header["dtype"], shape, header["codec"], coded)


#: dtype of the tensors that are not coded; "own": the dtype that they have.
Rest = Literal["own", "float16"]


class Decoding(Parameters):
    """The tensors that are decoded, in the order of the inputs "0000", "0001", …; and the others."""

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
