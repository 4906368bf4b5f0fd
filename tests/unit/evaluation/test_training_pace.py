"""Time left and speed of trainings, by hand-made logs: every number is computed by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent_forge.studies import training_panels
from agent_forge.studies.events import Observe, Observed
from agent_forge.studies.making.making import Advanced, MakingState, Point
from agent_forge.weights.recipes import Algorithm, Train


def train(purpose: str, steps: int = 100, batch: int = 2, objective: str = "lm@1") -> Train:
    """A training of `steps` steps of `batch` windows of 10 tokens."""
    return Train(
        objective=objective,
        start="5" * 64,
        data={"prose": 1.0},
        data_digests={"prose": "1" * 64},
        batch=batch,
        context=10,
        optimiser=Algorithm(name="adamw@1", params={}),
        schedule=Algorithm(name="constant@1", params={"peak": 0.01}),
        purpose=purpose,
        steps=steps,
        upto=steps,
    )


def advance(state: MakingState, recipe: Train, step: int, seconds: float) -> None:
    """Record the segment up to `step`."""
    begin = state.steps(recipe)
    state.advanced.setdefault(recipe.stem, {})[step] = Advanced(
        recipe_id=recipe.to(step).id,
        stem=recipe.stem,
        begin=begin,
        step=step,
        digest="a" * 64,
        optimiser="b" * 64,
        curve=(Point(step=step, loss=1.0, norm=1.0, rate=0.1),),
        tokens=(step - begin) * recipe.batch * recipe.context,
        seconds=seconds,
    )


def observe(state: MakingState, task: Observe, seconds: float) -> None:
    """Record a measurement."""
    told: dict[str, Any] = {"recipe_id": task.recipe_id, "measure": task.measure, "on": task.on}
    state.answers[task.key] = Observed(**told, values={}, seconds=seconds)


def look(state: MakingState, *trainings: Train, asked: Any = (), now: Any = ()) -> Any:
    """The outlook."""
    return training_panels.outlook(state, trainings, asked, now, "steps")


def test_before_the_first_segment_no_time_is_known() -> None:
    seen = look(MakingState(), train("a"), train("b"))
    assert (seen.done, seen.of, seen.inside, seen.eta_s, seen.unit) == (0, 200, 0.0, None, "steps")


def test_the_time_left_is_seconds_a_step_times_steps() -> None:
    """40 of 100 steps in 20 seconds: 60 steps of half a second are left, 2/5 is done."""
    state, recipe = MakingState(), train("a")
    advance(state, recipe, 10, 8.0)
    advance(state, recipe, 40, 12.0)
    seen = look(state, recipe)
    assert (seen.done, seen.of, seen.eta_s) == (40, 100, pytest.approx(30.0))
    assert seen.inside == pytest.approx(0.4)


def test_a_training_that_has_not_begun_costs_what_its_objective_cost_for_as_many_tokens() -> None:
    """One second a step of 2 windows is two of 4 windows; the dearer objective is not asked."""
    state, mine, dear = MakingState(), train("a"), train("t", objective="distil@1")
    advance(state, mine, 100, 100.0)
    advance(state, dear, 100, 900.0)
    assert look(state, mine, dear, train("b", batch=4)).eta_s == pytest.approx(200.0)
    other = look(state, mine, dear, train("c", objective="mlm@1"))
    assert other.eta_s == pytest.approx(500.0)  # of neither objective: the mean of both


def test_devices_share_what_is_left_and_no_training_is_shorter_than_itself() -> None:
    """60 and 10 seconds on two devices: 60, not 35; 60 and 60: 60."""
    state, first, second = MakingState(), train("a"), train("b")
    advance(state, first, 40, 40.0)
    advance(state, second, 90, 90.0)
    now = (("make/x", 0.0), ("make/y", 0.0))
    assert look(state, first, second).eta_s == pytest.approx(70.0)
    assert look(state, first, second, now=now).eta_s == pytest.approx(60.0)


def test_a_segment_under_way_counts_as_far_as_a_segment_goes() -> None:
    """Ten seconds into one: ten less. Ten hours: no less than after the longest segment."""
    state, recipe = MakingState(), train("a")
    advance(state, recipe, 50, 50.0)
    seen = look(state, recipe, now=(("make/x", 10.0),))
    assert (seen.eta_s, seen.inside) == (pytest.approx(40.0), pytest.approx(0.6))
    longer = MakingState()
    advance(longer, recipe, 20, 20.0)
    assert look(longer, recipe, now=(("make/x", 36e3),)).eta_s == pytest.approx(60.0)
    assert look(longer, recipe, now=(("observe/x", 9.0),)).eta_s == pytest.approx(80.0)


def test_measuring_is_priced_by_what_was_measured() -> None:
    """Without a first measurement nothing is said once training is done; then its measure's mean."""
    state, recipe = MakingState(), train("a")
    asked = [Observe(str(n) * 64, measure, "test") for n, measure in ((1, "m@1"), (2, "m@1"))]
    advance(state, recipe, 50, 50.0)
    assert look(state, recipe, asked=asked).eta_s == pytest.approx(50.0)
    advance(state, recipe, 100, 50.0)
    assert look(state, recipe, asked=asked).eta_s is None
    observe(state, asked[0], 7.0)
    seen = look(state, recipe, asked=asked)
    assert (seen.eta_s, seen.inside) == (pytest.approx(7.0), pytest.approx(107 / 114))


