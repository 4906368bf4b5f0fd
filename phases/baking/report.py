"""Report of a baking run: iterations, personas, success by family with intervals. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from phases.baking import findings, plan
from phases.baking.events import BakingState, CycleSwitched, IterationEnded
from runs.event_types import Figure


class Iteration(BaseModel):
    """An iteration, as baking.json has it."""

    model_config = ConfigDict(extra="forbid")

    cycle: str
    outcome: str
    before: float
    after: float | None
    persona: str | None
    why: str


class Persona(BaseModel):
    """A persona that the model proposed: its text is the recipe by which `forge bake` bakes it."""

    model_config = ConfigDict(extra="forbid")

    iteration: int
    text: str
    #: Success on the selection slice under it, and without it.
    score: float
    bare: float
    baked: bool


class Report(BaseModel):
    """Measurements of a baking run, as baking.json has them."""

    model_config = ConfigDict(extra="forbid")

    model: str
    seed: int
    parameters: int
    #: Parameters that were trained: all, or those of the adapters.
    trained: int
    #: Form of calls, and the prompt that tells of the tools.
    form: str
    prompt: str
    strength: float
    steps: int
    iterations: list[Iteration]
    #: Why each cycle ended.
    switches: list[str]
    personas: list[Persona]
    #: Arm → family → share of the test tasks that are solved.
    success: dict[str, dict[str, float]]
    #: Arm → domain → bits per byte on the test slice.
    bits_per_byte: dict[str, dict[str, float]]
    chosen: str
    figures: dict[str, Figure]
    #: Of all tasks of the run.
    seconds: float


def report(state: BakingState) -> Report:
    """Return the report of a run that has completed."""
    started, done, config = state.started, state.completed, state.submitted.config
    return Report(
        model=started.model.name,
        seed=config.seed,
        parameters=started.model.parameters,
        trained=started.trainable or started.model.parameters,
        form=started.form,
        prompt=started.prompt,
        strength=config.strength,
        steps=config.steps,
        iterations=[_iteration(one) for one in state.iterations],
        switches=[reason(one) for one in state.switches],
        personas=personas(state),
        success={arm: dict(event.values) for arm, event in findings.solved(state).items()},
        bits_per_byte={name: arm.bits_per_byte for name, arm in done.arms.items()},
        chosen=done.chosen,
        figures=done.figures,
        seconds=state.spent.device,
    )


def _iteration(one: IterationEnded) -> Iteration:
    return Iteration(**one.model_dump(include={*Iteration.model_fields}))


def personas(state: BakingState) -> list[Persona]:
    """Return all personas that were scored, and which of them was baked."""
    found: list[Persona] = []
    for one in plan.rounds(state):
        bare = findings.seen(state, findings.scored(one.start))
        if one.cycle != "personas" or bare is None:
            continue
        baked = one.ended.persona if one.ended and one.ended.outcome == "kept" else None
        found += [
            Persona(
                iteration=one.number,
                text=text,
                score=score,
                bare=findings.score(bare),
                baked=text == baked,
            )
            for text, score in findings.auditions(state, one.start).items()
        ]
    return found


def reason(one: CycleSwitched) -> str:
    """Return why a cycle ended, in words."""
    said = {
        "limit": "all iterations are done",
        "nothing": "there was nothing to bake",
        "reverted": "a bake solved less than the model before it, which goes on",
        "plateau": f"the slope of its scores is {one.slope or 0.0:+.4f} an iteration",
    }[one.reason]
    following = f"the cycle {one.next} goes on" if one.next else "the cycles end"
    return f"{one.ended} ended after iteration {one.iteration}: {said}; {following}"


def told(one: Iteration | IterationEnded) -> str:
    """Return an iteration in words."""
    if one.outcome == "nothing":
        return f"{one.cycle}: nothing was baked, {one.why}"
    return f"{one.cycle}: {one.before:.1%} to {one.after:.1%} solved, {one.outcome}"


def lines(report: Report) -> list[str]:
    """Return the report as lines of text for users."""
    out = [f"iteration {n}, {told(one)}" for n, one in enumerate(report.iterations, 1)]
    out += report.switches
    families = [*next(iter(report.success.values()))]
    width = max(map(len, families)) + 2
    out.append("share of the test tasks that are solved, in percent:")
    out.append(f"{'':14s}" + "".join(f"{f:>{width}s}" for f in (*families, "mean")))
    for arm, cells in report.success.items():
        values = [*cells.values(), sum(cells.values()) / len(cells)]
        out.append(f"{arm:14s}" + "".join(f"{100 * value:{width}.1f}" for value in values))
    return [*out, *(sentence.removeprefix("- ") for sentence in sentences(report))]


def _points(figure: Figure) -> str:
    assert figure.low is not None
    assert figure.high is not None
    low, high = 100 * figure.low, 100 * figure.high
    return f"{100 * figure.value:+.1f} points ({low:+.1f} to {high:+.1f})"


def sentences(report: Report) -> list[str]:
    """Return what a completed run has found, as a list."""
    figures = report.figures
    own, prompted = figures["success"], figures["prompted"]
    out = [
        f"- Without a prompt the result solves {own.value:.1%} of the test tasks, the mean over "
        f"families: {_points(figures['gain'])} from the given model.",
        f"- Under the prompt of the tools the given model solves {prompted.value:.1%}; the result "
        f"without it is {_points(figures['over_prompted'])} from that.",
    ]
    if report.trained < report.parameters:
        out.append(
            f"- Adapters of {report.trained:,} parameters were trained and merged into the model's "
            f"{report.parameters:,}."
        )
    if report.chosen == plan.START:
        out.append("- No bake was kept: the result is the given model.")
    if "ratio" in figures:
        out.append(
            f"- The ratio of divergences from the prompted model is {figures['ratio'].value:.3g}."
        )
    else:
        out.append("- The prompt of the tools does not change what the given model says.")
    out.append(f"- Bits per byte of ordinary text change by {figures['drift'].value:.2%} at most.")
    return out


def card(report: Report) -> str:
    """Return the baked model's card."""
    quoted = [f"    {line}" for line in report.prompt.splitlines()]
    baked = [one for one in report.personas if one.baked]
    return "\n".join(
        [
            *("---", "library_name: transformers", "---", ""),
            f"# {report.model} with baked tools, seed {report.seed}",
            "",
            f"Prompts baked in {len(report.iterations)} iterations of {report.steps:,} steps, each at "
            f"{report.strength:g} of its strength (prompt baking, arXiv 2409.13697). Calls have the "
            f"form {report.form}. The prompt of the tools:",
            "",
            *quoted,
            "",
            *(f"Persona: {one.text.strip()}" for one in baked),
            *([""] if baked else []),
            *sentences(report),
            "",
        ]
    )
