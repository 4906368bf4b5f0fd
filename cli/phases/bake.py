"""`forge bake`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from cli.options import (
    dry_run_option,
    json_option,
    prompt_text,
    queue_options,
    set_option,
    setting,
)


@click.command("bake")
@click.argument("model")
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    required=True,
    type=click.Path(),
    metavar="FILE",
    help="A file with the prompt; again for several, which are baked together. NAME.check.json "
    "beside it says how replies are checked.",
)
@click.option("--sequence", is_flag=True, help="Bake several prompts one after the other.")
@click.option(
    "--pursuit",
    type=int,
    metavar="N",
    help="Further bakes, each with the result before it as the teacher.",
)
@click.option(
    "--lora",
    "rank",
    type=click.IntRange(min=1),
    metavar="RANK",
    help="Train low-rank adapters of this rank, which are merged into the weights, instead of all "
    "weights.",
)
@click.option(
    "--keep",
    "others",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="A file with another prompt that the model is to follow as before.",
)
@click.option("--out", type=click.Path(), help="The folder for the model and its card.")
@click.option("--data", multiple=True, type=click.Path(), help="Files or folders of text.")
@set_option
@click.option("--detach", is_flag=True, help="Only submit; another process carries the run on.")
@dry_run_option
@queue_options
@json_option
def bake_command(
    model: str,
    prompts: tuple[str, ...],
    others: tuple[str, ...],
    sequence: bool,
    pursuit: int | None,
    rank: int | None,
    out: str | None,
    data: tuple[str, ...],
    settings: tuple[str, ...],
    detach: bool,
    dry_run: bool,
    as_json: bool,
    **queued: Any,
) -> None:
    """Bake a prompt into a model's weights: it answers without the prompt as with it.

    MODEL is a folder, Hub id, RUN or RUN:ROLE. The model writes replies under the prompt, and is
    trained to predict them without it, while its predictions on ordinary text and under other prompts
    stay as they are. Several strengths between both models are measured, and the best one is the
    result. OUT gets the model as an ordinary folder, a card with the figures, and the report. `forge
    settings bake` lists the settings.

    \b
    Example:
      forge bake models/base --prompt style.txt --out baked
      forge bake Qwen/Qwen3-0.6B --prompt persona.txt --prompt tools.txt --keep summary.txt --out baked
      forge bake models/base --prompt style.txt --data questions.jsonl --set reply_tokens=64 --out baked
      forge bake models/base --prompt style.txt --prompt persona.txt --sequence --out baked
      forge bake Qwen/Qwen3-0.6B --prompt style.txt --lora 16 --out baked
    """
    from cli.runs.carry_on import begin
    from cli.runs.start import planned
    from runs.home import Home

    texts = {"prompts": [prompt_text(file) for file in prompts]}
    config: dict[str, Any] = dict(map(setting, settings)) | texts
    checks = [_check(file) for file in prompts]
    if any(checks):
        config["checks"] = checks
    if sequence:
        config["sequence"] = True
    if pursuit is not None:
        config["pursuit"] = pursuit
    if rank is not None:
        config |= {"train": "lora", "lora_rank": rank}
    if others:
        config["others"] = [prompt_text(file) for file in others]
    plan = planned(home := Home.default(), "bake", config, (f"model={model}",), data, out, detach)
    begin(home, plan, queued, detach, dry_run, as_json)


def _check(file: str) -> Any:
    """Return the check beside a prompt's file, or None. Raises ConfigError."""
    from runs.errors import ConfigError

    place = Path(file).with_suffix(".check.json")
    if not place.exists():
        return None
    try:
        return json.loads(place.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{place} is no check: {error}") from error
