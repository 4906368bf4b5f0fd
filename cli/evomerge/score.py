"""`forge score`: measures any models, without a run."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import click

from agent_forge.cli.options import (
    SLICES,
    context_option,
    device_option,
    emit,
    json_option,
    number,
    table,
)

if TYPE_CHECKING:
    from agent_forge.evaluation.data.slices import Slice
    from agent_forge.evomerge.tasks.score import Score, SpeedComparison


@click.command("score")
@click.argument("models", nargs=-1, required=True)
@click.option(
    "--data",
    multiple=True,
    type=click.Path(),
    help="Items: .jsonl or .txt files or folders, bfcl:FOLDER/CATEGORY. Default: builtin:domains, "
    "code, math, multilingual and structured data.",
)
@click.option("--slice", "slice_", type=click.Choice(SLICES), default="test", show_default=True)
@context_option
@device_option
@click.option("--speed", is_flag=True, help="Measure speed and memory as well, beside the first model.")
@click.option(
    "--endpoint",
    metavar="URL",
    help="An OpenAI-compatible server that holds the model, such as "
    "http://localhost:8000/v1. Its key: FORGE_ENDPOINT_KEY.",
)
@click.option(
    "--served",
    metavar="NAME",
    help="The name that the server knows the model by.  [default: the model's]",
)
@click.option("--items", "show_items", is_flag=True, help="Print every item as well.")
@json_option
def score_command(
    models: tuple[str, ...],
    slice_: Slice,
    context: int,
    show_items: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure models as runs do, on a slice of the data, without a run; in the weights' own dtype.

    MODELS are folders, GGUF files (PATH, hub:OWNER/NAME/FILE or package:NAME), Hub ids, aliases, runs
    (RUN/champion, RUN:ROLE, RUN:CANDIDATE), registered models by id or name, or any of these with an
    adapter behind it, BASE+ADAPTER. Columns: perplexity; bits per byte, which compares models of
    different tokenizers; share of tokens predicted; questions whose right choice was the most likely,
    chance in brackets; problems whose generated reply a program found right.

    A model that a server holds is asked there for log-probabilities and replies; MODELS is then the
    same model's folder or Hub id, for its tokenizer, its limits and its shapes.

    \b
    Example:
      forge score models/code models/math --data builtin:domains
      forge score models/code --endpoint http://localhost:8000/v1 --served code
    """
    from agent_forge.cli.runs.progress import Waiting
    from agent_forge.evomerge.tasks import score
    from agent_forge.runs.home import Home
    from agent_forge.runs.system import pace
    from agent_forge.runs.system.durations import duration

    how = score.ScoreOptions(slice_=slice_, context=context, **options)
    began = time.monotonic()
    with Waiting(lambda: pace.words() or f"for {duration(time.monotonic() - began)}") as waiting:
        scores, speeds = score.measure(Home.default(), models, how, waiting.say)
    if as_json:
        emit(_all_as_data(scores, speeds, show_items))
        return
    for model_score in scores:
        _show(model_score, show_items)
    _show_speeds(scores, speeds)


def _all_as_data(
    scores: list[Score], speeds: list[SpeedComparison], show_items: bool
) -> list[dict[str, object]]:
    data = [_as_data(model_score, show_items) for model_score in scores]
    for row, beside in zip(data, speeds, strict=False):
        row["speed"] = dataclasses.asdict(beside) | {"speed": beside.speed.model_dump()}
    return data


def _as_data(model_score: Score, show_items: bool) -> dict[str, object]:
    data = {
        "model": model_score.name,
        "slice": model_score.slice,
        "context": model_score.context,
        "components": model_score.components.model_dump(),
        "grades": model_score.grades,
        "unscored": {k: v for o in model_score.outcomes.values() for k, v in o.unscored.items()},
        "left_out": model_score.left_out,
        "seconds": model_score.seconds,
    }
    if show_items:
        data["items"] = [vars(item) for item in model_score.items]
    return data


def _show(model_score: Score, show_items: bool) -> None:
    measured = model_score.components
    rows = [_row(domain, model_score) for domain in sorted(model_score.outcomes)]
    rows.append(
        [
            "all",
            number(measured.perplexity, ".3f"),
            number(measured.bits_per_byte, ".4f"),
            number(measured.next_token_accuracy, ".4f"),
            number(measured.choice_accuracy, ".4f"),
            number(measured.solved, ".4f"),
        ]
    )
    columns = ["domain", "perplexity", "bits/byte", "tokens", "questions", "problems"]
    table(columns, rows, title=f"{model_score.name}, {model_score.slice} slice")
    for warning in model_score.left_out:
        click.echo(f"warning: {warning}", err=True)
    for outcomes in model_score.outcomes.values():
        for id_, why in outcomes.unscored.items():
            click.echo(f"warning: {id_} counts 0 because its verifier failed: {why}", err=True)
    if show_items:
        table(
            ["domain", "kind", "item", "value"],
            [[i.domain, i.kind, i.name, f"{i.value:.4f}"] for i in model_score.items],
        )


def _row(domain: str, model_score: Score) -> list[str]:
    """Return the cells of a domain's row; shares are counts ("5 of 8"), so that sizes show."""
    outcomes = model_score.outcomes[domain]
    bits = sum(outcomes.nll) / 0.6931471805599453 / sum(outcomes.bytes) if sum(outcomes.bytes) else None
    tokens = sum(outcomes.tokens)
    chance = sum(outcomes.chance)
    return [
        domain,
        number(model_score.components.domains.get(domain), ".3f"),
        number(bits, ".4f"),
        number(sum(outcomes.hits) / tokens if tokens else None, ".4f"),
        f"{sum(outcomes.right)} of {len(outcomes.right)} ({chance:.0f})" if outcomes.right else "-",
        f"{sum(outcomes.solved):g} of {len(outcomes.solved)}" if outcomes.solved else "-",
    ]


def _show_speeds(scores: list[Score], speeds: list[SpeedComparison]) -> None:
    """Print a table of computed cost and measured speed; nothing if no speeds were measured."""
    if not speeds:
        return
    rows = []
    for model_score, beside in zip(scores, speeds, strict=True):
        speed, measured = beside.speed, model_score.components
        peak = "-" if speed.peak_bytes is None else f"{speed.peak_bytes / 1e6:,.1f}"
        rows.append(
            [
                model_score.name,
                f"{measured.flops / 1e9:.4g}",
                f"{measured.bytes / 1e6:,.1f}",
                f"{speed.tokens_per_second:,.0f} ± {speed.spread:,.0f}",
                f"{speed.latency_seconds * 1e3:,.1f} ± {(speed.latency_spread or 0) * 1e3:,.1f}",
                peak,
                f"{beside.ratio:.2f} ({beside.least:.2f} to {beside.most:.2f})",
            ]
        )
    columns = ["model", "GFLOP/token", "MB", "tokens/s", "ms/window", "peak MB", "beside the first"]
    table(columns, rows, title="Speed and memory; the first two columns are arithmetic")
