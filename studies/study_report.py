"""Report, panels and card of a run of a study: what follows from its table. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runs.panels.panels import Panel
from studies import comparison, tables, training_panels, training_plan
from studies.declaration import Declaration
from studies.run import Run


def report(study: Declaration, run: Run) -> dict[str, Any]:
    """Return the report of a run that has completed, as plain data."""
    done = run.state.completed
    training = study.slowest_of(run.recipes)
    return {
        "model": run.started.model.name,
        "seed": run.settings.seed,
        #: Of each training.
        **({"tokens": training_plan.tokens(training)} if training else {}),
        #: Arm → domain → bits per byte on the test slice.
        **study.arm_fields(done.arms),
        #: Arm → what it needs more than the arm that the others are compared with.
        "more": {name: figure.model_dump() for name, figure in run.leads.items()},
        "figures": {name: figure.model_dump() for name, figure in done.figures.items()},
        #: Of all tasks of the run.
        "seconds": run.state.spent.device,
        **study.report_fields(run),
    }


def lines(study: Declaration, run: Run) -> list[str]:
    """Return the comparison of a run that has completed as lines of text."""
    arms, words = run.state.completed.arms, tables.words(study.arms_of(run))
    rows = {name: arms[name].bits_per_byte for name in words if name in arms}
    more = ((name, run.leads[name]) for name in rows if name in run.leads)
    title = study.result_title
    return [
        *comparison.table(rows),
        *(comparison.lead_line(name, words[name], figure, f"the {title}") for name, figure in more),
    ]


def card(study: Declaration, run: Run, words: Sequence[str]) -> str:
    """Return a model's card: what it is in `words`, and what the run has found."""
    tags = ("tags:", f"- {study.name}")
    head = ("---", "library_name: transformers", *tags, "---", "")
    what = f"{study.result_title[:1].upper()}{study.result_title[1:]}"
    title = f"# {what} of {run.started.model.name}, seed {run.settings.seed}"
    return "\n".join([*head, title, "", *words, "", *study.sentences(run), ""])


def panels(study: Declaration, run: Run, curves: Mapping[str, list[dict[str, Any]]]) -> list[Panel]:
    """Return the panels of what is there: arms, domains, curves, the study's own, models."""
    shown: list[Panel] = []
    if run.ours in run.seen:
        shown += study.comparison_panels(run, run.ours)
    shown += training_panels.curves(curves, study.references_of(run), run.state, run.trainings)
    return [*shown, *study.own_panels(run), training_panels.models(run.state, run.recipes)]
