"""Figures of a measurement, by hand; what is asked, and what no log may say."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agent_forge.phases.measure import MEASURE, MeasureConfig, Started, Submitted
from agent_forge.runs import kinds
from agent_forge.runs.event_types import ModelReference, Profile, SourceRecord
from agent_forge.studies.events import RULES, Observed
from agent_forge.studies.making.making import MakingState

KIND: Any = kinds.of("measure")
PROFILE = Profile(
    device="cpu",
    dtype="",
    threads=1,
    batch_tokens=1,
    attention="",
    machine="m",
    torch="t",
    transformers="t",
    numpy="n",
)
#: Domain → bytes of its documents.
SIZES = {"a": (8, 24), "b": (16, 16)}


def reference(name: str) -> ModelReference:
    return ModelReference(name=name, path=f"/models/{name}")


def world(**roles: str) -> MakingState:
    """Return a measurement that has started; each letter of a role is a model."""
    state = KIND.state()
    models = {role: tuple(map(reference, letters)) for role, letters in roles.items()}
    state.take(Submitted(run="m", owner="ada", config=MeasureConfig(), **models), key="m/submitted")
    every = dict.fromkeys("".join(roles.values()))
    sources = tuple(
        SourceRecord(name=x, recipe_id=x * 64, digest=x * 64, sketch="", parameters=9) for x in every
    )
    started = Started(
        warnings=(),
        sources=sources,
        roles={role: tuple(x * 64 for x in letters) for role, letters in roles.items()},
        data_digest="0" * 64,
        documents={domain: len(sizes) for domain, sizes in SIZES.items()},
        profile=PROFILE,
        bytes={x * 64: 100 * int(x) for x in every},
    )
    state.take(started, key="m/start")
    return state


def observed(letter: str, **bits: tuple[float, ...]) -> Observed:
    """Return what was observed of a model: bits per byte of each document, by domain."""
    items = {
        domain: tuple(b * n * math.log(2) for b, n in zip(bits[domain], sizes, strict=True))
        for domain, sizes in SIZES.items()
    }
    return Observed(
        recipe_id=letter * 64,
        measure=MEASURE,
        on="test",
        values=RULES[MEASURE](items, SIZES),
        items=items,
        sizes=SIZES,
        seconds=1.0,
    )


def measure(state: MakingState, *events: Observed) -> None:
    for event in events:
        state.take(event, key=f"m/observe/{event.measure}/test/{event.recipe_id}")


def even(letter: str, a: float, b: float) -> Observed:
    """Return a model whose documents of a domain all have the same bits per byte."""
    return observed(letter, a=(a, a), b=(b, b))


def test_figures_are_those_worked_out_by_hand() -> None:
    """Means over domains: 1.5, 1.65, 1.95. Where documents are alike, there is no interval."""
    state = world(model="1", against="23", first="3")
    measure(state, even("1", 1.0, 2.0), even("2", 1.2, 2.1), even("3", 0.9, 3.0))
    wanted = {
        "bits_per_byte": 1.5,
        "retention": 1.65 / 1.5,
        "regression": 1.0 / 1.2 - 1,  # in a; in b it is 2 / 3 - 1
        "cumulative": 1.95 / 1.5,
    }
    found = KIND.run(state).figures
    sizes = {name: found.pop(name).value for name in ("bytes", "size")}
    assert sizes == {"bytes": 100, "size": 100 / 300}
    assert {*found, *sizes} == {*wanted, *sizes} == set(KIND.figures_of)
    for name, value in wanted.items():
        figure = found[name]
        assert (figure.value, figure.low, figure.high) == pytest.approx((value,) * 3)
        assert figure.n == 4


def test_bits_per_byte_weigh_documents_by_their_bytes() -> None:
    state = world(model="1")
    measure(state, observed("1", a=(1.0, 3.0), b=(2.0, 2.0)))
    bits = KIND.run(state).figures["bits_per_byte"]
    assert bits.value == pytest.approx(((8 * 1 + 24 * 3) / 32 + 2) / 2)
    assert (bits.low, bits.high) == pytest.approx(((1 + 2) / 2, (3 + 2) / 2))


def test_a_model_beside_itself_has_no_interval_however_documents_differ() -> None:
    """Both take part in the same resamples: the comparison is paired."""
    state = world(model="1", against="2")
    measure(state, *(observed(x, a=(1.0, 3.0), b=(2.0, 5.0)) for x in "12"))
    found = KIND.run(state).figures
    for name, value in (("retention", 1.0), ("regression", 0.0)):
        figure = found[name]
        assert (figure.value, figure.low, figure.high) == pytest.approx((value,) * 3, abs=1e-12)


def test_without_others_there_is_nothing_to_compare() -> None:
    state = world(model="1")
    measure(state, even("1", 1.0, 2.0))
    assert set(KIND.run(state).figures) == {"bits_per_byte", "bytes"}


def test_every_model_is_measured_once_and_then_the_run_ends() -> None:
    state = world(model="1", against="12", first="2")
    tasks = KIND.due(state).tasks
    assert [task.recipe_id[0] for task in tasks] == ["1", "2"]
    measure(state, even("1", 1.0, 2.0))
    assert [task.recipe_id[0] for task in KIND.due(state).tasks] == ["2"]
    measure(state, even("2", 1.0, 2.0))
    [new] = KIND.due(state).facts
    assert new.event.figures == KIND.run(state).figures


def test_forged_observations_are_found() -> None:
    state = world(model="1")
    [task] = KIND.due(state).tasks
    honest = even("1", 1.0, 2.0)
    assert KIND.validate_answer(state, task, honest) is None
    forged: list[dict[str, Any]] = [
        {"values": {"a": 0.5, "b": 2.0}},
        {"recipe_id": "2" * 64},
        {"items": {**honest.items, "a": (1.0,)}, "sizes": {**SIZES, "a": (8,)}},
        {"on": "search"},
    ]
    for change in forged:
        assert KIND.validate_answer(state, task, honest.model_copy(update=change)), change
