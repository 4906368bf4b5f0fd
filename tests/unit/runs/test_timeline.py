"""The timeline of a run's children, places at positions of the log, and the family of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from agent_forge.runs.kinds.origin import AncestorRecipe
from agent_forge.runs.lists.family import AncestorsInRun, tree
from agent_forge.runs.panels import thinning
from agent_forge.runs.panels.panels import Timeline
from agent_forge.runs.panels.stages import Bar, Lane, timeline
from agent_forge.runs.record.lineage import Child, Line, place_at


@dataclass
class Known:
    """As much of a run's state as a timeline reads."""

    run: str
    status: str

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")


def at(second: int) -> str:
    """Return a recorded time."""
    return f"2026-11-26T03:42:{second:02d}.000000+00:00"


def line(position: int, second: int, type_: str = "counted", **more: Any) -> Line:
    """Return an event that was recorded at a second."""
    return Line(
        position, position, type_, False, more.pop("actor", "ada"), at(second), "", None, **more
    )


def done(position: int, second: int, seconds: float | None, **more: Any) -> Line:
    """Return the answer to a task."""
    return line(position, second, task="count", outcome="done", seconds=seconds, **more)


FIRST = Child(
    "phase/1",
    Known("p.1-a", "completed"),
    [
        line(3, 10, "submitted"),
        done(4, 15, 3.0, actor="worker/host/cpu0"),
        line(5, 20, "task_failed", task="count", outcome="failed", actor="worker/host/cpu1"),
        done(6, 30, None),
        line(7, 31, "completed"),
    ],
)
SECOND = Child("phase/2", Known("p.2-b", "running"), [line(9, 35, "submitted"), done(10, 40, 1.0)])
NAMES = {"p.1-a": "1 a", "p.2-b": "2 b"}


def test_a_task_ends_when_it_was_recorded_and_began_as_long_before_as_it_took() -> None:
    """Nothing is invented: without seconds only the end is known, a run under way has none."""
    panel = timeline([SECOND, FIRST], NAMES)
    assert panel is not None
    assert (panel.began.second, panel.until) == (10, 30)
    lanes = {(lane.group, lane.name): lane.bars for lane in panel.lanes}
    assert list(lanes) == [
        ("runs", "1 a"),
        ("runs", "2 b"),
        ("devices", "command started by ada"),
        ("devices", "host/cpu0"),
        ("devices", "host/cpu1"),
    ]
    run, failure = lanes["runs", "1 a"]
    assert (run.start, run.end, run.state, run.run) == (0, 21, "done", "p.1-a")
    assert (failure.start, failure.end, failure.state) == (None, 10, "failed")
    [second] = lanes["runs", "2 b"]
    assert (second.start, second.end, second.state) == (25, None, "running")
    [task] = lanes["devices", "host/cpu0"]
    assert (task.name, task.start, task.end) == ("1 a: count", 2, 5)
    here = lanes["devices", "command started by ada"]
    assert [(bar.start, bar.end) for bar in here] == [(None, 20), (29, 30)]
    assert panel.says == "2 runs, 3 tasks done, 1 attempt failed."
    assert timeline([], {}) is None


def test_a_clock_that_was_set_back_makes_no_bar_end_before_it_starts() -> None:
    back = Child("phase/1", Known("r", "failed"), [line(1, 30, "submitted"), line(2, 20, "failed")])
    panel = timeline([back], {})
    assert panel is not None
    assert [(bar.start, bar.end, bar.state) for bar in panel.lanes[0].bars] == [(0, 0, "failed")]


def test_a_thinned_timeline_keeps_failures_what_goes_on_and_the_longest_bars() -> None:
    """A page can draw no ten thousand bars, and must not lose what went wrong."""
    bars = tuple(Bar(name=str(n), start=0, end=n, state="done") for n in range(50))
    odd = (
        Bar(name="x", start=None, end=1, state="failed"),
        Bar(name="y", start=1, end=None, state="running"),
    )
    whole = timeline([FIRST], NAMES)
    assert whole is not None
    panel = whole.model_copy(update={"lanes": (Lane(name="a", bars=bars + odd),)})
    thin = thinning.thin(panel, points=10)
    assert isinstance(thin, Timeline)
    assert thin.total == 52
    assert [bar.name for bar in thin.lanes[0].bars] == [str(n) for n in range(42, 50)] + ["x", "y"]


@pytest.mark.parametrize(
    ("position", "place"), [(1, 0), (2, 1), (4, 1), (5, 1), (6, 1), (7, 4), (99, 4)]
)
def test_a_position_inside_of_an_append_is_before_it(position: int, place: int) -> None:
    """No run was ever in a state between two events of one append."""
    lines = [
        line(n, 1)._replace(place=at, inside=inside)
        for at, (n, inside) in enumerate([(2, False), (5, False), (6, True), (7, True)], 1)
    ]
    assert place_at(lines, position) == place


def ancestor(letter: str, given: str | None = None) -> AncestorRecipe:
    """Return an ancestor that is told apart by one letter."""
    return AncestorRecipe(letter * 16, f"place {letter}", f"words {letter}", {}, given)


def test_a_family_has_a_lane_for_each_run_and_an_edge_for_each_given_model() -> None:
    """The champion of c was made of two models of b, one of which b made from the other."""
    found = [
        AncestorsInRun(
            "c", [ancestor("c"), ancestor("x", "d1"), ancestor("y", "d2"), ancestor("z", "d9")]
        ),
        AncestorsInRun("b", [ancestor("b"), ancestor("e")], "d1"),
        AncestorsInRun("b", [ancestor("e")], "d2"),
    ]
    graph = tree(found, {"c": "2 merge"})
    assert graph is not None
    columns = {node.id: (node.lane, node.column) for node in graph.nodes}
    b, c, e = f"b:{'b' * 12}", f"c:{'c' * 12}", f"b:{'e' * 12}"
    assert columns == {"d9": ("given", 0), e: ("b", 1), b: ("b", 2), c: ("2 merge", 3)}
    assert {(edge.source, edge.target) for edge in graph.edges} == {(e, b), (b, c), (e, c), ("d9", c)}
    assert tree([], {}) is None
