"""Events as text, the registry that reads them back, and the chain that ties them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_forge.events import (
    ConcurrencyError,
    Envelope,
    Event,
    EventsError,
    IdempotencyError,
    PayloadError,
    Registry,
    StoreUnavailableError,
    UnknownEventError,
    canonical_json,
    chain,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


class Scored(Event):
    type = "scored"
    schema_version = 3
    name: str
    score: float


def row(data: Any, type_: str = "scored", schema: int = 3, position: int = 41) -> Envelope:
    """A row as it might be read; `data` is text or a value."""
    return Envelope(
        position=position,
        stream="s",
        version=1,
        event_id="e",
        type=type_,
        schema=schema,
        data=data if isinstance(data, str) else canonical_json(data),
        key="k",
        actor="ada",
        causation=None,
        correlation="r",
        recorded_at="2024-02-29T12:30:00.000000+00:00",
        code_version="test",
        prev_hash=chain.GENESIS,
        hash="h",
    )


@pytest.fixture
def registry() -> Registry:
    """Scored with two schemas behind it: 1 had `title`, 2 had the score in per cent."""
    registry = Registry()
    registry.event(Scored)

    @registry.upcaster("scored", 1)
    def _rename(data: dict[str, Any]) -> dict[str, Any]:
        return {"name": data["title"], "percent": data["percent"]}

    @registry.upcaster("scored", 2)
    def _scale(data: dict[str, Any]) -> dict[str, Any]:
        return {"name": data["name"], "score": data["percent"] / 100}

    return registry


# Canonical JSON and events


@given(JSON)
def test_canonical_json_is_read_back_as_the_same_value(value: Any) -> None:
    """Rows are kept as this text and nothing else."""
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text


@given(st.dictionaries(st.text(), st.integers()))
def test_canonical_json_does_not_know_the_order_of_keys(value: dict[str, int]) -> None:
    """Equal values must have equal hashes however they were built."""
    assert canonical_json(value) == canonical_json(dict(reversed(value.items())))


def test_canonical_json_has_no_spaces_and_keeps_letters() -> None:
    """The exact text is part of the format: a hash made elsewhere must agree."""
    assert canonical_json({"b": [1, 2.0], "a": "é\n"}) == '{"a":"é\\n","b":[1,2.0]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_canonical_json_refuses_what_json_cannot_hold(value: float) -> None:
    """NaN is not JSON and not equal to itself."""
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical_json({"x": [value]})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_event_refuses_a_score_that_is_not_a_number(value: float) -> None:
    """It would be a fact that cannot be compared, nor written."""
    with pytest.raises(ValidationError):
        Scored(name="a", score=value)


def test_not_a_number_in_an_untyped_field_is_refused_and_not_written_as_null() -> None:
    """A fact that changes on its way to the log is worse than none."""

    class Loose(Event):
        type = "loose"
        config: dict[str, Any]

    with pytest.raises(ValueError, match=r"nan|finite|JSON compliant"):
        Loose(config={"rate": float("nan")}).payload()


def test_an_event_cannot_be_changed_and_takes_no_other_fields() -> None:
    """A fact does not change, and a misspelt field must not vanish."""
    event = Scored(name="a", score=0.5)
    with pytest.raises(ValidationError):
        event.score = 0.6  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValidationError):
        Scored.model_validate({"name": "a", "score": 0.5, "scoer": 1})


def test_the_payload_of_an_event_is_canonical() -> None:
    """The order of fields in the class is not part of the format."""
    assert Scored(name="é", score=0.1).payload() == '{"name":"é","score":0.1}'


@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(allow_nan=False).map(abs))
def test_an_event_survives_its_payload(name: str, score: float) -> None:
    """What is folded from the log is what was decided."""
    if score == float("inf"):
        score = 0.0
    event = Scored(name=name, score=score)
    assert Scored.model_validate(json.loads(event.payload())) == event


# The registry


def test_a_type_is_registered_once(registry: Registry) -> None:
    """Two classes under one name would read each other's rows."""

    class Other(Event):
        type = "scored"

    with pytest.raises(ValueError, match="scored"):
        registry.event(Other)
    assert registry.types() == {"scored": Scored}


def test_an_event_without_a_name_is_refused(registry: Registry) -> None:
    """A forgotten `type` shows at import, not when the row is read."""

    class Nameless(Event):
        pass

    with pytest.raises(ValueError, match="empty"):
        registry.event(Nameless)


def test_types_come_in_order_of_name(registry: Registry) -> None:
    """Docs are made from it and must not change with the order of imports."""

    class Began(Event):
        type = "began"

    assert registry.event(Began) is Began
    assert list(registry.types()) == ["began", "scored"]


def test_a_row_of_the_latest_schema_is_read_as_it_stands(registry: Registry) -> None:
    """Upcasters are for old rows only."""
    assert registry.load(row({"name": "a", "score": 0.25})) == Scored(name="a", score=0.25)


@pytest.mark.parametrize(
    ("schema", "data"), [(1, {"title": "a", "percent": 25}), (2, {"name": "a", "percent": 25})]
)
def test_an_old_row_goes_through_every_upcaster_in_order(
    registry: Registry, schema: int, data: dict[str, Any]
) -> None:
    """Runs of last year must be readable with the classes of today."""
    assert registry.load(row(data, schema=schema)) == Scored(name="a", score=0.25)


