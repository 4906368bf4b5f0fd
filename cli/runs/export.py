"""`forge export`, `forge decompress` and `forge extract`: models in several formats.

The message of a completed run is here, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_forge.cli.options import Json, emit, json_option, name_of, split, table, warn_skipped
from agent_forge.runs.errors import ConfigError
from agent_forge.worker.exports import formats
from agent_forge.worker.exports.formats import ExportOptions, Gguf, check

if TYPE_CHECKING:
    from agent_forge.runs.home import Home
    from agent_forge.runs.kinds.state import State
    from agent_forge.worker.exports.hub import HubTarget


@click.command("decompress")
@click.argument("file", type=click.Path())
@click.argument("folder", type=click.Path())
@json_option
def decompress_command(file: str, folder: str, as_json: bool) -> None:
    """Write the model in a file of coded weights as a Hugging Face folder.

    FOLDER must be missing or empty. It gets config.json, the tokenizer's files if FILE has them, and
    safetensors, decoded tensor by tensor. Every digest is checked: a file that was cut or altered is
    refused, and the error names the tensor and its bytes.

    \b
    Example:
      forge decompress model.forge model
    """
    from agent_forge.weights.formats.decompression import decompress, described
    from agent_forge.weights.storage.output_folder import check_target
    from agent_forge.weights.threads import set_threads

    place = check_target(Path(folder), replaceable=lambda _: False)
    set_threads()
    summary = described(decompress(Path(file), place))
    if as_json:
        emit(summary | {"folder": str(place)})
        return
    rows = [
        [codec, str(s["tensors"]), f"{s['weights']:,}", f"{s['bytes']:,}", f"{_bits(s):.3f}"]
        for codec, s in summary["codecs"].items()
    ]
    table(["codec", "tensors", "weights", "bytes", "bits a weight"], rows, title=str(file))
    click.echo(f"model:    {place} ({summary['weights']:,} weights from {summary['bytes']:,} bytes)")


def _bits(sums: dict[str, int]) -> float:
    return sums["bytes"] * 8 / sums["weights"]


@click.command("extract")
@click.argument("base")
@click.argument("model")
@click.argument("out", type=click.Path())
@click.option("--rank", type=click.IntRange(1), default=16, show_default=True)
@click.option(
    "--modules",
    metavar="NAME,NAME,…",
    help="Last parts of the names of the layers, such as q_proj; without, all linear layers of blocks.",
)
@click.option(
    "--modules-to-save",
    "whole",
    is_flag=True,
    help="Also save embedding, head and norms whole if they differ.",
)
@json_option
def extract_command(
    base: str, model: str, out: str, rank: int, modules: str | None, whole: bool, as_json: bool
) -> None:
    """Write a fine-tuned MODEL as a LoRA adapter of BASE, by truncated singular values.

    Each is a folder, a Hub id, RUN:ROLE or a registered name. The energy is the share of the squared
    difference between the models that the adapter keeps, here and by smaller ranks; layers of which
    least is kept, and tensors that differ and are not in the adapter, are named. peft loads OUT.

    \b
    Example:
      forge extract base tuned adapter --rank 16
      forge extract RUN:base RUN:code adapter --rank 8 --modules q_proj,v_proj
    """
    from agent_forge.runs.home import Home
    from agent_forge.weights.adapters.extraction import Choice
    from agent_forge.worker.exports import folder_exports

    if modules is not None and not split(modules):
        raise click.UsageError("--modules is empty: give names of layers, or leave it out.")
    choice = Choice(rank, tuple(split(modules)), whole)
    tell = functools.partial(click.echo, err=True)
    record = folder_exports.extract(Home.default(), base, model, Path(out), choice, tell)
    say_extracted(record, as_json)


def say_extracted(report: Mapping[str, Any], as_json: bool = False) -> None:
    """Print a report of an extraction, as text or as JSON."""
    if as_json:
        emit(report)
        return
    count = len(report["energy_by_layer"])
    click.echo(f"adapter:  {report['folder']} (rank {report['rank']}, {count} layers that differ)")
    smaller = [f"{share:.4f} by rank {r}" for r, share in report["kept_by_rank"].items()][:-1]
    click.echo(f"energy:   {report['kept']:.6f} of the squared difference is kept")
    if smaller:
        click.echo(f"          ({', '.join(smaller)})")
    click.echo("          least, of a layer's own difference:")
    for name, share in report["worst"].items():
        click.echo(f"          {share:.6f}  {name}")
    if report["saved"]:
        click.echo(f"whole:    {', '.join(report['saved'])}")
    if lost := report["lost"]:
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        click.echo(
            f"lost:     {report['lost_share']:.6f} is in tensors without an adapter: "
            f"{', '.join(lost[:3])}{more}"
        )


def write(
    format_: str,
    model: str,
    out: str | None,
    options: formats.ExportOptions,
    to: HubTarget | None,
    as_json: bool,
) -> None:
    """Write a model in a format of other programs, upload it if `to` is given, and print the record.

    `to` is a repository of a Hub (`worker.exports.hub.HubTarget`). Raises ForgeError.
    """
    from agent_forge.cli.runs.progress import lasting
    from agent_forge.runs.home import Home

    formats.check(format_, options)
    what, say_written = FORMATS[format_]
    if out is None:
        raise ConfigError(f"nothing to write: give --out {what}.")
    say_extracted = functools.partial(click.echo, err=True)
    with lasting(f"writing {out}"):
        written = formats.write(Home.default(), model, Path(out), format_, options, say_extracted)
    if format_ == "gguf":
        beside = [Path(written["modelfile"])] if options.gguf.ollama else []
        files = written.get("files", [written])
        written |= send(to, *(Path(file["file"]) for file in files), *beside)
    else:
        written |= send(to, Path(written["folder"]))
    if as_json:
        emit(written)
        return
    say_written(written)
    say_sent(written)


def _gguf(written: formats.Written) -> None:
    """Print which GGUF files were written, and the files beside them."""
    for file in written.get("files", [written]):
        _say_file(file)
    if "imatrix_tokens" in written:
        suffix = f", kept as {written['imatrix']}" if "imatrix" in written else ""
        click.echo(f"imatrix:  measured on {written['imatrix_tokens']:,} tokens{suffix}")
    if "measured_tokens" in written:
        click.echo(f"measured: on {written['measured_tokens']:,} tokens, in llama.cpp")
    if "modelfile" in written:
        click.echo(f"ollama:   ollama create NAME -f {written['modelfile']}")
        click.echo(f"template: {written['template']}")
    for note in written["notes"]:
        click.echo(f"note:     {note}")


def _say_file(file: formats.Written) -> None:
    """Print a GGUF file's size, its loss if measured, and which matrices have other types."""
    loss = f", {file['bits_per_byte']:.4f} bits per byte" if "bits_per_byte" in file else ""
    click.echo(f"model:    {file['file']} ({file['bytes']:,} bytes, {file['type']}{loss})")
    matrix_types = file["other_types"]
    for type_ in sorted(set(matrix_types.values())):
        names = [name for name, other in matrix_types.items() if other == type_]
        click.echo(
            f"{type_ + ':':9} {len(names)} matrices, whose rows {file['type']} cannot cut into blocks, "
            f"such as {names[0]}"
        )


