"""Parts that every kind of panel is made of: numbers, metrics, axes, limits. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

#: A finite number.
Number = Annotated[float, Field(allow_inf_nan=False)]
#: A finite number, or None if it is missing.
Maybe = Number | None
#: What a cell of a table holds.
Cell = bool | int | Number | str | None
Better = Literal["up", "down"]
Name = TypeVar("Name")


class Shape(BaseModel):
    """Plain data with exactly these fields."""

    # Every field is in every answer: the dashboard's types need no question marks.
    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_serialization_defaults_required=True
    )


class Metric(Shape):
    """A measured quantity: its name, its unit, and which end of it is better, if either is."""

    name: str
    unit: str = ""
    better: Better | None = None


class Axis(Metric):
    """The quantity along an axis."""

    log: bool = False
    #: Only whole numbers occur: steps, generations.
    whole: bool = False
    #: Names of the whole numbers from 0 on, such as phases; empty: they have none.
    names: tuple[str, ...] = ()


class Limit(Shape):
    """A line at a value, such as a gate's limit, and the axis that it is on."""

    at: Number
    says: str
    axis: int = Field(default=1, ge=0, description="0 for x, 1 for y.")


def unique(what: str, names: Iterable[Name]) -> set[Name]:
    """Return the names as a set. Raises ValueError if one occurs twice."""
    distinct_names: set[Name] = set()
    for name in names:
        if name in distinct_names:
            raise ValueError(f"{what} {name} occurs twice")
        distinct_names.add(name)
    return distinct_names


class PanelBase(Shape):
    """Fields of every panel."""

    #: The panel's name within its run, in addresses and on the command line.
    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,62}$")
    title: str
    #: What the panel says, in one sentence.
    says: str
    #: How many points, rows, nodes there are, if this form of the panel leaves some out.
    total: int | None = None
