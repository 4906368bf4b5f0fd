"""Panels of a run: the closed set of typed pictures that page, terminal, report and API draw.

A kind of run says what is shown of it as one `Head` and some panels (`View.head`, `View.panels`).
They are plain data, so that a drawing needs to know no kind. The kinds of panel:

    Lines    values along steps, tokens, time or generations
    Front    points in several measures, of which some are beaten by no other
    Matrix   rows x columns of values
    Arms     what the run made, beside the honest alternatives, with paired intervals
    Shares   parts of a whole, once or along an axis
    Units    the units of the run as a table with typed columns
    Samples  texts: prompts, replies, verdicts
    Gates    measures against limits, with the verdict of each
    Graph    nodes and edges, such as a lineage
    Strip    stages in a row, each with its state, its gate and its figure
    Timeline what was done when, in lanes: runs, devices

A number is finite; a missing number is None. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from agent_forge.runs.panels.shapes import (
    Axis,
    Cell,
    Limit,
    Maybe,
    Metric,
    Number,
    PanelBase,
    Shape,
    unique,
)
from agent_forge.runs.panels.stages import Strip, Timeline

# ---- Lines -----------------------------------------------------------------------------------


class Series(Shape):
    """One line. `low` and `high` are its band, as long as `y`; None is a gap."""

    name: str
    role: Literal["ours", "alternative", "reference"] = "ours"
    #: Lines of one name and several seeds are repetitions of one another.
    seed: int | None = None
    x: tuple[Number, ...]
    y: tuple[Maybe, ...]
    low: tuple[Maybe, ...] | None = None
    high: tuple[Maybe, ...] | None = None
    #: False for things that happened at some places: their points are not joined.
    joined: bool = True

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        if len({len(part) for part in (self.x, self.y, self.low, self.high) if part is not None}) > 1:
            raise ValueError(f"series {self.name}: x, y and its band differ in length")
        if (self.low is None) != (self.high is None):
            raise ValueError(f"series {self.name}: a band has both ends")
        return self


class Lines(PanelBase):
    """Values along an axis."""

    kind: Literal["lines"] = "lines"
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    limits: tuple[Limit, ...] = ()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        unique("series", ((s.name, s.seed) for s in self.series))
        return self


# ---- Front -----------------------------------------------------------------------------------


class Point(Shape):
    """A point: one value for each axis. `kept`: no other point beats it in every measure."""

    id: str
    label: str = ""
    #: What points are told apart by: a codec, an arm, a generation.
    series: str = ""
    values: tuple[Number, ...]
    kept: bool


class Front(PanelBase):
    """Points in two or more measures; those that are kept form the Pareto front."""

    kind: Literal["front"] = "front"
    axes: tuple[Axis, ...] = Field(min_length=2)
    points: tuple[Point, ...]
    #: The id of the point that was chosen.
    chosen: str | None = None
    limits: tuple[Limit, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        ids = unique("point", (p.id for p in self.points))
        if any(len(p.values) != len(self.axes) for p in self.points):
            raise ValueError("a point has one value for each axis")
        if self.chosen is not None and self.chosen not in ids:
            raise ValueError(f"the chosen point {self.chosen} is none of the points")
        return self


# ---- Matrix ----------------------------------------------------------------------------------

Values = tuple[tuple[Maybe, ...], ...]


class Matrix(PanelBase):
    """Values by row and column; `low` and `high` are their intervals, of the same shape."""

    kind: Literal["matrix"] = "matrix"
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    #: One for all rows, or one for each row.
    metrics: tuple[Metric, ...] = Field(min_length=1)
    values: Values
    low: Values | None = None
    high: Values | None = None
    #: The column that is the run's own, if one is.
    ours: str | None = None
    #: The range that values should lie in, and the value at which colours change sides.
    band: tuple[Number, Number] | None = None
    diverging_at: Maybe = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        shape = [len(self.columns)] * len(self.rows)
        for part in (self.values, self.low, self.high):
            if part is not None and [len(row) for row in part] != shape:
                raise ValueError("values and intervals have one row for each row of the matrix")
        if len(self.metrics) not in (1, len(self.rows)):
            raise ValueError("there is one metric for all rows, or one for each row")
        if self.ours is not None and self.ours not in self.columns:
            raise ValueError(f"column {self.ours} is none of the columns")
        return self


# ---- Arms ------------------------------------------------------------------------------------


Verdict = Literal["better", "level", "worse"]
#: The words in a sentence: "the champion is level with the mean".
COMPARED: Mapping[Verdict, str] = {
    "better": "better than",
    "level": "level with",
    "worse": "worse than",
}


def verdict(low: float, high: float, rounding: float = 0.0) -> Verdict:
    """Return "better", "level" or "worse": ours beside another, by its lead's 95 % interval.

    Ours is better or worse if the whole interval lies beyond zero by more than `rounding`.
    """
    return "better" if low > rounding else "worse" if high < -rounding else "level"


class Lead(Shape):
    """By how much ours exceeds another arm on the same items, with its 95 % interval.

    `verdict` is about ours: better or worse if the interval lies beyond zero and rounding.
    """

    value: Number
    low: Number
    high: Number
    verdict: Verdict


class Arm(Shape):
    """One arm: its value with its interval, if that is known, over `n` items."""

    name: str
    #: What kind of arm it is: "source", "base", "baseline".
    group: str = ""
    value: Maybe
    low: Maybe = None
    high: Maybe = None
    n: int | None = None
    #: Of ours over this arm; ours itself has none.
    lead: Lead | None = None
    #: What the arm cost, in the unit of `Arms.cost`.
    cost: Maybe = None


class Arms(PanelBase):
    """Comparison of what the run made (`ours`) with alternatives at equal conditions."""

    kind: Literal["arms"] = "arms"
    metric: Metric
    ours: str
    #: The arm that ours must beat to have been worth its cost, if one is named.
    baseline: str | None = None
    arms: tuple[Arm, ...]
    cost: Metric | None = None
    #: The lead that a gate asks for.
    limit: Maybe = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        names = unique("arm", (arm.name for arm in self.arms))
        for name in (self.ours, self.baseline):
            if name is not None and name not in names:
                raise ValueError(f"{name} is none of the arms")
        return self


# ---- Shares ----------------------------------------------------------------------------------


class Part(Shape):
    """A part of the whole: its amount at each place of the axis."""

    name: str
    values: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]


class Shares(PanelBase):
    """Parts of a whole along `x`; without `x`, one whole, and each part has one value."""

    kind: Literal["shares"] = "shares"
    metric: Metric
    x: Axis | None = None
    at: tuple[Number, ...] = ()
    parts: tuple[Part, ...]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        unique("part", (part.name for part in self.parts))
        places = 1 if self.x is None else len(self.at)
        if (self.x is None and self.at) or any(len(p.values) != places for p in self.parts):
            raise ValueError("each part has one value for each place")
        return self


# ---- Units, samples, gates -------------------------------------------------------------------


Type = Literal["text", "number", "integer", "flag", "model", "run"]


class Column(Metric):
    """A column of a table. `model` and `run` hold ids that a page links."""

    type: Type


def columns(**types: Type) -> tuple[Column, ...]:
    """Return columns without units, by name and type; an underscore is a space."""
    return tuple(Column(name=name.replace("_", " "), type=type_) for name, type_ in types.items())


class Units(PanelBase):
    """The units of the run as a table, the oldest first: generations, segments, levels, tasks."""

    kind: Literal["units"] = "units"
    #: The word for one row.
    unit: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        unique("column", (column.name for column in self.columns))
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError("each row has one cell for each column")
        return self


class Mark(Shape):
    """A stretch of a sample's text, as character positions, and what is said of it."""

    start: int = Field(ge=0)
    end: int = Field(ge=0)
    says: str


