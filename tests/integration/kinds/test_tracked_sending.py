"""The sender takes what a run's log says under listed names to a tracker, and refuses all else."""

from __future__ import annotations

import sys
import tomllib
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_forge.evomerge.run.state import RunState
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.history import repository
from agent_forge.runs.home import Home
from agent_forge.runs.kinds import tracking
from agent_forge.worker.commands.fork import fork, plan
from agent_forge.worker.exports import wandb as sending
from testing.worlds import fake_runs
from testing.worlds.fake_world import World, small
from testing.worlds.runs import REPOSITORY
from tests.integration.kinds.test_tracked_names import LOGS, sent, state_of

EXAMPLES = REPOSITORY / "tests" / "integration" / "agent_forge" / "documents.toml"


class Tracker:
    """A stand-in for W&B that notes what it is given."""

    def __init__(self) -> None:
        self.resumed, self.starting_step, self.url = False, 0, "a page"
        self.rows: list[dict[str, Any]] = []
        self.noted: list[dict[str, Any]] = []
        self.config = SimpleNamespace(update=lambda values, **_: self.noted.append(values))
        self.summary: dict[str, Any] = {}
        self.artifacts: list[Any] = []

    def define_metric(self, *_: Any, **__: Any) -> None:
        """Take it."""

    def log(self, row: dict[str, Any], **_: Any) -> None:
        """Take a row."""
        self.rows.append(row)

    def log_artifact(self, artifact: Any) -> None:
        """Take an artifact."""
        self.artifacts.append(artifact)

    def finish(self, **_: Any) -> None:
        """Take the end."""


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
    monkeypatch.setattr(sending, "_artifact", lambda state, found, model: found["metadata"])
    return found


def log(name: str) -> Any:
    """The state of a golden log."""
    return state_of(next(path for path in LOGS if path.stem == name))


def send(state: Any, folder: Path) -> None:
    """Send a run from its first to its last name."""
    sender = sending.Sender(state, "r", sending.WandbTarget(folder))
    sender.send(state)
    sender.finish(state)


def whole() -> Any:
    """The state of a finished merging run, with the documents' population: eight, two elites."""
    world = World(small(population_size=8, elite_size=2))
    world.run()
    return world.state


