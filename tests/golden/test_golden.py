"""Every log that ever was can still be read, folded and audited; no schema changes unseen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from events import Envelope, Event, Registry, UnknownEventError, canonical_json
from evomerge.reports import model_registry
from evomerge.run import audit, events
from evomerge.run.state import fold
from testing.fake_world import small
from worker.commands import accounts, user_limits

FOLDER = Path(__file__).parent
SCHEMAS = FOLDER / "schemas.json"
LOGS = sorted(FOLDER.glob("*.jsonl"))


def rows_of(path: Path) -> list[Envelope]:
    """The rows of a golden log."""
    return [Envelope(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def bare(schema: Any) -> Any:
    """A JSON schema without words for people, which may change freely."""
    if isinstance(schema, dict):
        return {k: bare(v) for k, v in schema.items() if k not in ("title", "description")}
    return [bare(item) for item in schema] if isinstance(schema, list) else schema


def fingerprint(cls: type[Event]) -> str:
    """What of an event's class its rows depend on."""
    return hashlib.sha256(canonical_json(bare(cls.model_json_schema())).encode()).hexdigest()


def unlanded(registry: Registry, known: dict[str, str]) -> list[str]:
    """What is wrong with a registry, given the fingerprints that landed."""
    found = []
    for name, cls in registry.types().items():
        this = f"{name}@{cls.schema_version}"
        if this not in known:
            found.append(f"{this} has no fingerprint: run python -m tests.golden.test_golden")
        elif known[this] != fingerprint(cls):
            found.append(f"{this} was changed: raise its schema_version and write an upcaster")
        for schema in range(1, cls.schema_version):
            if f"{name}@{schema}" not in known:
                found.append(f"{name}@{schema} never landed")
            elif not registry.upcasts(name, schema):
                found.append(f"{name}@{schema} has no upcaster to {schema + 1}")
    gone = {landed.partition("@")[0] for landed in known} - set(registry.types())
    return found + [f"{name} is gone: old logs have it" for name in sorted(gone)]


def landed() -> dict[str, str]:
    return json.loads(SCHEMAS.read_text("utf-8"))


#: What stands in other streams than those of runs.
OTHERS = (user_limits.REGISTRY, accounts.REGISTRY, model_registry.REGISTRY)


def of(registry: Registry, name: str) -> bool:
    """Whether an event with its schema is of this registry."""
    return name.partition("@")[0] in registry.types()


def of_others(name: str) -> bool:
    """Whether it is no event of a run."""
    return any(of(registry, name) for registry in OTHERS)


def test_no_schema_changes_without_a_version_and_an_upcaster() -> None:
    known = landed()
    assert unlanded(events.REGISTRY, {k: v for k, v in known.items() if not of_others(k)}) == []
    for registry in OTHERS:
        assert unlanded(registry, {k: v for k, v in known.items() if of(registry, k)}) == []


def changed_registry(cls: type[Event], upcaster: bool) -> Registry:
    """The registry of facts with one class replaced."""
    registry = Registry()
    for name, old in events.REGISTRY.types().items():
        registry.event(cls if name == cls.type else old)
        for schema in range(1, old.schema_version):
            registry.upcaster(name, schema)(dict)
    if upcaster:
        registry.upcaster(cls.type, cls.schema_version - 1)(dict)
    return registry


class Wider(events.Converged):
    """A field more and the old version: what the check is for."""

    more: int = 0


class Higher(Wider):
    """The same, told."""

    schema_version = 3


def test_that_check_can_fail() -> None:
    known = {k: v for k, v in landed().items() if not of_others(k)}
    assert "converged@2 was changed" in unlanded(changed_registry(Wider, False), known)[0]
    told = " ".join(unlanded(changed_registry(Higher, False), known))
    assert "converged@3 has no fingerprint" in told
    assert "converged@2 has no upcaster" in told
    known["converged@3"] = fingerprint(Higher)
    assert unlanded(changed_registry(Higher, True), known) == []
    assert "gone" in unlanded(Registry(), known)[0]


@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.stem)
def test_a_golden_log_folds_to_what_it_folded_to(path: Path) -> None:
    told = json.loads(path.with_suffix(".json").read_text("utf-8"))
    state = fold(rows_of(path))
    assert {
        "status": state.status,
        "champion": state.champion,
        "generations": len(state.generations),
        "candidates": len(state.candidates),
        "lineage_digest": state.lineage_digest(),
        "head": state.head,
    } == told


@pytest.mark.slow
@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.stem)
def test_a_golden_log_is_still_decided_as_it_was(path: Path) -> None:
    """Chain, events, every decision, result: with the strategy of its day."""
    assert audit.audit(rows_of(path)) == []


def test_golden_logs_have_every_schema_that_landed() -> None:
    """Forks excepted: their logs name another one's rows; integration/worker/test_fork.py has them."""
    seen = {f"{row.type}@{row.schema}" for path in LOGS for row in rows_of(path)}
    assert {name for name in set(landed()) - seen if not of_others(name)} == {
        "forked@1",
        "forked@2",
        "forked@3",
        "forked@4",
        "forked@5",
        "forked@6",
        "forked@7",
        "forked@8",
        "forked@9",
        "divergence_detected@1",
    }


