"""`forge mergeability`: measurements of how well models may merge, before a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from agent_forge.cli.options import (
    SLICES,
    Json,
    context_option,
    device_option,
    emit,
    json_option,
    say,
    screen_width,
    show_table,
    wrapped,
)

if TYPE_CHECKING:
    from agent_forge.evaluation.data.packing import Ids
    from agent_forge.evomerge.mergeability.forecast import MergePoint
    from agent_forge.evomerge.mergeability.relations import Relations
    from agent_forge.runs.event_types import ModelReference
    from agent_forge.runs.kinds.asked import Plan

#: Elements of all sources up to which `forge check` compares the weights: some seconds.
CHECKED = 30_000_000


@click.command("mergeability")
@click.argument("models", nargs=-1, required=True)
@click.option("--base", required=True, metavar="X", help="The model that MODELS were trained from.")
@click.option(
    "--text",
    multiple=True,
    type=click.Path(),
    help="Data whose text the losses are of: files or folders, as --data of `forge evo`. Default: "
    "builtin:domains.",
)
@click.option("--slice", "slice_", type=click.Choice(SLICES), default="search", show_default=True)
@click.option("--tokens", type=click.IntRange(64), default=32_768, show_default=True)
@context_option
@device_option
@click.option("--weights-only", is_flag=True, help="Compare the weights; measure no losses.")
@json_option
def mergeability_command(models: tuple[str, ...], base: str, as_json: bool, **options: Any) -> None:
    """Compare MODELS of one base before a search: their changes, and the loss between them.

    MODELS and the base are folders, Hub ids, runs (RUN/champion, RUN:ROLE) or registered models. The
    weights: how far each model moved from the base, pairwise cosines, the share of elements that moved
    the same way, overlap of leading singular vectors. The losses: at five places of the line from the
    base to each model and between each two, and their mean, with a 95 % interval of the best merge's
    loss less the best model's. It is a measurement of this text, and no forecast of a search: of 18
    recorded runs, 17 scored on problems solved, it said yes or no of 6 and was right in 1.

    \b
    Example:
      forge mergeability models/code models/math models/data --base models/base --text models/items
    """
    from agent_forge.weights.devices import check_device
    from agent_forge.weights.threads import set_threads

    if len(models) < 2:
        raise click.UsageError("two or more models are compared: give another one.")
    check_device(options["device"])
    references = _resolved([base, *models])
    set_threads()
    names = _told_apart([model.name for model in references])
    measured = _measured(references, names, options)
    if as_json:
        from agent_forge.evomerge.mergeability import report

        emit(report.as_data(names[1:], names[0], *measured))
        return
    _show(names, *measured)


def _resolved(models: Sequence[str]) -> list[ModelReference]:
    from agent_forge.runs.home import Home
    from agent_forge.weights.folders.sources import resolve
    from agent_forge.weights.storage.model_origin import Finder

    named = Finder(Home.default(), _tell)
    return [resolve(model, named=named) for model in models]


def _told_apart(names: Sequence[str]) -> list[str]:
    """Return the names in order; each that occurs more than once gets "-" and its index as a suffix."""
    return [name if names.count(name) == 1 else f"{name}-{place}" for place, name in enumerate(names)]


def _tell(what: str) -> None:
    say(what, err=True)


def _measured(
    references: list[ModelReference], names: list[str], options: Json
) -> tuple[Relations, list[MergePoint] | None, dict[str, int]]:
    """Return (relations of weights, points of losses or None without losses, domain → tokens)."""
    from agent_forge.evaluation.data import domains
    from agent_forge.evaluation.loading import load_items, load_tokenizer
    from agent_forge.evomerge.mergeability import lines
    from agent_forge.evomerge.mergeability.relations import relations
    from agent_forge.evomerge.tasks import merge
    from agent_forge.weights.folders.sources import open_family

    opened = open_family(references[1:], references[0], strict=False)
    folders = [reference.folder for reference in (opened.base, *opened.sources)]
    strange = merge.other_tokens(names, folders, strict=False)
    for warning in (*opened.warnings, *strange):
        _tell(f"warning: {warning}")
    text: dict[str, list[Ids]] = {}
    if not options["weights_only"]:  # whatever is wrong with the data is told before any work
        data = tuple(options["text"]) or (domains.NAME,)
        items = load_items(data, allow_benchmarks=True, note=_tell, needed=(options["slice_"],))
        context = min(options["context"], opened.base.positions or options["context"])
        tokenizer = load_tokenizer(str(opened.base.folder))
        text = lines.windows(items, tokenizer, context, options["slice_"], options["tokens"])
    family = lines.family(opened)
    weight_relations = relations(family.base, family.sources, _tell)
    if not text:
        return weight_relations, None, {}
    points = lines.measured(family, lines.resident(opened, options["device"]), text, _tell)
    return weight_relations, points, {domain: sum(map(len, rows)) for domain, rows in text.items()}


def _show(
    names: list[str], relations: Relations, points: list[MergePoint] | None, tokens: dict[str, int]
) -> None:
    from agent_forge.evomerge.mergeability import forecast, report

    base, *sources = names
    tables = report.weights(relations, sources, base)
    if points is not None:
        tables.append(report.losses(points, sources, base))
    for title, columns, rows in tables:
        show_table(columns, rows, title)
        say("")
    if points is None:
        return
    sentence = report.sentence(forecast.forecast(points), sources, base)
    counts = ", ".join(f"{count:,} of {domain}" for domain, count in tokens.items())
    for line in (
        *wrapped(sentence, screen_width(), "  "),
        *wrapped(f"tokens: {counts}", screen_width()),
    ):
        say(line)


def of_check(plan: Plan) -> tuple[Relations | None, list[str], str]:
    """Return (relations or None, names with the base first, a sentence on what was not measured)."""
    from agent_forge.evomerge.mergeability import lines
    from agent_forge.evomerge.mergeability.relations import relations
    from agent_forge.weights.folders.sources import open_family
    from agent_forge.weights.threads import set_threads

    sources, base = plan.fields["sources"], plan.fields["base"]
    command = "forge mergeability"
    if base is None:
        return (None, [], f"mergeability was not measured: it is of models with a base. See {command}.")
    opened = open_family(sources, base, strict=False)
    names = _told_apart([base.name, *(model.name for model in sources)])
    if opened.base.parameters * len(sources) > CHECKED:
        return None, names, f"mergeability was not measured: it takes long here. See {command}."
    set_threads()
    family = lines.family(opened)
    left = f"losses along the lines between them were not measured: {command} does."
    return relations(family.base, family.sources), names, left
