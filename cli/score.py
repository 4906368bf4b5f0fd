"""`forge score`: any model, alone."""

from __future__ import annotations

from typing import Any

import click

from cli.options import SLICES, emit, json_option, number, table


@click.command("score")
@click.argument("models", nargs=-1, required=True)
@click.option(
    "--data",
    multiple=True,
    type=click.Path(),
    help="Items: .jsonl or .txt files or folders. Default: builtin:domains, code, math, "
    "multilingual and structured data.",
)
@click.option("--slice", "slice_", type=click.Choice(SLICES), default="test", show_default=True)
@click.option("--context", type=click.IntRange(8, 1 << 20), default=512, show_default=True,
              help="Tokens of a window; the model's own limit where that is smaller.")  # fmt: skip
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda:N.")
@click.option("--items", "show_items", is_flag=True, help="Print every item as well.")
@json_option
def score_command(
    models: tuple[str, ...], slice_: Any, context: int, device: str, show_items: bool,
    as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """Measure models as runs do, on a slice of the data, without a run.

    MODELS are folders, Hub ids or aliases. Columns: perplexity; bits per byte, which compares
    models of different tokenizers; share of tokens predicted; questions whose right choice was the
    most likely, chance in brackets; problems whose generated reply a program found right.

    \b
    Example:
      forge score models/code models/math --data builtin:domains
    """
    from cli.plan import check_device
    from evomerge.corpus import domains
    from evomerge.fitness.composite import Weighting
    from evomerge.fitness.data import given
    from evomerge.sources import resolve
    from worker.bench import load_items, set_threads
    from worker.scoring import score

    check_device(device)
    references = [resolve(model) for model in models]
    named = given(options["data"] or (domains.NAME,), Weighting())
    items, builtin = load_items(named), named == (domains.NAME,)
    set_threads()

    def tell(what: str) -> None:
        click.echo(what, err=True)

    scores = [score(m, items, slice_, device, context, builtin, tell) for m in references]
    if as_json:
        emit([_as_data(found, show_items) for found in scores])
        return
    for found in scores:
        _show(found, show_items)


def _as_data(found: Any, show_items: bool) -> dict[str, Any]:
    data = {
        "model": found.name,
        "slice": found.slice,
        "context": found.context,
        "components": found.components.model_dump(),
        "grades": found.grades,
        "unscored": {k: v for o in found.outcomes.values() for k, v in o.unscored.items()},
        "left_out": found.left_out,
        "seconds": found.seconds,
    }
    if show_items:
        data["items"] = [vars(item) for item in found.items]
    return data


def _show(found: Any, show_items: bool) -> None:
    measured = found.components
    rows = [_row(domain, found) for domain in sorted(found.outcomes)]
    rows.append(
        ["all", number(measured.perplexity, ".3f"), number(measured.bits_per_byte, ".4f"),
         number(measured.next_token_accuracy, ".4f"),
         number(measured.choice_accuracy, ".4f"), number(measured.solved, ".4f")]
    )  # fmt: skip
    columns = ["domain", "perplexity", "bits/byte", "tokens", "questions", "problems"]
    table(columns, rows, title=f"{found.name}, {found.slice} slice")
    for told in found.left_out:
        click.echo(f"warning: {told}", err=True)
    for outcomes in found.outcomes.values():
        for id_, why in outcomes.unscored.items():
            click.echo(f"warning: {id_} counts 0 because its verifier failed: {why}", err=True)
    if show_items:
        table(
            ["domain", "kind", "item", "value"],
            [[i.domain, i.kind, i.name, f"{i.value:.4f}"] for i in found.items],
        )


def _row(domain: str, found: Any) -> list[str]:
    """A domain's line: shares as counts, so that nobody reads more into them than there is."""
    seen = found.outcomes[domain]
    bits = sum(seen.nll) / 0.6931471805599453 / sum(seen.bytes) if sum(seen.bytes) else None
    tokens = sum(seen.tokens)
    chance = sum(seen.chance)
    return [
        domain,
        number(found.components.domains.get(domain), ".3f"),
        number(bits, ".4f"),
        number(sum(seen.hits) / tokens if tokens else None, ".4f"),
        f"{sum(seen.right)} of {len(seen.right)} ({chance:.0f})" if seen.right else "-",
        f"{sum(seen.solved):g} of {len(seen.solved)}" if seen.solved else "-",
    ]
