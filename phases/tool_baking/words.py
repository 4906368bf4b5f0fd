"""Prose and panels of a baking run: report, card, scores, success by tool, personas, cycles. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from agent_forge.events.envelope import Data
from agent_forge.phases.tool_baking import figures, recipes
from agent_forge.phases.tool_baking.figures import PROMPT
from agent_forge.phases.tool_baking.recipes import START, CycleSwitched, IterationEnded
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds.wording import figure_metric
from agent_forge.runs.panels.head import Result
from agent_forge.runs.panels.panels import Arms, Lines, Matrix, Panel, Series, Units, columns
from agent_forge.runs.panels.shapes import Axis, Metric
from agent_forge.studies import arm_panels, comparison, training_panels
from agent_forge.studies import run as tables
from agent_forge.studies.events import Observed
from agent_forge.studies.run import ArmLabel as StudyArm
from agent_forge.studies.run import StudyRun
from agent_forge.studies.training_panels import Curves

_SUCCESS = (figures.SUCCESS, figures.UNDER_PROMPT, figures.PERSONAS)


def summary_line(type_: str, data: Data, name: str) -> str | None:
    """Return a line of text about an event of the model `name`; None for events of every study."""
    match type_:
        case "submitted":
            return f"{data['model']['name']}, {', '.join(data['config']['families'])}"
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
    """Return a sentence that says why a cycle ended, and what follows."""
    why = {
        "limit": "all iterations are done",
        "nothing": "there was nothing to bake",
        "reverted": "a bake solved less than the model before it, which goes on",
        "plateau": f"the slope of its scores is {switch.slope or 0.0:+.4f} an iteration",
    }[switch.reason]
    following = f"the cycle {switch.next} goes on" if switch.next else "the cycles end"
    return f"{switch.ended} ended after iteration {switch.iteration}: {why}; {following}"


def ending(event: IterationEnded) -> str:
    """Return words for the end of an iteration: cycle, success before and after, outcome."""
    if event.outcome == "nothing":
        return f"{event.cycle}: nothing was baked, {event.why}"
    return f"{event.cycle}: {event.before:.1%} to {event.after:.1%} solved, {event.outcome}"


def ends(run: StudyRun) -> list[IterationEnded]:
    """Return the `iteration_ended` events so far."""
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


def personas(run: StudyRun) -> list[Persona]:
    """Return a list of the scored `Persona`s, each with `baked` True if it was baked and kept."""
    rows = []
    for iteration in run.known["iterations"]:
        end = iteration.ended
        baked = end.persona if end and end.outcome == "kept" else None
        for text, score in iteration.auditions.items():
            before = iteration.before
            rows.append(Persona(iteration.number, text, score, before, text == baked))
    return rows


def report_fields(run: StudyRun) -> dict[str, object]:
    """Return the fields of the report that only a baking run has."""
    started, settings = run.started, run.settings
    return {
        "parameters": started.model.parameters,
        #: Parameters that were trained: all, or those of the adapters.
        "trained": started.trainable or started.model.parameters,
        #: Form of calls, and the prompt that explains the tools.
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


def lines(run: StudyRun) -> list[str]:
    """Return the report of a completed run as lines of text for a terminal."""
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


def sentences(run: StudyRun) -> list[str]:
    """Return the findings of a completed run as Markdown list items."""
    run_figures, started = run.state.completed.figures, run.started
    out = [
        f"- Without a prompt the result solves {run_figures['success'].value:.1%} of the test "
        "tasks, the "
        f"mean over families: {_points(run_figures['gain'])} from the given "
        "model.",
        "- Under the prompt of the tools the given model solves "
        f"{run_figures['prompted'].value:.1%}; the "
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


def paragraphs(run: StudyRun, role: str) -> list[str]:
    """Return the lines of the model card: how it was baked, the tools' prompt, the personas."""
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


# ---- panels ------------------------------------------------------------------------------------

SUCCESS = Metric(name="success", better="up")
ITERATION = Axis(name="iteration", whole=True)


def headline(run: StudyRun, title: str, over: str) -> Result | None:
    """Return the result's success beside the given model's; None until the run has completed."""
    done = run.state.completed
    if done is None:
        return None
    success, gain = done.figures["success"], arm_panels.lead(done.figures["gain"])
    if run.result == START:
        return arm_panels.figured(run, "given model", SUCCESS, success)
    return arm_panels.figured(run, title, SUCCESS, success, over=over, lead=gain)


def facts(run: StudyRun) -> dict[str, tuple[str | float, str]]:
    """Return name → (value, unit): families, form of calls, iterations, and figures at the end."""
    done, iterations = run.state.completed, run.known["iterations"]
    shown: dict[str, str | float] = {
        "families": len(run.settings.families),
        "calls are written as": run.started.form,
        "iterations": len(ends(run)),
        "bakes kept": sum(end.outcome == "kept" for end in ends(run)),
    }
    if run.started.trainable is not None:
        shown["trained parameters"] = run.started.trainable
    if done is None:
        shown["cycle"] = iterations[-1].cycle if iterations else run.settings.cycles[0]
    facts_by_name = {name: (value, "") for name, value in shown.items()}
    for name in ("prompted",) if run.result == START else ("prompted", "ratio", "drift"):
        if done and name in done.figures:
            metric = figure_metric(run.study, name)
            facts_by_name[metric.name] = (done.figures[name].value, metric.unit)
    return facts_by_name


