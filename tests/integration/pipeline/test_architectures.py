"""Models that a phase cannot take together: found before anything starts, with phase, role and both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.kinds.asked import RunRequest
from agent_forge.worker.commands import submit
from testing.miniatures import small_text

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
    return submit.plan(RunRequest("pipeline", {"phases": [{**TRAINED, **data}, *phases]}))


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


def test_a_model_from_outside_is_compared_with_what_an_earlier_phase_will_make(tmp_path: Path) -> None:
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
    with pytest.raises(ConfigError, match="phase merge: it is given models as 'teacher': the roles"):
        planned(wrong)
    lacking = merge(one)
    with pytest.raises(ConfigError, match="phase merge: it is given no model as 'sources'"):
        planned(lacking)


def write_tokenizer(folder: str, *tokens: str) -> str:
    """Write a vocabulary of these tokens; return the folder."""
    vocabulary = {token: number for number, token in enumerate(tokens)}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    (Path(folder) / "tokenizer.json").write_text(json.dumps({"model": model}))
    return folder


def test_models_with_as_many_and_other_tokens_are_refused(tmp_path: Path) -> None:
    """Also through a phase that keeps its model's tokenizer; a few other tokens are let pass."""
    one = write_tokenizer(folder(tmp_path, "one"), "a", "b", "c", "d")
    same = write_tokenizer(folder(tmp_path, "same"), "a", "b", "c", "e")
    other = write_tokenizer(folder(tmp_path, "other"), "d", "c", "b", "a")
    unknown = folder(tmp_path, "unknown")
    planned(merge(one, one, same))
    planned(merge(one, same, unknown))
    with pytest.raises(ConfigError, match="4 of 4 numbers stand for other tokens, 0 for 'a' and 'd'"):
        planned(merge(one, same, other))
    school = {"name": "school", "kind": "curriculum", "models": {"model": other}}
    with pytest.raises(ConfigError, match=r"school as sources, and .* have other tokenizers"):
        planned(school, merge(one, same, "school"))


HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 4}


def test_a_student_and_a_compression_are_known_beforehand(tmp_path: Path) -> None:
    """A student's sizes follow from its settings; a compressed model has those of what was given."""
    one, two = folder(tmp_path, "one", **HEADS), folder(tmp_path, "two", **HEADS)
    half = folder(tmp_path, "half", **{**HEADS, "hidden_size": 32, "num_hidden_layers": 2})
    data = {"data": ["specialists:items"]}
    student = {"name": "small", "kind": "student", "models": {"model": one}, **data}
    planned(student, merge("small", half, "small"))
    with pytest.raises(ConfigError, match="small as base, a qwen2 of hidden_size 32, num_hidden_l"):
        planned(student, merge("small", one, two))
    uneven = {**student, "settings": {"hidden": 33}}
    with pytest.raises(ConfigError, match="phase small: a hidden size of 33"):
        planned(uneven)
    packed = {"name": "packed", "kind": "compression", "models": {"model": one}, **data}
    planned(packed, merge("packed", one, two))
    with pytest.raises(ConfigError, match="packed as base, a qwen2 of hidden_size 64"):
        planned(packed, merge("packed", half, one))
    several = {**packed, "models": {"model": one, "students": ["small"]}}
    planned(student, several, merge("packed", half, "small"))
    specialists = {**student, "models": {"model": "specialists:base"}}
    with pytest.raises(ConfigError, match=r"small as base, a qwen2 of .*hidden_size"):
        planned(specialists, merge("small", "specialists:base", "specialists:code"))


def test_what_is_not_known_beforehand_is_left_to_the_phase(tmp_path: Path) -> None:
    """A student of a model whose heads are not known has sizes that its run finds out."""
    one, two = folder(tmp_path, "one"), folder(tmp_path, "two")
    student = {
        "name": "small",
        "kind": "student",
        "models": {"model": one},
        "data": ["specialists:items"],
    }
    planned(student, merge("small", one, two))
