"""The rule of the next mix: by hand, and properties that hold for every success."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_forge.phases.curriculum.mixing.frontier_rule import Success, cell, cells
from agent_forge.phases.curriculum.mixing.mix import choose
from agent_forge.phases.curriculum.recipes import Frontier
from agent_forge.phases.curriculum.settings import EVIDENCE, CurriculumConfig

FAMILIES = ("addition", "brackets", "reversal")
SETTINGS = {"families": FAMILIES, "levels": 4, "segments": 6, "patience": 3}
WINDOW = CurriculumConfig.model_validate(SETTINGS)
CONFIG = CurriculumConfig.model_validate({**SETTINGS, "rule": "frontier"})


def measured(items: int = 20, **rates: list[float]) -> dict[str, Success]:
    """Return success by cell; a family's list has its levels from 1 on."""
    return {cell(f, n): Success(rate, items) for f in rates for n, rate in enumerate(rates[f], start=1)}


def at(level: int, still: int = 0) -> Frontier:
    return Frontier(level=level, change="held", by=level, success=0.0, items=20, still=still)


rates = st.one_of(st.sampled_from([0.0, 0.4, 0.55, 0.75, 0.95, 1.0]), st.floats(0, 1))
successes = st.fixed_dictionaries(
    {}, optional={name: st.builds(Success, rates, st.integers(0, 40)) for name in cells(CONFIG)}
)
befores = st.one_of(
    st.just({}),
    st.fixed_dictionaries({f: st.builds(at, st.integers(1, 4), st.integers(0, 6)) for f in FAMILIES}),
)


@given(
    st.sampled_from([CONFIG, WINDOW]),
    successes,
    befores,
    st.sampled_from(["adaptive", "uniform", "easy_to_hard"]),
)
def test_shares_add_up_to_one(config, seen, before, arm) -> None:
    for segment in range(config.segments):
        found, _ = choose(config, arm, segment, seen, before)
        assert math.fsum(found.values()) == pytest.approx(1, abs=1e-12)
        assert set(found) <= set(cells(CONFIG))
        assert all(share > 0 for share in found.values())


@given(successes, befores, st.floats(0.01, 0.7), st.floats(0, 0.25))
def test_every_cell_has_at_least_the_trickle(seen, before, trickle: float, replay: float) -> None:
    config = CONFIG.model_copy(update={"trickle": trickle, "replay": replay})
    found, _ = choose(config, "adaptive", 1, seen, before)
    assert set(found) == set(cells(config))
    assert min(found.values()) >= trickle / len(cells(config)) - 1e-15


@given(st.sampled_from([CONFIG, WINDOW]), successes, befores, st.permutations(FAMILIES))
def test_the_order_of_families_and_of_measurements_does_not_matter(config, seen, before, order) -> None:
    other = config.model_copy(update={"families": tuple(order)})
    turned = dict(reversed(seen.items()))
    back = dict(reversed(before.items()))
    mine, theirs = (
        choose(config, "adaptive", 1, seen, before),
        choose(other, "adaptive", 1, turned, back),
    )
    assert mine == theirs
    assert list(mine[0].items()) == list(theirs[0].items())  # in the log, too


@given(successes, befores)
def test_frontiers_move_on_evidence_alone(seen, before) -> None:
    """Up over levels above 0.9 on enough items, down by one below 0.5, else not at all."""
    _, found = choose(CONFIG, "adaptive", 1, seen, before)
    for family, now in found.items():
        old = before[family].level if before else 1
        passed = range(old, now.level)
        assert all(
            seen[cell(family, n)].rate > 0.9 and seen[cell(family, n)].items >= EVIDENCE for n in passed
        )
        if now.level < old:
            lost = seen[cell(family, now.level)]
            assert (now.change, now.level) == ("demoted", old - 1)
            assert lost.rate < 0.5
            assert lost.items >= EVIDENCE
        assert 1 <= now.level <= CONFIG.levels


@given(successes, befores)
def test_a_level_without_evidence_moves_nothing(seen, before) -> None:
    few = {name: Success(one.rate, min(one.items, EVIDENCE - 1)) for name, one in seen.items()}
    _, found = choose(CONFIG, "adaptive", 1, few, before)
    assert {f: now.level for f, now in found.items()} == {
        f: before[f].level if before else 1 for f in FAMILIES
    }
    assert {now.change for now in found.values()} == {"held" if before else "placed"}


