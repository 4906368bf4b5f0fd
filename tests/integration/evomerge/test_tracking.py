"""What a tracker is sent is a function of the log: every key, from recorded rows alone."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest

from agent_forge.events import Envelope, New
from agent_forge.evomerge.reports import report
from agent_forge.evomerge.reports.outputs import wandb_rows
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import fold
from agent_forge.evomerge.run.views.candidates import find
from agent_forge.runs import kinds
from agent_forge.worker.exports import wandb
from testing.worlds.fake_world import BASE, RUN, SOURCES, World, quality, small
from tests.golden.test_golden import LOGS, rows_of

#: What merging runs send to a tracker.
TRACKING = kinds.of("evomerge").tracking


def whole(**settings: object) -> World:
    """A finished run of an invented world."""
    world = World(small(**settings))
    world.run()
    return world


def data(rows: list[Envelope], kind: str) -> list[dict[str, Any]]:
    """The data of every event of a type, as recorded."""
    return [json.loads(row.data) for row in rows if row.type == kind]


def test_a_generations_row_is_what_its_events_say() -> None:
    """Compared with the JSON of the rows, not with the fold that the rows were made by."""
    rows = whole().rows
    told = dict(TRACKING.rows(fold(rows)))
    closed = data(rows, "generation_completed")
    assert sorted(told) == [event["generation"] for event in closed] == [0, 1, 2]
    diversities = {e["generation"]: e["diversity"] for e in data(rows, "diversity_measured")}
    for event in closed:
        number, scores = event["generation"], event["scores"]
        row = told[number]
        before = [c["score"] for c in data(rows, "champion_changed") if c["generation"] <= number]
        assert row["generation"] == number
        assert row["best_fitness"] == before[-1]
        assert row["avg_fitness"] == math.fsum(scores) / len(scores)
        assert row["diversity"] == diversities[number]
        assert (row["elite1_fitness"], row["elite2_fitness"]) == (scores[0], scores[1])
        mutants = [e for e in data(rows, "mutated") if e["generation"] == number]
        assert row["mutation_count"] == len(mutants) == (0 if number == 0 else 3)


def test_a_domains_score_is_the_one_that_fitness_has() -> None:
    """Where a run weighs domains its events have their scores: ours are the same, of all candidates."""
    weights = {"perplexity": 0.5, "domains": {"code": 0.25, "math": 0.25}}
    given = {source.id for source in (BASE, *SOURCES)}
    world = World(
        small(fitness_weights=weights),
        quality=lambda id_: 4.0 if id_ not in given and id_[0] in "01234" else quality(id_),
    )
    world.run()
    rows = world.rows
    measured = [e for e in data(rows, "evaluated") if e["generation"] is not None and e["fitness"]]
    state, told = fold(rows), dict(TRACKING.rows(fold(rows)))
    assert any(event["scored"] for event in measured), "none was ended early"
    found: dict[tuple[int, str], list[float]] = {}
    for event in measured:
        scores = wandb_rows.domain_scores(state, event["recipe_id"], event["generation"])
        for domain in ("code", "math"):
            score = event["fitness"]["normalised"][f"domain/{domain}"]
            assert scores[domain] == pytest.approx(score, rel=1e-12)
            found.setdefault((event["generation"], domain), []).append(score)
    for (generation, domain), scores in found.items():
        mean = math.fsum(scores) / len(scores)
        assert told[generation][f"{domain}_avg"] == pytest.approx(mean, rel=1e-12)
        assert told[generation][f"{domain}_best"] == pytest.approx(max(scores), rel=1e-12)


def test_combos_add_up_to_what_the_report_counts() -> None:
    """The last row has every candidate of the run; scores are means over whatever was measured."""
    state = whole(seed=5).state
    rows = [row for _, row in TRACKING.rows(state)]
    usage = [{n: row[f"combo/{n}/usage"] for n in range(8)} for row in rows]
    assert usage[-1] == report.usage(state)
    assert [sum(counts.values()) for counts in usage] == [4, 8, 12]
    reached: dict[int, list[float]] = {}
    for done in state.generations.values():
        for recipe_id, score in zip(done.ranking, done.scores, strict=True):
            number = report.pipeline_number(state, recipe_id)
            assert number is not None
            assert score is not None
            reached.setdefault(number, []).append(score)
    for number in range(8):
        mean = rows[-1].get(f"combo/{number}/avg_fitness")
        if number in reached:
            assert mean == pytest.approx(math.fsum(reached[number]) / len(reached[number]))
        else:
            assert mean is None


def test_a_search_without_pipelines_has_no_combos() -> None:
    """Eight flat lines at zero would say something that is not so."""
    rows = TRACKING.rows(whole(strategy="cma-es", population_size=6).state)
    assert rows
    assert not [key for _, row in rows for key in row if key.startswith("combo/")]


@pytest.mark.slow
@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.stem)
def test_a_row_depends_on_nothing_that_came_later(path) -> None:
    """So a run that is followed and one that is sent years later give the same, in every schema."""
    rows = rows_of(path)
    every, seen = TRACKING.rows(fold(rows)), 0
    for upto in (end for end in range(1, len(rows) + 1) if _between_appends(rows, end)):
        some = TRACKING.rows(fold(rows[:upto]))
        assert some == every[: len(some)]
        seen = max(seen, len(some))
    assert seen == len(every)
    assert TRACKING.rows(fold(rows), after=0) == every[1:]


def _between_appends(rows: list[Envelope], end: int) -> bool:
    if end < len(rows) and rows[end].causation is not None:
        return False
    last = rows[end - 1]
    return last.causation is not None or end == len(rows)


def test_what_is_missing_is_left_out() -> None:
    """A candidate that is NaN has no score: no None, no NaN, and the means are of the others."""
    first = {candidate.recipe_id for (g, _), candidate in whole().state.candidates.items() if g == 0}
    broken = sorted(first)[0]
    world = World(small(), quality=lambda id_: None if id_ == broken else 2.0)
    world.run()
    row = dict(TRACKING.rows(world.state))[0]
    scores = [s for s in world.state.generations[0].scores if s is not None]
    assert len(scores) == 3
    assert row["avg_fitness"] == pytest.approx(math.fsum(scores) / 3)
    values = [v for _, r in TRACKING.rows(world.state) for v in r.values()]
    values += TRACKING.summary(world.state).values()
    assert None not in values
    assert all(math.isfinite(v) for v in values if isinstance(v, float))


def test_the_summary_has_the_result_once_there_is_one() -> None:
    world = World(small())
    world.run_until(lambda state: len(state.generations) == 2)
    before = TRACKING.summary(world.state)
    assert before["generation"] == 1
    assert before["status"] == "running"
    assert not [key for key in before if key.startswith("final/")]
    world.run()
    after = TRACKING.summary(world.state)
    (done,) = data(world.rows, "completed")
    assert after["final/test_fitness"] == done["test"]["scalar"]
    assert after["final/generations"] == done["generations"]
    assert after["final/lineage_digest"] == done["lineage_digest"]
    assert after["final/chain_head"] == done["chain_head"] == world.rows[-2].hash
    assert after["final/best_fitness"] == data(world.rows, "champion_changed")[-1]["score"]
    assert after["champion"] == done["champion"]
    assert after["final/convergence_reason"] == "generations"


def test_an_export_after_the_end_changes_nothing() -> None:
    """It is an event of the run; its result, and what was sent of it, stay what they are."""
    world = whole()
    before = TRACKING.summary(world.state), wandb_rows.champion(world.state)
    event = events.Exported(recipe_id="a" * 64, folder="/srv/champion", digest="b" * 64)
    world.append([New(event, f"{RUN}/exported/1")])
    assert (TRACKING.summary(world.state), wandb_rows.champion(world.state)) == before


def test_a_run_that_failed_says_why() -> None:
    path = next(p for p in LOGS if p.stem == "schema-1-3")
    told = TRACKING.summary(fold(rows_of(path)))
    assert told["status"] == "failed"
    assert "ValueError: broken" in str(told["final/reason"])


def test_the_config_names_models_and_data_without_paths() -> None:
    """Paths and addresses are nobody's business; digests say what it was."""
    state = whole().state
    told = TRACKING.config(state)
    assert told["generations"] == 2
    assert told["models"] == ["a", "b", "c"]
    assert told["base_model"] == "base"
    assert state.started
    assert told["digests"]["a"] == state.started.sources[0].digest
    assert "/models" not in json.dumps(told)
    assert "/models" not in json.dumps(wandb_rows.champion(state))


