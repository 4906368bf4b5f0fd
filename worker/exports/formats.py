"""Formats of model exports, which `forge export` and `agent_forge.export` share. No torch.

    folder                a run's result with its report, or a model of the run; recorded
    gguf                  one file for llama.cpp, or one of each type
    compressed-tensors    a folder for vLLM
    bitnet                a packed folder of a ternary model
    adapter               the adapter that a model was trained by

Errors name the options of `forge export`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent_forge.events.envelope import Plain
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.home import Home

Tell = Callable[[str], None]
#: A record of what was written, as JSON data.
Written = Plain


@dataclass(frozen=True)
class Gguf:
    """Options that only a GGUF file has."""

    #: "F16": matrices that a ternary type cannot cut into blocks are F16.
    fallback: str | None = None
    #: Write a Modelfile beside the file.
    ollama: bool = False
    #: Data for the importance matrix, the file where it is kept, and data to measure on.
    imatrix: tuple[str, ...] = ()
    imatrix_out: str | None = None
    measure: tuple[str, ...] = ()

    @property
    def first(self) -> str | None:
        """The first option that was used; None if there is none."""
        values = {
            "--ollama": self.ollama,
            "--fallback": self.fallback,
            "--imatrix": self.imatrix,
            "--imatrix-out": self.imatrix_out,
            "--measure": self.measure,
        }
        return next((option for option, value in values.items() if value), None)


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export."""

    #: Type of a GGUF file (several with commas), or int8 or int4 of compressed-tensors.
    type_: str | None = None
    gguf: Gguf = Gguf()
    #: Why, of a folder: it is recorded.
    reason: str | None = None


def write(
    home: Home, model: str, out: Path, format_: str, options: ExportOptions, tell: Tell
) -> Written:
    """Write a model in one of FORMATS; return a JSON record of what was written.

    `model` is a run or a model of a run for a folder and for an adapter, else any name of a model.
    Raises ConfigError for an unknown format or an option of another one, and what the format's own
    export raises.
    """
    check(format_, options)
    return FORMATS[format_](home, model, out, options, tell)


def check(format_: str, options: ExportOptions) -> None:
    """Raise ConfigError if a format is unknown, or an option is another format's or is missing."""
    if format_ not in FORMATS:
        raise ConfigError(f"there is no format {format_!r}: use {', '.join(FORMATS)}.")
    if format_ != "folder" and options.reason is not None:
        raise ConfigError(
            "--parquet and --reason are of a run's folder and tables, not of a model in a format of "
            "other programs."
        )
    other = None if format_ == "gguf" else options.gguf.first
    if other is not None and format_ != "folder":
        raise ConfigError(f"{other} is of a GGUF file: add --format gguf.")
    if options.type_ is not None and format_ not in ("gguf", "compressed-tensors"):
        other = "--type"
    if other is not None:
        raise ConfigError(f"{other} is of another format: add --format gguf, for example.")
    if options.type_ is None and format_ == "compressed-tensors":
        raise ConfigError("--format compressed-tensors needs --type int8 or --type int4.")
    if options.gguf.imatrix_out is not None and not options.gguf.imatrix:
        raise ConfigError("--imatrix-out keeps what --imatrix DATA measures: add it.")


def _folder(home: Home, model: str, out: Path, options: ExportOptions, _tell: Tell) -> Written:
    from agent_forge.worker.exports import delivery

    run, _, name = model.partition(":")
    return delivery.deliver(home, run, out, options.reason, model=name)[1]


def _gguf(home: Home, model: str, out: Path, options: ExportOptions, tell: Tell) -> Written:
    from agent_forge.worker.exports import gguf_export

    gguf = options.gguf
    keep = None if gguf.imatrix_out is None else Path(gguf.imatrix_out)
    text = gguf_export.ExportText(gguf.imatrix, gguf.measure, keep)
    type_ = "F16" if options.type_ is None else options.type_
    fallback = gguf.fallback is not None
    return gguf_export.export(home, model, out, type_, tell, gguf.ollama, fallback, text)


def _compressed(home: Home, model: str, out: Path, options: ExportOptions, tell: Tell) -> Written:
    from agent_forge.worker.exports import folder_exports

    return folder_exports.compressed_tensors(home, model, out, str(options.type_), tell)


def _bitnet(home: Home, model: str, out: Path, _options: ExportOptions, tell: Tell) -> Written:
    from agent_forge.worker.exports import folder_exports

    return folder_exports.bitnet(home, model, out, tell)


def _adapter(home: Home, model: str, out: Path, _options: ExportOptions, _tell: Tell) -> Written:
    from agent_forge.worker.exports import folder_exports

    return folder_exports.adapter(home, model, out)


FORMATS: dict[str, Callable[[Home, str, Path, ExportOptions, Tell], Written]] = {
    "folder": _folder,
    "gguf": _gguf,
    "bitnet": _bitnet,
    "compressed-tensors": _compressed,
    "adapter": _adapter,
}
