"""Request for a run, as a user submits it, and the plan that it is recorded from.

Terminal, API and Python ask in these terms, and the same checks serve all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

from pydantic import TypeAdapter, ValidationError

from agent_forge.runs.errors import ConfigError
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.kinds.capability import Capability, S
from agent_forge.runs.record.events import Submitted
from agent_forge.runs.system.bounded_files import read_prompt

_ALIASES = TypeAdapter(dict[str, str])


@dataclass(frozen=True)
class RunRequest:
    """A run as a user asks for it, in plain values."""

    #: The kind of run.
    kind: str
    #: Its settings, under any of their names.
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    #: Role → models: folders, Hub ids, aliases, runs, registered models.
    models: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    data: Sequence[str] = ()
    output_dir: str | None = None


class Names(Protocol):
    """Names of models in the log, as `weights.storage.model_origin.Finder` looks them up."""

    def __call__(self, text: str) -> ModelReference | None:
        """Return the model that a text names; None if it names none. Raise SourceError."""
        ...

    def hidden_by(self, text: str, folder: Path) -> None:
        """Tell the user if a folder is taken although the log has a model of its name, too."""
        ...


@dataclass(frozen=True)
class NamedInputs:
    """Models and data that the settings of a run name, as the user wrote them."""

    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlacedInputs:
    """Models and data that settings name: each name, and the name or path that is looked up for it."""

    models: Mapping[str, str]
    data: Mapping[str, str]


@dataclass(frozen=True)
class Lookup:
    """Rules by which names of models are looked up, and the place where the run will be carried."""

    #: Alias → what it stands for.
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    #: Finds models by names from the log; see `weights.storage.model_origin`.
    named: Names | None = None
    #: The run is carried by another machine: the device may be missing here.
    elsewhere: bool = False
    #: The only models and data that settings may name; None: any.
    placed: PlacedInputs | None = None

    def model(self, name: str) -> str:
        """Return the text to look up for model `name`: itself, or as `placed`. Raises ConfigError."""
        return name if self.placed is None else _placed(self.placed.models, name)

    def data(self, name: str) -> str:
        """Return the path to read for data `name`: itself, or that in `placed`. Raises ConfigError."""
        return name if self.placed is None else _placed(self.placed.data, name)


def _placed(places: Mapping[str, str], name: str) -> str:
    if name not in places:
        raise ConfigError(f"{name[:200]!r} was not looked up before: it cannot be read.")
    return places[name]


@dataclass(frozen=True)
class Plan:
    """Everything that a run is submitted with."""

    kind: str
    #: Of the kind's own class.
    config: Any
    #: Fields of the kind's `submitted` event beside those that every kind has.
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output_dir: str | None = None
    #: What the user should know of how the request was understood; part of what a check says.
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckResult:
    """The result of a check: warnings, the models' parameters, items by domain and slice."""

    warnings: tuple[str, ...] = ()
    parameters: int | None = None
    items: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])


def plan_of(submitted: Submitted, kind: str) -> Plan:
    """Return the plan that a `submitted` event of a kind was made from."""
    names = set(type(submitted).model_fields) - set(Submitted.model_fields)
    fields = {name: getattr(submitted, name) for name in sorted(names)}
    return Plan(kind, submitted.config, fields, submitted.output_dir)


def without_aliases(config: Mapping[str, object]) -> tuple[dict[str, object], dict[str, str]]:
    """Return (the settings without their `aliases`, {alias: model}). Raises ConfigError."""
    rest = dict(config)
    try:
        aliases = _ALIASES.validate_python(rest.pop("aliases", {}), strict=True)
    except ValidationError as error:
        message = 'aliases have a name and a model each, as mine = "owner/name".'
        raise ConfigError(message) from error
    return rest, aliases


def roles(submitted: type[Submitted]) -> list[str]:
    """Return the roles: names of the fields of a class of `submitted` events that hold models."""
    shapes: tuple[object, ...] = (ModelReference, ModelReference | None, tuple[ModelReference, ...])
    types: dict[str, object] = {n: f.annotation for n, f in submitted.model_fields.items()}
    return [name for name, type_ in types.items() if type_ in shapes]


def read_prompts(setting: str, files: Sequence[Path]) -> dict[str, object]:
    """Return {setting: [the text of each prompt file]}. Raises ConfigError."""
    return {setting: [read_prompt(file) for file in files]}


