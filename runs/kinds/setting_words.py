"""Settings of runs of a kind: read from a user, compared, changed, and shown with labels. Pure.

A class of settings has a table `labels`: group → setting → label, which a form shows in place of the
variable. The tables of its base classes count, too. A setting without a label has its name as words,
in the group `OTHER`.

Numbers that can only be chosen by who knows a method's source are its constants: settings of the group
`CONSTANTS`. Each run records them, as it records all settings, and an experiment may set them by name,
but no form, list or page of settings has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from agent_forge.runs.errors import ConfigError, did_you_mean
from agent_forge.runs.kinds.capability import Capability, S
from agent_forge.runs.panels.head import Entry

#: Wrong settings that one error names.
FAULTS = 8
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
    """Return setting → (group, label), in the order of a form: groups of several kinds come last.

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


class KindSettings(Capability[S]):
    """The rules of a kind's settings, which are of its class `config`."""

    def parse(self, settings: Mapping[str, object]) -> Any:
        """Return the kind's `config` object from the settings that a user gives. Raises ConfigError."""
        try:
            return self.kind.config.model_validate(settings)
        except ValidationError as error:
            faults = [": ".join(filter(None, self.fault(e))) for e in error.errors()]
            more = f"; and {len(faults) - FAULTS} more" if len(faults) > FAULTS else ""
            message = "; ".join(faults[:FAULTS]) + more
            raise ConfigError(f"settings of {self.kind.title}: {message}.") from error

    def fault(self, error: Mapping[str, Any]) -> tuple[str, str]:
        """Return the setting of one of pydantic's errors ("": of several), and what is wrong."""
        what = str(error["msg"]).removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            hint = did_you_mean(str(error["loc"][-1]), self.kind.config.model_fields)
            what = f"there is no such setting{hint}: `forge settings {self.kind.name}` lists them"
        if error["type"] == "tuple_type":
            what = 'a list is needed, as ["one", "two"]'
        if error["type"] in ("too_short", "too_long"):
            bound = "least {min_length}" if error["type"] == "too_short" else "most {max_length}"
            what = f"a list of at {bound} is needed, not of {{actual_length}}".format(**error["ctx"])
        return ".".join(map(str, error["loc"])), what

    def taken(self, settings: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
        """Return (settings taken of those that a user gives, reasons why the others are not).

        By default all are taken. Raises ConfigError.
        """
        return dict(settings), ()

    def fit(self, settings: Mapping[str, object], config: BaseModel) -> bool:
        """Return True if the settings that a user asks for equal `config` once they are parsed."""
        return self.parse(settings) == config

    def changed(self, config: BaseModel, changes: Mapping[str, object]) -> Any:
        """Return the settings with changes, given as a user gives them. Raises ConfigError."""
        return self.parse({**config.model_dump(mode="json"), **changes})

    def changes(self, before: BaseModel, after: BaseModel) -> dict[str, object]:
        """Return {setting: value in `after`} of the settings that differ between the two configs."""
        old, new = self.shown(before), self.shown(after)
        return {name: value for name, value in new.items() if value != old[name]}

    def shown(self, config: BaseModel) -> dict[str, object]:
        """Return name → value of the settings as people see them, as JSON has them."""
        return config.model_dump(mode="json")

    def schema(self) -> dict[str, object]:
        """Return {"schema": a JSON schema with labels and groups, "defaults": setting → default}."""
        config = self.kind.config
        labels = labels_of(config)
        return {
            "schema": labelled(config.model_json_schema(), labels),
            "defaults": config().model_dump(mode="json", include=set(labels)),
        }

    def options(self, name: str) -> list[Entry]:
        """Return [{name, group, default, what, strategies}] of the settings with `name` in their names.

        Raises ConfigError if there is none.
        """
        kind, config = self.kind.name, self.kind.config
        defaults, offered = config().model_dump(mode="json"), labels_of(config)
        rows: list[Entry] = [
            {
                "name": field,
                "group": kind,
                "default": defaults[field],
                "what": info.description or "",
                "strategies": [],
            }
            for field, info in config.model_fields.items()
            if name == field or (name in field and field in offered)
        ]
        if not rows:
            raise ConfigError(f"setting {name} is not known. `forge settings {kind}` lists them.")
        return rows