def test_a_completed_run_has_nothing_left() -> None:
    state, recipe = MakingState(), train("a")
    advance(state, recipe, 100, 50.0)
    state.completed = SimpleNamespace()
    seen = look(state, recipe)
    assert (seen.done, seen.of, seen.inside, seen.eta_s) == (100, 100, 1.0, 0.0)


def test_the_speed_is_that_of_the_newest_segments_of_unfinished_trainings() -> None:
    """800 tokens in 4 s; the other training has ended, the third has not begun."""
    state, mine, ended = MakingState(), train("a"), train("b")
    advance(state, mine, 10, 100.0)
    advance(state, mine, 50, 4.0)
    advance(state, ended, 100, 1.0)
    assert training_panels.newest(state, [mine, ended, train("c")]) == pytest.approx(200.0)
    assert training_panels.newest(state, [ended]) is None
    (fact,) = training_panels.speed(state, [mine])
    assert (fact.value, fact.unit) == (200, "tokens/s")


def test_the_panel_of_speed_has_both_ends_of_each_segment() -> None:
    """A segment of one step is one point; one without a measured time has none."""
    state, recipe = MakingState(), train("a")
    advance(state, recipe, 10, 2.0)
    advance(state, recipe, 30, 2.0)
    advance(state, recipe, 31, 0.5)
    advance(state, recipe, 40, 0.0)
    found = {"a": [{"step": 10, "loss": 1.0, "norm": 1.0, "rate": 0.1}]}
    panels = training_panels.curves(found, ["a"], state, {"a": recipe})
    assert [panel.name for panel in panels] == ["loss", "speed", "norm", "rate"]
    (line,) = panels[1].series  # pyright: ignore
    assert (line.x, line.y, line.role) == (
        (1, 10, 11, 30, 31),
        (100.0, 100.0, 200.0, 200.0, 40.0),
        "reference",
    )


def test_a_measure_that_was_never_taken_comes_on_top() -> None:
    """It was counted as the cheapest of the others: 77 % became 52 % when it was first taken."""
    state, recipe = MakingState(), train("a")
    advance(state, recipe, 50, 100.0)
    observe(state, Observe("1" * 64, "cheap@1", "selection"), 2.0)
    ahead = [Observe("2" * 64, "cheap@1", "selection"), Observe("2" * 64, "dear@1", "selection")]
    seen = look(state, recipe, asked=ahead)
    assert (seen.eta_s, seen.besides) == (pytest.approx(102.0), True)
    observe(state, Observe("1" * 64, "dear@1", "selection"), 40.0)
    seen = look(state, recipe, asked=ahead)
    assert (seen.eta_s, seen.besides) == (pytest.approx(142.0), False)
