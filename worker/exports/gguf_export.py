"""Export of any model as a GGUF file: found by name, checked, written, renamed into place.

`python -m worker.exports.gguf_export MODEL FILE TYPE` writes one in a process of its own.

Text is read for the importance of inputs, and for the loss of a file in llama.cpp. Windows and tokens
are those of `forge score` and `forge compress`: each document alone, after the start token, in windows
of at most CONTEXT tokens; bits per byte are the mean over domains.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data.items import Item
from agent_forge.evaluation.data.packing import Windows, documents, in_turn
from agent_forge.evaluation.data.slices import Slice
from agent_forge.evaluation.loading import load_items, load_tokenizer, texts_of
from agent_forge.events.envelope import Plain
from agent_forge.runs.errors import ConfigError, ConflictError, DataError, ForgeError, UnavailableError
from agent_forge.runs.home import Home
from agent_forge.runs.system.durations import rough
from agent_forge.weights.codecs.feedback.calibration import squares
from agent_forge.weights.folders.checkpoint import Checkpoint, open_checkpoint, sync
from agent_forge.weights.folders.gguf_source.header import is_gguf
from agent_forge.weights.folders.made_folders import is_held
from agent_forge.weights.folders.sources import resolve
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.formats import gguf_architectures, gguf_file, gguf_quantised, libllama
from agent_forge.weights.formats import gguf_architectures as architectures
from agent_forge.weights.formats.byte_bpe import Tokens
from agent_forge.weights.formats.libllama import Library
from agent_forge.weights.storage.model_origin import Finder
from agent_forge.weights.tensors import HEADS
from agent_forge.weights.ternary.quantiser import parts
from agent_forge.worker.exports import modelfile

Result = TypeVar("Result")

#: Beginning of the name of an export's temporary folder, beside its files; it is held by a lock.
SCRATCH = ".gguf-"
#: Age in seconds from which such a folder is removed if no process holds it.
YOUNG = 60.0


@dataclass(frozen=True)
class ExportText:
    """Names of the text that a file is quantised by, or measured on."""

    #: Data files, folders or tasks whose slice `train` tells the importance of inputs; or one GGUF
    #: file with an importance matrix.
    imatrix: tuple[str, ...] = ()
    #: Data whose slice `test` the files are measured on; empty: that of `imatrix`, if it is data.
    measure: tuple[str, ...] = ()
    #: Where the importance matrix is kept; None: nowhere.
    keep: Path | None = None

    @property
    def matrix(self) -> Path | None:
        """The file of an importance matrix that was given; None if it must be measured."""
        file = Path(self.imatrix[0]) if len(self.imatrix) == 1 else None
        return file if file and is_gguf(file) else None

    @property
    def measured(self) -> tuple[str, ...]:
        """The data that files are measured on: `measure`, or else `imatrix` if it is data."""
        return self.measure or (() if self.matrix else self.imatrix)


def export(
    home: Home,
    model: str,
    out: Path,
    type_: str,
    tell: Callable[[str], None],
    ollama: bool = False,
    fallback: bool = False,
    text: ExportText = ExportText(),
) -> dict[str, object]:
    """Write a model as GGUF files; return a JSON record of what was written.

    `model` is a name as all commands take it: a folder, a Hub id, RUN (its champion), RUN:ROLE, a
    registered name. `type_` is a type, or several with commas: then `out` is the folder for a file of
    each. An earlier GGUF file is replaced, and stays if anything goes wrong. `ollama` writes a
    Modelfile beside it. With `fallback` matrices that a ternary type cannot cut into blocks are F16.
    Raises ConfigError, ConflictError, DataError, NotFiniteError, SourceError, UnavailableError.
    """
    types, weighed = tuple(type_.split(",")), bool(text.imatrix)
    _check_types(types, weighed, ollama)
    _check_text(text)
    single = _target(out) if len(types) == 1 else None
    beside = _modelfile(single) if ollama and single else None
    opened = _opened(home, model, types, tell, fallback)
    if text.measured or any(gguf_quantised.by_library(each, weighed) for each in types):
        libllama.require("--measure" if text.measured else f"--type {type_}")
    names = {t: single or out.resolve() / _file_name(opened.name, t) for t in types}
    _check_apart(names.values(), model, text)
    read = _TextReading(opened, text, types, tell)
    places = {t: single or _target(_inside(out) / place.name) for t, place in names.items()}
    more: Plain = {}
    content = ""
    if beside is not None:
        described = opened.modelfile(places[types[0]])
        content, more = described.text, {"modelfile": str(beside), "template": described.note}
    with _scratch(places[types[0]].parent) as folder:
        files = _files(opened, places, weighed, read, folder)
    if beside is not None:
        _placed(beside, lambda hidden: hidden.write_text(content, "utf-8"))
    return {
        "model": opened.name,
        **(files[0] if single else {"files": files}),
        **read.told,
        "notes": [*opened.tokens.notes, *gguf_architectures.notes(opened.checkpoint.config)],
        **more,
    }


@dataclass(frozen=True)
class _Opened:
    """A model that can be written, with its tokenizer in the form of GGUF files."""

    name: str
    checkpoint: Checkpoint
    tokenizer: Tokenizer
    tokens: Tokens
    #: True if matrices that a ternary type cannot cut into blocks are F16.
    fallback: bool

    def write(self, type_: str, file: Path) -> gguf_file.Written:
        """Write a file of a type that needs no library; return Written: its bytes, its other types."""
        return gguf_file.write(self.checkpoint, self.tokens, file, type_, self.name, self.fallback)

    def modelfile(self, file: Path) -> modelfile.Modelfile:
        """Return the Modelfile for a file beside it."""
        positions = gguf_architectures.context(self.checkpoint.config)
        return modelfile.of(self.tokenizer, file.name, positions, self.tokens.begins)


def _opened(
    home: Home, model: str, types: Sequence[str], tell: Callable[[str], None], fallback: bool
) -> _Opened:
    """Return a model that can be written in all types. Raises ConfigError, SourceError."""
    reference = resolve(model, named=Finder(home, tell))
    checkpoint = open_checkpoint(Path(reference.path))
    for type_ in types:
        plain_type = type_ if type_ in gguf_file.TYPES else "F32"
        gguf_file.check(checkpoint, plain_type, fallback)
    tokenizer = load_tokenizer(reference.path)
    tokens = gguf_file.tokens_of(tokenizer, checkpoint.config["vocab_size"])
    return _Opened(reference.name, checkpoint, tokenizer, tokens, fallback)


class _TextReading:
    """The text of an export, read before any work, and the measurements on it."""

    def __init__(
        self, opened: _Opened, text: ExportText, types: Sequence[str], tell: Callable[[str], None]
    ) -> None:
        self._checkpoint, self._text, self._tell = opened.checkpoint, text, tell
        checkpoint, tokenizer = opened.checkpoint, opened.tokenizer
        self._calibration: Split = {}
        self.loss: Split = {}
        #: What is said of the text.
        self.told: dict[str, object] = {}
        if text.imatrix and text.matrix is None:
            items = load_items(text.imatrix, note=tell, needed=(IMPORTANCE,))
            self._calibration = split_of(checkpoint, tokenizer, items, IMPORTANCE)
        if text.matrix is not None:
            needy = next((type_ for type_ in types if type_ in gguf_quantised.NEEDY), "")
            means = libllama.read(text.matrix)
            if note := check_matrix(checkpoint, means, text.matrix, needy):
                tell(f"warning: {note}")
        if text.measured:
            items = load_items(text.measured, note=tell, needed=(LOSS,))
            split = split_of(checkpoint, tokenizer, items, LOSS)
            self.loss = first_documents(split)
            windows = [w for queue in self.loss.values() for d in queue for w in d.windows]
            self.told["measured_tokens"] = sum(len(window) - 1 for window in windows)

    def matrix(self, folder: Path) -> Path | None:
        """Return the file of the importance matrix, measured if it was not given; None without one."""
        if not self._text.imatrix or self._text.matrix:
            return self._text.matrix
        means, tokens = importance(self._checkpoint, self._calibration, self._tell)
        self.told["imatrix_tokens"] = tokens
        source = ", ".join(Path(path).name for path in self._text.imatrix)

        def fill(hidden: Path) -> None:
            libllama.write(hidden, means, tokens, CONTEXT, source)

        place = _target(self._text.keep or folder / "imatrix.gguf")
        _placed(place, fill)
        if self._text.keep is not None:
            self.told["imatrix"] = str(place)
        return place

    def bits(self, library: libllama.Library, file: Path) -> dict[str, float]:
        """Return "bits_per_byte" → a file's loss in llama.cpp; empty if it is not measured."""
        if not self.loss:
            return {}
        return {"bits_per_byte": bits_per_byte(library, file, self.loss, self._tell)}


