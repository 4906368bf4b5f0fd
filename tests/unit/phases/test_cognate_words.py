"""What a cognate run says of its specialists: sentences, and one of three words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_forge.cli import panels as terminal
from agent_forge.events import Envelope
from agent_forge.phases.cognate import figures, recipes
from agent_forge.phases.cognate.script import Cognate
from agent_forge.runs import kinds
from agent_forge.runs.kinds import default_panels
from agent_forge.runs.kinds.state import fold_into
from agent_forge.runs.panels import tables
from agent_forge.runs.panels.head import Panels

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture(scope="module")
def state() -> Any:
    lines = (GOLDEN / "cognate-5.jsonl").read_text("utf-8").splitlines()
    rows = [Envelope(**json.loads(line)) for line in lines]
    return fold_into(kinds.of("cognate").state(), rows)


def test_the_result_is_a_sentence_everywhere(state: Any) -> None:
    """The mean of the specialists' savings, the slice, and the windows that they were measured on."""
    quality, domains = figures.quality(Cognate().run(state)), state.submitted.config.domains
    gains = [1 - quality[d][d] / quality[recipes.BASE][d] for d in domains]
    percent = f"{100 * abs(sum(gains) / len(gains)):.1f} %"
    head = kinds.of("cognate").view.head(state)
    assert head.result
    windows = Cognate().run(state).seen
    assert head.result.n == sum(len(windows[d].sizes[d]) for d in domains)
    words = dict(terminal.head_lines(head))["result"]
    assert words.startswith(f"on their own domains the specialists need {percent} ")
    assert head.result.low is not None
    assert head.result.high is not None
    assert head.result.low <= head.result.value <= head.result.high
    between = f"{100 * head.result.low:.1f} % to {100 * head.result.high:.1f} %"
    assert words.endswith(
        f" bits per byte than the base (selection slice, {head.result.n:,} windows; 95 %: {between})"
    )
    assert words in tables.markdown(Panels(head=head, panels=()))
    assert f"{words}." in default_panels.sentences(head)


def test_a_specialist_is_better_level_or_worse(state: Any) -> None:
    """By the interval of its lead over the best other model on its own domain."""
    told = figures.report(Cognate().run(state))
    name, lead = next(iter(told["lead"].items()))
    for low, high, words in (
        (0.1, 0.3, "better than"),
        (-0.1, 0.3, "level with"),
        (-0.3, -0.1, "worse than"),
    ):
        changed = {**lead, "low": low, "high": high}
        other = {**told, "lead": {**told["lead"], name: changed}}
        assert any(
            line.startswith(f"{name}: {words} {lead['rival']}, the best")
            for line in figures.lines(other)
        )
        assert f"The {name} specialist is {words} the best other" in figures.sentences(other)[0]


@pytest.mark.parametrize(
    ("barrier", "words"),
    [
        (-0.02, "no barrier: it is nowhere above the straight line"),
        (0.004, "no barrier: it is at most 0.0040 above the straight line"),
        (0.03, "a BARRIER: it is at most 0.0300 above the straight line"),
    ],
)
def test_a_barrier_is_told_above_the_straight_line(state: Any, barrier: float, words: str) -> None:
    """A loss may rise from base to specialist without one: only what is above the line counts."""
    told = figures.report(Cognate().run(state))
    name = next(iter(told["barrier"]))
    other = {**told, "barrier": {**told["barrier"], name: barrier}}
    assert any(line.endswith(f", {words}") for line in figures.lines(other))
    line = next(panel for panel in figures.panels(Cognate().run(state), {}) if panel.name == "line")
    assert "above the straight line between the losses of both ends" in line.says
