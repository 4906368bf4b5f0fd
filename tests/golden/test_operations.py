"""A landed algorithm never changes what it computes: recorded recipes name it by its version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.operations import TABLES, compute, form, noted, parameters, profile

ENTRIES = [(table, name) for table, (entries, _, _) in TABLES.items() for name in sorted(entries)]
#: Methods that each kind of algorithm must have.
METHODS = {
    "operation": ("apply",),
    "objective": ("batch", "loss", "state", "load"),
    "optimiser": ("step", "state", "load"),
    "schedule": ("rate",),
}


@pytest.mark.parametrize(("table", "name"), ENTRIES)
def test_everything_in_the_tables_loads(table: str, name: str) -> None:
    """The tables are strings: a wrong one would be found by a user's run."""
    found = TABLES[table][1](name)
    assert all(callable(getattr(found, method)) for method in METHODS[table])
    assert parameters(table, name).model_config.get("extra") == "forbid"
    assert all(field.annotation for field in parameters(table, name).model_fields.values())


@pytest.mark.parametrize(("table", "name"), ENTRIES)
def test_an_algorithm_computes_what_its_version_computed(table: str, name: str) -> None:
    """`python -m tests.golden.operations` notes new entries, and never an old one again."""
    own = noted().get(f"{table} {name}")
    assert own, f"{table} {name} is not noted: python -m tests.golden.operations"
    assert form(table, name) == own["parameters"], f"{name}: changed parameters need a new version"
    here = profile(table, name)
    if here not in own["digests"]:
        pytest.skip(f"noted on {', '.join(own['digests'])}, this is {here}")
    assert compute(table, name) == own["digests"][here], f"{name} needs a new version"


def test_what_landed_stays_in_the_tables() -> None:
    """A recorded recipe that names it must be rebuilt."""
    assert set(noted()) == {f"{table} {name}" for table, name in ENTRIES}


def test_the_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another decay of the same version is noticed."""
    from agent_forge.weights.training.optimisers import adamw

    class Changed(adamw.AdamW):
        def step(self, rate: float) -> None:
            super().step(rate * 1.0001)

    before = compute("optimiser", "adamw@1")
    monkeypatch.setattr("agent_forge.weights.algorithms._load", _instead(Changed))
    assert compute("optimiser", "adamw@1") != before


def _instead(changed: Any) -> Any:
    """A loader that gives a changed optimiser."""
    from agent_forge.weights.algorithms import _load

    return lambda place: changed if place.endswith(":AdamW") else _load(place)
