"""Quality and size of a pipeline's models along its phases, as they were measured. Pure.

A phase without a measurement has no point, but for the one before the first measured phase: its
point is the best model that the measured phase was given, and so the beginning of the way. Bits per
byte are those of the measurement of a phase's model, on the items that no phase chose by.
`retention` is bits per byte of the best input over those of the model on the same documents, so both
together say the best input's; bytes and `size` likewise say the largest input's. Without bytes there
are the parameters that the runs record of the models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from agent_forge.pipeline import ladder
from agent_forge.pipeline.events import PipelineState
from agent_forge.pipeline.ladder import BITS, BYTES
from agent_forge.runs import kinds
from agent_forge.runs.event_types import Figure
from agent_forge.runs.panels.panels import Lines, Series
from agent_forge.runs.panels.shapes import Axis
from agent_forge.runs.record.lineage import Child

RETENTION, SIZE = "retention", "size"
BEGINNING = "beginning"
#: Bytes stand on a logarithmic axis if the largest are at least this many times the smallest.
FAR = 10


def along(state: PipelineState, children: Sequence[Child]) -> list[Lines]:
    """Return the panels of quality and size that have a point; `children`: the pipeline's runs."""
    panels = [_quality(state), _bytes(state) or _parameters(state, children)]
    return [panel for panel in panels if panel is not None]


def _axis(state: PipelineState) -> Axis:
    """Return the axis of the phases, by their names; before the first is the beginning."""
    return Axis(name="phase", whole=True, names=(BEGINNING, *map(state.named, state.numbers)))


def _quality(state: PipelineState) -> Lines | None:
    return _pair(
        state,
        Lines(
            name="quality",
            title="Quality along the way",
            says="Bits per byte of the measured models, on items that no phase chose by; bands are "
            f"95 % intervals.{_alone(state)}",
            x=_axis(state),
            y=Axis(name="bits per byte", better="down"),
            series=(),
        ),
        BITS,
        lambda bits, retention: bits * retention,
        (RETENTION, "best of its inputs"),
    )


def _bytes(state: PipelineState) -> Lines | None:
    return _pair(
        state,
        Lines(
            name="bytes",
            title="Bytes along the way",
            says="Bytes of the measured models' weights, or of the whole file of a compressed model; "
            "no point: not measured.",
            x=_axis(state),
            y=Axis(name="bytes", unit="B", better="down", whole=True),
            series=(),
        ),
        BYTES,
        lambda model_bytes, size: model_bytes / size,
        (SIZE, "largest of its inputs"),
    )


def _pair(
    state: PipelineState,
    panel: Lines,
    name: str,
    input_of: Callable[[float, float], float],
    ratio: tuple[str, str],
) -> Lines | None:
    """Return the panel with a figure of each phase's model, and with that of its inputs.

    `ratio`: the figure that says the input's from the model's own, by `input_of`, and the input's name.
    None if no phase has the figure.
    """
    phases = tuple(state.numbers)
    figures = [_figures(state, number) for number in phases]
    own_figures = [phase_figures.get(name) for phase_figures in figures]
    if not any(own_figures):
        return None
    inputs = tuple(
        input_of(figure.value, phase_figures[ratio[0]].value)
        if figure and ratio[0] in phase_figures
        else None
        for figure, phase_figures in zip(own_figures, figures, strict=True)
    )
    banded = any(figure.low is not None for figure in own_figures if figure)
    first = next(number for number, figure in zip(phases, own_figures, strict=True) if figure)
    begun = {first - 1: inputs[first - 1]} if inputs[first - 1] else {}
    places = tuple(sorted({*begun, *phases}))
    figures_by_phase = {
        number: figure for number, figure in zip(phases, own_figures, strict=True) if figure
    }
    values = {**begun, **{number: figure.value for number, figure in figures_by_phase.items()}}
    result = Series(
        name="result of the phase",
        x=places,
        y=tuple(values.get(place) for place in places),
        low=tuple(figures_by_phase[p].low if p in figures_by_phase else None for p in places)
        if banded
        else None,
        high=tuple(figures_by_phase[p].high if p in figures_by_phase else None for p in places)
        if banded
        else None,
    )
    before = Series(name=ratio[1], role="reference", x=phases, y=inputs)
    series = (result, before) if any(value is not None for value in inputs) else (result,)
    sizes = [value for line in series for value in line.y if value]
    far = panel.y.name == BYTES and max(sizes) >= FAR * min(sizes)
    axis = panel.y.model_copy(update={"log": far})
    return panel.model_copy(update={"series": series, "y": axis})


def _alone(state: PipelineState) -> str:
    """Return which points are of no measurement, in a sentence; empty if there is none."""
    names = ", ".join(phase.name for phase in ladder.unmeasured(state))
    return f" {names}: measured by the phase's own run, on its own items." if names else ""


def _figures(state: PipelineState, number: int) -> dict[str, Figure]:
    """Return a phase's figures; quality is that of the measurement, if there is one."""
    measured, figures = state.measured_phase(number), state.figures(number)
    figures.pop(RETENTION, None)  # of a phase's own run it may be over another model
    quality = measured.figures if measured else {}
    return figures | {n: quality[n] for n in (BITS, RETENTION) if n in quality}


def _parameters(state: PipelineState, children: Sequence[Child]) -> Lines | None:
    """Return the parameters of each phase's largest model, and of its smallest if they differ."""
    sizes = {number: list(_sizes(state, children, number)) for number in state.numbers}
    if not any(sizes.values()):
        return None
    largest = tuple(max(numbers, default=None) for numbers in sizes.values())
    smallest = tuple(min(numbers, default=None) for numbers in sizes.values())
    series = [Series(name="largest model", x=tuple(sizes), y=largest)]
    if smallest != largest:
        series.append(Series(name="smallest model", x=tuple(sizes), y=smallest))
    return Lines(
        name="parameters",
        title="Parameters along the way",
        says="Parameters of the models, as the runs of the phases record them.",
        x=_axis(state),
        y=Axis(name="parameters", whole=True),
        series=tuple(series),
    )


def _sizes(state: PipelineState, children: Sequence[Child], number: int) -> Iterator[int]:
    """Yield the parameters of a phase's models, if its run says them."""
    ended = state.ended_phase(number)
    states = [child.state for child in children if ended and child.run == ended.child]
    for child in states if ended else ():
        if child.completed is not None:
            rows = kinds.of(child.kind).models(child.completed, child)
            digests = {model.digest for model in ended.models.values()} if ended else set()
            yield from (row["parameters"] for row in rows if row["digest"] in digests)
