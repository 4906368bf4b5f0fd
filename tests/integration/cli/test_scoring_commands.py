"""`forge score` and `forge items` as a user meets them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import Result

from agent_forge.evomerge.fitness.paired_bootstrap import WINDOW_ROUNDING, Contest, Tally, tally
from agent_forge.runs.home import Home
from testing.models.toys import Toys
from testing.services.endpoint import completions, serving
from testing.worlds import runs
from testing.worlds.finished_run import FinishedRun
from tests.integration.cli.test_forge import call, fails


@pytest.fixture(scope="module")
def finished(finished_run: FinishedRun) -> tuple[Path, str]:
    """(home, run) with a champion."""
    return finished_run()[0].folder, "r"


def ok(result: Result) -> Result:
    """A command that must succeed."""
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result


# ---- score ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_source_scores_what_its_run_recorded(finished, toys: Toys) -> None:
    """The same evaluation, alone: to the last digit, on the whole test slice."""
    home, run = finished
    state = runs.state(Home(home), run)
    assert state.started
    source = state.started.sources[0]
    event = state.evaluations[source.recipe_id, "test", None]
    words = ("score", str(toys.sources[0]), "--data", str(toys.data), "--items", "--json")
    (found,) = json.loads(ok(call(home, *words)).stdout)
    assert event.components
    assert found["components"] == event.components.model_dump()
    assert found["context"] == state.started.context
    assert found["unscored"] == {}
    counts = {d: len(o.nll) + len(o.right) + len(o.solved) for d, o in event.outcomes.items()}
    assert len(found["items"]) == sum(counts.values())
    twice = json.loads(ok(call(home, *words)).stdout)
    assert twice[0]["items"] == found["items"]


@pytest.mark.slow
def test_a_served_model_scores_as_it_does_here(finished, toys: Toys, monkeypatch) -> None:
    """Through a server: the same but for the last digits, and the key goes along."""
    words = ("score", str(toys.sources[0]), "--data", str(toys.data), "--json", "--context", "63")
    (here,) = json.loads(ok(call(finished[0], *words)).stdout)
    monkeypatch.setenv("FORGE_ENDPOINT_KEY", "k")
    with serving(completions(toys.sources[0], "ours")) as (url, seen):
        asked = (*words, "--endpoint", url, "--served", "ours")
        (there,) = json.loads(ok(call(finished[0], *asked)).stdout)
        assert {request["headers"]["Authorization"] for request in seen} == {"Bearer k"}
        wrong = (*words, "--endpoint", url, "--served", "theirs")
        assert "answered 404" in fails(finished[0], 3, *wrong)
    mine, theirs = here["components"], there["components"]
    assert theirs["perplexity"] == pytest.approx(mine["perplexity"], rel=1e-5)
    assert theirs["flops"] == mine["flops"]
    assert theirs["choice_accuracy"] == mine["choice_accuracy"]
    assert there["grades"] == here["grades"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--served", "x"), "give its --endpoint too"),
        (("--endpoint", "http://x", "--speed"), "leave out --endpoint"),
        (("other", "--endpoint", "http://x"), "holds one model"),
    ],
)
def test_options_that_do_not_go_together(toys: Toys, tmp_path, words, what: str) -> None:
    assert what in fails(tmp_path, 2, "score", str(toys.base), *words)


@pytest.mark.soak
@pytest.mark.slow
def test_speed_stands_beside_the_first_model(toys: Toys, tmp_path) -> None:
    words = ("score", *map(str, toys.sources[:2]), "--data", str(toys.data), "--speed")
    first, second = json.loads(ok(call(tmp_path, *words, "--json")).stdout)
    assert first["speed"]["ratio"] == 1.0
    assert second["speed"]["least"] <= second["speed"]["ratio"] <= second["speed"]["most"]
    assert first["components"]["flops"] == second["components"]["flops"]
    assert "1.00 (1.00 to 1.00)" in ok(call(tmp_path, *words)).output


def test_every_item_has_a_name_of_the_data(finished, toys: Toys) -> None:
    """Ids of questions and problems; the texts that a window is of."""
    words = ("score", str(toys.base), "--data", str(toys.data), "--items", "--json")
    (found,) = json.loads(ok(call(finished[0], *words)).stdout)
    ids = {
        json.loads(line)["id"]
        for file in sorted(toys.data.glob("*.jsonl"))
        for line in file.read_text().splitlines()
    }
    for item in found["items"]:
        named = (
            item["name"].partition(": ")[2].split(" … ") if item["kind"] == "window" else [item["name"]]
        )
        assert set(named) <= ids
        assert math.isfinite(item["value"])


def test_scores_are_lines_for_people_too(finished, toys: Toys) -> None:
    """A line a domain, shares as counts, and one for all; several models one after the other."""
    result = ok(
        call(finished[0], "score", str(toys.base), str(toys.sources[1]), "--data", str(toys.data))
    )
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    places = [f"# {model.name}, test slice" for model in (toys.base, toys.sources[1])]
    assert [row[0] for row in rows] == [
        *(places[0], "domain", "data", "math", "all"),
        *(places[1], "domain", "data", "math", "all"),
    ]
    assert rows[1][4:6] == ["questions", "problems"]
    assert " of 6 (" in rows[2][4]
    assert rows[3][5].endswith(" of 2")
    assert rows[2][5] == "-"
    assert "scoring base on" in result.stderr


@pytest.mark.slow
def test_the_built_in_domains_are_the_default(finished, toys: Toys) -> None:
    """What does not fit a tiny model's context is left out and counted."""
    result = ok(call(finished[0], "score", str(toys.base), "--slice", "selection"))
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == [
        f"# {toys.base.name}, selection slice",
        "domain",
        "code",
        "data",
        "math",
        "multilingual",
        "all",
    ]
    assert "built-in items are longer than 64 tokens and left out" in result.stderr


