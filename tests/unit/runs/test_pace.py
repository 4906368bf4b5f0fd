"""Pace of the work under way: how much of it is done, and of what."""

from __future__ import annotations

from agent_forge.runs.system import pace


def test_a_check_before_the_work_is_no_part_of_it() -> None:
    """Its three steps were said under the name of the task that came next."""
    pace.forget()
    with pace.counted_as("steps of the check"):
        pace.note("steps", 1, 3)
        assert pace.words() == "1 of 3 steps of the check"
    assert pace.words() == ""
    pace.note("steps", 1, 3)
    assert pace.words() == "1 of 3 steps"
    pace.forget()
