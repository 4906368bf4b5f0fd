"""Tables of a run hold what its log says: compared with recorded JSON, in every schema that landed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_forge.events import Envelope
from agent_forge.evomerge.reports import generation_rows
from agent_forge.evomerge.run.state import RunState, fold
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.lists import tables
from testing.worlds.fake_world import World, small
from tests.golden.test_golden import LOGS, rows_of


def rows_of_table(name: str, rows: list[Envelope]) -> list[dict[str, Any]]:
    """A table's rows."""
    return list(tables.table(name, fold(rows), rows).rows)


@pytest.fixture(scope="module")
def rows() -> list[Envelope]:
    """A whole run's log; some of its candidates were dropped early."""
    world = World(small(fitness_weights={"perplexity": 0.5, "domains": {"code": 0.5}}))
    world.run()
    return world.rows


def data(rows: list[Envelope], *kinds: str) -> list[dict[str, Any]]:
    """The data of every event of these types, as recorded."""
    return [json.loads(row.data) for row in rows if row.type in kinds]


@pytest.mark.slow
@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.stem)
@pytest.mark.parametrize("name", tables.tables("evomerge"))
def test_every_row_has_every_column_and_its_kind(name: str, path: Path) -> None:
    kinds = {"int": int, "float": float, "text": str, "bool": bool, "texts": list}
    log = rows_of(path)
    table = tables.table(name, fold(log), log)
    for row in table.rows:
        assert set(row) == set(table.columns)
        for column, value in row.items():
            if value is not None:
                assert isinstance(value, kinds[table.columns[column]] | int), (column, value)


def test_events_are_the_log(rows: list[Envelope]) -> None:
    told = rows_of_table("events", rows)
    assert [row["data"] for row in told] == [row.data for row in rows]
    assert [row["place"] for row in told] == list(range(1, len(rows) + 1))
    assert [(r["type"], r["recorded_at"], r["actor"], r["hash"]) for r in told] == [
        (r.type, r.recorded_at, r.actor, r.hash) for r in rows
    ]


def test_evaluations_are_the_recorded_ones(rows: list[Envelope]) -> None:
    told, recorded = rows_of_table("evaluations", rows), data(rows, "evaluated")
    assert len(told) == len(recorded)
    for row, event in zip(told, recorded, strict=True):
        assert (row["recipe_id"], row["slice"]) == (event["recipe_id"], event["slice"])
        assert row["generation"] == event["generation"]
        assert row["seconds"] == event["seconds"]
        parts = event["components"]
        assert row["perplexity"] == parts["perplexity"]
        assert row["bits_per_byte"] == parts["bits_per_byte"]
        assert row["perplexity/code"] == parts["domains"]["code"]
        assert row["accuracy/math"] == parts["accuracies"]["math"]
        if event["fitness"] is not None:
            assert row["fitness"] == event["fitness"]["scalar"]
            assert row["part/domain/code"] == event["fitness"]["normalised"]["domain/code"]
    assert any(event["fitness"] is None for event in recorded), "a source's follows from the log"
    assert all(row["fitness"] is not None for row in told)


def test_items_are_the_outcomes_one_by_one(rows: list[Envelope]) -> None:
    """In the order of the log, and each at its place in the slice: the same item, the same place."""
    told = rows_of_table("items", rows)
    seen = iter(told)
    for event in data(rows, "evaluated"):
        for domain, outcomes in event["outcomes"].items():
            values = [*outcomes["nll"], *outcomes["right"], *outcomes["solved"]]
            own = [next(seen) for _ in values]
            assert [row["value"] for row in own] == values
            assert {row["domain"] for row in own} == {domain}
            assert {row["recipe_id"] for row in own} == {event["recipe_id"]}
    assert next(seen, None) is None
    source = data(rows, "started")[0]["sources"][0]["recipe_id"]
    windows = [row for row in told if row["kind"] == "window" and row["slice"] == "search"]
    own = [row for row in windows if row["recipe_id"] == source]
    whole = {(row["domain"], row["item"]) for row in own}
    assert len(whole) == 11
    drawn = {(row["domain"], row["item"]) for row in windows if row["generation"] == 1}
    assert drawn < whole


def test_candidates_are_every_model_of_the_run(rows: list[Envelope]) -> None:
    told = rows_of_table("candidates", rows)
    built = data(rows, "seeded", "merged", "mutated")
    slots = {(r["generation"], r["slot"]): r for r in told if r["slot"] is not None}
    assert len(slots) == len(built) == 12
    for event in built:
        row = slots[event["generation"], event["slot"]]
        assert row["recipe_id"] == event["recipe_id"]
        assert row["digest"] == event["digest"]
        assert json.loads(row["recipe"]) == event["recipe"]
    for done in data(rows, "generation_completed"):
        for rank, (id_, score) in enumerate(zip(done["ranking"], done["scores"], strict=True), 1):
            row = next(
                r for (g, _), r in slots.items() if g == done["generation"] and r["recipe_id"] == id_
            )
            assert (row["rank"], row["search"]) == (rank, score)
    kinds = [row["kind"] for row in told]
    assert (kinds.count("base"), kinds.count("source"), kinds.count("baseline")) == (1, 3, 4)
    crowned = {event["recipe_id"] for event in data(rows, "champion_changed")}
    assert {row["recipe_id"] for row in told if row["champion"]} == crowned


def test_generations_are_the_reports_with_what_was_spent(rows: list[Envelope]) -> None:
    told = rows_of_table("generations", rows)
    for row, known in zip(told, generation_rows.rows(fold(rows)), strict=True):
        assert row | known == row
    closing = [i for i, row in enumerate(rows) if row.type == "generation_completed"]
    for row, end in zip(told, closing, strict=True):
        before = [e for e in data(rows[:end], "evaluated") if e["slice"] != "test"]
        assert row["evaluations"] == len(before)
        assert row["device_seconds"] == sum(json.loads(r.data).get("seconds", 0) for r in rows[:end])


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(ConfigError, match="there are generations, candidates"):
        tables.table("models", RunState(), [])
