"""The text of a pipeline's file: what is written is read again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_forge.pipeline.config import PipelineConfig
from agent_forge.pipeline.submission import file

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    TEXTS
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
GATES = st.builds(
    lambda metric, limit, least, otherwise: {
        "metric": metric,
        ("at_least" if least else "at_most"): limit,
        "otherwise": otherwise,
    },
    TEXTS,
    st.floats(-10, 10),
    st.booleans(),
    st.just("stop"),
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """Return settings of a pipeline, not all of which could be started."""
    phases = [
        {
            "name": f"p{number}",
            "kind": draw(TEXTS),
            "settings": draw(st.dictionaries(TEXTS, VALUES, max_size=3)),
            "models": draw(st.dictionaries(TEXTS, st.lists(TEXTS, max_size=3), max_size=2)),
            "data": draw(st.lists(TEXTS, max_size=3)),
            "gates": draw(st.lists(GATES, max_size=2)),
        }
        for number in range(draw(st.integers(0, 3)))
    ]
    top = draw(st.fixed_dictionaries({}, optional={"gates": st.lists(GATES, max_size=2)}))
    return {**top, "phases": phases, "test": draw(st.lists(TEXTS, max_size=2))}


@given(configs())
def test_what_is_written_is_read_again(config: dict[str, Any]) -> None:
    wanted = PipelineConfig.model_validate(config)
    told = file.parse(file.text(wanted.model_dump(mode="json", exclude_unset=True)))
    assert PipelineConfig.model_validate(told) == wanted


def test_a_file_looks_as_people_write_it() -> None:
    gates = [{"metric": "total", "at_least": 1.0, "at_most": None, "otherwise": "stop"}]
    phase = {"name": "one", "kind": "toy", "settings": {"seed": 1}, "models": {"base": ["m"]}}
    config = {"gates": [], "phases": [{**phase, "data": [], "gates": gates, "unchanged": None}]}
    assert file.text(config) == (
        'gate = []\n\n[[phase]]\nname = "one"\nkind = "toy"\nsettings = { seed = 1 }\n'
        'models = { base = "m" }\n[[phase.gate]]\nmetric = "total"\nat_least = 1.0\n'
    )


def test_a_list_with_nothing_in_it_has_no_text() -> None:
    with pytest.raises(ValueError, match="no null"):
        file.text({"phases": [{"settings": {"a": [None]}}]})