@pytest.mark.slow
def test_what_cannot_be_scored_is_said(finished, toys: Toys, tmp_path: Path) -> None:
    """A model or data that is not there, a slice without text, weights that are no numbers."""
    home = finished[0]
    assert "does not exist" in fails(home, 2, "score", str(toys.base), "--data", "nowhere.jsonl")
    fails(home, 2, "score", str(tmp_path / "nobody"))
    only = tmp_path / "only.jsonl"
    rows = [
        {"id": s, "text": "some text", "slice": s} for s in ("train", "search", "selection", "test")
    ]
    question = {
        "id": "q",
        "prompt": "x",
        "check": {"kind": "exact", "answer": "y"},
        "slice": "test",
        "max_tokens": 80,
    }
    only.write_text("\n".join(map(json.dumps, [*rows, question])))
    told = fails(home, 2, "score", str(toys.base), "--data", str(only))
    assert "problem 'q': its prompt has" in told
    fails(home, 2, "score", str(toys.base), "--device", "abacus")


@pytest.mark.slow
def test_check_finds_what_only_the_tokenizer_knows(finished, toys: Toys, tmp_path: Path) -> None:
    """Before a run is submitted: an item that does not fit; and what would be left out is said."""
    models = ("--base-models", toys.names, "--base-model", str(toys.base))
    ok(call(finished[0], "check", *models, "--data", str(toys.data)))
    only = tmp_path / "only.jsonl"
    rows = [
        {"id": s, "text": "some text", "slice": s} for s in ("train", "search", "selection", "test")
    ]
    long = {"id": "q", "prompt": "x", "choices": [" y", " z" * 90], "answer": 0, "slice": "test"}
    only.write_text("\n".join(map(json.dumps, [*rows, long])))
    told = fails(finished[0], 2, "check", *models, "--data", str(only))
    assert "question 'q': a choice has" in told
    result = ok(call(finished[0], "check", *models, "--data", "builtin:domains"))
    assert "built-in items are longer than 64 tokens and left out" in result.stderr
    weights = tmp_path / "weights.json"
    weights.write_text('{"fitness_weights": "domains"}')
    told = fails(finished[0], 2, "check", *models, "--data", str(toys.data), "--config", str(weights))
    assert "weighs the domain 'code'" in told
    result = ok(call(finished[0], "check", *models, "--config", str(weights)))
    assert [line.split("\t")[0] for line in result.stdout.splitlines()[4:8]] == [
        "code",
        "data",
        "math",
        "multilingual",
    ]


