"""No name is sent to a tracker that its kind's catalogue lacks; rows follow from the log alone."""

from __future__ import annotations

import math
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runs import kinds
from runs.errors import ConfigError
from runs.kinds import tracking
from runs.kinds.state import fold_into
from runs.kinds.tracking import TrackedName
from testing.worlds.fake_world import World, small
from tests.golden import test_golden, test_golden_kinds
from tests.golden.test_golden import rows_of
from worker.exports import wandb as sending

LOGS = [*test_golden_kinds.LOGS, *test_golden.LOGS]
#: Names that no golden log leads to, and why.
UNSEEN = {
    ("bake", "final/unheard"): "a bake with two other prompts, of which one is not rehearsed",
    ("cognate", "final/{figure}_n"): "the least of several leads, each of items of its own",
    (
        "curriculum",
        "final/tokens_to_equal",
    ): "an arm that reaches the accuracy of another one early",
}


@cache
def state_of(path: Path) -> Any:
    """The state that a golden log folds to."""
    rows = rows_of(path)
    return fold_into(kinds.of(test_golden_kinds.kind_of(rows)).state(), rows)


def sent(kind: Any, state: Any) -> dict[tracking.Place, set[str]]:
    """Place → every name that is sent of a run."""
    result = kind.tracked_result(state) or {"metadata": {}}
    return {
        "row": {name for _, row in kind.tracked(state, -1) for name in row},
        "summary": set(kind.tracked_summary(state)),
        "config": set(kind.tracked_config(state)),
        "result": set(result["metadata"]),
    }


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_every_name_that_is_sent_is_in_the_catalogue(path: Path) -> None:
    state = state_of(path)
    kind = kinds.of(state.kind)
    for place, names in sent(kind, state).items():
        assert tracking.unlisted(kind.catalogue(), place, names) == []


@pytest.mark.parametrize("name", sorted(kinds.KINDS))
def test_every_name_of_a_catalogue_is_sent_by_a_run(name: str) -> None:
    """A catalogue that promises a name that nothing sends would mislead; settings are the config's."""
    kind = kinds.of(name)
    states = [state_of(path) for path in LOGS if state_of(path).kind == name]
    if name == "evomerge":
        world = World(small())  # of unreduced settings: the golden logs are of several strategies
        world.run()
        states.append(world.state)
    seen: dict[str, set[str]] = {}
    for state in states:
        for place, names in sent(kind, state).items():
            seen.setdefault(place, set()).update(names)
    missing = {
        one.name
        for one in kind.catalogue()
        if one.place != "config" and not any(map(one.fits, seen[one.place]))
    }
    assert missing == {unseen for whose, unseen in UNSEEN if whose == name}


@pytest.mark.parametrize("name", sorted(kinds.KINDS))
def test_a_catalogue_has_a_unit_and_a_meaning_for_each_name_once(name: str) -> None:
    listed = kinds.of(name).catalogue()
    assert all(one.unit and one.meaning for one in listed if one.unit != "setting")
    places = [(one.place, one.name) for one in listed]
    assert len(places) == len(set(places))
    units = set(kinds.of(name).figure_units)
    assert units <= set(kinds.of(name).figures_of)


@pytest.mark.parametrize("path", test_golden_kinds.LOGS, ids=lambda path: path.stem)
def test_rows_ascend_and_a_run_that_is_followed_gives_the_same(path: Path) -> None:
    """At every end of an append: what is told of a beginning of the log is a beginning of the whole."""
    rows = rows_of(path)
    kind = kinds.of(test_golden_kinds.kind_of(rows))
    whole = kind.tracked(state_of(path), -1)
    steps = [step for step, _ in whole]
    assert steps == sorted(set(steps))
    assert all(row[kind.unit] == step for step, row in whole)
    values = [value for _, row in whole for value in row.values()]
    assert all(math.isfinite(value) for value in values if isinstance(value, float))
    state, told = kind.state(), []
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        fold_into(state, [row])
        if following is None or following.causation is None:
            told += kind.tracked(state, told[-1][0] if told else -1)
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


class Tracker:
    """A stand-in for W&B that notes what it is given."""

    def __init__(self) -> None:
        self.resumed, self.starting_step, self.url = False, 0, "a page"
        self.rows: list[dict[str, Any]] = []
        self.config, self.summary = SimpleNamespace(update=self._note), {}
        self.noted: list[dict[str, Any]] = []

    def _note(self, values: dict[str, Any], **_: Any) -> None:
        self.noted.append(values)

    def define_metric(self, *_: Any, **__: Any) -> None:
        """Take it."""

    def log(self, row: dict[str, Any], **_: Any) -> None:
        """Take a row."""
        self.rows.append(row)


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Tracker:
    """A W&B in this process."""
    found = Tracker()

    class Settings:
        model_fields: dict[str, Any] = {}

        def __init__(self, **_: Any) -> None:
            self.mode = "online"

    fake = SimpleNamespace(
        Settings=Settings,
        setup=lambda settings: SimpleNamespace(settings=settings),
        init=lambda **_: found,
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(sending, "client", lambda: None)
    return found


def test_the_sender_refuses_a_row_with_another_name(
    tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the row goes anywhere; the rows before it are sent."""
    path = next(path for path in LOGS if path.stem == "student-1")
    state = state_of(path)
    kind = kinds.of("student")
    (first, row), *_ = kind.tracked(state, -1)
    sender = sending.Sender(state, "r", sending.Target(tmp_path))
    rows = [(first, row), (first + 1, {**row, "distilled/secret": 1.0})]
    monkeypatch.setattr(type(kind), "tracked", lambda self, state, after: rows)
    with pytest.raises(ConfigError, match=r"student may not send distilled/secret.*for a row"):
        sender.send(state)
    assert tracker.rows == [row]
    assert tracker.noted == [kind.tracked_config(state)]


def test_the_config_names_no_files(tracker: Tracker) -> None:
    """A pipeline's phases name models and data of its machine."""
    path = next(path for path in LOGS if path.stem == "pipeline-1")
    kind, state = kinds.of("pipeline"), state_of(path)
    assert not {"phases", "test"} & set(kind.tracked_config(state))
    assert not {"phases", "test"} & {one.name for one in kind.catalogue()}