def test_a_row_of_a_newer_schema_is_unknown(registry: Registry) -> None:
    """To guess at it would be to decide on half a fact."""
    with pytest.raises(UnknownEventError, match=r"scored@4 .* latest schema is 3") as caught:
        registry.load(row({"name": "a", "score": 0.5}, schema=4))
    assert (caught.value.type, caught.value.schema) == ("scored", 4)


def test_a_row_of_no_known_type_is_unknown(registry: Registry) -> None:
    """It must stop a fold, never be skipped."""
    with pytest.raises(UnknownEventError, match=r"guessed@1 .*no such type"):
        registry.load(row({}, type_="guessed", schema=1))


def test_an_old_row_without_an_upcaster_is_unknown() -> None:
    """Raising the schema and forgetting the upcaster must not pass in silence."""
    registry = Registry()
    registry.event(Scored)

    @registry.upcaster("scored", 1)
    def _first(data: dict[str, Any]) -> dict[str, Any]:
        return data

    with pytest.raises(UnknownEventError, match=r"no upcaster .*2"):
        registry.load(row({"name": "a", "score": 0.5}, schema=1))


@pytest.mark.parametrize(
    "data",
    [
        {"name": "a"},
        {"name": "a", "score": "high"},
        {"name": "a", "score": 0.5, "more": 1},
        [],
        "null",
        "not JSON",
        '{"name":"a","score":',
        '{"name":"a","score":NaN}',
    ],
)
def test_a_row_that_does_not_hold_its_type_is_an_error_that_names_the_position(
    registry: Registry, data: Any
) -> None:
    """Damage must be found where it is, and never be read as a fact."""
    with pytest.raises(PayloadError, match="scored at position 41") as caught:
        registry.load(row(data))
    assert (caught.value.position, caught.value.type) == (41, "scored")


@pytest.mark.parametrize("data", [{"percent": 25}, [], "null", {"title": "a", "percent": "many"}])
def test_an_old_row_that_its_upcaster_cannot_read_is_damaged_and_not_unknown(
    registry: Registry, data: Any
) -> None:
    """The advice to upgrade would be wrong: the upcaster is there, the data is not."""
    with pytest.raises(PayloadError, match="scored at position 41"):
        registry.load(row(data, schema=1))


# The chain


def test_the_hash_covers_everything_but_the_position_and_itself() -> None:
    """A field added to the row and forgotten here could be changed unseen."""
    assert set(chain.COVERED) == set(Envelope._fields) - {"position", "hash"}


@pytest.mark.parametrize("name", chain.COVERED)
def test_changing_any_covered_field_changes_the_hash(name: str) -> None:
    """Tamper evidence over every field."""
    values = row({"name": "a", "score": 0.5})._asdict()
    changed = {"schema": 4, "version": 2}.get(name, f"{values[name]}.")
    assert chain.link({**values, name: changed}) != chain.link(values)


def test_none_and_the_empty_text_have_different_hashes() -> None:
    """Else an actor could be given a cause, or lose it, unseen."""
    values = row({})._asdict()
    assert chain.link({**values, "causation": ""}) != chain.link({**values, "causation": None})


def test_text_cannot_be_moved_from_one_field_to_the_next() -> None:
    """The usual flaw of hashing fields that are merely joined."""
    values = row({})._asdict()
    one = {**values, "key": "ab", "actor": "c"}
    two = {**values, "key": "a", "actor": "bc"}
    assert chain.link(one) != chain.link(two)


def test_position_and_hash_do_not_change_the_hash() -> None:
    """A stream keeps its chain when it is moved to another database."""
    values = row({})._asdict()
    assert chain.link({**values, "position": 7, "hash": "x"}) == chain.link(values)


def test_the_hash_is_the_sha_256_of_the_canonical_row() -> None:
    """Written out by hand: anybody can check a log without this program."""
    text = (
        '{"actor":"ada","causation":null,"code_version":"test","correlation":"r","data":"{}",'
        '"event_id":"e","key":"k","prev_hash":"' + "0" * 64 + '",'
        '"recorded_at":"2024-02-29T12:30:00.000000+00:00","schema":3,"stream":"s",'
        '"type":"scored","version":1}'
    )
    assert chain.link(row({})._asdict()) == hashlib.sha256(text.encode()).hexdigest()


# Errors


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (ConcurrencyError("s", 3, 5), ["stream s", "version 5", "not 3", "decide again"]),
        (IdempotencyError(["k1", "k2"]), ["k1, k2", "use keys of their own"]),
        (UnknownEventError("t", 2, "no such type"), ["t@2", "no such type", "upgrade"]),
        (PayloadError(9, "t", "no field x"), ["t at position 9", "no field x", "backup"]),
        (StoreUnavailableError("/log", "full"), ["/log", "full", "free space"]),
    ],
)
def test_an_error_says_what_happened_why_and_what_to_do(error: EventsError, parts: list[str]) -> None:
    """It is what the user sees, and often all that he sees."""
    assert [part for part in parts if part not in str(error)] == []
