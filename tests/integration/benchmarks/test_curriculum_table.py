"""The table of the curriculum benchmark: differences over seeds, verdicts, and missing arms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.phases import curriculum


def row(seed: int, what: str, solved: int, of: int = 100) -> dict[str, Any]:
    """Return a result whose arm solves some of the items of one cell, the first ones."""
    items = [1.0] * solved + [0.0] * (of - solved)
    test = {
        "recipe_id": "1" * 64,
        "measure": "exact-answers@1",
        "on": "test",
        "values": {"a/1": solved / of},
        "items": {"a/1": items},
        "sizes": {"a/1": [1] * of},
        "seconds": 1.0,
    }
    return {
        "job": {"size": "mini", "seed": seed, "what": what},
        "parameters": 10,
        "tokens": 20,
        "course": [0.0, solved / of],
        "forgetting": 0.0,
        "test": test,
        "seconds": 1.0,
    }


def test_differences_over_seeds_have_students_interval() -> None:
    """Differences 1, 2 and 3 points: mean 2, deviation 1, and 4.303 / √3 = 2.484 to each side."""
    seeds = {n: {"adaptive": row(n, "adaptive", 40), "x": row(n, "x", 41 + n)} for n in range(3)}
    assert curriculum._over_seeds(seeds, "x") == "+1.0, +2.0, +3.0 (-0.5 to +4.5)"
    assert curriculum._over_seeds({0: seeds[0]}, "x") == "+1.0"


def test_the_table_says_what_is_better_and_leaves_out_seeds_that_are_not_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for one in (
        row(0, "adaptive", 40), row(0, "chaos", 80), row(0, "dreams", 10), row(1, "adaptive", 40)
    ):  # fmt: skip
        job = one["job"]
        (tmp_path / f"{job['seed']}-{job['what']}.json").write_text(json.dumps(one))
    curriculum.table(tmp_path)
    told = capsys.readouterr().out
    assert "of the seeds [1] there are not all trainings" in told
    lines = {line.split("|")[1].strip(): line for line in told.splitlines() if "|" in line}
    assert "| better |" in lines["chaos"]
    assert "| worse |" in lines["dreams"]
    assert "+40.0 (" in lines["chaos"]
