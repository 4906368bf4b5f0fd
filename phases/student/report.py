"""Report of a student run: arms with intervals, sizes. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from phases.student import findings, plan
from phases.student.events import StudentState
from runs.event_types import Figure
from studies import comparison

#: Arm → what it is, in words.
ARMS = {
    plan.TEACHER: "the model that was given",
    plan.DISTILLED: "the student, trained on the text and on what the given model predicts",
    plan.ALONE: "the same student, trained on the text alone",
}


class Report(BaseModel):
    """Measurements of a student run, as student.json has them."""

    model_config = ConfigDict(extra="forbid")

    model: str
    seed: int
    #: Of the given model, and of the student.
    given: int
    parameters: int
    #: Settings of config.json in which the student differs.
    sizes: dict[str, int | tuple[str, ...]]
    #: Tokens of each training.
    tokens: int
    #: Arm → domain → bits per byte on the test slice.
    bits_per_byte: dict[str, dict[str, float]]
    #: Arm → the bits per byte that it needs more than the result.
    more: dict[str, Figure]
    #: The arm that is the result.
    chosen: str
    figures: dict[str, Figure]
    #: Of all tasks of the run.
    seconds: float


def report(state: StudentState) -> Report:
    """Return the report of a run that has completed."""
    started, done = state.started, state.completed
    recipe = plan.distilled(state.submitted, started)
    return Report(
        model=started.model.name,
        seed=state.submitted.config.seed,
        given=started.model.parameters,
        parameters=started.parameters,
        sizes=started.sizes,
        tokens=recipe.steps * recipe.batch * recipe.context,
        bits_per_byte={name: arm.bits_per_byte for name, arm in done.arms.items()},
        more=findings.leads(state),
        chosen=done.chosen,
        figures=done.figures,
        seconds=state.spent.device,
    )


def lines(report: Report) -> list[str]:
    """Return the report as lines of text for users."""
    rows = {name: report.bits_per_byte[name] for name in ARMS if name in report.bits_per_byte}
    out = comparison.table(rows)
    for name, one in report.more.items():
        out.append(comparison.lead_line(name, ARMS[name], one, report.chosen))
    ratio = report.figures["ratio"].value
    out.append(
        f"result: {report.chosen}, {report.parameters:,} parameters, {ratio:.1f} times fewer than "
        f"{report.given:,}"
    )
    return out


def sentences(report: Report) -> list[str]:
    """Return what a completed run has found, as a list."""
    figures = report.figures
    kept = figures["retention"]
    assert kept.low is not None
    assert kept.high is not None
    out = [
        f"- The student has {report.parameters:,} parameters, {figures['ratio'].value:.1f} times fewer "
        f"than the given model, and {figures['bits_per_byte'].value:.4f} bits per byte: "
        f"{kept.value:.4f} of the quality ({kept.low:.4f} to {kept.high:.4f})."
    ]
    other = plan.ALONE if report.chosen == plan.DISTILLED else plan.DISTILLED
    if other in report.more:
        one = report.more[other]
        out.append(
            f"- It is the arm {report.chosen}; the arm {other} needs {one.value:.4f} bits per byte "
            f"more ({one.low:.4f} to {one.high:.4f}), with as many tokens."
        )
    return out


def card(report: Report) -> str:
    """Return the student's card."""
    return "\n".join(
        [
            *("---", "library_name: transformers", "---", ""),
            f"# Student of {report.model}, seed {report.seed}",
            "",
            f"Trained on {report.tokens:,} tokens from new weights: {ARMS[report.chosen]}.",
            "",
            *sentences(report),
            "",
        ]
    )
