"""Labels of a kind's settings, in groups: what a form shows in place of the variables. Pure.

A class of settings has a table `labels`: group → setting → label. The tables of its base classes
count, too. A setting without a label has its name as words, in the group `OTHER`.

Numbers that can only be chosen by who knows a method's source are its constants: settings of the group
`CONSTANTS`. Each run records them, as it records all settings, and an experiment may set them by name,
but no form, list or page of settings has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

#: Group → setting → label.
Labels = Mapping[str, Mapping[str, str]]

TRAINING = "Training"
DATA = "Data"
LIMITS = "Device and limits"
OTHER = "Settings"
CONSTANTS = "Constants"
#: Groups that several kinds have; they come after a kind's own, in this order.
SHARED = (TRAINING, DATA, LIMITS)


def labels_of(config: type[BaseModel]) -> dict[str, tuple[str, str]]:
    """Return setting → group and label, in the order of a form: groups of several kinds come last.

    Constants are not among them.
    """
    words: dict[str, tuple[str, str]] = {}
    for base in config.__mro__:
        table: Labels = base.__dict__.get("labels", {})
        for group, names in table.items():
            for name, label in names.items():
                words.setdefault(name, (group, label))
    for name in config.model_fields:
        words.setdefault(name, (OTHER, name.replace("_", " ").capitalize()))
    words = {name: row for name, row in words.items() if row[0] != CONSTANTS}
    groups = dict.fromkeys(group for group, _ in words.values() if group not in SHARED)
    order = [*groups, *SHARED]
    return dict(sorted(words.items(), key=lambda row: order.index(row[1][0])))


def labelled(schema: Mapping[str, Any], words: Mapping[str, tuple[str, str]]) -> dict[str, object]:
    """Return a schema of settings whose properties have a label (`title`) and a `group`."""
    properties = schema["properties"]
    shown = {
        name: {**properties[name], "title": label, "group": group}
        for name, (group, label) in words.items()
        if name in properties
    }
    return {**schema, "properties": shown}
