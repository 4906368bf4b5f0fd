"""Kinds of run: the table of their names, and what every kind is made of.

A kind is settings, events, a state, one pure function `due`, and the work that it asks for; see
`runs/kinds/kind.py`. Reading a list of runs must not import every phase: the table holds names, and a
kind's module is imported when the kind is asked for.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from agent_forge.runs.errors import UnknownKindError, did_you_mean

if TYPE_CHECKING:
    from agent_forge.runs.kinds.kind import AnyKind

#: Name of a kind → its class. The name is the first part of its runs' streams.
KINDS = {
    "bake": "agent_forge.phases.prompt_baking.script:Bake",
    "baking": "agent_forge.phases.tool_baking.script:Baking",
    "bitnet": "agent_forge.phases.bitnet:Bitnet",
    "cognate": "agent_forge.phases.cognate.script:Cognate",
    "compression": "agent_forge.phases.compression.script:Compression",
    "curriculum": "agent_forge.phases.curriculum.script:Curriculum",
    "evomerge": "agent_forge.evomerge.kind:EvoMergeKind",
    "experts": "agent_forge.phases.experts.script:Experts",
    "measure": "agent_forge.phases.measure:Measure",
    "pipeline": "agent_forge.pipeline.kind:PipelineKind",
    "quietstar": "agent_forge.phases.quietstar.script:Quietstar",
    "student": "agent_forge.phases.student:Student",
    "tune": "agent_forge.phases.tune:Tune",
}

#: Variable that names further kinds, as "NAME=MODULE:CLASS", separated by commas.
FURTHER = "FORGE_KINDS"


def table() -> dict[str, str]:
    """Return {kind's name: "MODULE:CLASS"}, with the kinds that the environment names."""
    further = (entry.partition("=") for entry in os.environ.get(FURTHER, "").split(","))
    return KINDS | {name.strip(): place.strip() for name, equals, place in further if equals}


def of(name: str) -> AnyKind:
    """Return the kind of this name. Raises UnknownKindError."""
    place = table().get(name)
    if place is None:
        raise UnknownKindError(
            f"runs of kind {name!r} are not known to this program{did_you_mean(name, table())}. "
            f"It knows: {', '.join(sorted(table()))}."
        )
    if name in KINDS:
        return _load(place)
    try:
        return _load(place)
    except (ImportError, AttributeError) as error:
        raise UnknownKindError(
            f"{FURTHER} says that {place} has the runs of kind {name!r}, and it cannot be loaded: "
            f"{error}. Name MODULE:CLASS, with the module's folder in PYTHONPATH."
        ) from error


@cache
def _load(place: str) -> AnyKind:
    """Return a kind: an instance of the class at "MODULE:CLASS", which is imported."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)()


def kind_of(stream: str) -> AnyKind | None:
    """Return the kind of the run that a stream belongs to; None for any other stream."""
    name, slash, _ = stream.partition("/")
    return of(name) if slash and name in table() else None


def is_run(stream: str) -> bool:
    """Return True if the stream is a run's, of a kind that is known here."""
    name, slash, _ = stream.partition("/")
    return bool(slash) and name in table()
