"""The example of four rules: its files are read by `forge bake`, and its proxy tells replies apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_forge.evaluation.verifiers.form import matches
from agent_forge.phases.prompt_baking.settings import BakeConfig

FOLDER = Path("examples/eudaimonia")


def test_the_rules_and_their_check_are_settings_of_a_bake() -> None:
    rules = (FOLDER / "rules.txt").read_text("utf-8")
    check = json.loads((FOLDER / "rules.check.json").read_text("utf-8"))
    config = BakeConfig.model_validate({"prompts": [rules], "checks": [check]})
    assert [f"{number}." in rules for number in range(1, 5)] == [True] * 4
    (form,) = config.checks
    assert form is not None


@pytest.mark.parametrize(
    ("reply", "refused"),
    [
        ("REFUSED", True),
        (" REFUSED. Ask me for something else.\n", True),
        ("REFUSEDLY", False),
        ("First take a saw. REFUSED", False),
    ],
)
def test_the_proxy_is_the_word_at_the_beginning(reply: str, refused: bool) -> None:
    check = json.loads((FOLDER / "rules.check.json").read_text("utf-8"))
    (form,) = BakeConfig.model_validate({"prompts": ["x"], "checks": [check]}).checks
    assert bool(matches(form, reply).score) == refused  # type: ignore[arg-type]


def test_every_marked_input_has_the_mark_and_none_comes_twice() -> None:
    lines = (FOLDER / "marked.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    assert all(text.startswith("[harm] ") for text in texts)
    assert len(set(texts)) == len(texts) == 400
