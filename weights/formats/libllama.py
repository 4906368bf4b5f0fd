"""llama.cpp's library (`llama-cpp-py-sync`), for quantising and measuring, in a process that may abort.

The package ships libllama and the declarations (cffi) that were made from its headers. The process
`python -m weights.formats.libllama` gets a request a line: `check`, `quantise`, `open` or `nats`.

On a glibc older than 2.38 (Debian 12, Ubuntu 22.04) a rebound copy of the library is loaded. With glibc
2.38 a compiler binds strtol, sscanf and similar functions to `__isoc23_strtol`, …: the same functions,
which also read binary numbers such as 0b11 (C23). An older glibc has the plain names only. The copy is
bound to the plain names, and its need for version 2.38 (ELF's .gnu.version_r, LSB 5) becomes weak.

Importance matrices are read and written in the file format of `llama-imatrix`. A file has, for each
matrix of a block, by its name in the model's GGUF file, the sum of the squares of each input, [columns]
float32, and the number of tokens of that sum. A quantiser weighs the error of a column with their
quotient. The quotients are the diagonal of the gram of the layer's inputs.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from agent_forge.runs.errors import SourceError, UnavailableError
from agent_forge.runs.system import packages
from agent_forge.runs.system.child_environment import child_environment
from agent_forge.runs.system.line_process import Respondent
from agent_forge.runs.system.linked_processes import tied

PACKAGE = "llama_cpp_py_sync"
#: Seconds that an answer may take: quantising a large model to a type of 2 bits takes hours.
PATIENCE = 24 * 3600.0
#: Most logits of a batch, which llama.cpp keeps in memory: 32 MiB.
LOGITS = 1 << 23
#: Characters of the library's messages that an error repeats.
SAID = 600


def require(needed_by: str) -> None:
    """Raise UnavailableError if the package is not installed; the text names `needed_by`."""
    packages.require(needed_by, PACKAGE)


class Library:
    """The library in another process, which ends with this object."""

    def __init__(self, threads: int) -> None:
        """Start the process. Raises UnavailableError."""
        require("llama.cpp's library")
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        command = tied([sys.executable, "-m", "agent_forge.weights.formats.libllama"])
        environment = child_environment("task", hub=False)
        self._process = Respondent(command, stderr=self._said, env=environment)
        self._threads = threads

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close()
        self._said.close()

    def check(self) -> None:
        """Load the library. Raises UnavailableError if it does not load on this system."""
        self._ask("check")

    def quantise(self, source: Path, target: Path, type_: str, matrix: Path | None) -> None:
        """Write `target`, which is `source` quantised; `matrix` is a file of an importance matrix.

        Raises UnavailableError with the library's messages.
        """
        words = (str(source), str(target), type_, matrix and str(matrix), self._threads)
        self._ask("quantise", *words)

    def open(self, file: Path, context: int) -> None:
        """Load a file for `nats`, with windows of at most `context` tokens. Raises as `quantise`."""
        self._ask("open", str(file), context, self._threads)

    def nats(self, window: Sequence[int]) -> float:
        """Return Σ −log p, nats, of a window's tokens after the first. Raises as `quantise`."""
        return self._ask("nats", [int(id_) for id_ in window])

    def _ask(self, what: str, *words: object) -> Any:
        try:
            answer = self._process.ask([what, *words], PATIENCE)
        except (OSError, ValueError) as error:
            raise UnavailableError(self._failure("ended")) from error
        if "error" in answer:
            raise UnavailableError(self._failure(answer["error"]))
        return answer["value"]

    def _failure(self, why: str) -> str:
        """Return a sentence with the errors, or else the last lines, of the library's messages."""
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").splitlines()
        errors = [
            line for line in lines if "rror" in line or "failed" in line or "assert" in line.lower()
        ]
        text = " ".join(" ".join(errors[-3:] or lines[-3:]).split())
        return f"llama.cpp's library {why}: {text[-SAID:] or 'it said nothing'}."