def panels(run: StudyRun, arms: Mapping[str, StudyArm], title: str, curves: Curves) -> list[Panel]:
    """Return the panels that the events so far allow."""
    shown: list[Panel] = []
    done, solved, result = run.state.completed, figures.solved(run), run.result
    if done is not None and result is not None:
        shown += [_arms(run, arms, title, result), _families(solved, result)]
    if ends(run):
        shown += [_scores(run), _cycles(run)]
    if points := _divergences(run):
        shown.append(points)
    if personas(run):
        shown.append(_personas(run))
    if done is not None and result is not None:
        both = {START: arms[START].words, result: "the result"}
        shown.append(arm_panels.domains(both, run.seen, result))
    shown += training_panels.curves(curves, [], run.state, run.recipes)
    return [*shown, training_panels.models(run.state, run.recipes)]


def _arms(run: StudyRun, arms: Mapping[str, StudyArm], title: str, result: str) -> Arms:
    solved = figures.solved(run)
    every = {**arms, result: arms.get(result, StudyArm("the result, without a prompt", "baked"))}
    leads = {arm: figures.lead(run, arm) for arm in solved if arm != result}
    compared = tables.words(every), solved, leads, arm_panels.groups(every), result, START
    remark = "" if result != START else " No bake was kept: the result is the given model."
    note = f"The share of test tasks, the mean over families.{remark}"
    scale = replace(comparison.BITS_PER_BYTE, metric=SUCCESS)
    return arm_panels.arms(title, *compared, note, scale)


def _families(solved: Mapping[str, Observed], result: str) -> Matrix:
    """Return the table panel of success by family and arm."""
    says = "Share of the test tasks that are solved: a call ran, and the end is right."
    head = ("success", "Success by family of tasks", says)
    return arm_panels.groups_by_arm(*head, SUCCESS, solved, result, band=(0.0, 1.0))


def _scores(run: StudyRun) -> Lines:
    """Return the panel of curves: success before and after each iteration, by cycle."""
    series = []
    for cycle in run.settings.cycles:
        points: dict[int, float] = {}
        for end in (end for end in ends(run) if end.cycle == cycle):
            points.setdefault(end.iteration - 1, end.before)
            points[end.iteration] = end.before if end.after is None else end.after
        if points:
            x = tuple(sorted(points))
            series.append(Series(name=cycle, x=x, y=tuple(points[at] for at in x)))
    return Lines(
        name="scores",
        title="Success by iteration",
        says="On the selection slice without a prompt, by cycle; a model that solves less is not kept.",
        x=ITERATION,
        y=Axis(name="success", better="up"),
        series=tuple(series),
    )


def _divergences(run: StudyRun) -> Lines | None:
    """Return the panel of divergence from the prompted model by iteration; None before any."""
    names = [START, *(recipes.name(end.iteration) for end in ends(run))]
    tasks = {name: figures.apart(run.recipes[name]) for name in names if name in run.recipes}
    observations = comparison.observed(run.state, tasks)
    points = {
        n: observations[name].values[PROMPT] for n, name in enumerate(names) if name in observations
    }
    if not points:
        return None
    return Lines(
        name="divergence",
        title="Divergence from the prompted model",
        says="KL of each iteration's model without a prompt from the given model under the prompt of "
        "the tools, on turns of the selection slice.",
        x=ITERATION,
        y=Axis(name="divergence", unit="nat/token", better="down"),
        series=(Series(name="KL", x=tuple(points), y=tuple(points.values())),),
    )


def _cycles(run: StudyRun) -> Units:
    """Return the table panel of iterations, with their outcomes and the reasons of switches."""
    whys = {switch.iteration: reason(switch) for switch in run.known["switches"]}
    rows = [
        (end.iteration, end.cycle, end.outcome, end.before, end.after, whys.get(end.iteration))
        for end in ends(run)
    ]
    return Units(
        name="cycles",
        title="Cycles",
        says="Each iteration, and why a cycle ended with it.",
        unit="iteration",
        columns=columns(
            iteration="integer",
            cycle="text",
            outcome="text",
            before="number",
            after="number",
            end="text",
        ),
        rows=tuple(rows),
    )


def _personas(run: StudyRun) -> Units:
    """Return the table panel of personas with their success."""
    rows = [
        (
            *(row.iteration, row.text.strip(), row.score, row.score - row.bare),
            "yes" if row.baked else "no",
        )
        for row in personas(run)
    ]
    return Units(
        name="personas",
        title="Personas",
        says="What the model proposed, and its success on the selection slice under each; `forge bake "
        "--prompt` bakes any of them.",
        unit="persona",
        columns=columns(
            iteration="integer", persona="text", success="number", over_none="number", baked="text"
        ),
        rows=tuple(rows),
    )