def _compressed(written: formats.Written) -> None:
    """Print the folder and size of a compressed-tensors export."""
    click.echo(
        f"model:    {written['folder']} ({written['bytes']:,} bytes, {written['matrices']} matrices "
        f"{written['type']} in groups of {written['group']})"
    )


def _bitnet(written: formats.Written) -> None:
    """Print the folder and size of a packed ternary model."""
    click.echo(
        f"model:    {written['folder']} ({written['bytes']:,} bytes, {written['ternary']} packed "
        "matrices)"
    )


def send(to: HubTarget | None, out: Path, *more: Path) -> formats.Written:
    """Upload an export and files beside it; return {"hub": its record}, or {} if `to` is None."""
    if to is None:
        return {}
    from agent_forge.worker.exports import hub

    files = {name: file for place in (out, *more) for name, file in hub.files_of(place).items()}
    return {"hub": hub.send(to, files, out)}


def say_sent(data: formats.Written) -> None:
    """Print the URL of an export at a Hub, if it was uploaded."""
    if hub := data.get("hub"):
        click.echo(f"hub:      {hub['url']} ({'private' if hub['private'] else 'public'})")


#: Name → (what --out names, the function that prints what was written).
FORMATS: dict[str, tuple[str, Callable[[formats.Written], None]]] = {
    "gguf": ("FILE.gguf", _gguf),
    "bitnet": ("DIR", _bitnet),
    "compressed-tensors": ("DIR", _compressed),
    "adapter": ("DIR", say_extracted),
}