def test_a_mix_by_hand() -> None:
    """12 cells. Addition at level 1; brackets at 3, with level 2 in the band; reversal done.

    Trickle 0.1 / 12. Replay 0.2 over brackets 1, 2 and reversal 1 to 4: 0.2 / 6. The rest, 0.7, half
    to addition's frontier; half to brackets, on its levels 2 and 3.
    """
    seen = measured(addition=[0.3, 0, 0, 0], brackets=[1, 0.8, 0.2, 0], reversal=[1, 1, 1, 1])
    before = {"addition": at(1), "brackets": at(3), "reversal": at(4)}
    found, frontiers = choose(CONFIG, "adaptive", 3, seen, before)
    trickle, replay = 0.1 / 12, 0.2 / 6
    wanted = dict.fromkeys(cells(CONFIG), trickle)
    wanted["addition/1"] += 0.35
    wanted["brackets/1"] += replay
    wanted["brackets/2"] += replay + 0.175
    wanted["brackets/3"] += 0.175
    for level in range(1, 5):
        wanted[f"reversal/{level}"] += replay
    assert found == pytest.approx(wanted)
    assert {f: now.still for f, now in frontiers.items()} == dict.fromkeys(FAMILIES, 1)


def test_a_family_that_does_not_move_is_capped() -> None:
    """Three families, one stuck: it has half of a third, the others (1 − 1/6) / 2 each."""
    before = {"addition": at(1, still=2), "brackets": at(1), "reversal": at(1)}
    config = CONFIG.model_copy(update={"trickle": 0.0, "replay": 0.0})
    found, frontiers = choose(config, "adaptive", 3, measured(addition=[0.1]), before)
    assert frontiers["addition"].still == 3
    assert found == pytest.approx({"addition/1": 1 / 6, "brackets/1": 5 / 12, "reversal/1": 5 / 12})
    stuck = {f: at(1, still=5) for f in FAMILIES}
    found, _ = choose(config, "adaptive", 3, {}, stuck)
    assert found == pytest.approx({f"{f}/1": 1 / 3 for f in FAMILIES})


def test_promotion_placement_and_demotion_say_by_what() -> None:
    seen = measured(addition=[1, 0.95, 0.7], brackets=[0.4, 0.2, 0], reversal=[0.9])
    _, found = choose(CONFIG, "adaptive", 0, seen, {})
    assert {f: (now.change, now.level) for f, now in found.items()} == {
        "addition": ("placed", 3), "brackets": ("placed", 1), "reversal": ("placed", 1)
    }  # fmt: skip
    before = {"addition": at(2), "brackets": at(2), "reversal": at(1, still=1)}
    _, found = choose(CONFIG, "adaptive", 1, seen, before)
    told = {f: (now.change, now.level, now.by, now.success) for f, now in found.items()}
    assert told == {
        "addition": ("promoted", 3, 2, 0.95),
        "brackets": ("demoted", 1, 1, 0.4),
        "reversal": ("held", 1, 1, 0.9),  # 0.9 is not above 0.9
    }
    assert {f: now.still for f, now in found.items()} == {
        "addition": 0, "brackets": 0, "reversal": 2
    }  # fmt: skip


def test_if_all_is_passed_the_rest_is_even() -> None:
    seen = {name: Success(1.0, 20) for name in cells(CONFIG)}
    found, _ = choose(CONFIG, "adaptive", 5, seen, {f: at(4) for f in FAMILIES})
    assert found == pytest.approx(dict.fromkeys(cells(CONFIG), 1 / 12))


def test_the_other_arms_follow_from_the_segment_alone() -> None:
    """Four levels in six segments: 1, 2, 2, 3, 4, 4 of them."""
    for segment, top in enumerate([1, 2, 2, 3, 4, 4]):
        found, frontiers = choose(CONFIG, "easy_to_hard", segment, {}, {})
        assert set(found) == {cell(f, n) for f, n in product(FAMILIES, range(1, top + 1))}
        assert len(set(found.values())) == 1
        assert frontiers == {}
    assert choose(CONFIG, "uniform", 3, {}, {})[0] == dict.fromkeys(cells(CONFIG), 1 / 12)
    assert len(cells(CONFIG)) == 12


# ---- the rule window ---------------------------------------------------------------------------


