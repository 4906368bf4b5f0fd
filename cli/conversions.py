"""`forge decompress`, `forge extract` and its report: models in other forms."""

from __future__ import annotations

from pathlib import Path

import click

from agent_forge.cli.options import Json, emit, json_option, split, table


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
    tell = lambda text: click.echo(text, err=True)  # noqa: E731
    record = folder_exports.extract(Home.default(), base, model, Path(out), choice, tell)
    say_extracted(record, as_json)


def say_extracted(report: Json, as_json: bool) -> None:
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
