"""`forge wandb`: sends runs to Weights & Biases."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from agent_forge.cli.options import SuggestingGroup, emit, json_option, name_of


@click.group("wandb", cls=SuggestingGroup)
def wandb_command() -> None:
    """Send runs to Weights & Biases, now or as they live.

    \b
    Example:
      forge wandb sync 20261121-3fa9c1
    """


@wandb_command.command("sync")
@click.argument("run")
@click.option("--follow", is_flag=True, help="Go on until the run has ended. Ctrl-C only stops this.")
@click.option("--offline", is_flag=True, help="Into files for `wandb sync` instead of to a server.")
@click.option("--project", help="Default: WANDB_PROJECT, or evomerge.")
@click.option("--entity", help="User or team; default: WANDB_ENTITY, or your own.")
@click.option(
    "--model",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The champion's folder: its files go with the artifact, else its recipe alone.",
)
@json_option
def sync_command(
    run: str,
    follow: bool,
    offline: bool,
    project: str | None,
    entity: str | None,
    model: Path | None,
    as_json: bool,
) -> None:
    """Send what the log says of a run; of one that was sent before, what is new.

    Address, key and folder are W&B's own: WANDB_BASE_URL, WANDB_API_KEY, WANDB_DIR.

    \b
    Example:
      forge wandb sync 20261121-3fa9c1 --follow
      forge wandb sync 20261121-3fa9c1 --offline --project merges
    """
    from agent_forge.runs.home import Home
    from agent_forge.worker.exports import wandb

    home = Home.default()
    target = wandb.WandbTarget.of(home, project=project, entity=entity, offline=offline, model=model)
    sent = wandb.sync(home, run, target, follow)
    if as_json:
        emit(asdict(sent))
        return
    name = name_of(sent.run)
    click.echo(f"run {name} {sent.status}: {sent.new} of {sent.generations} generations sent")
    click.echo(f"wandb sync {sent.place}" if sent.offline else sent.place)
