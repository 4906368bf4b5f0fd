"""`forge bitnet`."""

from __future__ import annotations

from typing import Any

import click

from cli.options import dry_run_option, json_option, queue_options, set_option, setting


@click.command("bitnet")
@click.argument("model")
@click.option("--out", required=True, type=click.Path(), help="The folder for the models.")
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    help="Tokens that each training reads; without it the run chooses.",
)
@click.option(
    "--data",
    multiple=True,
    metavar="[DOMAIN=]PATH",
    help="Text of your own: a file a domain, or DOMAIN=FOLDER; again for several.",
)
@set_option
@click.option("--detach", is_flag=True, help="Only submit; another process carries the run on.")
@dry_run_option
@queue_options
@json_option
def bitnet_command(
    model: str,
    out: str,
    tokens: int | None,
    data: tuple[str, ...],
    settings: tuple[str, ...],
    detach: bool,
    dry_run: bool,
    as_json: bool,
    **queued: Any,
) -> None:
    """Train a model to have weights of -s, 0 and s in its linear layers (BitNet b1.58).

    MODEL is a folder, Hub id, RUN or RUN:ROLE. The ternary model is measured beside continued training
    in full precision, the model itself and the best rounding without training, at equal tokens. OUT
    gets the models and the report. `forge settings bitnet` lists the settings.

    After Ctrl-C or a crash `forge start --resume RUN` goes on with the run; its name is printed first.

    \b
    Example:
      forge bitnet models/base --out ternary
      forge bitnet 20261121-3fa9c1:base --out ternary --tokens 5000000 --data law=texts/law
      forge export RUN --format gguf --type TQ2_0 --out model.gguf
    """
    from cli.runs.carry_on import begin
    from cli.runs.start import planned
    from runs.home import Home

    config = dict(map(setting, settings)) | ({} if tokens is None else {"tokens": tokens})
    home = Home.default()
    plan = planned(home, "bitnet", config, (f"model={model}",), data, out, detach)
    begin(home, plan, queued, detach, dry_run, as_json)