def test_the_champion_can_be_rebuilt_from_what_is_sent() -> None:
    """Recipe by recipe down to the sources, and each id is the hash of its recipe."""
    from pydantic import TypeAdapter

    from agent_forge.evomerge.recipes.recipe import Recipe, parents

    state = whole().state
    told = wandb_rows.champion(state)
    assert told is not None
    assert told["candidate"] == find(state, "champion")
    assert told["digest"] == state.built[told["candidate"]][0]
    adapter: TypeAdapter[Any] = TypeAdapter(Recipe)
    recipes = {id_: adapter.validate_python(one) for id_, one in told["recipes"].items()}
    assert all(recipe.id == id_ for id_, recipe in recipes.items())
    assert all(parent in recipes for one in recipes.values() for parent in parents(one))


@pytest.mark.parametrize("name", ["20261121-3fa9c1", "key-0123456789ab"])
def test_a_plain_name_is_the_trackers_id(name: str) -> None:
    assert wandb.identity(name) == name


def test_other_names_become_plain_and_stay_apart() -> None:
    names = ["a b", "a?b", "ä", "x" * 200, "a#b", ""]
    ids = [wandb.identity(name) for name in names]
    assert len(set(ids)) == len(names)
    assert all(len(id_) <= 100 and not set(id_) & set("/\\#?%: ") for id_ in ids)


@pytest.mark.slow
def test_it_needs_neither_torch_nor_wandb() -> None:
    module = "agent_forge.evomerge.reports.outputs.wandb_rows"
    code = f"import {module}, sys; print({{'torch', 'wandb'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
