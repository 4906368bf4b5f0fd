"""Panel of the family of a pipeline's models: a lane for each phase, and one for given models. Pure.

A model stands in the lane of the phase whose run made it, behind the models of the same run that it was
made from. Its run records what it was made from (`View.ancestry`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent_forge.pipeline import plan
from agent_forge.pipeline.events import PipelineState
from agent_forge.pipeline.ladder import BITS
from agent_forge.runs import kinds
from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.event_types import MadeModel
from agent_forge.runs.kinds.origin import AncestorRecipe
from agent_forge.runs.kinds.state import State
from agent_forge.runs.panels.panels import Edge, Graph, Metric, Node

#: The lane of what the pipeline was given, and groups of its nodes.
GIVEN, MODEL, CORPUS = "given", "given model", "corpus"


class PhaseRecord(Protocol):
    """The run of a phase, as a log or its archive has it."""

    @property
    def run(self) -> str:
        """The run's name."""
        ...

    @property
    def state(self) -> State:
        """The run's state."""
        ...


@dataclass
class _Family:
    """Nodes and edges of the graph so far."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    #: Digest of weights → node.
    holders: dict[str, str] = field(default_factory=dict)
    #: (phase, role) → node.
    made: dict[tuple[int, str], str] = field(default_factory=dict)

    def put(self, node: Node, digest: str | None = None) -> None:
        self.nodes[node.id] = node
        if digest is not None:
            self.holders.setdefault(digest, node.id)

    def join(self, sources: Iterable[str], target: str, says: str) -> None:
        pairs = {(edge.source, edge.target) for edge in self.edges}
        for source in dict.fromkeys(sources):
            if source != target and (source, target) not in pairs:
                self.edges.append(Edge(source=source, target=target, says=says))


def lineage(state: PipelineState, children: Sequence[PhaseRecord]) -> Graph | None:
    """Return the graph panel of all ended phases' models; None if no phase gave a model."""
    family, column = _Family(), 1
    for number in state.numbers:
        column += _phase(state, number, {c.run: c for c in children}, family, column)
    if not family.made:
        return None
    own_nodes = _ours(state, family)
    nodes = [node.model_copy(update={"ours": node.id in own_nodes}) for node in family.nodes.values()]
    return Graph(
        name="family",
        title="Family of the models",
        says=f"{len(family.made)} models of {len({n for n, _ in family.made})} phases, each in the "
        "lane of the phase that made it.",
        metric=Metric(name="bits per byte", better="down"),
        along="phase",
        nodes=tuple(nodes),
        edges=tuple(family.edges),
    )


def _phase(
    state: PipelineState, number: int, runs: Mapping[str, PhaseRecord], family: _Family, column: int
) -> int:
    """Add a phase's models and inputs to the family; return the number of columns that they take."""
    ended, phase = state.ended_phase(number), state.submitted.config.phase(number)
    if ended is None or not ended.models:
        return 0
    behind = _ancestries(runs.get(ended.child), ended.models)
    depths = {role: len(_within(role, ended.models, behind)) for role in ended.models}
    levels = sorted(set(depths.values()))
    measured = state.measured_phase(number)
    bits = measured.figures.get(BITS) if measured and len(ended.models) == 1 else None
    for role, model in ended.models.items():
        id_ = model.recipe_id if model.recipe_id not in family.nodes else f"{phase.name}:{role}"
        family.made[number, role] = id_
        node = Node(
            id=id_,
            name=f"{phase.name}:{role}",
            group=phase.kind,
            says=f"weights {model.digest[:12]}, made by run {ended.child}",
            column=column + levels.index(depths[role]),
            value=bits.value if bits else None,
            lane=f"{number} {phase.name}",
            run=ended.child,
        )
        family.put(node, model.digest)
    inputs = _given(state, number, family)
    for role in ended.models:
        _descend(number, role, ended.models, behind, inputs, family, phase.kind)
    return len(levels)


def _ancestries(
    child: PhaseRecord | None, models: Mapping[str, MadeModel]
) -> dict[str, list[AncestorRecipe] | None]:
    """Return role → ancestors of a model, by its run; None if the run is unknown."""
    if child is None:
        return dict.fromkeys(models)
    kind = kinds.of(child.state.kind)
    ancestries: dict[str, list[AncestorRecipe] | None] = {}
    for role, model in models.items():
        try:
            ancestries[role] = kind.models.ancestry(child.state, model.recipe_id)
        except NotFoundError:  # a kind that makes no models of others
            ancestries[role] = None
    return ancestries


def _within(
    role: str, models: Mapping[str, MadeModel], behind: Mapping[str, list[AncestorRecipe] | None]
) -> list[str]:
    """Return the roles of the same run's models that a model was made from, directly or not."""
    ids = {ancestor.recipe_id for ancestor in behind[role] or ()}
    return [r for r, model in models.items() if r != role and model.recipe_id in ids]


def _given(state: PipelineState, number: int, family: _Family) -> list[str]:
    """Return the ids of nodes of a phase's inputs, data first; add nodes for those of no phase."""
    phase, inputs = state.submitted.config.phase(number), []
    for place in state.submitted.places.get(phase.name, ()):
        if state.submitted.config.items_of(place) is None:
            name = place.rstrip("/").rpartition("/")[2]
            node = Node(id=f"data {place}", name=name, group=CORPUS, says=place, lane=GIVEN)
            family.put(node.model_copy(update={"column": 0}))
            inputs.append(node.id)
    for reference in phase.given:
        model = plan.resolved(state, reference)
        if isinstance(model, tuple):
            inputs.append(family.holders[model[1].digest])
        elif model is not None:
            model_reference = state.submitted.given.get(model)
            node = Node(
                id=f"given {model}",
                name=model_reference.name if model_reference else model,
                group=MODEL,
                lane=GIVEN,
            )
            digest = model_reference.digest if model_reference else None
            family.put(node.model_copy(update={"column": 0}), digest)
            inputs.append(node.id)
    return inputs


def _descend(
    number: int,
    role: str,
    models: Mapping[str, MadeModel],
    behind: Mapping[str, list[AncestorRecipe] | None],
    inputs: Sequence[str],
    family: _Family,
    kind: str,
) -> None:
    """Add the edges to one model: from models of its own run, or from the run's inputs.

    Inputs of no phase, and all inputs if the run does not say which it used, count as used.
    """
    inside = _within(role, models, behind)
    above = {r for parent in inside for r in _within(parent, models, behind)}
    target = family.made[number, role]
    family.join((family.made[number, r] for r in inside if r not in above), target, kind)
    if inside:
        return
    ancestors = behind[role]
    used = {family.holders.get(a.given) for a in ancestors if a.given} if ancestors else set(inputs)
    family.join((g for g in inputs if g in used or family.nodes[g].lane == GIVEN), target, kind)


def _ours(state: PipelineState, family: _Family) -> set[str]:
    """Return the ids of nodes of the newest models that go on, and of all their ancestors."""
    last = max(number for number, _ in family.made)
    newest = plan.outgoing(state, last).values()
    own_nodes = {family.holders[model.digest] for _, model in newest if model.digest in family.holders}
    while more := {edge.source for edge in family.edges if edge.target in own_nodes} - own_nodes:
        own_nodes |= more
    return own_nodes
