"""Open nodes of the recipe language: an id says all that the user chose, and never changes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from pydantic import ValidationError

from agent_forge.weights.recipes import Algorithm, Source, Train, Transform

FIELDS: dict[str, Any] = {
    "objective": "lm@1",
    "start": "5" * 64,
    "data": {"prose": 0.75, "code": 0.25},
    "data_digests": {"prose": "1" * 64, "code": "2" * 64},
    "batch": 4,
    "context": 8,
    "optimiser": Algorithm(name="adamw@1", params={"beta1": 0.9}),
    "schedule": Algorithm(name="constant@1", params={"peak": 0.01}),
    "purpose": "base",
    "steps": 100,
    "upto": 100,
}
#: Every field of a training → a value that differs from that of FIELDS.
CHANGES: dict[str, dict[str, Any]] = {
    "objective": {"objective": "lm@2"},
    "params": {"params": {"k": 1}},
    "start": {"start": "6" * 64},
    "carries": {"carries": True},
    "inputs": {"inputs": {"teacher": "7" * 64}},
    "data": {"data": {"prose": 0.5, "code": 0.25}},
    "data_digests": {"data_digests": {"prose": "1" * 64, "code": "3" * 64}},
    "batch": {"batch": 8},
    "context": {"context": 16},
    "accumulation": {"accumulation": 2},
    "optimiser": {"optimiser": Algorithm(name="adamw@1", params={"beta1": 0.8})},
    "schedule": {"schedule": Algorithm(name="constant@1", params={"peak": 0.02})},
    "precision": {"precision": "bfloat16"},
    "attention": {"attention": "eager"},
    "checkpointing": {"checkpointing": True},
    "clip": {"clip": 1.0},
    "divergence": {"divergence": 6.0},
    "seed": {"seed": 1},
    "purpose": {"purpose": "code"},
    "steps": {"steps": 200},
    "first": {"first": 1},
    "upto": {"upto": 50},
}
#: Ids as they were when these nodes came into being.
SOURCE = "18e94c5cd496a044a7d474cd3b2bd84bf320a23f9605d7859627a689cc5f8170"
TRANSFORM = "d174cc26749b64dae6bea8adf7ad2d404eb27e75fd14bd844319791018c99bc6"
TRAIN = "7d142d661b8e0a4756282ef9e9e680c8cb298c75c85bb8cb1cac3e2924d3d276"


def train(**changes: Any) -> Train:
    """A training of 100 steps."""
    return Train(**{**FIELDS, **changes})


def test_the_canonical_form_has_every_field_with_its_default() -> None:
    """A default that is not written out could change what an old id means."""
    whole = train().model_dump(mode="json")
    assert set(whole) == set(Train.model_fields)
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert train().id == hashlib.sha256(text.encode()).hexdigest()


def test_ids_are_those_that_were_recorded() -> None:
    """A recorded run names recipes by id: one that changes makes its log unreadable."""
    init = Transform(operation="qwen2-init@1", params={"hidden": 16}, seed=3)
    assert Source(digest="a" * 64).id == SOURCE
    assert init.id == TRANSFORM
    assert train().id == TRAIN


def test_every_field_changes_the_id() -> None:
    """Two trainings that differ in anything are two trainings."""
    assert set(CHANGES) == set(Train.model_fields) - {"kind"}
    ids = {train(**change).id for change in CHANGES.values()} | {train().id}
    assert len(ids) == len(CHANGES) + 1


def test_the_order_of_names_does_not_change_the_id() -> None:
    """Streams and roles have names, not places."""
    turned = {name: FIELDS["data"][name] for name in reversed(FIELDS["data"])}
    assert train(data=turned).id == train().id


def test_all_snapshots_of_a_training_share_a_stem() -> None:
    """The builder finds an earlier snapshot by it; every other field separates trainings."""
    assert train().to(7).upto == 7
    assert train().to(7).stem == train().stem
    assert train().to(7).id != train().id
    assert train().to(7).to(100).id == train().id
    stems = {train(**c).stem for name, c in CHANGES.items() if name != "upto"} | {train().stem}
    assert len(stems) == len(CHANGES)


def test_a_recipe_survives_a_round_trip_through_json() -> None:
    """Events hold recipes as JSON."""
    recipe = train(inputs={"teacher": "7" * 64}, clip=1.0)
    again = Train.model_validate_json(recipe.model_dump_json())
    assert again == recipe
    assert again.id == recipe.id


def test_inputs_used_are_the_start_and_the_roles_in_order() -> None:
    """Rebuilding needs them all."""
    both = {"b": "2" * 64, "a": "1" * 64}
    assert train(inputs=both).inputs_used() == ("5" * 64, "1" * 64, "2" * 64)
    assert Transform(operation="interpolate@1", inputs=both).inputs_used() == ("1" * 64, "2" * 64)


@pytest.mark.parametrize(
    "change",
    [
        {"objective": "lm"},
        {"objective": "lm@0"},
        {"upto": 101},
        {"first": 60, "upto": 50},
        {"accumulation": 3},
        {"data": {"prose": 1.0}},
        {"data": {"prose": 0.0, "code": 1.0}},
        {"data_digests": {"prose": "1", "code": "2" * 64}},
        {"clip": 0.0},
        {"divergence": float("nan")},
        {"precision": "float16"},
        {"device": "cuda:0"},
    ],
)
def test_a_training_that_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    """Bad input never reaches the log."""
    with pytest.raises(ValidationError):
        train(**change)


@pytest.mark.parametrize("step", [-1, 101])
def test_there_is_no_snapshot_outside_of_a_training(step: int) -> None:
    """`to` checks what the constructor checks."""
    with pytest.raises(ValidationError):
        train().to(step)