def _files(
    opened: _Opened, places: Mapping[str, Path], weighed: bool, read: _TextReading, folder: Path
) -> list[Plain]:
    """Write (first into `folder`) and measure a file of each type; return a JSON record of each."""
    used = [type_ for type_ in places if gguf_quantised.by_library(type_, weighed)]
    files, source = [], folder / "exact.gguf"
    with contextlib.ExitStack() as stack:
        library: Any = None
        if used or read.loss:
            library = stack.enter_context(libllama.Library(torch.get_num_threads()))
            library.check()
        matrix = read.matrix(folder) if used or weighed else None
        for type_, place in places.items():
            if type_ in used and not source.exists():
                opened.write(gguf_file.exact_type(opened.checkpoint), source)
            fill = (
                partial(gguf_quantised.write, library, opened.checkpoint, source, type_, matrix)
                if type_ in used
                else partial(opened.write, type_)
            )
            written = _placed(place, fill, folder / place.name)
            files.append(
                {
                    "file": str(place),
                    "type": type_,
                    "bytes": written.bytes,
                    "other_types": dict(written.other),
                    **read.bits(library, place),
                }
            )
    return files


def _check_types(types: Sequence[str], weighed: bool, ollama: bool) -> None:
    """Raise ConfigError for types that cannot be written, or not together."""
    if "" in types:
        raise ConfigError("GGUF type '' is empty: give a type, or several with commas between.")
    for type_ in types:
        gguf_quantised.check(type_, weighed)
    if len(set(types)) < len(types):
        raise ConfigError("--type names a type twice.")
    if len(types) > 1 and ollama:
        raise ConfigError("--ollama writes a Modelfile beside one file: give one --type.")
    if weighed and not any(gguf_quantised.by_library(type_, True) for type_ in types):
        raise ConfigError(
            f"--imatrix is for quantised types, and {', '.join(types)} is none of them; --measure "
            "DATA measures a file."
        )


