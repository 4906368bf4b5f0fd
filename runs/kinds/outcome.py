"""The outcome of a run, for other runs: models by role, figures, items; and the runs that it delegates.

Pure, but for `items_file`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast

from pydantic import BaseModel

from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.event_types import Figure, MadeModel, SourceRecord
from agent_forge.runs.kinds.architecture import Architecture
from agent_forge.runs.kinds.decide import Delegate
from agent_forge.runs.kinds.forecast import Forecast, unknown
from agent_forge.runs.kinds.state import State
from agent_forge.runs.panels.head import measured
from agent_forge.runs.panels.shapes import Better, Metric
from agent_forge.runs.record import lineage
from agent_forge.runs.record.events import ChildEnded, Started, Submitted

S = TypeVar("S", bound=State)
#: A process's weight cache; its class (`weights.storage.weight_cache.Artifacts`) is of a room above.
Cache: TypeAlias = Any

#: Unit of a tracker → how panels spell it.
_UNITS = {"bits/byte": "bit/B", "nats/token": "nat/token", "bytes": "B", "count": ""}


class Figured(Protocol):
    """A kind of run whose completed runs have figures."""

    figures_of: ClassVar[Mapping[str, str]]
    figure_units: ClassVar[Mapping[str, str]]


class Outcome(Generic[S]):
    """The part of a kind of run that other runs build on."""

    #: Figure that a completed run has → "name in words: what it is"; the one table of both.
    figures_of: ClassVar[Mapping[str, str]] = {}
    #: Unit of a figure in `figures_of`, for those that have one.
    figure_units: ClassVar[Mapping[str, str]] = {}
    #: True if its runs pin items to measure on, which other runs may measure on too.
    gives_items: ClassVar[bool] = False

    #: Roles of the models that a run is given, if all of them must be of one architecture and size.
    together: ClassVar[Sequence[str]] = ()

    def roles(self, config: BaseModel) -> Sequence[str]:
        """Return the roles of the models that a run with these settings gives."""
        return ()

    def architectures(
        self, config: BaseModel, architectures_by_role: Mapping[str, Sequence[Architecture | None]]
    ) -> Mapping[str, Architecture]:
        """Return role → architecture of the models that a run gives, of those known beforehand.

        `architectures_by_role`: role → architectures of the run's given models; None: not known.
        """
        return {}

    def results(self, state: S) -> dict[str, MadeModel]:
        """Return role → model of a completed run."""
        return {}

    def figures(self, state: S) -> dict[str, Figure]:
        """Return the figures of a completed run, by the names in `figures_of`."""
        return {}

    def inputs(self, state: S) -> Mapping[str, Sequence[str]]:
        """Return role → digests of the models' weights that `started` pins, in the order given.

        A run that was given models is taken for an equal one only if its kind says this.
        """
        return {}

    def pins(self, state: S) -> dict[str, Any]:
        """Return what `started` pins, as plain data, without the names of models and without luck.

        Runs with the same settings and the same pins do the same work.
        """
        started: Started = state.started
        unnamed = {name: _unnamed(getattr(started, name)) for name in type(started).model_fields}
        payload = started.model_copy(update=unnamed).model_dump(mode="json")
        return lineage.shared(started.type, payload)

    def items_address(self, state: S) -> str:
        """Return the content address of what a started run has pinned, its items among it."""
        return ""

    def items_file(self, state: S, cache: Cache) -> Path:
        """Return the file of the items that a run has pinned, JSON lines. Raises ForgeError."""
        raise NotFoundError(f"run {state.run} has no items to measure on.")

    def forecast(self, submitted: Submitted, cache: Cache, folder: Path) -> Forecast:
        """Return what a run that is submitted so costs here; try the work, and record nothing.

        `folder` takes the stand-ins of its models. It may take a minute. Raises the errors of a start.
        """
        return unknown("its kind of run cannot tell before it has run")

    # ---- of a kind whose tasks are runs --------------------------------------------------------

    def returned(self, state: S, task: Delegate, child: State) -> ChildEnded:
        """Return the answer to a task whose child has ended."""
        raise NotImplementedError

    def refused(self, state: S, task: Delegate, why: str) -> ChildEnded:
        """Return the answer to a task whose child could not be submitted."""
        raise NotImplementedError

    def retries(self, state: S, task: Delegate) -> str | None:
        """Return the idempotency key under which a child that failed is retried for this task.

        None: the child's failure is the answer.
        """
        return None

    def reuses(self, state: S) -> bool:
        """Return True if an ended run may take the place of a child that would be equal to it."""
        return False

    def unlike(self, state: S, task: Delegate, child: State) -> str | None:
        """Return why a run is not what a task asks for, as far as logs tell; None if it may be."""
        return None

    def asked_otherwise(self, state: S, task: Delegate, child: State) -> str | None:
        """Return why a child's kind or settings are not what its task asks for; None if they are."""
        return None

    def children(self, state: S) -> Iterator[tuple[Delegate, ChildEnded]]:
        """Yield the tasks whose child has completed, each with its answer."""
        yield from ()


def figure_metric(kind: Figured, figure: str, better: Better | None = None) -> Metric:
    """Return a figure of a kind by its name in words and its unit; no word of the name is its unit."""
    label, colon, _ = kind.figures_of.get(figure, "").partition(": ")
    name = label if colon else figure.replace("_", " ")
    unit = kind.figure_units.get(figure, "")
    unit = "" if name.replace(" per ", "/") == unit else _UNITS.get(unit, unit)
    return Metric(name=name, unit=unit, better=better)


def figure_text(kind: Figured, name: str, figure: Figure) -> str:
    """Return a figure in words with its interval: "quality kept 96.10 % (95.94 % to 96.26 %)"."""
    metric = figure_metric(kind, name)
    return f"{metric.name} {measured(figure.value, metric.unit, figure.low, figure.high)}"


def _unnamed(value: object) -> object:
    """Return a field of `started` with the records of models without their names."""
    if isinstance(value, SourceRecord):
        return value.model_copy(update={"name": ""})
    return (
        tuple(map(_unnamed, cast("tuple[object, ...]", value))) if isinstance(value, tuple) else value
    )
