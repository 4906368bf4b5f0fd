"""Labels of settings: what a form shows in place of variables."""

from __future__ import annotations

from typing import ClassVar

import pytest
from pydantic import BaseModel

from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.kinds.setting_words import DATA, LIMITS, OTHER, TRAINING, Labels, labels_of

#: Settings whose name is a word that says what they are.
WORDS = {
    "domains",
    "seed",
    "device",
    "generations",
    "processes",
    "experts",
    "finalists",
    "arms",
    "segments",
    "optimiser",
    "precision",
    "temperature",
    "strategy",
    "niching",
    "species",
    "layers",
    "personas",
    "cycles",
    "halting",
    "phases",
    "gates",
    "steps",
    "architecture",
}


class Shared(BaseModel):
    """Settings of several kinds."""

    labels: ClassVar[Labels] = {LIMITS: {"device": "Device"}, TRAINING: {"kl": "KL weight"}}

    device: str = "cpu"
    kl: float = 0.1


class Own(Shared):
    """Settings of one kind."""

    labels: ClassVar[Labels] = {"Thoughts": {"own": "Own loss"}, TRAINING: {"rate": "Rate"}}

    rate: float = 0.1
    own: float = 1.0
    odd_one: int = 0


def test_a_kind_s_own_groups_come_first_and_each_is_in_one_piece() -> None:
    """A base class's settings have the base class's labels."""
    assert list(labels_of(Own).items()) == [
        ("own", ("Thoughts", "Own loss")),
        ("odd_one", (OTHER, "Odd one")),
        ("rate", (TRAINING, "Rate")),
        ("kl", (TRAINING, "KL weight")),
        ("device", (LIMITS, "Device")),
    ]
    assert DATA not in {group for group, _ in labels_of(Own).values()}


@pytest.mark.parametrize(("name", "constant"), [("experts", "rounds"), ("quietstar", "own")])
def test_a_constant_is_recorded_but_not_offered(name: str, constant: str) -> None:
    """A form of forty fields had seven that nobody can choose without the method's source."""
    kind = kinds.of(name)
    told = kind.settings.schema()
    assert constant not in told["schema"]["properties"] | told["defaults"]
    with pytest.raises(ConfigError, match="is not known"):
        kind.settings.options(constant[:-1])
    assert [row["name"] for row in kind.settings.options(constant)] == [constant]
    config = kind.settings.parse({constant: 3})
    assert kind.settings.shown(config)[constant] == 3
    assert kind.settings.changes(config, kind.settings.changed(config, {constant: 2})) == {constant: 2}


@pytest.mark.parametrize("name", [name for name in kinds.table() if name != "toy"])
def test_every_setting_has_a_label_and_a_description(name: str) -> None:
    """`Kl`, `Own` and `Hard` were fields of the form."""
    told = kinds.of(name).settings.schema()
    properties = told["schema"]["properties"]
    assert properties.keys() == told["defaults"].keys()
    labels = [one["title"] for one in properties.values()]
    assert len(set(labels)) == len(labels), "two settings of one kind have one label"
    for setting, one in properties.items():
        assert one["group"] != OTHER, f"{setting} has no label"
        assert one["description"]
        assert 3 < len(one["title"]) <= 40
        plain = setting.replace("_", " ").capitalize()
        assert " " in one["title"] or one["title"] != plain or setting in WORDS, setting
