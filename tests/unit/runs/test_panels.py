"""Panels: what their models refuse, thinning for the wire, tables and CSV."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from agent_forge.runs.errors import NotFoundError
from agent_forge.runs.panels import tables, thinning
from agent_forge.runs.panels.head import Head, Live, Panels, digits
from agent_forge.runs.panels.panels import Axis, Front, Lines, Metric, Panel, Point, Series, Units
from testing.panels import EVERY

PANEL: TypeAdapter[Any] = TypeAdapter(Panel)
NUMBERS = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False, width=32))


def lines(series: Series) -> Lines:
    """Return a panel with one series."""
    x, y = Axis(name="step", whole=True), Axis(name="loss", better="down")
    return Lines(name="loss", title="Loss", says="It falls.", x=x, y=y, series=(series,))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (-0.0131, "−0.01310"), (28_960.4, "28,960"), (1.979e-5, "1.979 × 10⁻⁵")],
)
def test_a_number_has_four_digits_and_its_own_sign(value: float, text: str) -> None:
    """As the page writes it: a minus is no hyphen, and a power of ten is no `e-05`."""
    assert digits(value) == text


# ---- the models ------------------------------------------------------------------------------


@pytest.mark.parametrize("panel", EVERY.values(), ids=list(EVERY))
def test_a_panel_comes_back_from_json_as_it_was(panel: Any) -> None:
    """The discriminator alone says which of the eleven it is."""
    assert PANEL.validate_json(panel.model_dump_json()) == panel
    assert json.loads(json.dumps(panel.model_dump(mode="json"), allow_nan=False))


def test_there_is_an_example_of_every_kind_of_panel() -> None:
    """The tests of drawings go through them."""
    union = PANEL.json_schema()["discriminator"]["mapping"]
    assert set(EVERY) == set(union)


@pytest.mark.parametrize(
    ("kind", "path", "wrong"),
    [
        ("lines", ("series", 0, "x"), [0.0]),
        ("lines", ("series", 0, "y", 0), float("nan")),
        ("lines", ("series", 0, "low"), None),
        ("lines", ("series", 1, "seed"), 0),
        ("front", ("points", 0, "values"), [1.0]),
        ("front", ("points", 1, "id"), "a"),
        ("front", ("chosen",), "nothing"),
        ("matrix", ("values", 0), [1.0]),
        ("matrix", ("metrics",), []),
        ("matrix", ("ours",), "nothing"),
        ("arms", ("ours",), "nothing"),
        ("arms", ("baseline",), "nothing"),
        ("arms", ("arms", 1, "name"), "champion"),
        ("shares", ("parts", 0, "values"), [1.0]),
        ("shares", ("parts", 0, "values", 0), -1.0),
        ("shares", ("x",), None),
        ("units", ("rows", 0), [1]),
        ("units", ("columns", 1, "name"), "level"),
        ("samples", ("samples", 0, "verdict"), "perhaps"),
        ("gates", ("gates", 1, "name"), "quality"),
        ("graph", ("edges", 0, "source"), "nothing"),
        ("graph", ("nodes", 1, "id"), "a"),
        ("strip", ("stages", 1, "number"), 1),
        ("strip", ("stages", 1, "inside"), 1.5),
        ("strip", ("stages", 1, "left_s"), -1.0),
        ("strip", ("stages", 1, "state"), "perhaps"),
        ("timeline", ("lanes", 0, "bars", 0, "end"), -1.0),
        ("timeline", ("lanes", 1, "bars", 0, "start"), None),
        ("timeline", ("lanes", 1, "name"), "1 grow"),
        ("timeline", ("began",), "2026-11-26T03:42:00"),
        ("units", ("name",), "Not a name"),
        ("units", ("more",), 1),
    ],
)
def test_a_panel_that_contradicts_itself_is_refused(kind: str, path: tuple, wrong: Any) -> None:
    """A drawing need not check anything again."""
    data = EVERY[kind].model_dump(mode="json")
    place = data
    for step in path[:-1]:
        place = place[step]
    assert PANEL.validate_python(json.loads(json.dumps(data)))
    place[path[-1]] = wrong
    with pytest.raises(ValidationError):
        PANEL.validate_python(data)


def test_a_panel_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        EVERY["lines"].title = "Other"


def test_two_panels_of_one_name_are_refused_and_now_is_marked_live() -> None:
    head = Head(
        run="r", kind="k", title="a run", status="running", place=1, done=0, of=None, unit="step"
    )
    one = EVERY["units"]
    with pytest.raises(ValidationError, match="occurs twice"):
        Panels(head=head, panels=(one, one))
    assert Live(doing=None).live is True
    with pytest.raises(ValidationError):
        Live.model_validate({"doing": None, "live": False})


# ---- thinning --------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=400), st.integers(10, 60))
def test_minima_maxima_and_gaps_survive_thinning(points: list[tuple], room: int) -> None:
    """A spike of one step is what a training is looked at for."""
    y, low, high = (tuple(p[i] for p in points) for i in range(3))
    whole = Series(name="a", x=tuple(range(len(points))), y=y, low=low, high=high)
    thin = thinning.thin_series(whole, room)
    assert thin == thinning.thin_series(whole, room)
    assert len(thin.x) <= max(room, 2)
    assert list(thin.x) == sorted(set(thin.x))
    there = dict(zip(whole.x, zip(y, low, high, strict=True), strict=True))
    for x, *values in zip(thin.x, thin.y, thin.low or (), thin.high or (), strict=True):
        assert there[x] == tuple(values)
    if points:
        assert (thin.x[0], thin.x[-1]) == (0, len(points) - 1)
    for part, extremes in (("y", (min, max)), ("low", (min,)), ("high", (max,))):
        known = [v for v in getattr(whole, part) if v is not None]
        left = [v for v in getattr(thin, part) if v is not None]
        for extreme in extremes if known else ():
            assert extreme(left) == extreme(known)
    assert (None in thin.y) == (None in whole.y)


def test_every_bucket_keeps_its_extremes() -> None:
    """Not only those of the whole: each spike of a curve of 100,000 points is seen."""
    spikes = {7_777: 5.0, 50_001: -5.0, 99_998: 4.0}
    y = tuple(spikes.get(i, (i % 10) / 10) for i in range(100_000))
    thin = thinning.thin_series(Series(name="a", x=tuple(range(100_000)), y=y))
    assert len(thin.x) <= thinning.POINTS
    shown = dict(zip(thin.x, thin.y, strict=True))
    assert {x: shown[x] for x in spikes} == spikes


def test_a_series_that_fits_is_not_touched() -> None:
    series = Series(name="a", x=(0, 1), y=(1, None))
    panel = lines(series)
    assert thinning.thin(panel) is panel
    with pytest.raises(ValueError, match="10 points"):
        thinning.thin_series(series, 9)


def test_the_wire_says_how_much_is_left_out() -> None:
    count = 5000
    numbers = tuple(range(count))
    told = thinning.thin(lines(Series(name="a", x=numbers, y=numbers)))
    assert isinstance(told, Lines)
    assert told.total == count
    assert len(told.series[0].x) <= thinning.POINTS
    table = EVERY["units"].model_copy(update={"rows": tuple((i, 0.5, True) for i in numbers)})
    cut = thinning.thin(table)
    assert isinstance(cut, Units)
    assert (cut.total, len(cut.rows), cut.rows[-1][0]) == (count, thinning.ROWS, count - 1)
    samples = EVERY["samples"].model_copy(update={"samples": EVERY["samples"].samples * count})
    assert len(thinning.thin(samples).samples) == thinning.ROWS  # pyright: ignore


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans()), max_size=200),
    st.integers(0, 50),
)
def test_a_thinned_front_keeps_what_is_kept_and_the_extremes(points: list[tuple], room: int) -> None:
    """The dominated cloud is a backdrop."""
    made = tuple(Point(id=str(i), values=(x, y), kept=kept) for i, (x, y, kept) in enumerate(points))
    thin = thinning.thin_points(made, room)
    ids = [point.id for point in thin]
    assert ids == sorted(ids, key=int)
    assert {p.id for p in made if p.kept} <= set(ids)
    for axis in range(2):
        for extreme in (min, max) if made else ():
            assert extreme(p.values[axis] for p in thin) == extreme(p.values[axis] for p in made)
    must = sum(p.kept for p in made) + 4
    assert len(thin) <= max(room, must)


def test_a_panel_of_100000_points_is_made_thinned_and_written() -> None:
    """A training has them, and a page asks for them every few seconds."""
    count = 100_000
    panel = lines(
        Series(name="loss", x=tuple(range(count)), y=tuple(1 / (i + 1) for i in range(count)))
    )
    wire = thinning.thin(panel).model_dump_json()
    assert len(wire) < 100_000
    assert tables.to_csv(panel).count("\n") == count + 1


# ---- tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("panel", EVERY.values(), ids=list(EVERY))
def test_every_row_of_a_table_has_a_cell_for_each_column(panel: Any) -> None:
    columns, rows = tables.table(panel)
    found = list(rows)
    assert found
    assert {len(row) for row in found} == {len(columns)}
    assert len(set(columns)) == len(columns)
    text = tables.to_csv(panel)
    assert len(list(csv.reader(io.StringIO(text)))) == 1 + len(found)


def test_a_table_has_all_values() -> None:
    _, rows = tables.table(EVERY["matrix"])
    matrix = EVERY["matrix"]
    values = [value for row in matrix.values for value in row]
    assert [row[4] for row in rows] == values
    _, rows = tables.table(EVERY["graph"])
    kinds = [row[0] for row in rows]
    assert (kinds.count("node"), kinds.count("edge")) == (3, 2)


def test_a_name_is_no_formula_in_a_spreadsheet() -> None:
    """Names of models come from strangers; negative numbers stay numbers."""
    front = Front(
        name="front",
        title="Front",
        says="-",
        axes=(Axis(name="=x"), Axis(name="y")),
        points=(Point(id="=HYPERLINK(1)", label="@a", values=(-1, 2), kept=True),),
    )
    head, row = csv.reader(io.StringIO(tables.to_csv(front)))
    assert head[3] == "'=x"
    assert row == ["'=HYPERLINK(1)", "'@a", "", "-1.0", "2.0", "True", "False"]


def test_a_panel_that_is_missing_is_named_with_those_that_there_are() -> None:
    assert tables.find(EVERY.values(), EVERY["arms"].name, "r") is EVERY["arms"]
    with pytest.raises(NotFoundError, match=r"run r has no panel 'x'\. Its panels are: loss, "):
        tables.find(EVERY.values(), "x", "r")


def test_a_metric_has_a_direction_or_none() -> None:
    with pytest.raises(ValidationError):
        Metric.model_validate({"name": "a", "better": "left"})
