"""The table of the quietstar benchmark: means over seeds, and what they say of thoughts."""

from __future__ import annotations

import math

import pytest

from benchmarks.phases import quietstar


def test_means_over_seeds_have_students_interval() -> None:
    """Values 1, 2 and 3: mean 2, deviation 1, and 4.303 / √3 to each side; one seed says nothing."""
    mean, half = quietstar.over_seeds([1.0, 2.0, 3.0])
    assert (mean, half) == (2.0, pytest.approx(4.303 / math.sqrt(3)))
    assert quietstar.over_seeds([1.0]) == (1.0, math.inf)


@pytest.mark.parametrize(
    ("gain", "genuine", "continued", "pause", "words"),
    [
        ((0.2, 0.1), (0.1, 0.1), (0.2, 0.1), (0.3, 0.1), "thoughts help"),
        ((0.2, 0.1), (0.1, 0.2), (0.2, 0.1), (0.3, 0.1), "a gain, but not of the thoughts"),
        ((0.1, 0.1), (0.1, 0.1), (0.1, 0.1), (0.3, 0.1), "no gain"),
        ((-0.2, 0.1), (0.1, 0.1), (-0.2, 0.1), (0.3, 0.1), "worse than continued"),
        ((-0.2, 0.1), (0.1, 0.1), (-0.2, 0.1), (-0.3, 0.1), "worse than continued and pause"),
        ((0.2, math.inf), (0.1, math.inf), (0.2, math.inf), (0.3, math.inf), "no gain"),
    ],
)
def test_a_verdict_follows_from_the_worse_ends(gain, genuine, continued, pause, words) -> None:
    spans = {"gain": gain, "genuine": genuine, "over_continued": continued, "over_pause": pause}
    assert quietstar.verdict(spans) == words


@pytest.mark.slow
def test_a_run_in_miniature_gives_a_row(tmp_path, monkeypatch, capsys) -> None:
    """From new weights to a line of the table; what is there is not done again."""
    out = tmp_path / "rows.jsonl"
    words = ["quietstar", "train", "--out", str(out), "--domains", "chains", "--seeds", "0"]
    for name, value in {
        "hidden": 16,
        "layers": 1,
        "first-tokens": 64,
        "tokens": 64,
        "base-tokens": 32,
        "context": 16,
        "batch": 2,
        "lengths": 1,
        "characters": 100_000,
        "measured-tokens": 64,
        "document-tokens": 32,
    }.items():
        words += [f"--{name}", str(value)]
    monkeypatch.setattr("sys.argv", words)
    quietstar.main()
    quietstar.main()
    assert len(out.read_text().splitlines()) == 1
    assert "| chains | 0 |" in capsys.readouterr().out
