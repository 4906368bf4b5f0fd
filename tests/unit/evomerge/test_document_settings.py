"""Settings of the source documents: what is taken, what is left out, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest

from agent_forge.evomerge import config
from agent_forge.evomerge.config import REFUSED, parse
from agent_forge.runs.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "own", "left"),
    [
        ({"seed": 3}, {"seed": 3}, []),
        ({"num_workers": 4, "seed": 3}, {"seed": 3}, ["num_workers"]),
        ({"mixed_precision": True}, {"evaluation_dtype": "bfloat16"}, []),
        ({"mixed_precision": False}, {"evaluation_dtype": "model"}, []),
        ({"early_stopping": True, "enable_caching": True}, {}, []),
        ({"enable_caching": False}, {}, ["enable_caching"]),
        ({"checkpoint_every": 10, "checkpoint_dir": "x"}, {}, []),
        ({"merge_operators": {"dare_drop": 0.3, "slerp_t": 1}}, {"dare_drop": 0.3}, ["slerp_t"]),
        ({"search": {"slerp_t": 1, "seed": 2}}, {"search": {"seed": 2}}, ["slerp_t"]),
    ],
)
def test_what_is_taken_and_what_is_left_out(
    given: dict[str, Any], own: dict[str, Any], left: list[str]
) -> None:
    found, out = config.translated(given)
    assert (found, list(out)) == (own, left)
    assert all(out[name] == REFUSED[name] for name in left)


@pytest.mark.parametrize("patience", ["convergence_patience", "plateau_patience"])
def test_no_early_stopping_holds_in_any_order(patience: str) -> None:
    for given in ({"early_stopping": False, patience: 5}, {patience: 5, "early_stopping": False}):
        assert parse(config.translated(given)[0]).convergence_patience == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"evaluation_dtype": "model", "mixed_precision": True}, "evaluation_dtype is given under two"),
        ({"dare_drop": 0.5, "merge_operators": {"dare_threshold": 0.3}}, "dare_drop is given under"),
        ({"merge_operators": {"generations": 3}}, "merge_operators has no setting generations"),
        ({"merge_operators": 3}, "give an object of settings"),
    ],
)
def test_what_contradicts_itself_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.translated(given)
