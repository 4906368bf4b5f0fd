"""Names of a compression's students."""

from __future__ import annotations

from agent_forge.phases.compression.recipes import student_names


def test_names_are_distinct_and_have_no_separators() -> None:
    """They begin the names of points, as in RUN:half:uniform-1."""
    given = ["half", "runs/half:model", "half", "model", "model", "é?"]
    assert student_names(given) == [
        "half",
        "runs-half-model",
        "half+2",
        "student",
        "student+2",
        "student+3",
    ]
