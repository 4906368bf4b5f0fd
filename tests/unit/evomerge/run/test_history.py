"""Places in a history: cuts fall between appends, and say so where they would not."""

from __future__ import annotations

import pytest

from agent_forge.evomerge.run.state import fold
from agent_forge.evomerge.run.views import outlook
from agent_forge.runs.errors import ConfigError, NotFoundError
from agent_forge.runs.history import repository as history
from agent_forge.runs.history.repository import HistoryReference
from agent_forge.runs.kinds.decide import decide
from testing.worlds.fake_world import World


@pytest.fixture(scope="module")
def rows():
    """A finished run's rows."""
    world = World()
    world.run()
    return world.rows


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("r", HistoryReference("r")),
        ("r@57", HistoryReference("r", place=57)),
        ("r@g3", HistoryReference("r", generation=3)),
    ],
)
def test_references_are_read(text: str, reference: HistoryReference) -> None:
    assert HistoryReference.parse(text) == reference


@pytest.mark.parametrize("text", ["", "@3", "r@", "r@x", "r@g", "r@-1", "r@3g"])
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names no place"):
        HistoryReference.parse(text)


def test_appends_are_the_rows_in_order_and_no_group_begins_with_a_closing_event(rows) -> None:
    groups = history.appends(rows)
    assert [row for group in groups for row in group] == rows
    assert all(group[0].causation is None for group in groups)
    closings = [g for g in groups if g[0].type == "diversity_measured"]
    assert len(closings) == 3
    assert all(len(group) > 1 for group in closings)


def test_every_place_may_be_cut_but_the_middle_of_an_append(rows) -> None:
    """The error names both ends of the append, and both can be cut."""
    for place in range(1, len(rows) + 1):
        inside = place < len(rows) and rows[place].causation is not None
        if not inside:
            assert history.at_place(rows, place) == place
            continue
        with pytest.raises(ConfigError, match="take") as caught:
            history.at_place(rows, place)
        low, high = (int(w.strip(".")) for w in str(caught.value).split("take ")[1].split(" or "))
        assert history.at_place(rows, low) < place < history.at_place(rows, high)


@pytest.mark.parametrize("place", [0, -1, 10_000])
def test_a_place_that_is_not_there_is_refused(rows, place: int) -> None:
    with pytest.raises(NotFoundError, match="events 1 to"):
        history.at_place(rows, place)


def test_before_the_close_the_facts_are_due_and_after_it_they_are_there(rows) -> None:
    for generation in range(3):
        before = fold(rows[: outlook.before_close(rows, generation)])
        after = fold(rows[: outlook.after_close(rows, generation)])
        assert before.generation == generation
        assert decide(before).facts[0].event.type == "diversity_measured"
        assert after.generation == generation + 1
        assert generation in after.generations


def test_a_generation_that_is_not_complete_is_refused_with_those_that_are(rows) -> None:
    with pytest.raises(NotFoundError, match="generations 0 to 2 are"):
        outlook.after_close(rows, 3)
    with pytest.raises(NotFoundError, match="no generation is yet"):
        outlook.after_close(rows[:3], 0)
