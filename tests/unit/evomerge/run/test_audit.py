"""An audit finds what was tampered with, names it, and finds nothing in an honest history."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from agent_forge.events import Envelope, New, canonical_json, chain
from agent_forge.evomerge.run import events
from agent_forge.runs import kinds
from agent_forge.runs.history import audit
from agent_forge.runs.history.audit import Anchor
from agent_forge.runs.kinds.decide import open_tasks
from agent_forge.runs.record.events import MemoryPeaked
from testing.worlds.fake_world import RUN, World, small

Rows = list[Envelope]


@pytest.fixture(scope="module")
def rows() -> Rows:
    """A finished run's rows."""
    world = World()
    world.run()
    return world.rows


def relinked(rows: Sequence[Envelope], start: int = 0) -> Rows:
    """The rows with hashes made to fit again, as a forger would."""
    result = list(rows[:start])
    for number, row in enumerate(rows[start:], start=start + 1):
        head = result[-1].hash if result else chain.GENESIS
        row = row._replace(version=number, position=number, prev_hash=head)
        result.append(row._replace(hash=chain.link(row._asdict())))
    return result


def index(rows: Rows, type_: str, nth: int = 0) -> int:
    """Where the nth event of a type is."""
    return [i for i, row in enumerate(rows) if row.type == type_][nth]


def edited(row: Envelope, change: Callable[[dict], None]) -> Envelope:
    """The row with other data and its old hash."""
    data = json.loads(row.data)
    change(data)
    return row._replace(data=canonical_json(data))


def messages(rows: Rows, *anchors: Anchor) -> str:
    """All findings as text."""
    return "\n".join(f"{f.level} {f.check} {f.place} {f.message}" for f in audit.audit(rows, anchors))


def test_an_honest_history_has_no_findings(rows: Rows) -> None:
    assert audit.audit(rows, [Anchor(len(rows), rows[-1].hash, "a card")]) == []


def test_every_prefix_of_an_honest_history_is_honest(rows: Rows) -> None:
    """A run that is under way can be audited; a cut inside an append cannot have happened."""
    for end in range(1, len(rows), 7):
        if rows[end].causation is None:
            assert audit.audit(rows[:end]) == []


def test_failures_and_a_failed_run_are_honest() -> None:
    world = World()
    for attempt in (1, 2, 3):
        world.fail("start", attempt)
    world.run()
    assert world.state.failed
    assert audit.audit(world.rows) == []


def test_reseeding_and_elites_that_stay_are_honest() -> None:
    from testing.worlds.fake_world import all_alike

    for world in (World(small(keep_elites=True)), World(small(), sketcher=all_alike)):
        world.run()
        assert audit.audit(world.rows) == []


def test_a_changed_byte_is_found(rows: Rows) -> None:
    at = index(rows, "evaluated", 3)
    changed = [*rows]
    changed[at] = rows[at]._replace(data=rows[at].data.replace("1", "2", 1))
    assert f"error chain {at + 1} event {at + 1} (evaluated)" in messages(changed)


@pytest.mark.parametrize("field", ["actor", "recorded_at", "key", "type", "code_version"])
def test_a_change_outside_the_data_is_found_too(rows: Rows, field: str) -> None:
    changed = [*rows]
    changed[5] = rows[5]._replace(**{field: "x"})
    assert "event 6" in messages(changed)


def test_a_removed_row_is_found(rows: Rows) -> None:
    told = messages([*rows[:9], *rows[10:]])
    assert "error chain 10 event 10 is missing" in told


def test_several_removed_rows_are_found(rows: Rows) -> None:
    assert "events 10 to 12 are missing" in messages([*rows[:9], *rows[12:]])


def test_two_swapped_rows_are_found_and_named(rows: Rows) -> None:
    """Swapped in the table: each has the other's version now."""
    changed = [*rows]
    changed[7] = rows[8]._replace(version=8, position=8)
    changed[8] = rows[7]._replace(version=9, position=9)
    told = messages(changed)
    assert "events 8 and 9" in told
    assert "swapped" in told


def test_rows_that_stand_in_another_order_in_the_log_are_found(rows: Rows) -> None:
    changed = [*rows]
    changed[7] = rows[7]._replace(position=rows[8].position)
    changed[8] = rows[8]._replace(position=rows[7].position)
    assert "event 9 of stream evomerge/run-1 stands before event 8" in messages(changed)


