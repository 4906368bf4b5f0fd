"""Report of a bake: strengths, divergences with intervals, drift. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from evaluation.given_model_runs import comparison
from phases.bake import findings, plan, prompts
from phases.bake.events import BakeState
from phases.bake.findings import LIMITS
from runs.event_types import Figure


class Report(BaseModel):
    """Measurements of a bake, as bake.json has them."""

    model_config = ConfigDict(extra="forbid")

    model: str
    seed: int
    prompts: tuple[str, ...]
    #: Tokens of the prompts.
    prompt_tokens: int
    parameters: int
    steps: int
    #: Strength → [ratio, drift] on the selection slice.
    strengths: dict[str, tuple[float, float]]
    #: Arm → domain → bits per byte on the test slice.
    bits_per_byte: dict[str, dict[str, float]]
    #: Arm → prompt → nats a token off the given model on the test slice.
    divergences: dict[str, dict[str, float]]
    #: Name of a divergence → the prompt.
    others: dict[str, str]
    chosen: str
    figures: dict[str, Figure]
    met: dict[str, bool]
    #: Of all tasks of the run.
    seconds: float


def report(state: BakeState) -> Report:
    """Return the report of a run that has completed."""
    started, done, config = state.started, state.completed, state.submitted.config
    others = enumerate(prompts.measured(config), 1)
    return Report(
        model=started.model.name,
        seed=config.seed,
        prompts=config.prompts,
        prompt_tokens=started.prompt_tokens,
        parameters=started.model.parameters,
        steps=config.steps if done.chosen != plan.PARENT else 0,
        strengths={f"{strength:g}": point for strength, point in findings.curve(state).items()},
        bits_per_byte={name: arm.bits_per_byte for name, arm in done.arms.items()},
        divergences={name: dict(event.values) for name, event in findings.apart(state).items()},
        others={f"{findings.OTHER}{number}": prompt for number, prompt in others},
        chosen=done.chosen,
        figures=done.figures,
        met=done.met,
        seconds=state.spent.device,
    )


def words(name: str) -> str:
    """Return what an arm is."""
    if name == plan.PARENT:
        return "the model that was given, without the prompt"
    if name == plan.FULL:
        return "the model at the end of the training, strength 1"
    return f"the baked model at {name.replace('-', ' ')}"


def lines(report: Report) -> list[str]:
    """Return the report as lines of text for users."""
    out = []
    if report.strengths:
        out.append("strength, ratio of divergences, drift of bits per byte (selection slice):")
        for strength, (ratio, drift) in report.strengths.items():
            out.append(f"{strength:>10s}{ratio:10.4f}{drift:10.2%}")
    rows = {name: report.bits_per_byte[name] for name in report.bits_per_byte}
    out += comparison.table(rows)
    return [*out, *(sentence.removeprefix("- ") for sentence in sentences(report))]


def _span(figure: Figure) -> str:
    return f"{figure.value:.3g} ({figure.low:.3g} to {figure.high:.3g})"


def sentences(report: Report) -> list[str]:
    """Return what a completed run has found, as a list."""
    told = report.figures
    if "ratio" not in told:
        return [
            f"- The prompt changes nothing: without it the model is {told['unprompted'].value:.2g} "
            f"nats a token off itself with it, below {findings.LEAST:g} on the slice that decides. A "
            "ratio is not defined, nothing was trained, and the result is the given model."
        ]
    said = {True: "within", False: "above"}
    out = [
        f"- At strength {told['strength'].value:g} the model without the prompt is "
        f"{_span(told['baked'])} nats a token off the prompted one, where the given model is "
        f"{_span(told['unprompted'])}.",
        f"- The ratio is {_span(told['ratio'])}, {said[report.met['ratio']]} the limit of "
        f"{LIMITS['ratio']:g}.",
        f"- Bits per byte of ordinary text change by {told['drift'].value:.2%} at most, "
        f"{said[report.met['drift']]} the limit of {LIMITS['drift']:.1%}.",
    ]
    if "others" in told:
        out.append(
            f"- Under other prompts the model is {_span(told['others'])} nats a token off the given "
            "one."
        )
    if "unheard" in told:
        out.append(
            f"- Under a prompt that was not rehearsed it is {_span(told['unheard'])} nats a token off."
        )
    return out


def card(report: Report) -> str:
    """Return the baked model's card."""
    quoted = [f"    {line}" for prompt in report.prompts for line in [*prompt.splitlines(), ""]]
    return "\n".join(
        [
            *("---", "library_name: transformers", "---", ""),
            f"# {report.model} with a baked prompt, seed {report.seed}",
            "",
            f"This model answers without the prompt as {report.model} does with it (prompt baking, "
            f"arXiv 2409.13697). Trained for {report.steps:,} steps.",
            "",
            *quoted,
            *sentences(report),
            "",
        ]
    )