#: Options that only GGUF files have.
GGUF_OPTIONS: tuple[Callable[[Callable], Callable], ...] = (
    click.option(
        "--imatrix",
        multiple=True,
        metavar="DATA",
        help="Of a quantised GGUF file: text that tells how much each input of a matrix matters, or a "
        "file of llama-imatrix; again for several.",
    ),
    click.option(
        "--imatrix-out", type=click.Path(), help="Keep the importance matrix, in llama.cpp's format."
    ),
    click.option(
        "--measure",
        multiple=True,
        metavar="DATA",
        help="Of a GGUF file: text to measure its bits per byte on, in llama.cpp (default: that of "
        "--imatrix).",
    ),
    click.option(
        "--fallback",
        type=click.Choice(["F16"]),
        help="Of a GGUF file of type TQ1_0 or TQ2_0: for matrices whose rows are no multiple of 256.",
    ),
    click.option("--ollama", is_flag=True, help="Write a Modelfile beside the GGUF file."),
)


def gguf_options(command: Callable) -> Callable:
    """Return the command with the GGUF options added; it gets them as the argument `gguf`."""

    @functools.wraps(command)
    def collected(**given: Any) -> object:
        values = {name: given.pop(name) for name in Gguf.__dataclass_fields__}
        return command(**given, gguf=Gguf(**values))

    function: Callable = collected
    for option in reversed(GGUF_OPTIONS):
        function = option(function)
    return function


@click.command("export")
@click.argument("run")
@click.option("--out", type=click.Path(), help="The champion's folder, or the GGUF file, to write.")
@click.option("--parquet", type=click.Path(), help="A folder for the run's tables; at any time.")
@click.option("--format", "format_", type=click.Choice(["folder", *FORMATS]), default="folder")
@click.option(
    "--type",
    "type_",
    help="Of a GGUF file: F32, F16 (default), BF16, Q8_0, Q4_K_M, IQ3_M, …, or several with commas; of "
    "compressed-tensors: int8, int4.",
)
@gguf_options
@click.option("--push", metavar="OWNER/NAME", help="Upload what --out has to a Hugging Face Hub, too.")
@click.option("--public", is_flag=True, help="A new repository is public; else it is private.")
@click.option("--reason", help="Why; it is recorded.")
@json_option
def export_command(
    run: str,
    out: str | None,
    parquet: str | None,
    format_: str,
    type_: str | None,
    gguf: Gguf,
    push: str | None,
    public: bool,
    reason: str | None,
    as_json: bool,
) -> None:
    """Write a run's champion as a Hugging Face folder, with a report; or its log as tables.

    RUN:MODEL writes another model of the run: a fixed merge by its name, a role, a candidate's id. The
    Parquet tables are generations, candidates, evaluations, items and events.

    With --format gguf RUN may be any model (a folder, a Hub id, RUN:ROLE, a registered name,
    BASE+ADAPTER); it is written as one file for llama.cpp, and nothing is recorded. With --format
    compressed-tensors it becomes a folder for vLLM, its matrices rounded to --type int8 or int4; with
    --format bitnet it is a ternary model, of `forge bitnet`, and becomes a packed folder that
    transformers loads. With --format adapter a model that a run trained by adapters becomes one.

    --push takes the token of HF_TOKEN or `hf auth login`, and sends to HF_ENDPOINT or huggingface.co.

    \b
    Example:
      forge export 20261121-3fa9c1 --out champion
      forge export 20261121-3fa9c1:mean --out mean
      forge export 20261121-3fa9c1 --parquet tables
      forge export 20261121-3fa9c1 --format gguf --type Q8_0 --out champion.gguf
      forge export MODEL --format gguf --type Q4_K_M --imatrix texts.jsonl --out model.gguf
      forge export 20261121-3fa9c1:model --format bitnet --out packed
      forge export 20261121-3fa9c1 --out champion --push me/champion
    """
    from agent_forge.runs.home import Home

    to = _pushed(push, public, out)
    if format_ != "folder":
        reason = parquet or reason  # no other format has either
        write(format_, run, out, ExportOptions(type_, gguf, reason), to, as_json)
        return
    check("folder", ExportOptions(type_, gguf))
    if out is None and parquet is None:
        raise ConfigError("nothing to write: give --out DIR, --parquet DIR, or both.")
    home = Home.default()
    tables = None if parquet is None else _tables(home, run, Path(parquet), as_json and not out)
    if out is not None:
        _model(home, run, Path(out), reason, as_json, tables, to)


