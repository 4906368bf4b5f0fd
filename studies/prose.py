"""Prose of a run of a study that has completed: report, sentences, lines, card. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runs.kinds.outcome import figure_text
from studies import comparison, tables, training_plan
from studies.run import Run

#: Plain data, as JSON has it.
Plain = dict[str, Any]


def _study(run: Run) -> Any:
    """Return the study that a run is of."""
    return run.study


def fields(run: Run) -> Plain:
    """Return no fields of the report beside those that every study has."""
    return {}


def arms(arms: Mapping[str, Any]) -> Plain:
    """Return the fields of the report with what was measured of the arms of `completed`."""
    return {"bits_per_byte": {name: dict(arm.bits_per_byte) for name, arm in arms.items()}}


def report(run: Run) -> Plain:
    """Return the report of a run that has completed, as plain data."""
    study, done = _study(run), run.state.completed
    training = study.slowest_of(run.recipes)
    return {
        "model": run.started.model.name,
        "seed": run.settings.seed,
        #: Of each training.
        **({"tokens": training_plan.tokens(training)} if training else {}),
        #: Arm → domain → bits per byte on the test slice.
        **study.prose.arms(done.arms),
        #: Arm → what it needs more than the arm that the others are compared with.
        "more": {name: figure.model_dump() for name, figure in run.leads.items()},
        "figures": {name: figure.model_dump() for name, figure in done.figures.items()},
        #: Of all tasks of the run.
        "seconds": run.state.spent.device,
        **study.prose.fields(run),
    }


def sentences(run: Run) -> list[str]:
    """Return the figures of a run, as a list in Markdown."""
    out, study = [], run.study
    for name, figure in run.state.completed.figures.items():
        text, words = figure_text(study, name, figure), study.figures_of[name].rpartition(": ")[2]
        out.append(f"- {text[:1].upper()}{text[1:]}: {words}.")
    return out


def lines(run: Run) -> list[str]:
    """Return the comparison of a run as lines of text for a terminal."""
    measured, words = run.state.completed.arms, tables.words(_study(run).arms_of(run))
    rows = {name: measured[name].bits_per_byte for name in words if name in measured}
    more = ((name, run.leads[name]) for name in rows if name in run.leads)
    ours = _study(run).result_title
    return [
        *comparison.table(rows),
        *(comparison.lead_line(name, words[name], figure, f"the {ours}") for name, figure in more),
    ]


def paragraphs(run: Run, role: str) -> list[str]:
    """Return what a model's card says before what the run has found: the arm that it is."""
    return [f"The {tables.words(_study(run).arms_of(run)).get(str(run.result), role)}."]


def card(run: Run, role: str) -> str:
    """Return a model's card: what it is, and what the run has found."""
    study = _study(run)
    tags = ("tags:", f"- {study.name}")
    head = ("---", "library_name: transformers", *tags, "---", "")
    what = f"{study.result_title[:1].upper()}{study.result_title[1:]}"
    title = f"# {what} of {run.started.model.name}, seed {run.settings.seed}"
    words, found = study.prose.paragraphs(run, role), study.prose.sentences(run)
    return "\n".join([*head, title, "", *words, "", *found, ""])


def next_steps(run: Run, name: str) -> list[str]:
    """Return no commands that make sense after a run."""
    return []


@dataclass(frozen=True)
class Prose:
    """Functions of what a study says of a run that has completed; a study gives those of its own."""

    #: Fields of the report beside those that every study has.
    fields: Callable[..., Plain] = fields
    #: Fields of the report with what was measured of the arms of `completed`.
    arms: Callable[..., Plain] = arms
    #: The report as plain data, as the result's folder has it.
    report: Callable[..., Plain] = report
    #: What the run has found, as a list in Markdown.
    sentences: Callable[..., list[str]] = sentences
    #: The report as lines of text for a terminal.
    lines: Callable[..., list[str]] = lines
    #: Paragraphs of a model's card before what the run has found, by its role.
    paragraphs: Callable[..., list[str]] = paragraphs
    #: A model's card.
    card: Callable[..., str] = card
    #: Commands that make sense after the run, by its name.
    next_steps: Callable[..., list[str]] = next_steps