def test_an_inserted_row_is_found(rows: Rows) -> None:
    stranger = relinked([rows[4]._replace(actor="mallory")])[0]
    stranger = stranger._replace(version=6)
    changed = [*rows[:5], stranger._replace(hash=chain.link(stranger._asdict())), *rows[6:]]
    assert "does not follow" in messages(changed)


def test_a_cut_end_is_found_by_what_was_noted_elsewhere(rows: Rows) -> None:
    """The rest is a whole chain by itself: without an anchor nothing can be seen."""
    short = rows[:-2]
    assert audit.audit(short) == []
    told = messages(short, Anchor(len(rows), rows[-1].hash, "the model card"))
    assert f"events {len(rows) - 1} to {len(rows)}" in told
    assert "the model card" in told


def forged(rows: Rows, at: int, change: Callable[[dict], None]) -> str:
    """Findings where somebody changed an event and made all hashes fit again."""
    changed = [*rows]
    changed[at] = edited(rows[at], change)
    return messages(relinked(changed))


def test_a_forged_fitness_is_found_though_every_hash_fits(rows: Rows) -> None:
    at = next(
        i
        for i, row in enumerate(rows)
        if row.type == "evaluated" and json.loads(row.data)["fitness"] is not None
    )
    told = forged(rows, at, lambda data: data["fitness"].update(scalar=9.0))
    assert f"error decisions {at + 1} the fitness is not that of the recorded outcomes" in told


def test_forged_outcomes_with_fitting_fitness_lead_to_other_decisions(rows: Rows) -> None:
    """Then components do not fit, and the first of many findings says so."""
    at = index(rows, "evaluated", 9)
    told = forged(rows, at, lambda d: d["outcomes"]["code"]["nll"].__setitem__(0, 0.001))
    assert f"error decisions {at + 1} the components are not those" in told


def test_a_forged_champion_is_found(rows: Rows) -> None:
    at = index(rows, "champion_changed")
    loser = json.loads(rows[index(rows, "generation_completed")].data)["ranking"][-1]
    told = forged(rows, at, lambda data: data.update(recipe_id=loser))
    assert "does not say what follows from the events before" in told


def test_a_forged_ranking_and_a_forged_result_are_found(rows: Rows) -> None:
    at = index(rows, "generation_completed", 1)
    assert "error decisions" in forged(rows, at, lambda data: data["ranking"].reverse())
    told = forged(rows, len(rows) - 1, lambda data: data.update(champion="0" * 64))
    assert "the champion is not the one" in told


def test_a_forged_recipe_is_found(rows: Rows) -> None:
    at = index(rows, "seeded", 1)
    told = forged(rows, at, lambda data: data["recipe"].update(seed=1))
    assert f"error decisions {at + 1} seeded holds another recipe" in told


def test_forged_layers_are_found(rows: Rows) -> None:
    at = index(rows, "layers_chosen")
    told = forged(rows, at, lambda data: data.update(layers=[1, 0, 0]))
    assert f"error decisions {at + 1} the layers are not those" in told


def test_a_generation_that_was_left_out_is_found(rows: Rows) -> None:
    """A forger removes events and renumbers the rest."""
    first, second = index(rows, "diversity_measured", 0), index(rows, "diversity_measured", 1)
    assert "error decisions" in messages(relinked([*rows[:first], *rows[second:]]))


def test_events_of_a_newer_version_are_said_and_decisions_left_alone(rows: Rows) -> None:
    changed = [*rows]
    changed[4] = rows[4]._replace(schema=99)
    told = messages(relinked(changed))
    assert "unchecked events 5" in told
    assert "unchecked decisions" in told
    assert "error" not in told


def test_a_strategy_that_is_not_here_is_said(rows: Rows) -> None:
    at = index(rows, "started")
    told = forged(rows, at, lambda data: data.update(strategy="elite-loser@7"))
    assert "unchecked decisions" in told
    assert "elite-loser@7" in told


def test_an_event_that_does_not_validate_is_found(rows: Rows) -> None:
    at = index(rows, "evaluated")
    told = forged(rows, at, lambda data: data.pop("seconds"))
    assert f"error events {at + 1}" in told


def test_a_fitness_without_anything_measured_is_found(rows: Rows) -> None:
    at = index(rows, "evaluated", 12)
    empty = {"components": None, "outcomes": {}, "reference": None}
    told = forged(rows, at, lambda data: data.update(empty))
    assert f"error decisions {at + 1} there is a fitness without anything measured" in told


