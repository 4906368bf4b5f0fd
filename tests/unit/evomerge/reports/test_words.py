"""What texts say of a champion: that it is a model that was given, what it solves, whom it is near."""

from __future__ import annotations

import base64
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agent_forge.evaluation.data.outcomes import DomainOutcomes
from agent_forge.evaluation.measures.bootstrap import Comparison
from agent_forge.evomerge.reports import report, skills, verdict
from agent_forge.evomerge.run.state import RunState
from agent_forge.runs.panels.panels import verdict as word_of
from testing.worlds.fake_world import World


def finished() -> RunState:
    return World().run()


def changed(state: RunState, **more: Any) -> RunState:
    """A copy of the state with other fields."""
    return RunState(**{**vars(state), **more})


def being(state: RunState, recipe_id: str) -> RunState:
    """The run whose champion has the weights of this model, and its outcomes and leads."""
    assert state.champion
    assert state.completed
    built = {**state.built, state.champion: state.built[recipe_id]}
    evaluations = {**state.evaluations}
    for (id_, slice_, generation), event in state.evaluations.items():
        if id_ == recipe_id and generation is None:
            again = event.model_copy(update={"recipe_id": state.champion})
            evaluations[state.champion, slice_, generation] = again
    rivals = tuple(
        rival.model_copy(update={"lead": Comparison(difference=0, low=0, high=0)})
        if rival.recipe_id == recipe_id
        else rival
        for rival in state.completed.rivals
    )
    completed = state.completed.model_copy(update={"rivals": rivals, "digest": built[recipe_id][0]})
    return changed(state, built=built, evaluations=evaluations, completed=completed)


# ---- the word ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "rounding", "word"),
    [
        (0.1, 0.3, 0.0, "better"),
        (-0.3, -0.1, 0.0, "worse"),
        (-0.1, 0.1, 0.0, "level"),
        (0.0, 0.2, 0.0, "level"),  # the end itself is not beyond zero
        (0.001, 0.002, 0.001, "level"),
        (0.0011, 0.002, 0.001, "better"),
        (-0.002, -0.0011, 0.001, "worse"),
    ],
)
def test_an_interval_gives_one_of_three_words(low: float, high: float, rounding: float, word: str):
    """One function for terminal, report, page, card and API."""
    assert word_of(low, high, rounding) == word
    assert Comparison(difference=low, low=low, high=high).verdict(rounding) == word


# ---- a champion that was given -------------------------------------------------------------


def test_a_champion_that_is_a_fixed_merge_is_said_to_be_it():
    """One digest: there is no noise, and nothing was evolved."""
    state = finished()
    found = being(state, state.baselines["task-arithmetic-0.5"])
    told = report.sentence(found)
    assert told.startswith(
        "The search found nothing better than task-arithmetic-0.5, which it was given: the champion "
        "is that merge."
    )
    assert "noise" not in told
    assert report.verdict(found)["given"] == {"name": "task-arithmetic-0.5", "kind": "baseline"}
    assert verdict.given_sentence(state) is None
    assert report.verdict(state)["given"] is None


def test_a_champion_that_is_a_source_is_said_to_be_it():
    """The others are told apart from it."""
    state = finished()
    assert state.started
    source = state.started.sources[1]
    told = report.sentence(being(state, source.recipe_id))
    first = "The search found nothing better than b, which it was given: the champion is that source."
    assert told.startswith(f"{first} It is better than every other source and the base on the test")


def test_a_champion_that_is_a_worse_fixed_merge_says_so_too():
    """That it is one fixed merge hides no lead of another."""
    state = being(finished(), finished().baselines["task-arithmetic-1"])
    assert state.completed
    rivals = tuple(
        r.model_copy(update={"lead": Comparison(difference=-0.2, low=-0.3, high=-0.1)})
        if r.name == "mean"
        else r
        for r in state.completed.rivals
    )
    state.completed = state.completed.model_copy(update={"rivals": rivals})
    assert report.sentence(state).endswith(
        "It is worse than the best other fixed merge (mean): take that instead, with "
        f"forge export {state.run}:mean --out mean."
    )
    assert report.verdict(state)["worse"] == ["mean"]


def test_a_lead_of_exactly_nothing_is_told_apart_from_equal_weights():
    """Two models may solve the same items: the champion is then not that merge."""
    state = finished()
    assert state.completed
    nothing = Comparison(difference=0, low=0, high=0)
    rivals = tuple(
        r.model_copy(update={"lead": nothing}) if r.name == "mean" else r
        for r in state.completed.rivals
    )
    state.completed = state.completed.model_copy(update={"rivals": rivals})
    assert verdict.given_sentence(state) == (
        "The search found nothing better than mean, which it was given: the champion scores exactly "
        "as that merge does."
    )


# ---- skills --------------------------------------------------------------------------------


def solving(state: RunState, **solved: tuple[int, ...]) -> RunState:
    """The run whose models solve these of five problems of `code`; a champion is `champion`."""
    assert state.started
    ids = {s.name: s.recipe_id for s in state.started.sources} | state.baselines
    ids["champion"] = state.champion or ""
    evaluations = {**state.evaluations}
    for name, items in solved.items():
        key = (ids[name], "test", None)
        event = state.evaluations[key]
        code = event.outcomes["code"].model_copy(
            update={"solved": tuple(float(i in items) for i in range(5)), "right": (), "chance": ()}
        )
        outcomes = {**event.outcomes, "code": code}
        evaluations[key] = event.model_copy(update={"outcomes": outcomes})
    return changed(state, evaluations=evaluations)


