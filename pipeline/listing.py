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
        record = stage["seen"]
        stage |= {"state": _state(record), "gate": record["stopped"]}
        stage["says"] = decide.held(stage["name"], record["unmet"]) if record["stopped"] else ""
    entry["stages"] = json.dumps(stages)
    _note_figures(entry, stages)


def _note_phase(stages: list[dict[str, Any]], event: Any) -> None:
    """Note an event about one phase; one of no phase, which a forged log may have, is nothing."""
    if not 1 <= event.phase <= len(stages):
        return
    stage = stages[event.phase - 1]
    record = stage["seen"]
    match event:
        case PhaseEnded():
            record |= {"ended": "reused" if event.reused else "ended", "trouble": ""}
            record["awaited"] = record["measures"] and len(event.models) == 1
            record["figures"] = (
                {BYTES: event.figures[BYTES].value} if BYTES in event.figures else {}
            )
        case PhaseMeasured():  # bytes that the phase's own run gives are those of its file, and stay
            measured = {n: event.figures[n].value for n in FIGURES if n in event.figures}
            record |= {
                "measured": True,
                "awaited": False,
                "figures": {**measured, **record["figures"]},
            }
        case PhaseFailed():
            word = "cancelled" if event.status == "cancelled" else "failed"
            record |= {"trouble": word, "measuring": bool(record["ended"])}
        case PassedThrough():
            record |= {"passed": True, "figures": _passed(stages, event.reference)}
        case GateOverridden():
            record["overridden"] = True
        case GateDecided():
            record["awaited"] = False
            if event.verdict == "stop":
                record["stopped"] = record["stopped"] or event.gate.metric.replace("_", " ")
                record["unmet"].append(decide.in_words(event, stage["what"]))
    if isinstance(event, PhaseEnded | PhaseFailed) and not record["measuring"]:
        stage["run"] = event.child if event.child_version else stage["run"]  # 0: not submitted


def _all_waiting(config: PipelineConfig) -> list[dict[str, Any]]:
    """Return the phases of a pipeline of which no event tells yet."""
    return [_waiting(config, number) for number in range(1, len(config.phases) + 1)]


def _waiting(config: PipelineConfig, number: int) -> dict[str, Any]:
    """Return a phase of which no event tells yet."""
    phase = config.phase(number)
    record = {
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
    return {**shown, "seen": record}


def _forked(stages: list[dict[str, Any]], config: PipelineConfig) -> list[dict[str, Any]]:
    """Return the phases of a fork: those that have ended, and others as if they had not begun."""
    ended = [
        {**stage, "seen": {**stage["seen"], "trouble": "", "measuring": False}}
        for stage in stages[: len(config.phases)]
        if stage["seen"]["ended"]
    ]
    return [*ended, *_all_waiting(config)[len(ended) :]]


def _state(record: dict[str, Any]) -> str:
    """Return how a phase stands by the pipeline's events: `pipeline.panels.stages` in its order."""
    if record["overridden"]:
        return "overridden"
    if record["stopped"]:
        return "gate stopped"
    if record["passed"]:
        return "passed unchanged"
    if record["trouble"] and not record["measured"]:
        return record["trouble"]
    return "measuring" if record["awaited"] else record["ended"] or "waiting"


def _note_figures(entry: dict[str, Any], stages: list[dict[str, Any]]) -> None:
    """Note quality and bytes of the newest measured model that goes on: `pipeline.ladder.newest`."""
    ended = [stage["seen"] for stage in reversed(stages) if stage["seen"]["ended"]]
    settled = (
        record["figures"] for record in ended if record["passed"] or BITS in record["figures"]
    )
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
    return next((stage["seen"]["figures"] for stage in stages if stage["name"] == name), {})
