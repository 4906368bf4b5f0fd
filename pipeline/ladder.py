"""Quality and size of a pipeline's models along its phases, and what they gained. Pure.

The report and the page show the same rows and the same sentence: both are made here.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent_forge.pipeline.events import PhaseEnded, PipelineState
from agent_forge.runs.event_types import Figure
from agent_forge.runs.panels.head import measured
from agent_forge.runs.panels.panels import verdict
from agent_forge.runs.system.durations import size

#: Figures of a model: its quality, what is left of the beginning's, its size.
BITS, CUMULATIVE, BYTES = "bits_per_byte", "cumulative", "bytes"
#: The first row: the model that the rows after it are compared with.
BEGINNING = "the best at the beginning"
COLUMNS = ("after phase", "bits per byte", "kept", "size", "goes on")
SAYS = (
    "Bits per byte on documents that no phase may choose by; fewer are better. Kept is the quality "
    "that is left of the best model at the beginning: more than 100 % is a gain. Size is that "
    "of the weights, or of the whole file of a compressed model. A dash: not measured."
)


@dataclass(frozen=True)
class Rung:
    """A model whose quality was measured, after its phase; the first one stands before all phases."""

    name: str
    #: The number of the phase; 0 for the best model at the beginning.
    number: int
    bits: Figure | None
    kept: Figure | None
    size: Figure | None = None
    #: What goes on after the phase, in words.
    goes_on: str = ""
    #: Bits per byte of the phase's own run, on its own items, if the model was not measured otherwise.
    alone: Figure | None = None

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return the five cells of the model's row in a table with `COLUMNS`."""
        room = _told(self.size, "B") if self.number else ""
        bits = f"{_told(self.alone, '')} by its own run" if self.alone else _told(self.bits, "")
        return (self.name, bits, _told(self.kept, "share"), room, self.goes_on)


def ladder(state: PipelineState) -> list[Rung]:
    """Return a list of `Rung`, a measured model each, in the order of phases; [] without any."""
    rungs: list[Rung] = []
    for number in state.numbers:
        measured, name = state.measured_phase(number), state.named(number)
        if measured is None:
            if (ended := state.ended_phase(number)) in unmeasured(state):
                alone, on = ended.figures[BITS], goes_on(state, number)
                rungs.append(Rung(name, number, None, None, goes_on=on, alone=alone))
            continue
        bits, share = (measured.figures.get(name) for name in (BITS, CUMULATIVE))
        if bits and share and not any(rung.kept for rung in rungs):
            first = Figure(value=bits.value * share.value)
            rungs.insert(0, Rung(BEGINNING, 0, first, Figure(value=1.0)))
        room = state.figures(number).get(BYTES)
        rungs.append(Rung(name, number, bits, share, room, goes_on(state, number)))
    return rungs if any(not rung.alone for rung in rungs) else []


def unmeasured(state: PipelineState) -> list[PhaseEnded]:
    """Return the `phase_ended` events of phases whose model only their own run has measured."""
    ends = [state.ended_phase(n) for n in state.numbers if not state.measured_phase(n)]
    return [ended for ended in ends if ended and ended.models and BITS in ended.figures]


def newest(state: PipelineState) -> Rung | None:
    """Return the `Rung` of the newest measured model that goes on; None if there is none.

    A phase that passes its input on unchanged stands for the phase that made the input.
    """
    rungs = {rung.number: rung for rung in ladder(state) if rung.bits}
    for number in reversed(state.numbers):
        maker = state.maker(number)
        if maker is None:
            return None
        if state.ended_phase(number) and maker in rungs:
            return rungs[maker]
    return None


def gain(state: PipelineState) -> str:
    """Return a text on the quality and size that the newest kept model gained; "" if unknown."""
    rungs = [rung for rung in ladder(state) if rung.number and rung.number not in state.passed]
    rung = next((rung for rung in reversed(rungs) if rung.kept), None)
    if rung is None or rung.kept is None:
        return ""
    quality = _quality(rung.name, rung.kept)
    first = next(step.size for step in rungs if step.size) if rung.size else None
    if first is None or rung.size is None or rung.size.value >= first.value:
        return quality
    times = f"{first.value / rung.size.value:.1f} times less than the {size(first.value)}"
    return f"{quality} It takes {size(rung.size.value)}, {times} of the first measured model."


def _quality(name: str, share: Figure) -> str:
    """Return a sentence: the bits per byte that a phase's model saves, with the interval."""
    what = f"{_saving(share.value)} than the best model that the pipeline began with"
    if share.low is None or share.high is None:
        return f"The model of phase {name} needs {what}."
    noise = verdict(share.low - 1, share.high - 1) == "level"
    between = f"95 % interval: {_saving(share.low)} to {_saving(share.high)}"
    documents = "1 document" if share.n == 1 else f"{share.n:,} documents" if share.n else ""
    on = f", on {documents} that no phase may choose by" if documents else ""
    return f"The model of phase {name} needs {what}{on} ({between})" + (
        ": that may be noise." if noise else "."
    )


def goes_on(state: PipelineState, number: int) -> str:
    """Return "yes", or words that say why a phase's model does not go on or is the result."""
    if number in state.passed:
        return "no: its input goes on"
    stopped = any(gate.verdict == "stop" for gate in state.gates.get(number, ()))
    if stopped and number not in state.overridden:
        return "no: a gate stops it"
    if number == len(state.submitted.config.phases):
        return "it is the result"
    return "yes" if state.submitted.config.goes_on(number) else "no: no phase is given it"


def _told(figure: Figure | None, unit: str) -> str:
    """Return a figure with its interval as text; a dash if there is none."""
    return "–" if figure is None else measured(figure.value, unit, figure.low, figure.high)


def _saving(ratio: float) -> str:
    """Return words such as "3.1 % fewer bits per byte", by the rival's bits over the model's own."""
    share = 1 - 1 / ratio
    return f"{abs(share):.1%} {'fewer' if share >= 0 else 'more'} bits per byte".replace("%", " %")
