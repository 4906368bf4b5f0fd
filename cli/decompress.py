"""`forge decompress`: a file of coded weights as an ordinary model folder."""

from __future__ import annotations

from pathlib import Path

import click

from agent_forge.cli.options import emit, json_option, table


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
