"""Report of a pipeline in Markdown: standing, quality, a section for each phase, the result's family.

The family is a tree of text: each model stands below the models that were made from it. An unfinished
or failed pipeline also has a report, of what is known so far. Pure, except for `gathered`, which reads
the phases' runs from the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_forge.events import Envelope
from agent_forge.pipeline import decide, ladder, plan
from agent_forge.pipeline.config import PhaseConfig
from agent_forge.pipeline.events import GateDecided, PipelineState
from agent_forge.pipeline.panels.lineage import lineage
from agent_forge.runs import kinds
from agent_forge.runs.event_types import MadeModel
from agent_forge.runs.history import repository
from agent_forge.runs.history.repository import Log
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.kinds.state import State
from agent_forge.runs.kinds.wording import figure_metric, figure_text
from agent_forge.runs.panels.head import measured
from agent_forge.runs.panels.panels import Graph, Node
from agent_forge.runs.record import events as common
from agent_forge.runs.system.durations import day, duration
from agent_forge.runs.system.plain_text import visible


def markdown(state: PipelineState, rows: Sequence[Envelope], children: Mapping[str, PhaseRun]) -> str:
    """Return the report as Markdown; `rows` are the pipeline's, `children` what `gathered` returns."""
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
    state: PipelineState, rows: Sequence[Envelope], children: Mapping[str, PhaseRun]
) -> list[str]:
    """Return the lines of two paragraphs: the pipeline's standing and gain, and the time it took."""
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
    """Return sentences that name the result, and why the last phase was passed by if it was."""
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


def _worked_in_all(state: PipelineState, children: Mapping[str, PhaseRun]) -> float:
    """Return the seconds of device time of the pipeline and its runs, without runs taken over."""
    reused = {
        answer.child
        for answer in state.answers.values()
        if isinstance(answer, common.ChildEnded) and answer.reused
    }
    seconds = (child.state.spent.device for run, child in children.items() if run not in reused)
    return state.spent.device + sum(seconds)


def _saved(state: PipelineState, children: Mapping[str, PhaseRun]) -> str:
    """Return a sentence: the work taken over from ended runs; empty if there was none."""
    taken = [
        children[answer.child].state.spent.device
        for answer in state.answers.values()
        if isinstance(answer, common.ChildEnded) and answer.reused and answer.child in children
    ]
    saving = f"It took over {count(len(taken), 'run')} that had ended: {duration(sum(taken))} of work"
    return f"{saving} not done again." if taken else ""


def _overview(state: PipelineState, children: Mapping[str, PhaseRun]) -> list[str]:
    """Return the lines of a Markdown table of the phases."""
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


def _worked(state: PipelineState, number: int, children: Mapping[str, PhaseRun]) -> str:
    """Return the device time of a phase and its measurement as text; a dash if unknown."""
    ends = [state.ended_phase(number), state.measured_phase(number)]
    runs = [end.child for end in ends if end] or [plan.child_name(state, number)]
    done = [children[run].state.spent.device for run in runs if run in children]
    return duration(sum(done)) if done else "–"


def _judged(state: PipelineState, number: int) -> str:
    """Return "2 of 3 passed" for a phase's gates; without verdicts "–" if it has ended, else "open"."""
    decided = state.gates.get(number, ())
    if not decided:
        return "–" if state.ended_phase(number) else "open"
    passed = sum(gate.verdict == "pass" for gate in decided)
    return f"{passed} of {len(decided)} passed"


def _ladder(state: PipelineState) -> list[str]:
    """Return the lines of the section on quality along the phases; empty if none was measured."""
    rows = [rung.cells() for rung in ladder.ladder(state)]
    if not rows:
        return []
    title = ["", "## Quality along the phases", ""]
    return [*title, ladder.SAYS, "", *table(ladder.COLUMNS, rows)]


def _family(state: PipelineState, children: Mapping[str, PhaseRun]) -> list[str]:
    """Return the lines of the section with the result's family tree; empty without models."""
    graph = lineage(state, [*children.values()])
    if graph is None:
        return []
    says = "From the newest model that goes on back to the beginning; the kind of run that made each."
    return ["", "## Family", "", says, "", *(f"    {line}" for line in tree(graph))]


def _checking(state: PipelineState) -> list[str]:
    """Return lines: the commands that check the report, and the digests behind it."""
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
    """Return True if the result's folder is written, and its name needs no quotes in a shell."""
    folder = state.submitted.output_dir
    return bool(state.completed and folder and re.fullmatch(r"[\w./-]+", folder))


