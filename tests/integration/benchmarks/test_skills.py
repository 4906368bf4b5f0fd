"""The benchmark of skills: its problems, and what its tables say of models."""

from __future__ import annotations

import math

import pytest

from benchmarks.evomerge import skills, skills_data, skills_tables


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return skills_data.task_rows("reverse", 3)


def test_answers_are_those_of_the_tasks() -> None:
    """By hand: the letters are a to l, and l is followed by a."""
    answers = {task: "".join(answer(list("kel"))) for task, answer in skills_data.TASKS.items()}
    assert answers == {"shift": "lfa", "double": "kkeell", "reverse": "lek"}


def test_no_word_is_in_two_rows(rows) -> None:
    """A model could otherwise have learned the answers of the test slice by heart."""
    assert len({row["id"] for row in rows}) == len(rows)
    counts = {s: sum("prompt" in row and row["slice"] == s for row in rows) for s in ("train", "test")}
    assert counts == {"train": 0, "test": skills_data.PROBLEMS["test"]}


def test_a_problem_is_a_text_without_its_answer(rows) -> None:
    text = next(row["text"] for row in rows if "text" in row)
    problem = next(row for row in rows if "prompt" in row)
    assert text.startswith("reverse ")
    assert text.endswith(" .")
    word = problem["prompt"].removeprefix("reverse ").removesuffix(" >").split()
    assert problem["check"]["answer"].split() == word[::-1]
    assert problem["id"] == f"reverse/{''.join(word)}"


def test_another_seed_draws_other_words(rows) -> None:
    assert skills_data.task_rows("reverse", 3) == rows
    assert skills_data.task_rows("reverse", 4) != rows


def solves(*counts: int) -> dict[str, list[int]]:
    """A model that solves so many of ten problems of each task."""
    return {task: [1] * n + [0] * (10 - n) for task, n in zip(skills_data.TASKS, counts, strict=True)}


SOLVED = {
    "base": solves(2, 2, 0),
    "shift": solves(8, 1, 0),
    "double": solves(2, 10, 0),
    "reverse": solves(1, 2, 4),
    "average": solves(6, 5, 2),
    "geometric": solves(8, 6, 0),
}


def test_a_gain_is_relative_to_base_and_specialist() -> None:
    """Of shift (6−2)/(8−2), of double (5−2)/(10−2), of reverse 2/4: two of three reach a half."""
    assert skills_tables.gains(SOLVED, "average") == pytest.approx(
        {"shift": 2 / 3, "double": 3 / 8, "reverse": 1 / 2}
    )
    assert [skills_tables.held(SOLVED, m) for m in ("base", "double", "average")] == [0, 1, 2]


def test_a_specialist_that_gained_nothing_gives_no_skill() -> None:
    solved = {**SOLVED, "reverse": solves(1, 2, 0)}
    assert list(skills_tables.gains(solved, "average")) == ["shift", "double"]
    assert skills_tables.held(solved, "average") == 1


def test_a_lost_task_counts_as_a_hundredth() -> None:
    """By hand: (6/8 · 5/10 · 2/4)^⅓, and (1 · 6/10 · 0.01)^⅓."""
    assert skills_tables.relative(SOLVED, "average") == pytest.approx((3 / 16) ** (1 / 3))
    assert skills_tables.relative(SOLVED, "geometric") == pytest.approx(0.006 ** (1 / 3))


def test_the_interval_of_a_share_is_wilsons() -> None:
    """0 and 10 of 10, from Wilson's formula: 1/(1 + 10/1.96²) = 0.2775."""
    assert skills_tables.wilson([0] * 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert skills_tables.wilson([1] * 10) == pytest.approx((0.7225, 1), abs=1e-4)


def test_means_over_seeds_have_students_interval() -> None:
    """Values 1, 2 and 3: mean 2, deviation 1, and 4.303 / √3 to each side."""
    mean, half = skills_tables.over_seeds([1.0, 2.0, 3.0])
    assert (mean, half) == (2.0, pytest.approx(4.303 / math.sqrt(3)))


def test_tables_name_every_model_and_the_lead_of_a_search() -> None:
    result = {
        "seed": 7,
        "solved": SOLVED,
        "moved": {"shift": 0.05, "double": 0.06, "reverse": 0.07},
        "cosines": {"shift,double": 0.3},
    }
    lines = skills_tables.seed_table(result)
    assert "shift 5.0%" in lines[0]
    row = "| average | 6 of 10 (31% to 83%) | 5 of 10 (24% to 76%) | 2 of 10 (6% to 51%) |"
    assert lines[8] == f"{row} 0.572 | 2 of 3 |"
    whole = skills_tables.summary([result, result], list(skills.STATIC), skills.ASKS)
    figures = "| average | 60% ± 0% | 50% ± 0% | 20% ± 0% | 0.572 ± 0.000 | 2 of 2 | 0 of 2 |"
    assert whole[6] == figures
    assert whole[-1] == (
        "Searched with geometric: -0.391 ± 0.000 over average, the static merge with the highest mean; "
        "ahead in 0 of 2 seeds."
    )


def test_a_refused_seed_is_measured_and_counted() -> None:
    result = {"seed": 8, "solved": SOLVED, "moved": {}, "cosines": {}, "refused": "it is none"}
    assert skills_tables.seed_table(result)[1] == "Refused by `forge cognate`: it is none."
    last = skills_tables.summary([result], list(skills.STATIC), skills.ASKS)[-1]
    assert last == "Refused by `forge cognate`, and measured all the same: 1."
