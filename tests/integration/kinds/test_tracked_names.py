"""Names at a tracker: those sent are those of the kind's catalogue; rows follow from the log alone."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs import kinds
from agent_forge.runs.kinds import tracking
from agent_forge.runs.kinds.state import fold_into
from agent_forge.runs.kinds.tracking import TrackedName
from testing.worlds.fake_world import World, small
from tests.golden import test_golden, test_golden_kinds
from tests.golden.test_golden import rows_of

LOGS = [*test_golden_kinds.LOGS, *test_golden.LOGS]
#: Names that no golden log leads to, and why.
UNSEEN = {
    ("bake", "final/unheard"): "a bake with two other prompts, of which one is not rehearsed",
    ("evomerge", "forked_from"): "no golden log is a fork's; test_tracked_sending.py sends one",
    ("cognate", "final/{figure}_n"): "the least of several leads, each of items of its own",
    ("curriculum", "final/tokens_to_equal"): "an arm that reaches the accuracy of another one early",
}


@cache
def state_of(path: Path) -> Any:
    """The state that a golden log folds to."""
    rows = rows_of(path)
    return fold_into(kinds.of(test_golden_kinds.kind_of(rows)).state(), rows)


def sent(kind: Any, state: Any) -> dict[tracking.Place, Mapping[str, Any]]:
    """Place → all that is sent of a run; of rows that have a name in common the last one's value."""
    result = kind.tracking.result(state) or {"metadata": {}}
    return {
        "row": {name: value for _, row in kind.tracking.rows(state, -1) for name, value in row.items()},
        "summary": kind.tracking.summary(state),
        "config": kind.tracking.config(state),
        "result": result["metadata"],
    }


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_every_name_that_is_sent_is_in_the_catalogue(path: Path) -> None:
    """Names inside of values, too; with the run's own models, domains and figures in patterns."""
    state = state_of(path)
    kind = kinds.of(state.kind)
    for place, values in sent(kind, state).items():
        assert tracking.Allowed(kind, state, place).unlisted(values) == []


@pytest.mark.parametrize("name", sorted(kinds.KINDS))
def test_every_name_of_a_catalogue_is_sent_by_a_run(name: str) -> None:
    """A catalogue that promises a name that nothing sends would mislead; settings are the kind's."""
    kind = kinds.of(name)
    states = [state_of(path) for path in LOGS if state_of(path).kind == name]
    if name == "evomerge":
        world = World(small())  # of unreduced settings: the golden logs are of several strategies
        world.run()
        states.append(world.state)
    seen: dict[str, set[str]] = {}
    for state in states:
        for place, values in sent(kind, state).items():
            seen.setdefault(place, set()).update(tracking.names(values))
    missing = {
        one.name
        for one in kind.tracking.names()
        if one.unit != tracking.SETTING and not any(map(one.fits, seen[one.place]))
    }
    assert missing == {unseen for whose, unseen in UNSEEN if whose == name}


@pytest.mark.parametrize("name", sorted(kinds.KINDS))
def test_a_catalogue_has_a_unit_and_a_meaning_for_each_name_once(name: str) -> None:
    listed = kinds.of(name).tracking.names()
    assert all(one.unit and one.meaning for one in listed if one.unit != tracking.SETTING)
    places = [(one.place, one.name) for one in listed]
    assert len(places) == len(set(places))
    units = set(kinds.of(name).figure_units)
    assert units <= set(kinds.of(name).figures_of)


#: First word of a meaning → beginning of the unit.
UNITS = {
    "nats": "nats/",
    "bits": "bits/",
    "bytes": "bytes",
    "seconds": "s",
    "tokens": "tokens",
    "parameters": "count",
}
RATIO = re.compile(r"(?<!mean) over | divided by ")


@pytest.mark.parametrize("name", sorted(kinds.KINDS))
def test_the_unit_of_a_figure_is_the_one_that_its_meaning_begins_with(name: str) -> None:
    """A loss in nats is no pure number, unless it is nats over nats."""
    kind = kinds.of(name)
    for figure, words in kind.figures_of.items():
        label, _, meaning = words.partition(": ")
        assert label[0].islower(), figure
        assert meaning, figure
        assert "_" not in label, figure
        unit = kind.figure_units.get(figure, tracking.PLAIN)
        begins = UNITS.get(meaning.split()[0])
        if RATIO.search(meaning):
            assert unit in (tracking.PLAIN, "share"), figure
        elif begins:
            assert unit.startswith(begins), figure


def test_every_phase_of_the_documents_has_a_kind() -> None:
    """A pipeline and a measurement are of no phase."""
    phases = {name: kinds.of(name).phase for name in kinds.KINDS}
    assert {phase for phase in phases.values() if phase} == set(range(1, 9))
    assert phases["evomerge"] == 2
    assert {name for name, phase in phases.items() if phase is None} == {"measure", "pipeline", "tune"}


@pytest.mark.parametrize("path", test_golden_kinds.LOGS, ids=lambda path: path.stem)
def test_rows_ascend_and_a_run_that_is_followed_gives_the_same(path: Path) -> None:
    """At every end of an append: what is told of a beginning of the log is a beginning of the whole."""
    rows = rows_of(path)
    kind = kinds.of(test_golden_kinds.kind_of(rows))
    whole = kind.tracking.rows(state_of(path), -1)
    steps = [step for step, _ in whole]
    assert steps == sorted(set(steps))
    assert all(row[kind.unit] == step for step, row in whole)
    values = [value for _, row in whole for value in row.values()]
    assert all(math.isfinite(value) for value in values if isinstance(value, float))
    state, told = kind.state(), []
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        fold_into(state, [row])
        if following is None or following.causation is None:
            told += kind.tracking.rows(state, told[-1][0] if told else -1)
    assert told == whole


def test_a_pattern_fits_names_with_its_varying_part() -> None:
    one = TrackedName("combo/{pipeline}/usage", "count", "of a pipeline")
    assert one.fits("combo/3/usage")
    assert not one.fits("combo/3/more/usage")
    assert not one.fits("combo//usage")
    assert not TrackedName("a.b", "1", "a dot is a dot").fits("aXb")


def test_a_name_is_refused_at_a_place_that_it_is_not_listed_for() -> None:
    listed = [TrackedName("a", "1", "one"), TrackedName("b", "1", "two", "summary")]
    assert tracking.unlisted(listed, "row", ["a", "b", "c"]) == ["b", "c"]
    assert tracking.unlisted(listed, "summary", ["a", "b", "c"]) == ["c"], "a summary repeats a row"
    assert tracking.unlisted(listed, "config", ["a"]) == ["a"]


def test_names_inside_of_a_value_have_its_name_before_them() -> None:
    values = {"a": 1, "b": {"c": [{"d": 1}, {"e": {}}]}, "f": [1, 2], "g": []}
    assert list(tracking.names(values)) == ["a", "b.c.d", "b.c.e", "f", "g"]
