"""LoRA adapters on a model's tensors, added when rows are read, as by peft's `merge_and_unload`.

An adapter may change linear layers, the embedding (`lora_embedding_A`, `lora_embedding_B`), the head
and biases. It may hold whole tensors in place of the model's (`modules_to_save`, `bias`, the embedding
beside its change) and rows of single tokens (`trainable_token_indices`).

The embedding and the head of a tied model become two tensors if the adapter changes one of them alone,
as in the trained model. peft's merge adds such a change to both, and warns that the model should be
untied. On an untied model peft's result is the same as ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from agent_forge.runs.errors import SourceError
from agent_forge.weights import block_names
from agent_forge.weights.folders import adapter_folders
from agent_forge.weights.folders.adapter_folders import AdapterConfig
from agent_forge.weights.tensors import HEADS, TensorRows, as_rows

#: Prefix that peft puts before a module's name.
_PREFIX = "base_model.model."
#: Names after a module's name for its whole tensor in peft: plain, beside a change, in old files.
_WHOLE = ("", "base_layer.", "modules_to_save.", "modules_to_save.default.")
_TOKENS = "token_adapter.trainable_tokens_delta"
#: Architectures whose blocks store their matrices as [inputs, outputs] (transformers' Conv1D).
TRANSPOSED = {"gpt2", "openai-gpt"}


class Adapter:
    """LoRA adapter of a folder.

    Its methods raise SourceError for tensors or settings that cannot be added to weights exactly.
    """

    def __init__(self, folder: Path, files: tuple[Path, Path] | None = None) -> None:
        """Read an adapter's folder; `files` are (settings, weights) if they are elsewhere."""
        self.folder = folder
        self._config = AdapterConfig(folder, files and files[0])
        weights = files[1] if files else adapter_folders.weights_file(folder)
        #: The files that the adapter is read from.
        self.files = [weights, files[0] if files else folder / adapter_folders.CONFIG]
        self._tensors = self._read(weights)
        self._used: set[str] = set()

    def _read(self, file: Path) -> dict[str, torch.Tensor]:
        try:
            with safe_open(file, framework="pt") as opened:  # pyright: ignore[reportCallIssue]
                return {n.removeprefix(_PREFIX): opened.get_tensor(n) for n in opened.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise SourceError(f"{file} cannot be read: {error}") from error

    def unties(self, embedding: str, head: str) -> bool:
        """Return True if a tied model's embedding and head become two tensors by the adapter's change.

        They stay one if the adapter changes neither, if its settings keep them one
        (`ensure_weight_tying`), and if it changes single tokens of the embedding: peft then changes
        the same rows of the head.
        """
        of_embedding, of_head = (
            {name for name in self._tensors if name.startswith(f"{module}.")}
            for module in (embedding.removesuffix(".weight"), head.removesuffix(".weight"))
        )
        if self._config.tied:
            self._used |= of_head  # equal to the embedding's
            return False
        return bool(of_head) or any(not name.endswith(_TOKENS) for name in of_embedding)

    def on(self, name: str, rows: TensorRows, architecture: str | None) -> TensorRows:
        """Return the rows of the tensor `name` plus the adapter's change; without one, the same rows.

        Raises SourceError if the shapes do not fit.
        """
        module, _, parameter = name.rpartition(".")
        rows = self._stored(module, parameter, name, rows)
        if parameter == "bias":
            return self._bias(module, name, rows)
        if parameter != "weight":
            return rows
        transposed = architecture in TRANSPOSED and block_names.block_of(name) is not None
        changed = self._changed(module, name, rows, "lora_A.weight", "lora_B.weight", transposed)
        changed = self._changed(module, name, changed, "lora_embedding_A", "lora_embedding_B", True)
        return self._tokens(module, name, changed)

    def _stored(self, module: str, parameter: str, name: str, rows: TensorRows) -> TensorRows:
        """Return the rows of the adapter's whole tensor in place of the model's, or `rows`."""
        for where in _WHOLE:
            whole = self._take(f"{module}.{where}{parameter}")
            if whole is not None:
                self._check_shape(name, tuple(as_rows(whole).shape), rows)
                return as_rows(whole)
        return rows

    def _changed(
        self, module: str, name: str, rows: TensorRows, first: str, second: str, transposed: bool
    ) -> TensorRows:
        """Return rows + scale · B A (transposed if `transposed`); `rows` if the adapter has no A."""
        a, b = self._take_named(module, first), self._take_named(module, second)
        if a is None or b is None:
            return rows
        if a.dim() != 2 or b.dim() != 2 or not 0 < len(a) == b.shape[1]:
            raise SourceError(
                f"adapter {self.folder}: its matrices for {name} are {list(a.shape)} and "
                f"{list(b.shape)}, not [rank, columns] and [rows, rank]."
            )
        scale = self._config.scale(module, len(a))
        if transposed:
            a, b = b.T, a.T
        self._check_shape(name, (b.shape[0], a.shape[1]), rows)
        return LoraRows(rows, a, b, scale)

    def _bias(self, module: str, name: str, rows: TensorRows) -> TensorRows:
        """Return the bias plus the scaled bias of the adapter's B; `rows` if the adapter has none."""
        bias = self._take_named(module, "lora_B.bias")
        if bias is None:
            return rows
        a = self._tensors.get(f"{module}.lora_A.weight")
        if a is None or a.dim() != 2 or not len(a):
            raise SourceError(f"adapter {self.folder}: it has a bias for {name}, and no matrix.")
        column = as_rows(bias)
        self._check_shape(name, tuple(column.shape), rows)
        return LoraRows(rows, torch.ones(1, 1), column, self._config.scale(module, len(a)))

    def _tokens(self, module: str, name: str, rows: TensorRows) -> TensorRows:
        """Return the rows with the adapter's rows of single tokens in place; `rows` without any."""
        values = self._take_named(module, _TOKENS)
        if values is None:
            return rows
        if values.dim() != 2 or values.shape[1] != rows.shape[1]:
            self._check_shape(name, tuple(values.shape), rows)
        tokens = self._config.tokens(module, len(values))
        if max(tokens, default=-1) >= rows.shape[0]:
            raise SourceError(
                f"adapter {self.folder}: it changes token {max(tokens)}, but {name} has "
                f"{rows.shape[0]} rows: it was trained on a model with more tokens. Give that model."
            )
        return ReplacedRows(rows, torch.tensor(tokens), values)

    def _take_named(self, module: str, which: str) -> torch.Tensor | None:
        """Return a module's tensor, also under its name in old files (`default`); None if missing."""
        last, _, rest = which.partition(".")
        in_old_files = f"{module}.{last}.default.{rest}".removesuffix(".")
        tensor = self._take(f"{module}.{which}")
        return self._take(in_old_files) if tensor is None else tensor

    def _take(self, key: str) -> torch.Tensor | None:
        """Return a stored tensor and mark it as used; None if there is none."""
        if key in self._tensors:
            self._used.add(key)
        return self._tensors.get(key)

    def _check_shape(self, name: str, shape: tuple[int, ...], rows: TensorRows) -> None:
        if shape == tuple(rows.shape):
            return
        of_tokens = name in {*HEADS, *HEADS.values()}
        more = of_tokens and shape[1:] == tuple(rows.shape)[1:] and shape[0] > rows.shape[0]
        raise SourceError(
            f"adapter {self.folder}: its {name} is {list(shape)}, the model's is {list(rows.shape)}: "
            + (
                "it was trained on a model with more tokens. Give that model."
                if more
                else "it belongs to another model."
            )
        )

    def check_used(self) -> None:
        """Raise SourceError if a tensor of the adapter was not used."""
        left = sorted(set(self._tensors) - self._used)
        if not left:
            return
        if left[0].endswith("lora_B.bias"):
            raise SourceError(
                f"adapter {self.folder}: {left[0]} is a bias (lora_bias) of a layer that has none in "
                "the model. It cannot be merged: train it without lora_bias."
            )
        raise SourceError(
            f"adapter {self.folder}: {left[0]} fits no tensor of the model: it belongs to another "
            "model, or the model's file has names that transformers changes on loading. Load the "
            "model with transformers and save it again, or give the adapter's own base."
        )


@dataclass(frozen=True)
class LoraRows:
    """Rows of W + scale · B A (Hu et al. 2021, arXiv 2106.09685), computed when read; float32."""

    rows: TensorRows
    a: torch.Tensor
    b: torch.Tensor
    scale: float

    @property
    def shape(self) -> torch.Size:  # noqa: D102
        return self.rows.shape

    def __getitem__(self, cut: slice, /) -> torch.Tensor:
        change = self.b[cut].to(torch.float32) @ self.a.to(torch.float32)
        return self.rows[cut].to(torch.float32).add(change, alpha=self.scale)


@dataclass(frozen=True)
class ReplacedRows:
    """Rows with those at `index` replaced by `values` [len(index), columns]; float32."""

    rows: TensorRows
    index: torch.Tensor
    values: torch.Tensor

    @property
    def shape(self) -> torch.Size:  # noqa: D102
        return self.rows.shape

    def __getitem__(self, cut: slice, /) -> torch.Tensor:
        first, end, _ = cut.indices(self.rows.shape[0])
        out = self.rows[cut].to(torch.float32, copy=True)
        inside = (self.index >= first) & (self.index < end)
        out[self.index[inside] - first] = self.values[inside].to(torch.float32)
        return out


@dataclass(frozen=True)
class RoundedRows:
    """Rows rounded to a dtype."""

    rows: TensorRows
    dtype: torch.dtype

    @property
    def shape(self) -> torch.Size:  # noqa: D102
        return self.rows.shape

    def __getitem__(self, cut: slice, /) -> torch.Tensor:
        return self.rows[cut].to(self.dtype)


class AdaptedTensors(Mapping[str, torch.Tensor]):
    """Tensors of BASE+ADAPTER by name, in order of name; a sum is not kept in memory.

    A tensor that the adapter changes is W + scale · B A, summed in float32 and rounded to the dtype of
    W, as in the model that peft's `merge_and_unload` gives. It is computed at each reading; all other
    tensors are those of the base. `rows` is for merges that read a tensor in chunks.
    """

    def __init__(
        self, base: Mapping[str, torch.Tensor], adapter: Adapter, architecture: str | None
    ) -> None:
        """Raise SourceError for an adapter that does not fit the base's tensors, or unties a head."""
        self._base = base
        embedding = next((name for name in HEADS if name in base), None)
        head = HEADS[embedding] if embedding else ""
        if embedding and head not in base and adapter.unties(embedding, head):
            raise SourceError(
                f"adapter {adapter.folder}: it changes the embedding or the head of a model in which "
                "both are one tensor, so that its sum has another tensor than the base. Merge it "
                "first, by a config of `forge merge`, and give all models as folders."
            )
        self._rows: dict[str, TensorRows] = {}
        for name, tensor in base.items():
            rows = adapter.on(name, as_rows(tensor), architecture)
            stored = isinstance(rows, torch.Tensor) and rows.dtype == tensor.dtype
            self._rows[name] = rows if stored else RoundedRows(rows, tensor.dtype)
        adapter.check_used()

    def rows(self, name: str) -> TensorRows:
        """Return the tensor `name` as [rows, columns], with the adapter's change. Raises KeyError."""
        return self._rows[name]

    def like(self) -> Mapping[str, torch.Tensor]:
        """Return the base's tensors, which have the same names, dtypes and shapes."""
        return self._base

    def __getitem__(self, name: str, /) -> torch.Tensor:
        rows = self._rows[name]
        return rows[slice(0, rows.shape[0])].reshape(self._base[name].shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._base)

    def __len__(self) -> int:
        return len(self._base)