def test_the_table_has_what_each_model_solves_out_of_how_many():
    """Champion, sources, base and fixed merges; text in bits per byte."""
    found = skills.data(solving(finished(), champion=(0, 1), a=(0, 1, 2), b=(), mean=(4,)))
    assert found
    rows = {row["skill"]: row for row in found["rows"]}
    problems = rows["code, problems"]
    assert (problems["metric"], problems["of"], problems["champion"]) == ("problems solved", 5, 2)
    assert [problems["others"][name] for name in ("a", "b", "mean")] == [3, 0, 1]
    text = rows["math"]
    assert text["metric"] == "bits per byte"
    assert set(text["others"]) == {"a", "b", "c", "base", *finished().baselines}


def test_text_without_bytes_is_in_nats_per_token():
    """Logs of earlier versions did not record bytes."""
    state = finished()
    assert state.champion
    key = (state.champion, "test", None)
    event = state.evaluations[key]
    bare = {d: o.model_copy(update={"bytes": ()}) for d, o in event.outcomes.items()}
    state.evaluations[key] = event.model_copy(update={"outcomes": bare})
    found = skills.skills(state)
    assert found
    math_ = next(s for s in found.skills if s.domain == "math")
    seen: DomainOutcomes = bare["math"]
    assert math_.measure == "nats per token"
    assert math_.values[0] == pytest.approx(sum(seen.nll) / sum(seen.tokens))


def test_a_run_without_a_champion_has_no_skills():
    """Nothing is shown before there is something."""
    world = World()
    assert skills.data(world.state) is None
    world.step()
    assert skills.data(world.state) is None


def test_report_and_markdown_have_the_table():
    """A row for each model, with the number of items in the head."""
    world = World()
    state = world.run()
    text = report.markdown(report.report(state, world.rows))
    assert "## Skills by model, on the test slice" in text
    assert "| code: problems solved of 5 |" in text
    for name in ("champion", "a", "b", "c", "base", *state.baselines):
        assert f"\n| {name} | " in text


# ---- closeness -----------------------------------------------------------------------------


def sketch(*values: float) -> str:
    return base64.b64encode(np.asarray(values, "<f4").tobytes()).decode()


def pointing(state: RunState, champion: str, **sources: str) -> RunState:
    """The run whose champion and sources have these sketches."""
    assert state.started
    assert state.champion
    built = {**state.built, state.champion: (state.built[state.champion][0], champion)}
    records = tuple(s.model_copy(update={"sketch": sources[s.name]}) for s in state.started.sources)
    return changed(state, built=built, started=state.started.model_copy(update={"sources": records}))


def test_a_champion_close_to_a_source_says_so_and_what_both_solve():
    """(4, 1) beside (1, 0): 4 / √17 = 0.970. It solves two of a's three items, and one that a fails."""
    state = solving(finished(), champion=(0, 1, 4), a=(0, 1, 2))
    state = pointing(state, sketch(4, 1), a=sketch(1, 0), b=sketch(0, 1), c=sketch(-1, 0))
    assert state.started
    near = skills.cosines(state)
    values = [near[s.recipe_id] for s in state.started.sources]
    assert values == pytest.approx([4 / math.sqrt(17), 1 / math.sqrt(17), -4 / math.sqrt(17)])
    what = "it solves 2 of the 3 items that a solves, and 1 other."
    told = f"The champion is close to a (cosine 0.97): {what}"
    assert skills.near_sentence(state) == told
    assert report.sentence(state).endswith(told)


def test_a_champion_far_from_all_sources_says_nothing():
    """A merge of two is at 45 degrees: cosine 0.71."""
    state = pointing(finished(), sketch(1, 1), a=sketch(1, 0), b=sketch(0, 1), c=sketch(-1, 0))
    assert skills.near_sentence(state) is None


def test_a_source_that_is_the_base_and_a_broken_one_have_no_direction():
    """Zero and NaN: left out, not near and not far."""
    state = pointing(finished(), sketch(1, 0), a=sketch(0, 0), b=sketch(math.nan, 1), c=sketch(1, 0))
    assert state.started
    assert list(skills.cosines(state)) == [state.started.sources[2].recipe_id]


def test_a_champion_that_is_the_source_is_not_called_close_to_it():
    """The first sentence has said it."""
    state = finished()
    assert state.started
    source = state.started.sources[0]
    state = being(
        pointing(state, sketch(1, 0), a=sketch(1, 0), b=sketch(0, 1), c=sketch(0, 1)), source.recipe_id
    )
    assert "close to" not in report.sentence(state)


def test_names_that_occur_twice_are_told_apart():
    """A source may be called like a fixed merge."""
    assert skills.distinct(["champion", "mean", "mean"], ["", "source", "baseline"]) == [
        "champion",
        "mean",
        "mean (baseline)",
    ]
    row = skills.Skill("code", "text", "bits per byte", 1, "down", (1.0,))
    both = skills.SkillTable("test", ("champion",), ("",), (row, replace(row, kind="problems")))
    assert [both.title(s) for s in both.skills] == ["code, text", "code, problems"]