@given(successes, befores)
def test_a_window_never_shrinks_and_grows_on_evidence_or_patience(seen, before) -> None:
    """Up over levels above 0.9, else by one level after three segments, else not at all."""
    _, found = choose(WINDOW, "adaptive", 1, seen, before)
    for family, now in found.items():
        old = before[family] if before else at(1)
        assert now.level >= old.level
        if now.change in ("promoted", "placed"):
            assert all(seen[cell(family, n)].rate > 0.9 for n in range(old.level, now.level))
        elif now.change == "opened":
            assert (now.level, now.still) == (old.level + 1, 0)
            assert old.still + 1 >= 3
        else:
            assert (now.change, now.level, now.still) == ("held", old.level, old.still + 1)
            assert old.still + 1 < 3 or now.level == 4


@given(successes, befores, st.floats(0.01, 0.7))
def test_no_cell_weighs_less_than_the_trickle(seen, before, trickle: float) -> None:
    """The heaviest of 12 cells weighs 1 + trickle."""
    config = WINDOW.model_copy(update={"trickle": trickle})
    found, _ = choose(config, "adaptive", 1, seen, before)
    assert set(found) == set(cells(config))
    assert min(found.values()) >= trickle / (12 * (1 + trickle)) - 1e-15


def test_weights_by_hand() -> None:
    """Addition: two levels in the window. Brackets: two passed, one at the frontier. Reversal: a level
    above the frontier is within the band.

    Weights of 12 cells: 1.1 five times, 0.3 twice (0.1 + 0.2), 0.1 five times: 6.6 in all.
    """
    seen = measured(addition=[0.1, 0, 0, 0], brackets=[1, 0.95, 0, 0], reversal=[0, 0, 0.7, 0])
    before = {"addition": at(2), "brackets": at(2), "reversal": at(1)}
    found, frontiers = choose(WINDOW, "adaptive", 3, seen, before)
    assert {f: now.level for f, now in frontiers.items()} == {
        "addition": 2, "brackets": 3, "reversal": 1
    }  # fmt: skip
    wanted = dict.fromkeys(cells(WINDOW), 0.1 / 6.6)
    for name in ("addition/1", "addition/2", "brackets/3", "reversal/1", "reversal/3"):
        wanted[name] = 1.1 / 6.6
    wanted |= dict.fromkeys(("brackets/1", "brackets/2"), 0.3 / 6.6)
    assert found == pytest.approx(wanted)


def test_a_stuck_family_gets_its_next_level_and_says_why() -> None:
    before = {"addition": at(1, still=2), "brackets": at(1, still=1), "reversal": at(4, still=7)}
    _, found = choose(WINDOW, "adaptive", 3, measured(addition=[0.3]), before)
    told = {f: (now.change, now.level, now.by, now.success) for f, now in found.items()}
    assert told == {
        "addition": ("opened", 2, 1, 0.3),
        "brackets": ("held", 1, 1, 0.0),
        "reversal": ("held", 4, 4, 0.0),
    }


def test_without_weights_of_passed_levels_a_passed_family_is_left_out_until_all_are_passed() -> None:
    config = WINDOW.model_copy(update={"trickle": 0.0, "replay": 0.0})
    seen = measured(addition=[1, 1, 1, 1], brackets=[1, 1, 1, 1], reversal=[0.5, 0, 0, 0])
    before = {"addition": at(4), "brackets": at(4), "reversal": at(1)}
    assert choose(config, "adaptive", 3, seen, before)[0] == {"reversal/1": 1.0}
    seen = {name: Success(1.0, 20) for name in cells(config)}
    found, _ = choose(config, "adaptive", 3, seen, {f: at(4) for f in FAMILIES})
    assert found == dict.fromkeys(cells(config), 1 / 12)


@pytest.mark.parametrize(
    "settings",
    [
        {"levels": 0},
        {"levels": 11},
        {"families": ()},
        {"families": ("addition", "addition")},
        {"low": 0.95},
        {"demote": 0.7},
        {"promote": 0.8},
        {"replay": 0.5, "trickle": 0.5},
        {"arms": ("random",)},
        {"segments": 0},
        {"selection_items": EVIDENCE - 1},
    ],
)
def test_settings_that_contradict_are_refused(settings) -> None:
    with pytest.raises(ValidationError):
        CurriculumConfig.model_validate(settings)
