"""Chaos, dreams, a self-model and stages: which segments have them, and what they change.

The recorded run has six segments of 6 steps, a burst every third one, and `relapse` 0.02.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agent_forge.phases.curriculum import figures, panels, recipes
from agent_forge.phases.curriculum.figures import CurriculumRun
from agent_forge.phases.curriculum.mixing import mix
from agent_forge.phases.curriculum.mixing.frontier_rule import Success
from agent_forge.phases.curriculum.recipes import Dream, Dreamed, Dreamt
from agent_forge.phases.curriculum.script import Curriculum
from agent_forge.phases.curriculum.settings import CurriculumConfig
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import Figure
from agent_forge.runs.kinds.state import fold_into
from tests.golden.test_golden import rows_of

LOG = Path("tests/golden/curriculum-3.jsonl")
BASE = {"families": ("addition", "brackets"), "levels": 2, "segments": 12}


def config(**settings: Any) -> CurriculumConfig:
    return CurriculumConfig.model_validate({**BASE, **settings})


@cache
def recorded() -> CurriculumRun:
    """A run with all arms that follow success, of a model that learns one family."""
    return Curriculum().run(fold_into(Curriculum.state(), rows_of(LOG)))


def test_bursts_come_at_their_distance_and_never_last() -> None:
    asked = config(arms=("adaptive", "chaos"), burst_every=4)
    having = [n for n in range(12) if mix.added(asked, "chaos", n)]
    assert having == [3, 7]  # not 11, the last
    assert all(mix.added(asked, "adaptive", n) == () for n in range(12))
    both = config(adds=("chaos", "dreams"), burst_every=4)
    assert mix.added(both, "adaptive", 3) == ("chaos", "dreams")
    assert mix.added(both, "adaptive", 4) == ("dreams",)
    assert mix.added(both, "uniform", 3) == ()


def test_six_stages_are_even_parts_of_the_segments() -> None:
    asked = config(arms=("stages",))
    found = [mix.stage(asked, "stages", n) for n in range(12)]
    assert found[::2] == found[1::2] == [*mix.STAGES]
    assert mix.added(asked, "stages", 7) == ("chaos",)
    assert mix.added(asked, "stages", 8) == ("dreams",)
    assert mix.added(asked, "stages", 11) == ("self_model",)
    assert mix.stage(asked, "adaptive", 3) is None


def test_tools_come_in_with_their_stage() -> None:
    """Four of twelve segments are without tools, then these have four fifths of the items."""
    asked = config(arms=("stages",), families=("brackets", "tool-table"))
    for segment in (0, 3):
        shares, frontiers = mix.choose(asked, "stages", segment, {}, {})
        assert set(shares) == {"brackets/1", "brackets/2"}
        assert set(frontiers) <= {"brackets"}
    shares, frontiers = mix.choose(asked, "stages", 4, {}, {})
    assert set(frontiers) == {"brackets", "tool-table"}
    own = math.fsum(share for name, share in shares.items() if name.startswith("tool-"))
    assert own == pytest.approx(1 - mix.OTHERS)
    assert math.fsum(shares.values()) == pytest.approx(1)
    later, _ = mix.choose(asked, "stages", 6, {}, {})
    assert later == mix.choose(asked, "adaptive", 6, {}, {})[0]
    alone = config(arms=("stages",), families=("tool-table",))
    assert set(mix.choose(alone, "stages", 0, {}, {})[0]) == {"tool-table/1", "tool-table/2"}


def test_passed_levels_are_dreamt_of_and_have_their_share() -> None:
    asked = config(families=("addition", "tool-table"), adds=("dreams",))
    seen = {
        "addition/1": Success(0.95, 20),
        "addition/2": Success(0.9, 20),  # not above promote
        "tool-table/1": Success(1.0, 20),  # a tool's output is no dream
    }
    assert mix.dreamt(asked, "adaptive", 0, seen) == ("addition/1",)
    assert mix.dreamt(asked, "uniform", 0, seen) == ()
    whole = mix.with_dreams(asked, {"addition/1": 0.25, "addition/2": 0.75}, ["a/1/dreams-x"])
    assert whole == pytest.approx({"addition/1": 0.2, "addition/2": 0.6, "a/1/dreams-x": 0.2})
    assert mix.with_dreams(asked, {"addition/1": 1.0}, []) == {"addition/1": 1.0}


def test_a_burst_is_in_the_recipe_of_its_segment() -> None:
    """Segment 3 of `chaos` has the steps 12 to 17; a quarter of these is 1.5, in whole steps 2."""
    third = recorded().courses["chaos"].segments[2]
    assert (third.objective, third.divergence) == ("answers@2", None)
    span = {"first": 12, "upto": 14}
    assert third.params == {"noise": {"scale": 0.2, **span}, "self_model": None}
    assert third.schedule.name == "cosine-burst@1"
    assert {key: third.schedule.params[key] for key in ("factor", *span)} == {"factor": 3.0, **span}
    fourth = recorded().courses["chaos"].segments[3]
    assert (fourth.objective, fourth.divergence, fourth.start) == ("answers@1", 12.0, third.id)


def test_arms_share_what_is_alike() -> None:
    """`chaos` is `adaptive` up to its burst, `dreams` up to its first dream."""
    arms = {arm: recorded().courses[arm].segments for arm in ("adaptive", "chaos", "dreams")}
    assert [a.id == b.id for a, b in zip(arms["adaptive"], arms["chaos"], strict=True)] == [
        True, True, False, False, False, False
    ]  # fmt: skip
    assert [a.id == b.id for a, b in zip(arms["adaptive"], arms["dreams"], strict=True)] == [
        *[True] * 5, False
    ]  # fmt: skip
    assert Curriculum().view.progress(recorded().state) == (180, 180)


def test_dreams_are_data_of_the_next_recipe() -> None:
    """By the digest that the event of the dream has, with the setting's share."""
    state, course = recorded().state, recorded().courses["dreams"]
    told = next(one for one in state.answers.values() if isinstance(one, Dreamed))
    sixth, chosen = course.segments[5], course.mixes[5]
    (name,) = recipes.streams(told)
    assert name == f"automaton-0/1/dreams-{told.recipe_id[:12]}"
    assert sixth.start == told.recipe_id
    assert sixth.data == chosen.mix
    assert sixth.data[name] == 0.2
    assert sixth.data_digests[name] == told.cells["automaton-0/1"].digest