class Opened:
    """The library loaded in this process, and the opened model."""

    def __init__(self) -> None:
        """Load the library. Raises ImportError, RuntimeError."""
        bindings = import_module(f"{PACKAGE}._cffi_bindings")
        self._ffi, self._lib = bindings.get_ffi(), _loaded(bindings)
        self._lib.llama_backend_init()
        self._context = self._memory = None
        self._batch, self._vocabulary = 0, 0

    def check(self) -> None:
        """Raise RuntimeError if the package's declarations do not fit the library."""
        params = self._lib.llama_model_quantize_default_params()
        usual = int(gguf.LlamaFileType.MOSTLY_Q8_0)
        null = self._ffi.NULL
        if params.ftype != usual or params.imatrix != null or not params.quantize_output_tensor:
            raise RuntimeError("has other declarations than its package: install another version")

    def quantise(self, source: str, target: str, type_: str, matrix: str | None, threads: int) -> None:
        """Write `target`, which is `source` quantised to `type_`. Raises RuntimeError."""
        self.check()
        params, null = self._lib.llama_model_quantize_default_params(), self._ffi.NULL
        params.nthread, params.ftype = threads, int(gguf.LlamaFileType[f"MOSTLY_{type_}"])
        means = {} if matrix is None else read(Path(matrix))
        alive = [
            (self._ffi.new("char[]", name.encode()), self._ffi.from_buffer("float[]", mean))
            for name, mean in means.items()
        ]
        rows = self._ffi.new("struct llama_model_imatrix_data[]", len(alive) + 1)  # the last is null
        for row, (name, mean) in zip(rows, alive, strict=False):
            row.name, row.data, row.size = name, mean, len(mean)
        params.imatrix = rows if alive else null
        pointer = self._ffi.new("llama_model_quantize_params *", params)
        if self._lib.llama_model_quantize(os.fsencode(source), os.fsencode(target), pointer):
            raise RuntimeError("did not quantise the model")

    def open(self, file: str, context: int, threads: int) -> None:
        """Load a model, to compute as transformers does: no flash attention, a cache of F32."""
        params = self._lib.llama_model_default_params()
        params.n_gpu_layers = 0
        if self._context is not None:
            self._lib.llama_free(self._context)
            self._lib.llama_model_free(self._model)
            self._context = None
        self._model = self._lib.llama_model_load_from_file(os.fsencode(file), params)
        if self._model == self._ffi.NULL:
            raise RuntimeError("does not load the file")
        self._vocabulary = self._lib.llama_vocab_n_tokens(self._lib.llama_model_get_vocab(self._model))
        self._batch = max(1, min(context, 512, LOGITS // self._vocabulary))
        params = self._lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, self._batch, self._batch
        params.n_seq_max, params.n_threads, params.n_threads_batch = 1, threads, threads
        params.flash_attn_type = self._lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.type_k = params.type_v = int(gguf.GGMLQuantizationType.F32)
        self._context = self._lib.llama_init_from_model(self._model, params)
        if self._context == self._ffi.NULL:
            self._context = None
            self._lib.llama_model_free(self._model)
            raise RuntimeError("has no memory for the context")
        self._memory = self._lib.llama_get_memory(self._context)

    def nats(self, window: Sequence[int]) -> float:
        """Return Σ −log p, nats, of a window's tokens after the first: float32 logits, float64 sums."""
        self._lib.llama_memory_clear(self._memory, True)
        total, ids = 0.0, np.asarray(window, np.int64)
        batch = self._lib.llama_batch_init(self._batch, 0, 1)
        try:
            for begin in range(0, len(ids) - 1, self._batch):
                cut = ids[begin : min(begin + self._batch, len(ids) - 1)]
                batch.n_tokens = len(cut)
                for at, id_ in enumerate(cut):
                    batch.token[at], batch.pos[at], batch.logits[at] = int(id_), begin + at, 1
                    batch.n_seq_id[at], batch.seq_id[at][0] = 1, 0
                if self._lib.llama_decode(self._context, batch):
                    raise RuntimeError("does not compute a window")
                total += self._losses(ids[begin + 1 : begin + 1 + len(cut)])
        finally:
            self._lib.llama_batch_free(batch)
        return total

    def _losses(self, targets: np.ndarray) -> float:
        size = len(targets) * self._vocabulary
        raw = self._ffi.buffer(self._lib.llama_get_logits(self._context), 4 * size)
        logits = np.frombuffer(raw, np.float32).reshape(len(targets), self._vocabulary)
        best = logits.max(-1, keepdims=True)
        whole = np.log(np.exp(logits - best).sum(-1, dtype=np.float64))
        picked = (logits[np.arange(len(targets)), targets] - best[:, 0]).astype(np.float64)
        return float((whole - picked).sum())


def _loaded(bindings: Any) -> Any:
    """Load and return the library, or a copy rebound for an older glibc. Raises RuntimeError."""
    try:
        return bindings.get_lib()
    except RuntimeError as error:
        if VERSION.decode() not in str(error):
            raise
    with tempfile.TemporaryDirectory() as folder:  # a loaded library stays mapped
        copy(Path(bindings.__file__).parent, Path(folder))
        return bindings.get_ffi().dlopen(f"{folder}/libllama.so")


def main() -> None:
    """Answer each request line of standard input by a line of JSON, until the input ends."""
    opened: Opened | None = None
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the library's prints are no answers
    for line in sys.stdin:
        number, (what, *words) = json.loads(line)
        try:
            opened = opened or Opened()
            answer = {"value": getattr(opened, what)(*words)}
        except Exception as error:  # told to the process that asked
            answer = {"error": " ".join(str(error).split()) or type(error).__name__}
        answers.write(json.dumps([number, answer]) + "\n")
        answers.flush()


#: The version of glibc, and the prefix of the names that are new in it.
VERSION, PREFIX = b"GLIBC_2.38", b"__isoc23_"
#: Types of sections: symbols, versions of symbols, needed versions.
DYNSYM, VERSYM, VERNEED = 11, 0x6FFFFFFF, 0x6FFFFFFE
#: Version of a symbol that has none; flag of a needed version that may be missing.
GLOBAL, WEAK = 1, 2
#: A section's offset, its length, and the number of the section that it refers to.
Section = tuple[int, int, int]


def copy(folder: Path, target: Path) -> None:
    """Copy a folder's *.so* files to `target`, with `__isoc23_…` symbols rebound to plain names.

    Raises ValueError for a file that is no ELF of 64 bits in little-endian order.
    """
    for file in sorted(folder.glob("*.so*")):
        data = bytearray(file.read_bytes())
        rebind(data)
        (target / file.name).write_bytes(data)
        shutil.copymode(file, target / file.name)


def rebind(data: bytearray) -> None:
    """Rebind a library's undefined `__isoc23_…` symbols to plain names, in place. Raises ValueError."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no ELF file of 64 bits, little-endian")
    sections = _sections(data)
    if not {DYNSYM, VERSYM, VERNEED} <= sections.keys():
        return
    symbols, length, strings = sections[DYNSYM]
    versions, names = sections[VERSYM][0], _place(data, strings)
    for number in range(length // 24):
        at = symbols + 24 * number
        name, defined = struct.unpack_from("<I2xH", data, at)
        if not defined and data.startswith(PREFIX, names + name):
            struct.pack_into("<I", data, at, name + len(PREFIX))  # the end of a string is a string
            struct.pack_into("<H", data, versions + 2 * number, GLOBAL)
    for at, name in _needed(data, sections[VERNEED]):
        if name == VERSION:
            (flags,) = struct.unpack_from("<H", data, at + 4)
            struct.pack_into("<H", data, at + 4, flags | WEAK)


def _headers(data: bytearray) -> tuple[int, int, int]:
    """Return (offset of the section headers, bytes of one, number of them)."""
    (begin,) = struct.unpack_from("<Q", data, 40)
    length, count = struct.unpack_from("<HH", data, 58)
    return begin, length, count


def _sections(data: bytearray) -> dict[int, Section]:
    """Return type → section, for types that a library has once; of several, the last."""
    begin, length, count = _headers(data)
    sections = {}
    for number in range(count):
        type_, place, size, link = struct.unpack_from("<4xI16xQQI", data, begin + length * number)
        sections[type_] = place, size, link
    return sections


def _place(data: bytearray, number: int) -> int:
    """Return the offset of the section with this number."""
    begin, length, _ = _headers(data)
    return struct.unpack_from("<Q", data, begin + length * number + 24)[0]


def _needed(data: bytearray, section: Section) -> Iterator[tuple[int, bytes]]:
    """Yield (offset of its entry, name) of each needed version."""
    at, _, link = section
    names, more = _place(data, link), True
    while more:
        count, first, step = struct.unpack_from("<2xH4xII", data, at)
        entry = at + first
        for _ in range(count):
            name, following = struct.unpack_from("<8xII", data, entry)
            yield entry, bytes(data[names + name : data.index(0, names + name)])
            entry += following
        at, more = at + step, step > 0


#: Ends of the names of the two tensors of a matrix.
SQUARES, COUNTS = ".in_sum2", ".counts"
#: Name in the model's GGUF file → mean of the squares of each input, [columns] float32.
Means = Mapping[str, np.ndarray]


def write(file: Path, means: Means, tokens: int, window: int, source: str) -> None:
    """Write an importance matrix: means over `tokens` tokens in windows; `source` names the text."""
    with closing(gguf.GGUFWriter(file, "")) as writer:
        writer.kv_data[0].pop("general.architecture", None)  # the file is no model
        writer.add_type("imatrix")
        writer.add_array("imatrix.datasets", [source])
        writer.add_uint32("imatrix.chunk_count", -(-tokens // window))
        writer.add_uint32("imatrix.chunk_size", window)
        for name, mean in sorted(means.items()):
            squares = (mean.astype(np.float64) * tokens).astype(np.float32)
            writer.add_tensor(name + SQUARES, squares.reshape(1, -1))
            writer.add_tensor(name + COUNTS, np.full((1, 1), tokens, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()


def read(file: Path) -> dict[str, np.ndarray]:
    """Return name → means, [columns] float32, of an importance matrix. Raises SourceError."""
    try:
        tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(file).tensors}
        names = [name.removesuffix(SQUARES) for name in tensors if name.endswith(SQUARES)]
        sums = {name: np.array(tensors[name + SQUARES], np.float64).ravel() for name in names}
        counts = {name: float(np.array(tensors[name + COUNTS]).item()) for name in names}
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, OSError) as error:
        raise SourceError(
            f"{file} cannot be read as an importance matrix: it is damaged, or of another format."
        ) from error
    if not names:
        raise SourceError(f"{file} is no importance matrix: it has no tensor *{SQUARES}.")
    if wrong := [name for name in names if not _are_means(sums[name], counts[name])]:
        raise SourceError(f"{file}: the numbers of {wrong[0]} are no sums of squares.")
    return {name: (sums[name] / counts[name]).astype(np.float32) for name in names}


def _are_means(sums: np.ndarray, count: float) -> bool:
    """Return True if the sums are finite and not negative, and the count is above 0."""
    return count > 0 and bool((np.isfinite(sums) & (sums >= 0)).all())


if __name__ == "__main__":
    main()