def test_the_sender_refuses_a_row_with_another_name(
    tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the row goes anywhere; the rows before it are sent."""
    state = log("student-1")
    kind = kinds.of("student")
    (first, row), *_ = kind.tracking.rows(state, -1)
    sender = sending.Sender(state, "r", sending.WandbTarget(tmp_path))
    rows = [(first, row), (first + 1, {**row, "distilled/secret": 1.0})]
    monkeypatch.setattr(type(kind.tracking), "rows", lambda self, state, after: rows)
    with pytest.raises(ConfigError, match=r"student may not send distilled/secret.*for a row"):
        sender.send(state)
    assert tracker.rows == [row]
    assert tracker.noted == [kind.tracking.config(state)]


#: (place, the refused name, what has it). Of each place: a name of its own, a name that has the form
#: of a pattern and nothing of the run in it, and a name inside of a value.
REFUSED: list[tuple[tracking.Place, str, dict[str, Any]]] = [
    ("row", "secret", {"secret": 1.0}),
    ("row", "secret_avg", {"secret_avg": 1.0}),
    ("row", "combo/8/usage", {"combo/8/usage": 1}),
    ("row", "generation.secret", {"generation": {"secret": 1}}),
    ("summary", "secret", {"secret": 1.0}),
    ("summary", "final/secret", {"final/secret": 1.0}),
    ("summary", "secret_best", {"secret_best": 1.0}),
    ("summary", "champion.secret", {"champion": {"secret": "x"}}),
    ("config", "secret", {"secret": 1}),
    ("config", "digests.secret", {"digests": {"secret": "x"}}),
    ("config", "profile.secret", {"profile": {"device": "cpu", "secret": "x"}}),
    ("config", "fitness_weights.secret", {"fitness_weights": {"secret": 1.0}}),
    ("config", "models.secret", {"models": ["a", {"secret": "x"}]}),
    ("result", "secret", {"secret": "x"}),
    ("result", "recipe.secret", {"recipe": {"kind": "pipeline", "secret": "x"}}),
    ("result", "recipe.genes.secret", {"recipe": {"genes": {"secret": 1.0}}}),
]
SENDERS: dict[tracking.Place, str] = {
    "row": "rows",
    "summary": "summary",
    "config": "config",
    "result": "result",
}


@pytest.mark.parametrize(("place", "name", "values"), REFUSED, ids=lambda value: str(value))
def test_another_name_is_refused_at_every_place(
    tracker: Tracker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: tracking.Place,
    name: str,
    values: dict[str, Any],
) -> None:
    """It reaches the tracker at no place."""
    state, kind = whole(), kinds.of("evomerge")
    told: Any = {"row": [(0, values)], "result": {"metadata": values}}.get(place, values)
    monkeypatch.setattr(type(kind.tracking), SENDERS[place], lambda *_: told)
    with pytest.raises(ConfigError, match=rf"may not send {name} to .* for a {place} "):
        send(state, tmp_path)
    assert values not in [*tracker.rows, *tracker.noted, *tracker.artifacts]
    assert not set(values) & set(tracker.summary) - {"generation", "champion"}


@pytest.mark.parametrize(
    ("run", "place", "name"),
    [
        ("student-1", "row", "secret/loss"),
        ("curriculum-1", "row", "chaos/loss"),
        ("cognate-1", "row", "code/loss"),
        ("quietstar-1", "summary", "final/secret_low"),
        ("quietstar-1", "summary", "final/gain_mean"),
        ("pipeline-1", "row", "figure/secret"),
        ("pipeline-1", "row", "figure/hard_nats"),
    ],
)
def test_a_pattern_fits_only_what_the_run_itself_has(
    run: str, place: tracking.Place, name: str
) -> None:
    """A curriculum without the arm chaos, a pipeline without a Quiet-STaR phase."""
    state = log(run)
    assert tracking.Allowed(kinds.of(state.kind), state, place).unlisted({name: 1.0}) == [name]


def test_the_config_names_no_files(tracker: Tracker) -> None:
    """A pipeline's phases name models and data of its machine."""
    kind, state = kinds.of("pipeline"), log("pipeline-1")
    assert not {"phases", "test"} & set(kind.tracking.config(state))
    assert not {"phases", "test"} & {one.name for one in kind.tracking.names()}
    inside = {"phases": [{"kind": "evomerge"}]}
    assert tracking.Allowed(kind, state, "config").unlisted(inside) == ["phases.kind"]


def test_all_that_the_catalogue_promises_reaches_the_tracker(tracker: Tracker, tmp_path: Path) -> None:
    state = whole()
    send(state, tmp_path)
    told = sent(kinds.of("evomerge"), state)
    assert set().union(*tracker.rows) == set(told["row"])
    assert tracker.summary == told["summary"]
    assert tracker.noted == [told["config"]]
    assert tracker.artifacts == [told["result"]]


@pytest.mark.parametrize(
    "example",
    [one for one in tomllib.loads(EXAMPLES.read_text("utf-8"))["example"] if one["form"] == "wandb"],
    ids=lambda one: one["document"],
)
def test_names_of_the_documents_are_sent(
    tracker: Tracker, tmp_path: Path, example: dict[str, Any]
) -> None:
    """`final/…` in the summary, everything else in the history; `population_size` is 001's, too."""
    send(whole(), tmp_path)
    final = {name for name in example["names"] if name.startswith("final/")}
    history = set().union(*tracker.rows)
    assert {*example["names"]} - final <= history
    assert final <= set(tracker.summary)
    assert "population_size" in history


def test_a_fork_says_where_it_comes_from(tracker: Tracker, tmp_path: Path) -> None:
    with closing(Home(tmp_path / "home").open_store()) as store:
        fake_runs.whole(store, "whole")
        forked = fork(store, plan(store, "whole", None, 1, {}))
        state = repository.load_of(RunState, store, forked)
    send(state, tmp_path)
    assert [told["forked_from"] for told in tracker.noted] == [f"whole@{state.forked.version}"]


def test_a_generation_s_population_is_its_candidates(tracker: Tracker, tmp_path: Path) -> None:
    state = whole()
    send(state, tmp_path)
    made = [sum(g == number for g, _ in state.candidates) for number in sorted(state.generations)]
    assert [row["population_size"] for row in tracker.rows] == made