# ---- items ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_items_show_wins_and_losses_against_the_best_source(finished) -> None:
    """The tallies are those of the recorded outcomes, counted here again."""
    home, run = finished
    found = json.loads(ok(call(home, "items", run, "--json")).stdout)
    state = runs.state(Home(home), run)
    assert found["slice"] == "test"
    assert found["candidate"] == state.champion
    assert state.started
    assert found["against"] in {s.name for s in state.started.sources}
    other = next(s for s in state.started.sources if s.name == found["against"])
    mine = state.evaluations[state.champion, "test", None].outcomes["math"]
    theirs = state.evaluations[other.recipe_id, "test", None].outcomes["math"]
    leads = [b / n - a / n for a, b, n in zip(mine.nll, theirs.nll, mine.tokens, strict=True)]
    row = next(t for t in found["tally"] if (t["domain"], t["kind"]) == ("math", "window"))
    assert row["won"] == sum(x > WINDOW_ROUNDING["float32"] for x in leads)
    assert row["won"] + row["lost"] + row["alike"] == len(leads)
    rival = next(r for r in state.completed.rivals if r.name == other.name)
    assert found["difference"] == rival.lead.model_dump()


@pytest.mark.slow
def test_any_two_models_of_a_run_can_be_compared(finished) -> None:
    """Baselines and sources by name, candidates by id, on the slice that both were measured on."""
    home, run = finished
    state = runs.state(Home(home), run)
    found = json.loads(ok(call(home, "items", run, "--against", "mean", "--json")).stdout)
    assert found["against"] == "mean"
    candidates = [c.recipe_id for (g, _), c in sorted(state.candidates.items()) if g == 1]
    one, two = candidates[:2]
    words = ("items", run, one[:16], "--against", two[:16], "--slice", "search", "--json")
    found = json.loads(ok(call(home, *words)).stdout)
    assert (found["candidate"], found["against"], found["generation"]) == (one, two[:12], 1)
    itself = json.loads(
        ok(call(home, "items", run, one, "--against", one, "--slice", "search", "--json")).stdout
    )
    assert all(item["lead"] == 0 for item in itself["items"])


@pytest.mark.slow
def test_items_for_people_show_both_ends(finished) -> None:
    """At most so many of the clearest wins and losses of each kind."""
    home, run = finished
    result = ok(call(home, "items", run, "--limit", "1"))
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    windows = [row for row in rows if row[:2] == ["math", "window"]]
    assert 1 <= len(windows) <= 2
    assert "on the whole test slice" in result.stderr
    every = ok(call(home, "items", run, "--all")).stdout.splitlines()
    assert len(every) > len(rows)


def test_what_was_not_measured_is_said(finished) -> None:
    """No such candidate; one that never came so far; models that share no items."""
    home, run = finished
    state = runs.state(Home(home), run)
    assert "is not known" in fails(home, 5, "items", run, "ffff")
    loser = state.generations[0].ranking[-1]
    assert "was not measured on the test slice" in fails(
        home, 5, "items", run, loser, "--slice", "test"
    )
    told = fails(home, 2, "items", run, loser, "--against", "mean")
    assert "mean was not measured on the same items of the search slice" in told


def test_without_the_data_items_are_numbered(finished, toys: Toys, monkeypatch) -> None:
    """The log has the outcomes; the names are the data's."""
    from agent_forge.evomerge.tasks.context import MergeContext
    from agent_forge.runs.errors import DataError

    def gone(self: MergeContext) -> None:
        raise DataError("data file x does not exist.")

    monkeypatch.setattr(MergeContext, "packed", property(gone))
    result = ok(call(*map(str, finished[:1]), "items", finished[1], "--all"))
    assert "items are numbered, not named: data file x does not exist" in result.stderr
    assert "\twindow 0\t" in result.stdout


def test_tallies_by_hand() -> None:
    """Two wins, a loss, a draw."""
    values = [(1.0, 0.0), (2.0, 1.0), (0.0, 1.0), (0.5, 0.5)]
    contests = [Contest("d", "question", str(i), a, b) for i, (a, b) in enumerate(values)]
    assert tally(contests) == [Tally("d", "question", 2, 1, 1)]
