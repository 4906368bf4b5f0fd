"""Models that a phase cannot take together: found before anything starts, with phase, role and both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runs.errors import ConfigError
from runs.kinds.asked import Asked
from testing.miniatures import small_text
from worker.commands import validate

QWEN = {"model_type": "qwen2", "hidden_size": 64, "vocab_size": 512}
TRAINED = {
    "name": "specialists",
    "kind": "cognate",
    "settings": {"preset": "mini", "domains": small_text.DOMAINS},
}


def folder(tmp_path: Path, name: str, **changes: Any) -> str:
    """Write a folder of a model with a config.json alone: only that is read before a start."""
    place = tmp_path / name
    place.mkdir()
    (place / "config.json").write_text(json.dumps({**QWEN, **changes}))
    return str(place)


def merge(base: str, *sources: str, data: str = "specialists:items", name: str = "merge") -> dict:
    """Return a merging phase, whose data an earlier phase gives."""
    return {
        "name": name,
        "kind": "evomerge",
        "models": {"base": base, "sources": list(sources)},
        "data": [data],
    }


def planned(*phases: dict) -> Any:
    """Return the plan of a pipeline."""
    data = {"data": [str(small_text.file())]}
    return validate.plan(Asked("pipeline", {"phases": [{**TRAINED, **data}, *phases]}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "llama"}, ("a qwen2, and", "a llama:")),
        ({"hidden_size": 96}, ("a qwen2 of hidden_size 64", "a qwen2 of hidden_size 96")),
        ({"vocab_size": 640}, ("a qwen2 of vocab_size 512", "a qwen2 of vocab_size 640")),
    ],
)
def test_models_from_outside_that_differ_are_refused(
    tmp_path: Path, changes: dict[str, Any], words: tuple[str, str]
) -> None:
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    other = folder(tmp_path, "other", **changes)
    planned(merge(one, one, two))
    with pytest.raises(ConfigError, match="phase merge: ") as found:
        planned(merge(one, two, other))
    assert f"{one} as base" in str(found.value)
    assert f"{other} as sources" in str(found.value)
    assert all(said in str(found.value) for said in words)


def test_a_model_from_outside_is_compared_with_what_an_earlier_phase_will_make(
    tmp_path: Path,
) -> None:
    """The preset says the sizes; the second merge's champion has those of the first one's sources."""
    strange = folder(tmp_path, "strange", hidden_size=4096)
    roles = [f"specialists:{domain}" for domain in small_text.DOMAINS]
    planned(merge("specialists:base", *roles))
    with pytest.raises(ConfigError, match=r"specialists:code as sources, a qwen2 of .*hidden_size"):
        planned(merge(strange, *roles))
    first = merge("specialists:base", *roles)
    second = merge("merge", roles[0], strange, name="again")
    with pytest.raises(ConfigError, match="phase again: it is given merge as base"):
        planned(first, second)


def test_a_phase_that_trains_from_a_model_keeps_its_architecture(tmp_path: Path) -> None:
    one, strange = folder(tmp_path, "one"), folder(tmp_path, "strange", num_hidden_layers=9)
    folder_of_two = folder(tmp_path, "two", num_hidden_layers=2)
    trained = {"name": "school", "kind": "curriculum", "models": {"model": folder_of_two}}
    planned(trained, merge(one, "school", folder_of_two))
    with pytest.raises(ConfigError, match="school as base, a qwen2 of num_hidden_layers 2"):
        planned(trained, merge("school", one, strange))


def test_a_role_that_the_kind_has_not_and_one_that_is_lacking_are_said(tmp_path: Path) -> None:
    """Before anything starts, though the phase's data do not exist yet."""
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    wrong = merge(one, one, two)
    wrong["models"]["teacher"] = [one]
    with pytest.raises(
        ConfigError, match="phase merge: it is given models as 'teacher': the roles"
    ):
        planned(wrong)
    lacking = merge(one)
    with pytest.raises(ConfigError, match="phase merge: it is given no model as 'sources'"):
        planned(lacking)


def test_what_is_not_known_beforehand_is_left_to_the_phase(tmp_path: Path) -> None:
    """A student has other sizes than its model, which its run finds out."""
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    student = {
        "name": "small",
        "kind": "student",
        "models": {"model": one},
        "data": ["specialists:items"],
    }
    planned(student, merge("small", one, two))