@dataclass(frozen=True)
class Command:
    """The options, words and habits of one kind's command, beside those of every command."""

    #: Setting or role → option, as `--tokens`; `--prompt FILE` takes files of text.
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    #: What `--help` says, and examples.
    words: str = ""
    examples: Sequence[str] = ()
    #: Setting and files of text → the settings that they stand for.
    read: Callable[[str, Sequence[Path]], dict[str, object]] = read_prompts


def differ(meant: Sequence[str | None], pinned: Sequence[str]) -> bool:
    """Return True if a run pins other models than were meant, by digest; None means any model."""
    return len(meant) != len(pinned) or any(
        expected_digest not in (None, digest)
        for expected_digest, digest in zip(meant, pinned, strict=True)
    )


def inputs(plan: Plan) -> Iterator[str]:
    """Yield the paths of the models and data that a plan names, and other texts of its fields."""

    def within(value: object) -> Iterator[str]:
        if isinstance(value, ModelReference):
            yield value.path
        elif isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            for part in cast("Mapping[str, object]", value).values():
                yield from within(part)
        elif isinstance(value, tuple):
            for part in cast("tuple[object, ...]", value):
                yield from within(part)

    yield from within(plan.fields)


def renamed(plan: Plan, references: Mapping[str, ModelReference]) -> Plan:
    """Return the plan; a model at a path in `references` takes the name and digest found there."""

    def called(value: object) -> object:
        if isinstance(value, ModelReference) and value.path in references:
            reference = references[value.path]
            return value.model_copy(update={"name": reference.name, "digest": reference.digest})
        if isinstance(value, Mapping):
            parts = cast("Mapping[str, object]", value)
            return {name: called(part) for name, part in parts.items()}
        if isinstance(value, tuple):
            return tuple(map(called, cast("tuple[object, ...]", value)))
        return value

    fields = {name: called(value) for name, value in plan.fields.items()}
    return replace(plan, fields=fields)


def given_models(submitted: Submitted) -> dict[str, list[ModelReference]]:
    """Return role → the models that a run is given, from the fields of its `submitted`."""
    models: dict[str, list[ModelReference]] = {}
    for name in type(submitted).model_fields:
        value: object = getattr(submitted, name)
        values = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        if references := [member for member in values if isinstance(member, ModelReference)]:
            models[name] = references
    return models


class Requests(Capability[S]):
    """The ways in which users ask for runs of a kind."""

    #: True if settings may be given as the text of a file of the kind's own (`read`, `written`).
    has_file: ClassVar[bool] = False

    def read(self, text: str) -> dict[str, object]:
        """Raise ConfigError; a kind with a file of its own returns the settings in its `text`."""
        raise ConfigError(f"{self.kind.title} has no file of its own: give its settings.")

    def written(self, config: Mapping[str, object]) -> str | None:
        """Return None; a kind with a file of its own returns the text of a file with these settings."""
        return None

    def inputs_in(self, config: Mapping[str, object], there: Callable[[str], bool]) -> NamedInputs:
        """Return `NamedInputs`: the models and data that a run's settings name; by default empty.

        `there` tells if a name is the path of a folder that is there. Raises ConfigError.
        """
        return NamedInputs()

    def placed(self, data: str) -> str:
        """Return the absolute path, as text, of data that a user names. Raises ForgeError."""
        return str(Path(data).absolute())

    def again(self, submitted: Submitted) -> RunRequest:
        """Return the RunRequest that would ask for the run again: non-default settings, models, data.

        A model is named by its Hub id and commit, or by its folder.
        """
        settings = self.kind.settings
        try:
            config = settings.changes(settings.parse({}), submitted.config)
        except ConfigError:  # a setting has no default
            config = settings.shown(submitted.config)
        models = {
            role: [f"{m.hub_id}@{m.revision}" if m.hub_id else m.path for m in records]
            for role, records in given_models(submitted).items()
        }
        data = getattr(submitted, "data", ())
        return RunRequest(self.kind.name, config, models, data, submitted.output_dir)

    def texts(self, submitted: Submitted) -> Iterator[tuple[str, str]]:
        """Yield (text, what it is) of the texts in the kind's own fields of `submitted`."""
        for models in given_models(submitted).values():
            yield from ((model.name, "a model's name") for model in models)
        yield from ((path, "a path") for path in getattr(submitted, "data", ()))
