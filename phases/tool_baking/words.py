"""Words of a baking run: lines of events, report, sentences, card. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from phases.tool_baking import figures
from phases.tool_baking.events import CycleSwitched, IterationEnded
from phases.tool_baking.recipes import START
from runs.event_types import Figure
from studies.run import Run

_SUCCESS = (figures.SUCCESS, figures.UNDER_PROMPT, figures.PERSONAS)


def gist(type_: str, data: Mapping[str, Any], name: str) -> str | None:
    """Return the telling part of an event of the model `name`; None for those of every study."""
    match type_:
        case "submitted":
            return f"{data['model']['name']}, {', '.join(data['config']['families'])}"
        case "sampled":
            turns = sum(stream["trajectories"] for stream in data["streams"].values())
            return f"{name}: {turns:,} turns"
        case "proposed":
            return f"{name}: {len(data['personas'])} personas"
        case "iteration_ended":
            event = IterationEnded.model_validate(data)
            return f"iteration {event.iteration}, {ending(event)}"
        case "cycle_switched":
            return reason(CycleSwitched.model_validate(data))
        case "observed" if data["measure"] in _SUCCESS:
            values = data["values"].values()
            return f"{name}, {data['on']}: {sum(values) / len(values):.1%} solved"
        case "observed" if data["measure"] == figures.DIVERGENCE:
            return f"{name}, {data['on']}: {data['values'][figures.PROMPT]:.4f} nats a token"
    return None


def reason(switch: CycleSwitched) -> str:
    """Return why a cycle ended, in words."""
    why = {
        "limit": "all iterations are done",
        "nothing": "there was nothing to bake",
        "reverted": "a bake solved less than the model before it, which goes on",
        "plateau": f"the slope of its scores is {switch.slope or 0.0:+.4f} an iteration",
    }[switch.reason]
    following = f"the cycle {switch.next} goes on" if switch.next else "the cycles end"
    return f"{switch.ended} ended after iteration {switch.iteration}: {why}; {following}"


def ending(event: IterationEnded) -> str:
    """Return how an iteration ended, in words."""
    if event.outcome == "nothing":
        return f"{event.cycle}: nothing was baked, {event.why}"
    return f"{event.cycle}: {event.before:.1%} to {event.after:.1%} solved, {event.outcome}"


def ends(run: Run) -> list[IterationEnded]:
    """Return how each iteration ended, of those that have."""
    return [iteration.ended for iteration in run.known["iterations"] if iteration.ended]


# ---- report ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Persona:
    """A persona that the model proposed: its text is the recipe by which `forge bake` bakes it."""

    iteration: int
    text: str
    #: Success on the selection slice under it, and without it.
    score: float
    bare: float
    baked: bool


def personas(run: Run) -> list[Persona]:
    """Return all personas that were scored, and which of them was baked."""
    rows = []
    for iteration in run.known["iterations"]:
        end = iteration.ended
        baked = end.persona if end and end.outcome == "kept" else None
        for text, score in iteration.auditions.items():
            before = iteration.before
            rows.append(Persona(iteration.number, text, score, before, text == baked))
    return rows


def report_fields(run: Run) -> dict[str, object]:
    """Return the fields of the report beside those that every study has."""
    started, settings = run.started, run.settings
    return {
        "parameters": started.model.parameters,
        #: Parameters that were trained: all, or those of the adapters.
        "trained": started.trainable or started.model.parameters,
        #: Form of calls, and the prompt that tells of the tools.
        "form": started.form,
        "prompt": started.prompt,
        "strength": settings.strength,
        "steps": settings.steps,
        "iterations": [end.model_dump(exclude={"iteration"}) for end in ends(run)],
        #: Why each cycle ended.
        "switches": [reason(switch) for switch in run.known["switches"]],
        "personas": [asdict(persona) for persona in personas(run)],
        #: Arm → family → share of the test tasks that are solved.
        "success": {arm: dict(event.values) for arm, event in figures.solved(run).items()},
        "chosen": run.result,
    }


def lines(run: Run) -> list[str]:
    """Return the report of a run that has completed as lines of text."""
    out = [f"iteration {n}, {ending(end)}" for n, end in enumerate(ends(run), 1)]
    out += [reason(switch) for switch in run.known["switches"]]
    success = {arm: event.values for arm, event in figures.solved(run).items()}
    families = [*next(iter(success.values()))]
    width = max(map(len, families)) + 2
    out.append("share of the test tasks that are solved, in percent:")
    out.append(f"{'':14s}" + "".join(f"{f:>{width}s}" for f in (*families, "mean")))
    for arm, cells in success.items():
        values = [*cells.values(), sum(cells.values()) / len(cells)]
        out.append(f"{arm:14s}" + "".join(f"{100 * value:{width}.1f}" for value in values))
    return [*out, *(sentence.removeprefix("- ") for sentence in sentences(run))]


def _points(figure: Figure) -> str:
    assert figure.low is not None
    assert figure.high is not None
    low, high = 100 * figure.low, 100 * figure.high
    return f"{100 * figure.value:+.1f} points ({low:+.1f} to {high:+.1f})"


def sentences(run: Run) -> list[str]:
    """Return what a completed run has found, as a list."""
    run_figures, started = run.state.completed.figures, run.started
    out = [
        f"- Without a prompt the result solves {run_figures['success'].value:.1%} of the test tasks, the "
        f"mean over families: {_points(run_figures['gain'])} from the given model.",
        f"- Under the prompt of the tools the given model solves {run_figures['prompted'].value:.1%}; the "
        f"result without it is {_points(run_figures['over_prompted'])} from that.",
    ]
    if started.trainable:
        out.append(
            f"- Adapters of {started.trainable:,} parameters were trained and merged into the "
            f"model's {started.model.parameters:,}."
        )
    if run.result == START:
        out.append("- No bake was kept: the result is the given model.")
    if "ratio" in run_figures:
        value = run_figures["ratio"].value
        out.append(f"- The ratio of divergences from the prompted model is {value:.3g}.")
    else:
        out.append("- The prompt of the tools does not change what the given model says.")
    return [
        *out,
        f"- Bits per byte of ordinary text change by {run_figures['drift'].value:.2%} at most.",
    ]


def card_words(run: Run) -> list[str]:
    """Return how the model was baked, the prompt of the tools, and the personas."""
    settings, started = run.settings, run.started
    baked = [f"Persona: {row.text.strip()}" for row in personas(run) if row.baked]
    return [
        f"Prompts baked in {len(ends(run))} iterations of {settings.steps:,} steps, each at "
        f"{settings.strength:g} of its strength (prompt baking, arXiv 2409.13697). Calls have the "
        f"form {started.form}. The prompt of the tools:",
        "",
        *(f"    {line}" for line in started.prompt.splitlines()),
        *(["", *baked] if baked else []),
    ]