class Sample(Shape):
    """A text that a model wrote, what it was asked, and a verifier's verdict."""

    title: str = ""
    prompt: str = ""
    text: str
    marks: tuple[Mark, ...] = ()
    verdict: Literal["pass", "fail"] | None = None


class Samples(PanelBase):
    """Texts."""

    kind: Literal["samples"] = "samples"
    samples: tuple[Sample, ...]


class Gate(Shape):
    """A measure against its limit. `by` and `reason` are those of an override."""

    name: str
    #: What it belongs to, such as a phase; gates of one group stand together.
    group: str = ""
    metric: Metric
    value: Maybe
    baseline: Maybe = None
    low: Maybe = None
    high: Maybe = None
    limit: Maybe = None
    verdict: Literal["open", "pass", "pass unchanged", "stop", "overridden"]
    by: str | None = None
    reason: str | None = None
    #: What a user names to override the verdict (`POST /runs/RUN/actions/override`); None: nothing.
    about: str | None = None


class Gates(PanelBase):
    """Verdicts on which it depends how a run goes on."""

    kind: Literal["gates"] = "gates"
    gates: tuple[Gate, ...]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        unique("gate", (gate.name for gate in self.gates))
        return self


# ---- Graph -----------------------------------------------------------------------------------


class Node(Shape):
    """A node: `column` is its place along the graph, `group` what it is."""

    id: str
    name: str
    group: str = ""
    says: str = ""
    column: int | None = None
    value: Maybe = None
    #: It is the run's result, or on the way to it.
    ours: bool = False
    #: The stretch of columns that it stands in, such as a phase; empty: none.
    lane: str = ""
    #: A run that the page opens from it: the one that made it.
    run: str | None = None


class Edge(Shape):
    """An edge between two nodes, by their ids; `says` is the operation."""

    source: str
    target: str
    says: str = ""


class Graph(PanelBase):
    """Nodes and edges."""

    kind: Literal["graph"] = "graph"
    #: What `value` of a node is.
    metric: Metric | None = None
    #: The word for a column: "generation".
    along: str = ""
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        ids = unique("node", (node.id for node in self.nodes))
        if any(end not in ids for edge in self.edges for end in (edge.source, edge.target)):
            raise ValueError("an edge connects two of the nodes")
        return self


#: One of the closed set; `kind` tells which.
Panel = Annotated[
    Lines | Front | Matrix | Arms | Shares | Units | Samples | Gates | Graph | Strip | Timeline,
    Field(discriminator="kind"),
]
