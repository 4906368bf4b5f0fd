"""Report of a bitnet run: arms with intervals, sizes. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from phases.bitnet import findings, plan
from phases.bitnet.events import BitnetState
from runs.event_types import Figure
from studies import comparison
from studies.events import MODEL

#: Arm → what it is, in words.
ARMS = {
    plan.START: "the model that was given",
    plan.FULL: "continued training in full precision",
    MODEL: "ternary training",
    plan.SCRATCH: "ternary training from new weights",
    findings.UNTRAINED: "ternary without training",
}


class Report(BaseModel):
    """Measurements of a bitnet run, as bitnet.json has them."""

    model_config = ConfigDict(extra="forbid")

    model: str
    seed: int
    parameters: int
    ternary: int
    #: Tokens of each training.
    tokens: int
    #: Arm → domain → bits per byte on the test slice.
    bits_per_byte: dict[str, dict[str, float]]
    #: Arm → the bits per byte that it needs more than the ternary model.
    more: dict[str, Figure]
    #: The way of rounding without training that was the best on the selection slice.
    untrained: str
    figures: dict[str, Figure]
    #: Bytes of the tensors in float32, and packed.
    bytes: int
    packed: int
    #: Of all tasks of the run.
    seconds: float


def report(state: BitnetState) -> Report:
    """Return the report of a run that has completed."""
    started, done = state.started, state.completed
    recipe = plan.trainings(state)[plan.MASTER]
    return Report(
        model=started.model.name,
        seed=state.submitted.config.seed,
        parameters=started.model.parameters,
        ternary=started.ternary,
        tokens=recipe.steps * recipe.batch * recipe.context,
        bits_per_byte={name: arm.bits_per_byte for name, arm in done.arms.items()},
        more=findings.leads(state),
        untrained=done.untrained,
        figures=done.figures,
        bytes=started.bytes,
        packed=started.packed,
        seconds=state.spent.device,
    )


def lines(report: Report) -> list[str]:
    """Return the report as lines of text for users."""
    rows = {name: report.bits_per_byte[name] for name in ARMS if name in report.bits_per_byte}
    out = comparison.table(rows)
    for name in rows:
        if name in report.more:
            more, words = report.more[name], _words(report, name)
            out.append(comparison.lead_line(name, words, more, "the ternary model"))
    size = report.figures["size"].value
    out.append(
        f"packed: {report.packed:,} bytes, {size:.1%} of {report.bytes:,} in float32; "
        f"{report.ternary:,} of {report.parameters:,} weights are ternary"
    )
    return out


def _words(report: Report, name: str) -> str:
    """Return an arm in words."""
    return ARMS[name] + (f" ({report.untrained})" if name == findings.UNTRAINED else "")


def sentences(report: Report) -> list[str]:
    """Return what a completed run has found, as a list."""
    figures, best = report.figures, report.more[findings.UNTRAINED]
    more = {name: 1 / figures[name].value - 1 for name in ("retention", "retention_of_start")}
    out = [
        f"- The ternary model has {figures['bits_per_byte'].value:.4f} bits per byte: "
        f"{more['retention']:+.1%} against continued training in full precision with as many tokens, "
        f"{more['retention_of_start']:+.1%} against the model that was given.",
        f"- The best rounding without training ({report.untrained}) needs {best.value:.4f} bits per "
        f"byte more ({best.low:.4f} to {best.high:.4f}).",
        f"- Packed it has {report.packed:,} bytes, {figures['size'].value:.1%} of those in float32.",
    ]
    return [line.replace("%", " %") for line in out]


def card(role: str, report: Report) -> str:
    """Return a model's card."""
    what = {
        MODEL: "ternary weights, as float32: −s, 0 or s in every matrix of a linear layer.",
        plan.MASTER: "the full-precision weights that the ternary ones are rounded from.",
        "packed": "ternary weights in two bits each, which transformers loads (format `bitnet`).",
    }[role]
    return "\n".join(
        [
            *("---", "library_name: transformers", "tags:", "- bitnet", "---", ""),
            f"# {role} ({report.model}, seed {report.seed})",
            "",
            f"{report.parameters:,} parameters: {what}",
            f"Trained on {report.tokens:,} tokens from {report.model}.",
            "",
            *sentences(report),
            "",
        ]
    )