def test_items_that_were_left_out_are_found(rows: Rows) -> None:
    at = index(rows, "evaluated", 12)
    told = forged(rows, at, lambda data: data["outcomes"].pop("math"))
    assert f"error decisions {at + 1}" in told


def test_outcomes_that_cannot_be_computed_with_are_found(rows: Rows) -> None:
    at = index(rows, "evaluated", 12)
    told = forged(rows, at, lambda data: data["outcomes"]["code"].update(tokens=[0, 0, 0]))
    assert "error decisions" in told


def late(world: World) -> None:
    """Record the answer to a task that was asked for before the run ended."""
    task = open_tasks(world.state)[0]
    world.append([New(world.answer(task), f"{RUN}/{task.key}")])


def test_a_result_that_comes_after_the_end_is_honest() -> None:
    """Another process was still at work: after the third failure, after `failed`, after a cancel."""
    for ends in ("worn", "failed", "cancelled"):
        world = World()
        world.run_until(lambda state: state.generation == 1)
        if ends == "cancelled":
            world.append([New(events.Cancelled(), f"{RUN}/cancelled/1")])
        else:
            for attempt in (1, 2, 3):
                world.fail("build/1/1", attempt)
            if ends == "failed":
                world.step()
        late(world)
        world.fail("build/1/0", 1)
        assert audit.audit(world.rows) == [], ends


def test_memory_of_a_task_that_was_never_asked_for_is_found() -> None:
    world = World()
    world.run_until(lambda state: state.generation == 1)
    for task, count in ((open_tasks(world.state)[0].key, 0), ("build/9/9", 1)):
        event = MemoryPeaked(task=task, bytes=1 << 30)
        world.append([New(event, f"{RUN}/{task}/memory/{event.bytes}")])
        findings = audit.audit(world.rows)
        assert ["was not asked for" in finding.message for finding in findings] == [True] * count


def test_a_forged_result_after_the_end_is_found() -> None:
    world = World()
    world.run_until(lambda state: state.generation == 1)
    world.append([New(events.Cancelled(), f"{RUN}/cancelled/1")])
    late(world)
    late(world)
    at = max(i for i, row in enumerate(world.rows) if row.type in ("mutated", "merged"))
    told = forged(world.rows, at, lambda data: data["recipe"].update(parent="0" * 64))
    assert "another recipe" in told


def test_what_answers_what_covers_every_event_that_a_task_gives() -> None:
    """An event type that is forgotten there would be taken for a fact."""
    decided = {
        "submitted",
        "forked",
        "diversity_measured",
        "generation_completed",
        "champion_changed",
        "reseeded",
        "converged",
        "completed",
        "failed",
        "part_done",
        "memory_peaked",
        "task_failed",
        "divergence_detected",
        "task_died",
        "task_quarantined",
        "paused",
        "resumed",
        "cancelled",
        "retried",
        "priority_changed",
        "described",
        "exported",
        "imported",
    }
    answered = {cls.type for cls in kinds.of("evomerge").answers}
    assert decided | answered == set(events.REGISTRY.types())
    assert RUN


def inserted(rows: Rows, at: int, row: Envelope) -> str:
    """Findings where somebody put a row behind the first `at`, and made all hashes fit again."""
    return messages(relinked([*rows[:at], row, *rows[at:]]))


def test_a_forged_champion_behind_a_measurement_is_found(rows: Rows) -> None:
    """The two were taken for one append, of which only the first event was compared.

    With a score that nobody reaches, everything after it followed from the log.
    """
    at = index(rows, "champion_changed")
    data = json.loads(rows[at].data)
    loser = json.loads(rows[index(rows, "generation_completed")].data)["ranking"][-1]
    champion = canonical_json({**data, "recipe_id": loser, "score": 99.0})
    row = rows[at]._replace(key=f"{RUN}/generation/0/champion_changed/2", data=champion)
    measured = next(i for i in range(at, len(rows)) if rows[i].type == "evaluated")
    together = row._replace(causation=rows[measured].event_id)
    told = inserted(rows, measured + 1, together)
    assert "evaluated is never appended together with champion_changed" in told
    assert "champion_changed names a cause" in inserted(rows, measured + 1, row)
    alone = row._replace(causation=None)
    assert "champion_changed does not follow" in inserted(rows, measured + 1, alone)