def _pushed(push: str | None, public: bool, out: str | None) -> HubTarget | None:
    """Return the HubTarget to upload an export to; None without --push. Raises ConfigError."""
    if push is None:
        if public:
            raise ConfigError("--public is of a repository: add --push OWNER/NAME.")
        return None
    if out is None:
        raise ConfigError("--push uploads what --out has: give --out, too.")
    from agent_forge.worker.exports import hub

    return hub.target(push, public)


def _tables(home: Home, run: str, folder: Path, as_json: bool) -> Json:
    """Write the run's tables as Parquet files and print that; return {"run", "folder", "rows"}."""
    from agent_forge.runs.history.repository import opened
    from agent_forge.runs.lists.finding import full_name
    from agent_forge.worker.exports import parquet

    with closing(home.open_store()) as store:
        name = full_name(store, run.partition(":")[0])
        state, rows = opened(store, name, showing=True)
        parquet.check(folder, state.kind, name)
    warn_skipped(state)
    report = {"run": name, "folder": str(folder.absolute()), "rows": parquet.write(folder, state, rows)}
    if as_json:
        emit(report)
        return report
    counts = ", ".join(f"{count:,} {table}" for table, count in report["rows"].items())
    click.echo(f"tables:   {report['folder']} ({counts})", err=as_json)
    return report


def _model(
    home: Home,
    model: str,
    out: Path,
    reason: str | None,
    as_json: bool,
    tables: Json | None,
    to: HubTarget | None,
) -> None:
    """Write the folder of a run's result, or of another model of the run; record and print that."""
    from agent_forge.cli.runs.progress import lasting
    from agent_forge.worker.exports import delivery

    run, _, name = model.partition(":")
    with lasting(f"writing {out}"):
        state, written = delivery.deliver(home, run, out, reason, model=name)
    sent = send(to, out)
    report = written | ({"tables": tables} if tables else {}) | sent
    if (copied := written.get("exported")) and not as_json:
        click.echo(f"model:    {copied['what']}, weights {copied['digest'][:12]}")
        click.echo(f"folder:   {written['folder']}")
    else:
        announce(state, report, as_json)
    if not as_json:
        say_sent(sent)


def announce(state: State, data: Json, as_json: bool) -> None:
    """Print the result on stdout, as JSON or as the kind's view shows it."""
    if as_json:
        emit(data)
        return
    from agent_forge.cli import kind_views
    from agent_forge.runs.system.durations import size

    if state.peak_bytes:
        click.echo(f"memory:   {size(state.peak_bytes)} at most in one process", err=True)
    kind_views.of(state.kind).announce(state, data, name_of(state.run))