def _check_text(text: ExportText) -> None:
    """Raise ConfigError for a matrix among data, or for one that cannot be stored."""
    if text.keep is not None:
        _target(text.keep)
    if len(text.imatrix) > 1 and (matrices := [name for name in text.imatrix if is_gguf(Path(name))]):
        raise ConfigError(f"{matrices[0]} is a matrix: give it alone, or --imatrix with data only.")
    if text.keep is not None and text.matrix is not None:
        raise ConfigError(
            f"--imatrix-out keeps a matrix that is measured, and {text.matrix} is one already: leave "
            "out --imatrix-out."
        )


def _check_apart(places: Iterable[Path], model: str, text: ExportText) -> None:
    """Raise ConfigError if a file to write is also the model's, the matrix's or --imatrix-out's."""
    sources = {Path(model).resolve(): "the file that the model comes from"}
    if text.keep is not None:
        sources[text.keep.resolve()] = "the file of --imatrix-out, too"
    if text.matrix is not None:
        sources[text.matrix.resolve()] = "the file of --imatrix, too"
    for place in places:
        if place in sources:
            raise ConfigError(f"--out names {place}, {sources[place]}: choose another name.")


@contextlib.contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """Yield a temporary folder in `parent`; remove it at the end, and those of killed processes.

    Raises UnavailableError if nothing can be written there.
    """
    place = parent / f"{SCRATCH}{os.getpid()}"
    try:
        for left in parent.glob(f"{SCRATCH}*"):
            if time.time() - left.stat().st_mtime > YOUNG and not is_held(left):
                shutil.rmtree(left, ignore_errors=True)
        place.mkdir(exist_ok=True)
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UnavailableError(f"nothing can be written to {parent}: {error.strerror}.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield place
    finally:
        os.close(descriptor)
        shutil.rmtree(place, ignore_errors=True)


def _inside(out: Path) -> Path:
    """Return the folder for several files, made if it is missing. Raises ConfigError."""
    try:
        out.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise ConfigError(f"several types are written into a folder, and {out} is a file.") from error
    except FileNotFoundError as error:
        raise ConfigError(f"there is no folder {out.resolve().parent} to make {out} in.") from error
    except OSError as error:
        raise ConfigError(f"the folder {out} cannot be made: {error.strerror}.") from error
    return out


def _file_name(model: str, type_: str) -> str:
    """Return a file's name in llama.cpp's form, MODEL-TYPE.gguf."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", model.rstrip("/").rpartition("/")[2]).strip("-.")
    return f"{stem[:100] or 'model'}-{type_}.gguf"


def _placed(place: Path, fill: Callable[[Path], Result], temporary: Path | None = None) -> Result:
    """Let `fill` write a temporary file, then rename it to `place`; return what `fill` returned.

    The file is hidden beside `place` unless another place on the same disk is given.
    """
    hidden = temporary or place.with_name(f".{place.name}.{os.getpid()}")
    try:
        result = fill(hidden)
        os.replace(hidden, place)
        sync(place.parent)
        return result
    except OSError as error:
        raise UnavailableError(
            f"{place} cannot be written: {error.strerror}. What was there stays."
        ) from error
    finally:
        hidden.unlink(missing_ok=True)


def _target(out: Path) -> Path:
    """Return the absolute path of a file that may be written. Raises ConfigError, ConflictError."""
    place = out.resolve()
    try:
        folder = place.is_dir()
        place.with_name(f".{place.name}.{os.getpid()}").exists()  # what `_placed` writes first
    except OSError as error:
        raise ConfigError(f"{str(out)[:60]} is no name for a file: {error.strerror}.") from error
    if folder:
        raise ConfigError(f"{out} is a folder: give the name of a file, such as {out}/model.gguf.")
    if not place.parent.is_dir():
        raise ConfigError(f"there is no folder {place.parent} to write {out} into.")
    if place.exists() and not is_gguf(place):
        raise ConflictError(f"{out} is there and no GGUF file: choose another name.")
    return place


def _modelfile(place: Path) -> Path:
    """Return the path of the Modelfile beside a file. Raises ConflictError if it is not ours."""
    beside = place.with_name("Modelfile")
    if beside.exists() and not (
        beside.is_file() and beside.read_text("utf-8", "replace").startswith(modelfile.FIRST + "\n")
    ):
        raise ConflictError(f"{beside} is there and was not written here: move it away.")
    modelfile.file_argument(place.name)
    return beside


def main(model: str, out: str, type_: str) -> int:
    """Write a model as a GGUF file; return 0, or an exit code with the reason on stderr."""
    try:
        export(Home.default(), model, Path(out), type_, lambda text: None)
    except ForgeError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return error.exit_code
    return 0


#: Tokens of a window: those of llama.cpp's own tools.
CONTEXT = 512
#: Tokens that the importance is measured on, and that a file's loss is measured on.
IMPORTANCE_TOKENS, LOSS_TOKENS = 32_768, 8_192
#: The slices of these tokens.
IMPORTANCE: Slice = "train"
LOSS: Slice = "test"

Tell = Callable[[str], None]
Split = Mapping[str, Sequence[Windows]]


def split_of(
    checkpoint: Checkpoint, tokenizer: Tokenizer, items: Sequence[Item], on: Slice
) -> dict[str, list[Windows]]:
    """Return domain → the documents of a slice, cut into windows for this model."""
    context = min(CONTEXT, architectures.context(checkpoint.config))
    return {d: documents(t, tokenizer, context) for d, t in texts_of(items, on).items()}


def first_documents(split: Split, tokens: int = LOSS_TOKENS) -> dict[str, list[Windows]]:
    """Return domain → its first whole documents, taken in turn until they have `tokens` tokens."""
    chosen: dict[str, list[Windows]] = {domain: [] for domain in split}
    for number in range(max(map(len, split.values()), default=0)):
        for domain, queue in split.items():
            if number < len(queue) and tokens > 0:
                chosen[domain].append(queue[number])
                tokens -= sum(map(len, queue[number].windows))
    return {domain: queue for domain, queue in chosen.items() if queue}


def importance(checkpoint: Checkpoint, split: Split, tell: Tell) -> tuple[dict[str, np.ndarray], int]:
    """Return (GGUF tensor name → mean squares of its inputs, float32; number of tokens).

    Names are those of the file. llama.cpp's tool leaves out the head, too. Raises DataError,
    NotFiniteError.
    """
    windows = in_turn(split.values(), IMPORTANCE_TOKENS)
    if not windows:
        raise DataError(f"the data of --imatrix has no text in the slice {IMPORTANCE}.")
    model = ResidentModel(checkpoint.folder, "cpu", checkpoint.tied)
    model.load({name: tensor.float() for name, tensor in checkpoint.tensors().items()})
    progress = _progress("importance", len(windows), tell)
    means = squares(model.module, windows, progress)
    names = {name: architectures.tensor_name(checkpoint.config, name) for name in means}
    blocks = {
        gguf_name: means[name].numpy().astype(np.float32)
        for name, gguf_name in names.items()
        if gguf_name.startswith("blk.")
    }
    return blocks, sum(map(len, windows))


def check_matrix(
    checkpoint: Checkpoint, means: Mapping[str, np.ndarray], file: Path, needy: str = ""
) -> str:
    """Return a note if an importance matrix lacks matrices of this model's blocks, else "".

    Raises ConfigError for a matrix of another model, and if `needy`, a type that needs the whole
    matrix, is to be written by one that lacks some.
    """
    sizes = {
        architectures.tensor_name(checkpoint.config, name): shape[-1]
        for name, (_, shape) in checkpoint.shapes.items()
    }
    wrong = [name for name, mean in means.items() if sizes.get(name) != len(mean)]
    if wrong:
        raise ConfigError(
            f"{file} is the importance matrix of another model: {wrong[0]} has "
            f"{len(means[wrong[0]])} columns there and {sizes.get(wrong[0], 'is missing')} here."
        )
    blocks = [
        name
        for name, (_, shape) in checkpoint.shapes.items()
        if len(shape) == 2 and architectures.tensor_name(checkpoint.config, name).startswith("blk.")
    ]
    missing = [n for n in blocks if architectures.tensor_name(checkpoint.config, n) not in means]
    if not missing:
        return ""
    covered = f"{file} covers {len(blocks) - len(missing)} of {len(blocks)} matrices of the blocks"
    if needy:
        raise ConfigError(f"{covered}, and {needy} needs all of them: {missing[0]} is missing.")
    return f"{covered}; {missing[0]} is not among them."


def bits_per_byte(library: Library, file: Path, split: Split, tell: Tell) -> float:
    """Return a file's bits per byte in llama.cpp, the mean over domains. Raises UnavailableError."""
    every = [window for queue in split.values() for document in queue for window in document.windows]
    library.open(file, max(map(len, every)))
    progress, done = _progress(f"loss of {file.name}", len(every), tell), 0
    rates = []
    for queue in split.values():
        nats = 0.0
        for document in queue:
            for window in document.windows:
                nats += library.nats(window.tolist())
                done += 1
                progress(done)
        rates.append(nats / math.log(2) / sum(document.bytes for document in queue))
    return math.fsum(rates) / len(rates)


def _progress(what: str, count: int, tell: Tell) -> Callable[[int], None]:
    """Return a function of the windows done, of `count`: it tells progress and time left."""
    began, last_quarter = time.monotonic(), [0]

    def after(done: int) -> None:
        quarter = 4 * done // count
        if done in (1, count) or quarter > last_quarter[0]:
            last_quarter[0] = quarter
            left = (time.monotonic() - began) / done * (count - done)
            ahead = f", {rough(left)} left" if done < count else ""
            tell(f"{what}: {done} of {count} windows{ahead}")

    return after


def fitting(folder: Path) -> list[str]:
    """Return the GGUF types that the model in a folder can be written as, in the exporter's order.

    For ternary types one matrix is read, so that they are offered for ternary weights only. Raises
    SourceError, and ConfigError if the model's architecture has no GGUF files.
    """
    checkpoint = open_checkpoint(folder)
    gguf_file.check(checkpoint, "F16")
    return [type_ for type_ in gguf_file.TYPES if _fits(checkpoint, type_)]


def _fits(checkpoint: Checkpoint, type_: str) -> bool:
    try:
        gguf_file.check(checkpoint, type_)
        if type_ in gguf_file.TERNARY:
            inner = (n for n, (_, shape) in checkpoint.shapes.items() if len(shape) == 2)
            name = next(n for n in inner if n not in HEADS and n not in HEADS.values())
            parts(name, checkpoint.tensors()[name])
    except (ForgeError, StopIteration):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