@pytest.mark.parametrize("field", ["generation", "slot"])
def test_a_candidate_in_another_place_than_was_asked_for_is_found(rows: Rows, field: str) -> None:
    at = index(rows[: index(rows, "diversity_measured")], "seeded", 1)
    told = forged(rows[: at + 1], at, lambda data: data.update({field: 77}))
    assert f"error decisions {at + 1} seeded says another kind, place, name or parents" in told


def test_forged_parents_names_and_kinds_are_found(rows: Rows) -> None:
    """Lineage is read off these fields."""
    at = index(rows, "mutated")
    told = forged(rows[: at + 1], at, lambda data: data.update(parents=["0" * 64]))
    assert f"error decisions {at + 1} mutated says another kind, place, name or parents" in told
    at = index(rows, "baseline_built", 1)
    told = forged(rows[: at + 1], at, lambda data: data.update(name="mean"))
    assert f"error decisions {at + 1} baseline_built says another" in told
    at = index(rows, "layers_chosen")
    told = forged(rows[: at + 1], at, lambda data: data.update(slot=9))
    assert f"error decisions {at + 1} layers were chosen for another place" in told


def test_a_source_with_an_id_that_its_digest_does_not_give_is_found(rows: Rows) -> None:
    at = index(rows, "started")

    def change(data: dict) -> None:
        data["sources"][0]["digest"] = "0" * 64

    assert "a source has another id than its digest gives" in forged(rows[: at + 1], at, change)


@pytest.mark.parametrize("type_", ["submitted", "started", "seeded", "evaluated", "completed"])
@pytest.mark.parametrize("key", ["other/{}", "{}/2"])
def test_every_event_stands_under_its_own_key(rows: Rows, type_: str, key: str) -> None:
    """A key says what was recorded once: under another one the same could be recorded again."""
    at = index(rows, type_)
    own = rows[at].key.partition("/")[2]
    name = key.format(own if key.startswith("other") else rows[at].key)
    changed = [*rows[:at], rows[at]._replace(key=name)]
    assert f"error decisions {at + 1}" in messages(relinked(changed))


def test_trouble_that_was_not_is_found() -> None:
    """Three failures end a run: none of them may be left out or counted twice."""
    world = World()
    world.run_until(lambda state: state.generation == 1)
    world.fail("build/1/0", 2)
    assert "failed for the 2. time, after 0 before" in messages(world.rows)
    world = World()
    event = events.DivergenceDetected(task="build/0/0", recorded="a", found="b")
    world.append([New(event, f"{RUN}/build/0/0/divergence/1")])
    assert "differs from a result that is not there" in messages(world.rows)


def test_a_history_begins_with_its_submission(rows: Rows) -> None:
    paused = rows[0]._replace(type="paused", schema=1, data="{}", key=f"{RUN}/paused/1")
    assert "the history begins with paused" in messages(relinked([paused, *rows]))


def test_results_that_were_exchanged_show_in_their_times(rows: Rows) -> None:
    """Their order means nothing (several processes work), so that it is no error: a clock set back
    leaves the same. Only a head that was noted elsewhere proves it.
    """
    at = index(rows, "evaluated")
    timed = [
        r._replace(recorded_at=f"2026-01-01T00:{i // 60:02}:{i % 60:02}.000000+00:00")
        for i, r in enumerate(rows[: at + 2])
    ]
    honest = relinked(timed)
    assert audit.audit(honest) == []
    exchanged = relinked([*timed[:at], timed[at + 1], timed[at]])
    (found,) = audit.audit(exchanged)
    assert (found.level, found.place) == ("note", at + 2)
    assert "events were exchanged" in found.message
    told = messages(exchanged, Anchor(at + 2, honest[-1].hash, "the model card"))
    assert "error chain" in told


@pytest.mark.parametrize("version", [0, -1])
def test_a_row_before_the_first_is_found(rows: Rows, version: int) -> None:
    """It fits its own hash, and nothing behind it changes."""
    stranger = rows[20]._replace(version=version, prev_hash=chain.GENESIS, position=9999)
    stranger = stranger._replace(hash=chain.link(stranger._asdict()))
    assert f"stream evomerge/run-1 has an event {version} (" in messages([stranger, *rows])


def test_a_row_with_a_version_that_is_taken_is_found(rows: Rows) -> None:
    """At the end of a stream nothing follows that would not fit."""
    end = rows[-1]
    twin = end._replace(prev_hash=end.hash, position=end.position + 1, key="x", event_id="x")
    twin = twin._replace(hash=chain.link(twin._asdict()))
    assert "a second time: it was inserted" in messages([*rows, twin])