def tree(graph: Graph) -> list[str]:
    """Return lines of a text tree, from the newest models back to what the pipeline began with.

    A model that several others were made of stands once with all behind it, and then with `…`.
    """
    nodes = {node.id: node for node in graph.nodes}
    behind = {id_: [e.source for e in graph.edges if e.target == id_] for id_ in nodes}
    used = {edge.source for edge in graph.edges if nodes[edge.target].ours}
    ends = [n.id for n in graph.nodes if n.ours and n.id not in used]
    return [line for end in ends for line in _lines(end, nodes, behind, set(), "", "")]


def _lines(
    id_: str,
    nodes: dict[str, Node],
    behind: dict[str, list[str]],
    shown_ids: set[str],
    first: str,
    rest: str,
) -> Iterator[str]:
    """Yield the lines of a node and its sources; `first` begins its own line, `rest` the others."""
    node = nodes[id_]
    again = id_ in shown_ids and bool(behind[id_])
    name = visible(" ".join(node.name.split()))
    yield f"{first}{name} ({node.group}){' …' if again else ''}"
    shown_ids.add(id_)
    if again:
        return
    sources: Sequence[str] = behind[id_]
    for number, source in enumerate(sources, start=1):
        last = number == len(sources)
        branch, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _lines(source, nodes, behind, shown_ids, rest + branch, rest + below)


#: Verdict of a gate → how the report says it.
_VERDICTS = {"pass": "passed", "pass unchanged": "input passes on unchanged", "stop": "stops"}


def section(
    state: PipelineState, children: Mapping[str, PhaseRun], number: int, phase: PhaseConfig
) -> list[str]:
    """Return the Markdown lines of a phase's section."""
    kind = kinds.of(phase.kind)
    what = f"{kind.line[:1].upper()}{kind.line[1:]} (kind {code(phase.kind)})."
    lines = [f"## {number}. {phase.name}", "", f"**{stands(state, number).capitalize()}.** {what}", ""]
    lines += [*_wanted(phase), *_course(state, number, children)]
    ended = state.ended_phase(number)
    if ended is not None:
        child = children.get(ended.child)
        lines += [*_models(ended.models, child), *_figures(state, number)]
        lines += _own_words(child) if child else []
    return [*lines, *_gates(state, number)]


def _wanted(phase: PhaseConfig) -> list[str]:
    """Return list items: the models, data and settings that the pipeline's file gives a phase."""
    lines = [f"- {plain(role)}: {', '.join(map(code, names))}" for role, names in phase.models.items()]
    if phase.data:
        lines.append(f"- data: {', '.join(map(code, phase.data))}")
    if phase.settings:
        settings = ", ".join(code(f"{name} = {value}") for name, value in phase.settings.items())
        lines.append(f"- settings: {settings}")
    return [*lines, ""] if lines else []


def _course(state: PipelineState, number: int, children: Mapping[str, PhaseRun]) -> list[str]:
    """Return [line on the phase's runs and what went wrong, '']; [] without a run."""
    lines = [
        f"Run {code(trouble.child)} {trouble.status}: {plain(trouble.reason)}."
        for what in ("phase", "measure")
        for trouble in state.troubles(number, what)
    ]
    ended, measured = state.ended_phase(number), state.measured_phase(number)
    if ended is None:
        name = plan.child_name(state, number)
        if name in children and not children[name].state.ended:
            lines.append(_under_way(name, children[name]))
    elif ended.reused:
        lines.append(
            f"Run {code(ended.child)} had ended{_took(children.get(ended.child))}, with the same "
            "settings, inputs, profile and version: the phase takes its result, and began no run."
        )
    else:
        lines.append(f"Run {code(ended.child)} completed{_took(children.get(ended.child))}.")
    if measured is not None:
        how = "had measured an equal model" if measured.reused else "measured its model"
        lines.append(f"Run {code(measured.child)} {how}{_took(children.get(measured.child))}.")
    return [" ".join(lines), ""] if lines else []


def _took(child: PhaseRun | None) -> str:
    return "" if child is None else f" after {duration(child.state.spent.device)} of work"


def _under_way(name: str, child: PhaseRun) -> str:
    done, of = child.kind.view.progress(child.state)
    far = f"{done} of {count(of, child.kind.unit)}" if of else f"{count(done, child.kind.unit)}"
    return f"Run {code(name)} is {child.state.status}: {far} done."


def _models(models: Mapping[str, MadeModel], child: PhaseRun | None) -> list[str]:
    """Return lines: a heading and a Markdown table of the phase's models; [] without models."""
    if not models:
        return []
    parameters: dict[str, int] = {}
    if child is not None and child.state.completed:
        model_rows = child.kind.models.registered(child.state.completed, child.state)
        parameters = {row["digest"]: row["parameters"] for row in model_rows if row.get("parameters")}
    rows = [
        (
            plain(role),
            f"{parameters[m.digest]:,}" if m.digest in parameters else "–",
            f"`{m.digest[:16]}`",
        )
        for role, m in models.items()
    ]
    return ["Models:", "", *table(("model", "parameters", "weights (digest)"), rows), ""]