#: Settings of other strategies than elite-loser, which schemas before 11 of `submitted` had beside.
UNREAD: dict[str, Any] = {
    "tournament_size": 3, "crossover_rate": 0.7, "layer_groups": 4, "genome_detail": "full",
    "species": ["task_arithmetic", "ties"], "search_sigma": 0.1, "niching": "none",
    "objectives": ["perplexity", "accuracy"], "mutants_per_elite": 3, "keep_elites": False,
    "techniques": ["linear", "slerp", "dare", "ties", "frankenmerge", "dfs"], "dare_drop": 0.5,
    "ties_density": 0.2,
}  # fmt: skip


def test_a_fork_of_before_is_read_as_it_was_meant() -> None:
    """No problems, no gates, no weights of domains: what its settings then could not say."""
    config = small().flat() | UNREAD
    for name in ("search_problems", "gate_perplexity", "stop_error"):
        del config[name]
    del config["fitness_weights"]["domains"]
    old = {"run": "f", "owner": "o", "parent": "p", "version": 3, "head": "0" * 64, "changes": {},
           "config": config, "output_dir": None}  # fmt: skip
    row = next(row for row in rows_of(LOGS[0]) if row.type == "submitted")
    row = row._replace(type="forked", schema=1, data=canonical_json(old))
    event = events.REGISTRY.load(row)
    assert isinstance(event, events.Forked)
    assert event.config.search_problems == 0
    assert event.config.gate_perplexity == event.config.stop_error == 0
    assert event.config.fitness_weights.domains == {}
    changed = row._replace(data=canonical_json({**old, "changes": {"seed": 5}}))
    started = [*rows_of(LOGS[0])[:1], changed]
    told = [text for _, type_, text in fold(started).lineage if type_ == "submitted"]
    assert told[-1] == canonical_json({"config": config}), "its lineage is not what it was"


def test_a_fork_that_turned_niching_on_is_read_by_its_later_name() -> None:
    """Its changes say what its settings say."""
    config = {**UNREAD, **small(strategy="tournament").flat(), "niching": "items"}
    del config["path_repeats"], config["path_blocks"]
    old = {"run": "f", "owner": "o", "parent": "p", "version": 3, "head": "0" * 64, "output_dir": None,
           "changes": {"niching": "items"}, "config": config, "strategy": None}  # fmt: skip
    row = next(row for row in rows_of(LOGS[0]) if row.type == "submitted")
    event = events.REGISTRY.load(row._replace(type="forked", schema=4, data=canonical_json(old)))
    assert isinstance(event, events.Forked)
    assert event.config.flat()["niching"] == "attraction"
    assert event.changes == {"niching": "attraction"}


def test_a_fork_with_flat_settings_is_read_as_its_strategy_read_them() -> None:
    """Settings of other strategies were recorded beside, with a warning that they had no effect."""
    config = {**UNREAD, **small().flat(), "path_repeats": 0, "path_blocks": 7}
    del config["budget_hours"]
    old = {"run": "f", "owner": "o", "parent": "p", "version": 3, "head": "0" * 64, "output_dir": None,
           "changes": {"niching": "both", "seed": 3, "elite_size": 1}, "config": config,
           "strategy": None, "reason": None}  # fmt: skip
    row = next(row for row in rows_of(LOGS[0]) if row.type == "submitted")
    for strategy, changes in (
        ("elite-loser", {"seed": 3, "elite_size": 1}),
        ("tournament", {"niching": "both", "seed": 3, "elite_size": 1}),
        ("cma-es", {"seed": 3}),
    ):
        told = {**old, "config": {**config, "strategy": strategy, "niching": "both"}}
        event = events.REGISTRY.load(
            row._replace(type="forked", schema=8, data=canonical_json(told))
        )
        assert isinstance(event, events.Forked)
        assert event.config.strategy == strategy
        assert event.changes == changes


def test_an_event_of_a_newer_version_is_refused_for_deciding() -> None:
    rows = rows_of(LOGS[0])
    with pytest.raises(UnknownEventError, match="newer version"):
        fold([*rows[:3], rows[3]._replace(schema=99)])
    with pytest.raises(UnknownEventError, match="newer version"):
        fold([*rows[:3], rows[3]._replace(type="quantised")])


if __name__ == "__main__":
    known = landed() if SCHEMAS.exists() else {}
    types = events.REGISTRY.types()
    for other in OTHERS:
        types |= other.types()
    fresh = {f"{n}@{c.schema_version}": fingerprint(c) for n, c in types.items()}
    for name in sorted(set(fresh) & set(known)):
        if fresh[name] != known[name]:
            raise SystemExit(f"{name} has landed with other fields: raise its schema_version")
    known |= fresh
    SCHEMAS.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", "utf-8")
