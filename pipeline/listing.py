"""A pipeline in the run list: its phases, as its own events say that they stand. Pure.

`runs.lists.stages` says what is noted; a phase's entry equals what the strip of the page has
(`pipeline.panels.stages`), but for what only the log of its run tells.
"""

from __future__ import annotations

import json
import math
from typing import Any

from events import Event
from pipeline import decide, plan
from pipeline.config import PipelineConfig
from pipeline.events import (
    Forked,
    GateDecided,
    GateOverridden,
    PassedThrough,
    PhaseEnded,
    PhaseFailed,
    PhaseMeasured,
    Submitted,
)
from pipeline.ladder import BITS, BYTES
from runs.panels.head import listed
from studies.training_panels import BITS as QUALITY

#: Figures of the newest model that goes on, and the columns that they are noted in.
FIGURES = {BITS: "quality", BYTES: "bytes"}


def note(entry: dict[str, Any], event: Event) -> None:
    """Note an event of a pipeline in its row of the run list."""
    if isinstance(event, Submitted):
        entry["stages"] = json.dumps(_all_waiting(event.config))
        return
    if isinstance(event, PhaseEnded):
        entry["done"] = event.phase
        models = list(event.models.values())
        entry["result"] = models[0].recipe_id if len(models) == 1 else None
    if entry["stages"] is None or not (isinstance(event, Forked) or hasattr(event, "phase")):
        return
    stages: list[dict[str, Any]] = json.loads(entry["stages"])
    if isinstance(event, Forked):
        stages = _forked(stages, event.config)
    else:
        _note_phase(stages, event)
    for stage in stages:
        seen = stage["seen"]
        stage |= {"state": _state(seen), "gate": seen["stopped"]}
        stage["says"] = decide.held(stage["name"], seen["unmet"]) if seen["stopped"] else ""
    entry["stages"] = json.dumps(stages)
    _note_figures(entry, stages)


def _note_phase(stages: list[dict[str, Any]], event: Any) -> None:
    """Note an event about one phase; one of no phase, which a forged log may have, is nothing."""
    if not 1 <= event.phase <= len(stages):
        return
    stage = stages[event.phase - 1]
    seen = stage["seen"]
    match event:
        case PhaseEnded():
            seen |= {"ended": "reused" if event.reused else "ended", "trouble": ""}
            seen["awaited"] = seen["measures"] and len(event.models) == 1
            seen["figures"] = {BYTES: event.figures[BYTES].value} if BYTES in event.figures else {}
        case PhaseMeasured():  # bytes that the phase's own run gives are those of its file, and stay
            measured = {n: event.figures[n].value for n in FIGURES if n in event.figures}
            seen |= {"measured": True, "awaited": False, "figures": {**measured, **seen["figures"]}}
        case PhaseFailed():
            word = "cancelled" if event.status == "cancelled" else "failed"
            seen |= {"trouble": word, "measuring": bool(seen["ended"])}
        case PassedThrough():
            seen |= {"passed": True, "figures": _passed(stages, event.reference)}
        case GateOverridden():
            seen["overridden"] = True
        case GateDecided():
            seen["awaited"] = False
            if event.verdict == "stop":
                seen["stopped"] = seen["stopped"] or event.gate.metric.replace("_", " ")
                seen["unmet"].append(decide.in_words(event, stage["what"]))
    if isinstance(event, PhaseEnded | PhaseFailed) and not seen["measuring"]:
        stage["run"] = event.child if event.child_version else stage["run"]  # 0: not submitted


def _all_waiting(config: PipelineConfig) -> list[dict[str, Any]]:
    """Return the phases of a pipeline of which no event tells yet."""
    return [_waiting(config, number) for number in range(1, len(config.phases) + 1)]


def _waiting(config: PipelineConfig, number: int) -> dict[str, Any]:
    """Return a phase of which no event tells yet."""
    phase = config.phase(number)
    seen = {
        "ended": "",
        #: If it makes one model, its gates need the measurement of that.
        "measures": plan.measures(config, number, 1),
        "awaited": False,
        #: The trouble is that of the measurement.
        "measuring": False,
        "measured": False,
        "trouble": "",
        "stopped": "",
        "unmet": [],
        "passed": False,
        "overridden": False,
        "figures": {},
    }
    shown = {"name": phase.name, "what": phase.kind, "state": "waiting", "gate": "", "run": None}
    shown["says"] = ""
    return {**shown, "seen": seen}


def _forked(stages: list[dict[str, Any]], config: PipelineConfig) -> list[dict[str, Any]]:
    """Return the phases of a fork: those that have ended, and others as if they had not begun."""
    ended = [
        {**one, "seen": {**one["seen"], "trouble": "", "measuring": False}}
        for one in stages[: len(config.phases)]
        if one["seen"]["ended"]
    ]
    return [*ended, *_all_waiting(config)[len(ended) :]]


def _state(seen: dict[str, Any]) -> str:
    """Return how a phase stands by the pipeline's events: `pipeline.panels.stages` in its order."""
    if seen["overridden"]:
        return "overridden"
    if seen["stopped"]:
        return "gate stopped"
    if seen["passed"]:
        return "passed unchanged"
    if seen["trouble"] and not seen["measured"]:
        return seen["trouble"]
    return "measuring" if seen["awaited"] else seen["ended"] or "waiting"


def _note_figures(entry: dict[str, Any], stages: list[dict[str, Any]]) -> None:
    """Note quality and bytes of the newest measured model that goes on: `pipeline.ladder.newest`."""
    ended = [stage["seen"] for stage in reversed(stages) if stage["seen"]["ended"]]
    settled = (seen["figures"] for seen in ended if seen["passed"] or BITS in seen["figures"])
    figures = next(settled, {})
    figures = figures if BITS in figures else {}
    for name, column in FIGURES.items():
        value = figures.get(name)
        if value is not None and not math.isfinite(value):
            value = None
        entry[column] = int(value) if column == "bytes" and value is not None else value
    measured = [s["seen"]["figures"].get("bits_per_byte") for s in stages if s["seen"]["measured"]]
    entry |= listed(
        QUALITY, next((bits for bits in reversed(measured) if bits), None), "test slice"
    )


def _passed(stages: list[dict[str, Any]], reference: str) -> dict[str, Any]:
    """Return the figures of a model that passes unchanged; none if it is of no phase."""
    name = reference.partition(":")[0]
    return next((one["seen"]["figures"] for one in stages if one["name"] == name), {})
