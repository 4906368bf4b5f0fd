"""Words of a bake: lines of events, report, sentences, card. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from agent_forge.phases.prompt_baking import figures, recipes
from agent_forge.phases.prompt_baking.figures import FAR, FLOORS, LIMITS, NEAR
from agent_forge.phases.prompt_baking.recipes import FULL, PARENT, PURPOSE
from agent_forge.runs.event_types import Figure
from agent_forge.studies import comparison
from agent_forge.studies.run import StudyRun
from agent_forge.studies.study_view import Data, Plain

#: Titles of a curve's points: interpolated weights, and trainings that were stopped.
INTERPOLATED, STOPPED = "interpolated", "stopped early"
#: True (the figure is within its limit) or False → words; figure → words for its limit.
MET = {True: "within", False: "above"}
LIMIT = {"ratio": f"{LIMITS['ratio']:g}", "drift": f"{100 * LIMITS['drift']:g} %"}


def summary_line(type_: str, data: Data, name: str) -> str | None:
    """Return a line of text about an event of the model `name`; None for events of every study."""
    match type_:
        case "submitted":
            characters = sum(map(len, data["config"]["prompts"]))
            return f"{data['model']['name']}, {characters:,} characters of prompts"
        case "observed" if data["measure"] == figures.DIVERGENCE:
            return f"{name}, {data['on']}: {data['values'][figures.PROMPT]:.4f} nats a token"
        case "observed" if data["measure"] == figures.BEHAVIOUR:
            shares = ", ".join(f"{group} {value:.0%}" for group, value in data["values"].items())
            return f"{name}, replies that pass: {shares}"
    return None


def of_arm(name: str) -> str:
    """Return the description of an arm, in words."""
    if name == PARENT:
        return "the model that was given, without the prompt"
    first, _, rest = name.partition("-")
    number, label = rest.split("-", 1) if first == PURPOSE else ("", name)
    after = f" of bake {number}" if number else ""
    if label == FULL:
        return f"the model at the end of the training{after}, strength 1"
    if label.startswith("stop-"):
        share = float(label.removeprefix("stop-"))
        return f"the training{after} stopped after {share:.4g} of its steps"
    return f"the baked model{after} at {label.replace('-', ' ')}"


def curves(run: StudyRun) -> dict[str, dict[float, tuple[float, float]]]:
    """Return title of a line → strength → (ratio, drift), on the selection slice.

    Candidates that are not measured are left out. The first line begins at the given model: strength 0,
    ratio 1, no drift.
    """
    lines: dict[str, dict[float, tuple[float, float]]] = {}
    for course in run.known["courses"]:
        measured = figures.curve(run, course)
        for early, way in ((False, INTERPOLATED), (True, STOPPED)):
            points = {
                candidate.share: measured[name]
                for name, candidate in course.candidates.items()
                if name in measured and candidate.early == early
            }
            if course.start.id == run.recipes[PARENT].id and points and not early:
                points = {0.0: (1.0, 0.0), **points}
            title = way if course.stage.number == 1 else f"bake {course.stage.number}, {way}"
            lines |= {title: points} if points else {}
    return lines


# ---- report ------------------------------------------------------------------------------------


Name = TypeVar("Name", str, int)


def _dumped(values: Mapping[Name, Figure]) -> dict[Name, Plain]:
    return {name: figure.model_dump() for name, figure in values.items()}


def report_fields(run: StudyRun) -> dict[str, object]:
    """Return the fields of the report that only a bake has."""
    started, settings = run.started, run.settings
    numbered_prompts = enumerate(recipes.measured(settings), 1)
    rates = {place: figures.rates(run, place) for place in (NEAR, FAR)}
    return {
        "prompts": settings.prompts,
        #: Tokens of the prompts.
        "prompt_tokens": started.prompt_tokens,
        "parameters": started.model.parameters,
        #: Parameters that were trained: all, or those of the adapters.
        "trained": _trained(run),
        #: Of all trainings.
        "steps": _steps(run),
        #: Stage and way to a strength → strength → [ratio, drift] on the selection slice.
        "strengths": {
            title: {f"{strength:g}": point for strength, point in points.items()}
            for title, points in curves(run).items()
        },
        #: Arm → prompt → nats a token off the given model on the test slice.
        "divergences": {name: dict(event.values) for name, event in figures.apart(run).items()},
        #: Name of a divergence → the prompt.
        "others": {f"{figures.OTHER}{number}": prompt for number, prompt in numbered_prompts},
        #: Arm → ratio of divergences, and that on contexts after ordinary text.
        "ratios": _dumped(figures.ratios(run)),
        "far_ratios": _dumped(figures.ratios(run, FAR)),
        #: Tokens of ordinary text before those contexts.
        "beyond": started.beyond,
        #: Number of a prompt → share of what it changes that the result has.
        "kept": _dumped(figures.kept(run)),
        #: Place of contexts → number of a prompt → arm → share of replies that pass its check.
        "behaviour": {
            place: {number: _dumped(arms) for number, arms in checks.items()}
            for place, checks in rates.items()
            if checks
        },
        "chosen": run.result,
        "met": dict(run.state.completed.met),
    }


def _trained(run: StudyRun) -> int:
    """Return the number of trained parameters: all, or those of the adapters."""
    return run.started.trainable or run.started.model.parameters


def _steps(run: StudyRun) -> int:
    """Return the number of steps of all trainings together."""
    return run.settings.steps * len(run.known["stages"])


def lines(run: StudyRun) -> list[str]:
    """Return the report of a completed run as lines of text for a terminal."""
    out = []
    for title, points in curves(run).items():
        out.append(
            f"strength, ratio of divergences, drift of bits per byte (selection slice, {title}):"
        )
        for strength, (ratio, drift) in points.items():
            out.append(f"{strength:10g}{ratio:10.4f}{drift:10.2%}")
    arms = run.state.completed.arms.items()
    out += comparison.table({name: arm.bits_per_byte for name, arm in arms})
    return [*out, *(sentence.removeprefix("- ") for sentence in sentences(run))]


def _span(figure: Figure) -> str:
    return f"{figure.value:.3g} ({figure.low:.3g} to {figure.high:.3g})"


def sentences(run: StudyRun) -> list[str]:
    """Return the findings of a completed run as Markdown list items."""
    values, met = run.state.completed.figures, run.state.completed.met
    if "ratio" not in values:
        return [
            f"- The prompt changes nothing: without it the model is {values['unprompted'].value:.2g} "
            f"nats a token off itself with it, below {figures.LEAST:g} on the slice that decides. A "
            "ratio is not defined, nothing was trained, and the result is the given model."
        ]
    out = [
        f"- The result is {of_arm(str(run.result))}. Without the prompt it is {_span(values['baked'])} "
        f"nats a token off the prompted model, where the given model is {_span(values['unprompted'])}.",
        f"- The ratio is {_span(values['ratio'])}, {MET[met['ratio']]} the limit of {LIMIT['ratio']}.",
        f"- Bits per byte of ordinary text change by {values['drift'].value:.2%} at most, "
        f"{MET[met['drift']]} the limit of {LIMIT['drift']}.",
    ]
    out += [
        f"- {of_arm(name).capitalize()}: ratio {_span(ratio)}."
        for name, ratio in figures.ratios(run).items()
        if name != run.result and not name.endswith(FULL)
    ]
    if (trained := _trained(run)) < run.started.model.parameters:
        out.append(
            f"- Adapters of {trained:,} parameters were trained and merged into the model's "
            f"{run.started.model.parameters:,}."
        )
    for number, share in figures.kept(run).items():
        out.append(
            f"- Of what prompt {number} changes beside the others the result has {_span(share)}, "
            f"where {FLOORS['kept']:g} is the limit."
        )
    out += _behaviour(run)
    further = {
        "far_ratio": f"After {run.started.beyond} tokens of ordinary text the ratio is {{}}.",
        "others": "Under other prompts the model is {} nats a token off the given one.",
        "unheard": "Under a prompt that was not rehearsed it is {} nats a token off.",
    }
    return [*out, *(f"- {t.format(_span(values[n]))}" for n, t in further.items() if n in values)]


def _behaviour(run: StudyRun) -> list[str]:
    """Return Markdown list items on how many replies pass each check."""
    where = {NEAR: "", FAR: f", after {run.started.beyond} tokens of ordinary text"}
    return [
        f"- Replies that pass the check of prompt {number}{words}: {arms['baked'].value:.1%} of "
        f"the result's ({arms['baked'].low:.1%} to {arms['baked'].high:.1%}), "
        f"{arms['prompted'].value:.1%} of the given model's with the prompt, "
        f"{arms['unprompted'].value:.1%} without it."
        for place, words in where.items()
        for number, arms in figures.rates(run, place).items()
    ]


def paragraphs(run: StudyRun, role: str) -> list[str]:
    """Return the lines of the model card: what the model does, and the prompts, quoted."""
    model = run.started.model.name
    quoted = [f"    {line}" for text in run.settings.prompts for line in [*text.splitlines(), ""]]
    return [
        f"This model answers without the prompt as {model} does with it (prompt baking, "
        f"arXiv 2409.13697). Trained for {_steps(run):,} steps.",
        "",
        *quoted[:-1],
    ]
