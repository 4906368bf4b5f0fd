"""Report of a bake: strengths, divergences with intervals, drift. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from phases.bake import behaviour, findings, plan, prompts, stages
from phases.bake.events import BakeState
from phases.bake.findings import FLOORS, LIMITS
from runs.event_types import Figure
from studies import comparison

#: Titles of a curve's points: interpolated weights, and trainings that were stopped.
INTERPOLATED, STOPPED = "interpolated", "stopped early"


class Report(BaseModel):
    """Measurements of a bake, as bake.json has them."""

    model_config = ConfigDict(extra="forbid")

    model: str
    seed: int
    prompts: tuple[str, ...]
    #: Tokens of the prompts.
    prompt_tokens: int
    parameters: int
    #: Parameters that were trained: all, or those of the adapters.
    trained: int
    #: Of all trainings.
    steps: int
    #: Stage and way to a strength → strength → [ratio, drift] on the selection slice.
    strengths: dict[str, dict[str, tuple[float, float]]]
    #: Arm → domain → bits per byte on the test slice.
    bits_per_byte: dict[str, dict[str, float]]
    #: Arm → prompt → nats a token off the given model on the test slice.
    divergences: dict[str, dict[str, float]]
    #: Name of a divergence → the prompt.
    others: dict[str, str]
    #: Arm → ratio of divergences, and that on contexts after ordinary text.
    ratios: dict[str, Figure]
    far_ratios: dict[str, Figure]
    #: Tokens of ordinary text before those contexts.
    beyond: int | None
    #: Number of a prompt → share of what it changes that the result has.
    kept: dict[int, Figure]
    #: Place of contexts → number of a prompt → arm → share of replies that pass its check.
    behaviour: dict[str, dict[int, dict[str, Figure]]]
    chosen: str
    figures: dict[str, Figure]
    met: dict[str, bool]
    #: Of all tasks of the run.
    seconds: float


def curves(state: BakeState) -> dict[str, dict[float, tuple[float, float]]]:
    """Return title → strength → (ratio, drift) on the selection slice, of those that are measured.

    The first line begins at the given model: strength 0, ratio 1, no drift.
    """
    found: dict[str, dict[float, tuple[float, float]]] = {}
    for one in stages.known(state):
        for early, way in ((False, INTERPOLATED), (True, STOPPED)):
            points = {
                candidate.share: one.curve[name]
                for name, candidate in one.candidates.items()
                if name in one.curve and candidate.early == early
            }
            if one.begins == plan.PARENT and points and not early:
                points = {0.0: (1.0, 0.0), **points}
            title = way if one.stage.number == 1 else f"bake {one.stage.number}, {way}"
            found |= {title: points} if points else {}
    return found


def report(state: BakeState) -> Report:
    """Return the report of a run that has completed."""
    started, done, config = state.started, state.completed, state.submitted.config
    others = enumerate(prompts.measured(config), 1)
    seen = findings.behaved(state)
    places = (behaviour.NEAR, behaviour.FAR)
    shares = {place: behaviour.shares(config, seen, done.chosen, place) for place in places}
    return Report(
        model=started.model.name,
        seed=config.seed,
        prompts=config.prompts,
        prompt_tokens=started.prompt_tokens,
        parameters=started.model.parameters,
        trained=started.trainable or started.model.parameters,
        steps=config.steps * len(stages.active(state)),
        strengths={
            title: {f"{strength:g}": point for strength, point in points.items()}
            for title, points in curves(state).items()
        },
        bits_per_byte={name: arm.bits_per_byte for name, arm in done.arms.items()},
        divergences={name: dict(event.values) for name, event in findings.apart(state).items()},
        others={f"{findings.OTHER}{number}": prompt for number, prompt in others},
        ratios=findings.ratios(state),
        far_ratios=findings.ratios(state, findings.FAR),
        beyond=started.beyond,
        kept=findings.kept(state),
        behaviour={
            place: {n: dict(arms) for n, arms in told.items()}
            for place, told in shares.items()
            if told
        },
        chosen=done.chosen,
        figures=done.figures,
        met=done.met,
        seconds=state.spent.device,
    )


def words(name: str) -> str:
    """Return what an arm is."""
    if name == plan.PARENT:
        return "the model that was given, without the prompt"
    first, _, rest = name.partition("-")
    number, own = rest.split("-", 1) if first == plan.PURPOSE else ("", name)
    after = f" of bake {number}" if number else ""
    if own == plan.FULL:
        return f"the model at the end of the training{after}, strength 1"
    if own.startswith("stop-"):
        share = float(own.removeprefix("stop-"))
        return f"the training{after} stopped after {share:.4g} of its steps"
    return f"the baked model{after} at {own.replace('-', ' ')}"


def lines(report: Report) -> list[str]:
    """Return the report as lines of text for users."""
    out = []
    for title, points in report.strengths.items():
        out.append(
            f"strength, ratio of divergences, drift of bits per byte (selection slice, {title}):"
        )
        for strength, (ratio, drift) in points.items():
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
            f"nats a token off itself with it, below {stages.LEAST:g} on the slice that decides. A "
            "ratio is not defined, nothing was trained, and the result is the given model."
        ]
    said = {True: "within", False: "above"}
    out = [
        f"- The result is {words(report.chosen)}. Without the prompt it is {_span(told['baked'])} nats "
        f"a token off the prompted model, where the given model is {_span(told['unprompted'])}.",
        f"- The ratio is {_span(told['ratio'])}, {said[report.met['ratio']]} the limit of "
        f"{LIMITS['ratio']:g}.",
        f"- Bits per byte of ordinary text change by {told['drift'].value:.2%} at most, "
        f"{said[report.met['drift']]} the limit of {LIMITS['drift']:.1%}.",
    ]
    out += [
        f"- {words(name).capitalize()}: ratio {_span(ratio)}."
        for name, ratio in report.ratios.items()
        if name != report.chosen and not name.endswith(plan.FULL)
    ]
    if report.trained < report.parameters:
        out.append(
            f"- Adapters of {report.trained:,} parameters were trained and merged into the model's "
            f"{report.parameters:,}."
        )
    for number, share in report.kept.items():
        out.append(
            f"- Of what prompt {number} changes beside the others the result has {_span(share)}, "
            f"where {FLOORS['kept']:g} is the limit."
        )
    out += _behaviour(report)
    if "far_ratio" in told:
        out.append(
            f"- After {report.beyond} tokens of ordinary text the ratio is {_span(told['far_ratio'])}."
        )
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


def _behaviour(report: Report) -> list[str]:
    """Return how many replies pass the checks, in sentences."""
    where = {behaviour.NEAR: "", behaviour.FAR: f", after {report.beyond} tokens of ordinary text"}
    return [
        f"- Replies that pass the check of prompt {number}{where[place]}: {arms['baked'].value:.1%} of "
        f"the result's ({arms['baked'].low:.1%} to {arms['baked'].high:.1%}), "
        f"{arms['prompted'].value:.1%} of the given model's with the prompt, "
        f"{arms['unprompted'].value:.1%} without it."
        for place, told in report.behaviour.items()
        for number, arms in told.items()
    ]


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
