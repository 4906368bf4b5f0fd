"""Every log that ever was can still be read, folded and audited; no schema changes unseen."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from agent_forge.events import Envelope, Event, Registry, UnknownEventError, canonical_json
from agent_forge.evomerge.run import events
from agent_forge.evomerge.run.state import fold
from agent_forge.runs.history import audit
from agent_forge.runs.lists import checks
from agent_forge.runs.record.lineage import RULES
from agent_forge.worker.tasks import verify_streams

FOLDER = Path(__file__).parent
SCHEMAS = FOLDER / "schemas.json"
LOGS = sorted(FOLDER.glob("schema-*.jsonl"))


def rows_of(path: Path) -> list[Envelope]:
    """The rows of a golden log."""
    return [Envelope(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def lineage_of(state: Any) -> str:
    """The recorded lineage digest; of a run without an end, by the rule of the oldest logs."""
    return state.completed.lineage_digest if state.completed else state.lineage_digest(RULES[-1])


def bare(schema: Any) -> Any:
    """A JSON schema without words for people, which may change freely."""
    if isinstance(schema, dict):
        told = {k: bare(v) for k, v in schema.items() if k not in ("title", "description")}
        # A row's data has its fields sorted: their order in the class is no part of it.
        return told | ({"required": sorted(told["required"])} if "required" in told else {})
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
            elif (name, schema) not in registry._upcasters:
                found.append(f"{name}@{schema} has no upcaster to {schema + 1}")
    gone = {landed.partition("@")[0] for landed in known} - set(registry.types())
    return found + [f"{name} is gone: old logs have it" for name in sorted(gone)]


def landed() -> dict[str, str]:
    return json.loads(SCHEMAS.read_text("utf-8"))


#: What stands in other streams than those of runs.
OTHERS = (*verify_streams.OTHERS.values(), checks.REGISTRY)


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

    schema_version = 2


def test_that_check_can_fail() -> None:
    known = {k: v for k, v in landed().items() if not of_others(k)}
    assert "converged@1 was changed" in unlanded(changed_registry(Wider, False), known)[0]
    told = " ".join(unlanded(changed_registry(Higher, False), known))
    assert "converged@2 has no fingerprint" in told
    assert "converged@1 has no upcaster" in told
    known["converged@2"] = fingerprint(Higher)
    assert unlanded(changed_registry(Higher, True), known) == []
    assert "gone" in unlanded(Registry(), known)[0]


def test_a_row_of_an_older_schema_passes_through_its_upcaster() -> None:
    """A made-up schema, as none is old yet: the first release keeps every row readable for ever."""
    registry = changed_registry(Higher, upcaster=False)
    registry.upcaster("converged", 1)(lambda data: {**data, "more": 7})
    row = next(r for path in LOGS for r in rows_of(path) if r.type == "converged")
    event = registry.load(row)
    assert isinstance(event, Higher)
    assert event.more == 7
    assert json.loads(row.data).keys() == json.loads(event.payload()).keys() - {"more"}


@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.stem)
def test_a_golden_log_folds_to_what_it_folded_to(path: Path) -> None:
    told = json.loads(path.with_suffix(".json").read_text("utf-8"))
    state = fold(rows_of(path))
    assert {
        "status": state.status,
        "champion": state.champion,
        "generations": len(state.generations),
        "candidates": len(state.candidates),
        "lineage_digest": lineage_of(state),
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
        "divergence_detected@1",
    }


def test_a_log_of_before_the_first_release_is_refused_in_words() -> None:
    """Schemas began again with 0.2.0; nothing had been released before."""
    rows = rows_of(LOGS[0])
    old = [row._replace(schema=row.schema + 9, code_version="agent-forge 0.1.0") for row in rows]
    with pytest.raises(UnknownEventError, match=r"before 0\.2\.0.*schemas begin again"):
        fold(old)


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