def test_after_a_lost_burst_the_next_segment_begins_before_it() -> None:
    """In the arm `stages` accuracy fell from 1/12 to 1/24, by more than 0.02."""
    courses = recorded().courses
    stages = courses["stages"]
    assert [event.returned for event in stages.mixes] == [False] * 4 + [True, False]
    found = stages.segments
    assert found[4].start == found[3].start == found[2].id
    assert (found[4].first, found[4].carries) == (24, True)
    assert stages.burst(3) == pytest.approx((1 / 12, 1 / 24))
    (one,) = panels.bursts(stages)
    assert (one["segment"], one["returned"]) == (4, True)
    assert [one["returned"] for one in panels.bursts(courses["chaos"])] == [False]


def test_verdicts_follow_from_the_interval() -> None:
    def word(low: float, high: float) -> str:
        return figures.verdict(Figure(value=(low + high) / 2, low=low, high=high, n=10))

    assert [word(0.1, 0.2), word(-0.1, 0.2), word(0.0, 0.2), word(-0.2, -0.1)] == [
        "better", "level", "level", "worse"
    ]  # fmt: skip
    leads = recorded().state.completed.figures
    told = panels.verdicts(leads)
    assert set(told) == {"chaos", "dreams", "self_model", "stages"}
    for arm, said in told.items():
        assert said == figures.verdict(leads[f"lead_of_{arm}"])


def test_an_addition_is_the_result_only_if_it_pays() -> None:
    """By the selection slice: `chaos` ends higher than `adaptive`, and that is not enough."""
    run = recorded()
    courses, seed = run.courses, run.settings.seed
    ends = {arm: course.accuracy[-1] for arm, course in courses.items()}
    assert ends["chaos"] > ends["adaptive"]
    assert figures.paying(courses, seed) == ["dreams", "self_model"]
    assert run.result == "dreams"
    assert ends["dreams"] == max(ends[arm] for arm in ("adaptive", "dreams", "self_model"))


def test_panels_and_sentences_tell_of_them() -> None:
    run = recorded()
    assert [panel.name for panel in panels.additions(run)] == [
        "verdicts", "bursts", "dreams", "stages"
    ]  # fmt: skip
    kind, names = Curriculum(), {}
    said = [kind.view.summary_line(row.type, json.loads(row.data), names) for row in rows_of(LOG)]
    assert any("segment 3 (chaos)" in line for line in said if line)
    assert any("segment 5 (dreams, from before the burst)" in line for line in said if line)
    assert any("of 1 cells" in line for line in said if line)
    assert any("The arm dreams is" in line for line in panels.sentences(run))
    assert set(panels.report(run)["verdicts"]) == set(figures.BESIDE)


def test_what_is_dreamt_answers_the_task() -> None:
    task = Dream("1" * 64, ("addition/1",))

    def why(items: int = 5, right: int = 3, cell: str = "addition/1") -> str | None:
        cells = {cell: Dreamt(digest="2" * 64, items=items, right=right)}
        event = Dreamed(recipe_id="1" * 64, cells=cells, digest="3" * 64, seconds=1.0)
        return recipes.validate_answer(task, event, 5)

    assert why() is None
    assert why(cell="addition/2") == "it dreamt of other tasks than those that were asked for"
    for items, right in ((6, 3), (2, 3), (0, 0)):
        assert why(items, right) == "it counts other dreams than there can be"


@pytest.mark.parametrize(
    "settings",
    [
        {"adds": ("chaos",), "arms": ("adaptive", "chaos")},
        {"adds": ("chaos", "chaos")},
        {"arms": ("stages",), "segments": 5},
        {"arms": ("chaos",), "burst_every": 12},
        {"arms": ("chaos",), "burst_every": 1},
        {"arms": ("stages",), "burst_rate": 1.0, "burst_noise": 0.0},
        {"burst_rate": 11.0},
        {"dream": 1.0},
    ],
)
def test_additions_that_contradict_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config(**settings)


def test_a_word_where_a_list_belongs_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="adds: a list is needed"):
        Curriculum().settings.parse({"adds": "chaos"})
