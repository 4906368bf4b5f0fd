"""The report of a pipeline as Markdown: how it stands, quality, and a section a phase. Pure.

A pipeline that is under way, or that has failed, has a report as well: of what is known so far.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from events import Envelope
from pipeline import decide, ladder, plan
from pipeline.events import PipelineState
from pipeline.panels.lineage import lineage
from pipeline.reports.children import Child
from pipeline.reports.family import tree
from pipeline.reports.phases import section, stands
from pipeline.reports.words import code, count, plain, table, weights
from runs.record import events as common
from runs.system.durations import day, duration


def markdown(state: PipelineState, rows: Sequence[Envelope], children: Mapping[str, Child]) -> str:
    """Return the report; `rows` are the pipeline's, `children` what `gathered` returns."""
    phases = state.submitted.config.phases
    names = " → ".join(phase.name for phase in phases)
    lines = [f"# Pipeline {state.run}: {names}", "", *_opening(state, rows, children), ""]
    lines += _overview(state, children)
    lines += _ladder(state)
    lines += _family(state, children)
    lines.append("")
    for number, phase in enumerate(phases, start=1):
        lines += section(state, children, number, phase)
    lines += ["## How to check this report", "", *_checking(state), ""]
    return "\n".join(lines)


def _opening(
    state: PipelineState, rows: Sequence[Envelope], children: Mapping[str, Child]
) -> list[str]:
    """Return how the pipeline stands, what it gained, and how long it took."""
    phases = len(state.numbers)
    ended = sum(state.ended_phase(n) is not None for n in range(1, phases + 1))
    sentences = []
    if state.completed:
        sentences.append(f"**The pipeline has completed.** {_result(state)}")
    elif state.failed:
        decision = decide.stopping(state)
        why = decision.words(state.run) if decision else f"{plain(state.failed.reason)}."
        sentences.append(f"**The pipeline has stopped.** {why}")
    elif state.cancelled:
        why = f": {plain(state.cancelled.reason)}" if state.cancelled.reason else ""
        sentences.append(f"**The pipeline was cancelled{why}.**")
    else:
        sentences.append(
            f"**The pipeline is {state.status}:** {ended} of {count(phases, 'phase')} "
            f"{'has' if ended == 1 else 'have'} ended. This is what is known so far."
        )
    if gain := ladder.gain(state):
        sentences.append(gain)
    owner = plain(state.submitted.owner)
    spent = [f"Submitted by {owner} on {day(rows[0].recorded_at)}."]
    if state.spent.wall:
        spent.append(f"It has taken {duration(state.spent.wall)} by the clock so far.")
    if state.completed:
        spent[-1] = spent[-1].replace("has taken", "took").replace(" so far", "")
    if worked := _worked_in_all(state, children):
        spent.append(f"Its runs took {duration(worked)} of device time.")
    if saved := _saved(state, children):
        spent.append(saved)
    return [" ".join(sentences), "", " ".join(spent)]


def _result(state: PipelineState) -> str:
    """Return which models the pipeline gives, and why if its last phase was passed by."""
    number = len(state.numbers)
    last, name = plan.outgoing(state, number), state.named(number)
    if (passed := state.passed.get(number)) is not None:
        what = "".join(f" ({weights(model)})" for _, model in last.values())
        missed = next(g for g in state.gates[number] if g.verdict == "pass unchanged")
        return (
            f"Its result is {code(passed.reference)}{what}: phase {name} passed it on unchanged, "
            f"because {plain(decide.in_words(missed, state.submitted.config.phase(number).kind))}."
        )
    if not last:
        return f"Its last phase, {name}, makes no model."
    models = ", ".join(f"{code(f'{name}:{r}')} ({weights(m)})" for r, (_, m) in last.items())
    return f"It gives {count(len(last), 'model')}: {models}."


def _worked_in_all(state: PipelineState, children: Mapping[str, Child]) -> float:
    """Return the seconds that devices worked for the pipeline; runs taken over are left out."""
    reused = {
        answer.child
        for answer in state.answers.values()
        if isinstance(answer, common.ChildEnded) and answer.reused
    }
    seconds = (child.state.spent.device for run, child in children.items() if run not in reused)
    return state.spent.device + sum(seconds)


def _saved(state: PipelineState, children: Mapping[str, Child]) -> str:
    """Return how much work was taken from runs that had ended; empty if none was."""
    taken = [
        children[answer.child].state.spent.device
        for answer in state.answers.values()
        if isinstance(answer, common.ChildEnded) and answer.reused and answer.child in children
    ]
    saving = (
        f"It took over {count(len(taken), 'run')} that had ended: {duration(sum(taken))} of work"
    )
    return f"{saving} not done again." if taken else ""


def _overview(state: PipelineState, children: Mapping[str, Child]) -> list[str]:
    """Return the table of phases."""
    rows = [
        (
            str(number),
            phase.name,
            phase.kind,
            stands(state, number),
            _worked(state, number, children),
            _judged(state, number),
        )
        for number, phase in enumerate(state.submitted.config.phases, start=1)
    ]
    return table(("", "phase", "kind", "state", "time of work", "gates"), rows)


def _worked(state: PipelineState, number: int, children: Mapping[str, Child]) -> str:
    """Return the time that devices worked for a phase and its measurement."""
    ends = [state.ended_phase(number), state.measured_phase(number)]
    runs = [end.child for end in ends if end] or [plan.child_name(state, number)]
    done = [children[run].state.spent.device for run in runs if run in children]
    return duration(sum(done)) if done else "–"


def _judged(state: PipelineState, number: int) -> str:
    """Return how many of a phase's gates were passed."""
    decided = state.gates.get(number, ())
    if not decided:
        return "–" if state.ended_phase(number) else "open"
    passed = sum(gate.verdict == "pass" for gate in decided)
    return f"{passed} of {len(decided)} passed"


def _ladder(state: PipelineState) -> list[str]:
    """Return the quality of the models along the phases; empty if none was measured."""
    rows = [rung.cells() for rung in ladder.ladder(state)]
    if not rows:
        return []
    title = ["", "## Quality along the phases", ""]
    return [*title, ladder.SAYS, "", *table(ladder.COLUMNS, rows)]


def _family(state: PipelineState, children: Mapping[str, Child]) -> list[str]:
    """Return what the result was made of, as a tree; empty if no phase has given a model."""
    graph = lineage(state, [*children.values()])
    if graph is None:
        return []
    says = (
        "From the newest model that goes on back to the beginning; the kind of run that made each."
    )
    return ["", "## Family", "", says, "", *(f"    {line}" for line in tree(graph))]


def _checking(state: PipelineState) -> list[str]:
    """Return the commands that check what the report says, and the digests that it stands on."""
    lines = [
        "Every number above is in the log, which is a chain of hashes.",
        "",
        f"    forge verify {state.run} --origins",
        f"    forge lineage {state.run}",
        *([f"    forge verify {state.submitted.output_dir}"] if _written(state) else []),
        "",
        "The first derives every verdict again, compares every phase with its run, and follows the "
        "models back to the text that they were trained on.",
        "",
    ]
    if state.completed:
        lines.append(f"Lineage digest: `{state.completed.lineage_digest}`")
    return [*lines, f"Chain head: `{state.head}`"]


def _written(state: PipelineState) -> bool:
    """Return True if a folder was asked for whose name a shell takes as it is."""
    folder = state.submitted.output_dir
    return bool(state.completed and folder and re.fullmatch(r"[\w./-]+", folder))