def _figures(state: PipelineState, number: int) -> list[str]:
    """Return lines: a heading and list items, the phase's figures with their meaning; else []."""
    lines = []
    for name, figure in state.figures(number).items():
        kind = plan.giver(state.submitted.config.phase(number).kind, name)
        words = kind.figures_of.get(name, "not known here").rpartition(": ")[2]
        on = f" on {count(figure.n, 'item')}" if figure.n is not None else ""
        lines.append(f"- {figure_text(kind, name, figure)}{on}: {words} ({code(name)})")
    return ["Figures, with 95 % intervals where they are known:", "", *lines, ""] if lines else []


def _own_words(child: PhaseRun) -> list[str]:
    """Return the lines in which the phase's run summarises itself."""
    lines = child.kind.view.summary(child.state, child.rows)
    return [*lines, ""] if lines else []


def _gates(state: PipelineState, number: int) -> list[str]:
    """Return lines: a heading and list items, verdicts of gates and who overrode one; else []."""
    kind = state.submitted.config.phase(number).kind
    lines = [f"- {_gate(decided, kind)}" for decided in state.gates.get(number, ())]
    if (passed := state.passed.get(number)) is not None:
        lines.append(f"- So {code(passed.reference)} goes on in the place of the phase's model.")
    if (override := state.overridden.get(number)) is not None:
        actor = state.asked_by.get(override, "a user")
        lines.append(f"- {plain(actor)} let the pipeline go on: “{plain(override.reason)}”")
    return ["Gates:", "", *lines, ""] if lines else []


def _gate(decided: GateDecided, kind: str) -> str:
    """Return a gate's verdict as Markdown, with the figure of the phase's input if known."""
    text, before, figure = decide.in_words(decided, kind), decided.baseline, decided.gate.metric
    unit = figure_metric(plan.giver(kind, figure), figure).unit
    beside = "" if before is None else f" (its input's is {measured(before, unit)})"
    return f"{plain(text)}{beside}: **{_VERDICTS[decided.verdict]}**"


def stands(state: PipelineState, number: int) -> str:
    """Return the state of a phase in a few words, such as "ended, passed unchanged"."""
    ended, troubles = state.ended_phase(number), state.troubles(number)
    if ended is None:
        before = number == 1 or state.ended_phase(number - 1) is not None
        if troubles and state.ended:
            return troubles[-1].status
        return "under way" if before and not state.ended and state.started else "not begun"
    words = ["reused" if ended.reused else "ended"]
    measured, tried = state.measured_phase(number), state.troubles(number, "measure")
    if tried and measured is None:
        words.append("not measured")
    if number in state.passed:
        words.append("passed unchanged")
    if number in state.overridden:
        words.append("overridden")
    elif any(gate.verdict == "stop" for gate in state.gates.get(number, ())):
        words.append("stopped")
    return ", ".join(words)


@dataclass(frozen=True)
class PhaseRun:
    """The run of a phase, or of a measurement, as the log has it."""

    state: State
    rows: Sequence[Envelope]

    @property
    def run(self) -> str:
        """The run's name."""
        return self.state.run

    @property
    def kind(self) -> Kind:
        """The run's kind."""
        return kinds.of(self.state.kind)


def gathered(log: Log, state: PipelineState) -> dict[str, PhaseRun]:
    """Return run → `PhaseRun`, for all runs of the phases and measurements that the log has."""
    children: dict[str, PhaseRun] = {}
    for number in state.numbers:
        ends = {"phase": state.ended_phase(number), "measure": state.measured_phase(number)}
        for what, ended in ends.items():
            run, upto = (ended.child, ended.child_version) if ended else (None, None)
            for name in [run] if run else _candidates(state, number, what):
                if repository.stream_of(log, name) is not None:
                    rows = list(repository.history(log, name, upto))
                    children[name] = PhaseRun(repository.fold(rows), rows)
    return children


def _candidates(state: PipelineState, number: int, what: Any) -> list[str]:
    """Return the names of the runs that an unfinished phase has had, the newest last."""
    tried = [trouble.child for trouble in state.troubles(number, what)]
    return list(dict.fromkeys([*tried, plan.child_name(state, number, what)]))


def plain(text: str) -> str:
    """Return foreign text in one line, with Markdown's signs escaped."""
    return re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", visible(" ".join(text.split())))


def code(text: str) -> str:
    """Return foreign text in one line as Markdown code."""
    return f"`{visible(' '.join(text.split())).replace('`', chr(39))}`"


def weights(model: MadeModel) -> str:
    """Return "weights " and the beginning of the digest, as Markdown."""
    return f"weights {code(model.digest[:12])}"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def count(number: int, what: str) -> str:
    """Return a number with its noun: "1 phase", "2,000 documents"."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")
