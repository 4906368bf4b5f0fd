"""Checks of a submitted pipeline: every phase is checked before anything starts.

Models' architectures and tokenizers are predicted, and a phase whose models do not fit together is
refused. Names of models and data are those of phases, or come from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel

from agent_forge.evaluation.loading import check_packages
from agent_forge.events.envelope import Data, Plain
from agent_forge.pipeline import plan as plans
from agent_forge.pipeline.config import ITEMS, PhaseConfig, PipelineConfig
from agent_forge.pipeline.events import PipelineState, Started, Submitted
from agent_forge.runs import kinds
from agent_forge.runs.errors import ConfigError, ForgeError
from agent_forge.runs.event_types import ModelReference
from agent_forge.runs.kinds import asked as asked_for
from agent_forge.runs.kinds.asked import CheckResult, Lookup, NamedInputs, Plan, RunRequest
from agent_forge.runs.kinds.decide import Start, Task
from agent_forge.runs.kinds.forecast import (
    TOKENIZER,
    Architecture,
    Architectures,
    differing,
    of_config,
    told,
)
from agent_forge.runs.kinds.kind import Kind
from agent_forge.runs.lists import finding
from agent_forge.weights.devices import check_device


class Context:
    """The work on a pipeline's start; all its other tasks are runs."""

    def __init__(self, state: PipelineState) -> None:
        self.state = state

    def share(self, task: Task, tasks: Sequence[Task]) -> Sequence[object]:
        """Return a list of the task alone."""
        return [task]

    def prepare(self, tasks: Sequence[Task]) -> None:
        """Do nothing."""

    def carry_out(self, task: Task) -> Started:
        """Check the phases here again; return `started`. Raises ConfigError, UnavailableError."""
        assert isinstance(task, Start)
        check_phases(self.state.submitted.config)
        check_machine(self.state.submitted.config)
        return Started(warnings=())

    def check_unchanged(self) -> None:
        """Do nothing: the phases' runs check their own inputs."""


def plan(kind: Kind, request: RunRequest, lookup: Lookup) -> Plan:
    """Return the plan of a pipeline. Raises ConfigError or UnavailableError."""
    if request.models or request.data:
        raise ConfigError("a pipeline's models and data are those of its phases: write them there.")
    config = with_colons(kind, kind.settings.parse(request.config), _there(lookup))
    _check_kinds(config)
    check_phases(config)
    references: dict[str, ModelReference] = {}
    places: dict[str, tuple[str, ...]] = {}
    roles: dict[str, Sequence[str]] = {}
    architectures_by_phase: dict[str, Mapping[str, Architecture]] = {}
    for number, phase in enumerate(config.phases, start=1):
        check_device(phase.settings.get("device", config.device), lookup.elsewhere)
        with _in(phase):
            maker = kinds.of(phase.kind)
            _check_given(config, phase, roles)
            references |= _resolved(config, phase, lookup)
            places[phase.name] = tuple(
                maker.requests.placed(lookup.data(entry)) if config.items_of(entry) is None else entry
                for entry in phase.data
            )
            settings = maker.settings.parse(phase.settings)
            if _alone(config, phase):  # what its data has may be in its settings, too
                settings = maker.plan(_asked(config, phase, references, places), lookup).config
            else:
                _check_roles(maker, phase)
            roles[phase.name] = maker.roles(settings)
            _check_measured(config, number, len(roles[phase.name]))
            architectures_by_phase[phase.name] = of_phase(
                config, phase, settings, references, architectures_by_phase
            )
    fields = {"given": references, "places": places, "test": _test(config, roles, lookup)}
    return Plan(kind.name, config, fields, request.output_dir)


def _check_kinds(config: PipelineConfig) -> None:
    """Raise ConfigError if a phase has an unknown kind."""
    for phase in config.phases:
        if phase.kind not in kinds.table():
            raise ConfigError(
                f"phase {phase.name}: there is no kind of run {phase.kind!r}. There are: "
                f"{', '.join(sorted(kinds.table()))}."
            )


def _there(lookup: Lookup) -> Callable[[str], bool]:
    """Return a function that says True if a model's name is the path of a folder."""
    if lookup.placed is not None:
        return lookup.placed.models.__contains__
    return lambda model: Path(model).exists()


def _test(
    config: PipelineConfig, roles: Mapping[str, Sequence[str]], lookup: Lookup
) -> tuple[str, ...]:
    """Return the items that results are measured on, with absolute paths. Raises ConfigError."""
    measured = [n for n, phase in enumerate(config.phases, start=1) if phase.given]
    for entry in config.test:
        _check_items("the items of `test` are", config, entry, roles)
        if measured and (config.items_of(entry) or 0) > measured[0]:
            name = config.phase(measured[0]).name
            raise ConfigError(
                f"the items of `test` are {entry}, which come after phase {name}, whose model is "
                "measured on them."
            )
    maker = kinds.of(plans.MEASURE)
    return tuple(
        maker.requests.placed(lookup.data(source)) if config.items_of(source) is None else source
        for source in config.test
    )


def _check_measured(config: PipelineConfig, number: int, models: int) -> None:
    """Raise ConfigError if a gate of the phase needs a figure that cannot be measured."""
    phase = config.phase(number)
    figures = kinds.of(phase.kind).figures_of
    for gate in phase.gates:
        if gate.metric in figures:
            continue
        asks = f"its gate asks for {gate.metric}, which is measured"
        if models != 1:
            raise ConfigError(f"{asks} of one model, and it gives {models}.")
        if plans.test_items(config, number) is None:
            raise ConfigError(f"{asks} on test items, and there are none: say which, as `test`.")
        if gate.metric in ("retention", "regression") and not phase.given:
            raise ConfigError(f"{asks} against the models that it is given, and it is given none.")
        if gate.metric == "cumulative" and number == 1 and not phase.given:
            raise ConfigError(f"{asks} against the models that the pipeline begins with.")


def _resolved(config: PipelineConfig, phase: PhaseConfig, lookup: Lookup) -> dict[str, ModelReference]:
    """Return name → reference of the phase's models that come from outside. Raises ConfigError."""
    from agent_forge.weights.folders.sources import ALIASES, resolve

    aliases = {**ALIASES, **lookup.aliases}
    models = [model for model in phase.given if config.named(model) is None]
    return {model: resolve(lookup.model(model), aliases, lookup.named) for model in models}


def check(plan: Plan) -> CheckResult:
    """Return a `CheckResult`: warnings of phases that need no other. Raise the errors of a start."""
    config, notes = plan.config, [*_unmeasured(plan.config), *_check_test(plan)]
    references, places = plan.fields["given"], plan.fields["places"]
    for phase in config.phases:
        if _alone(config, phase):
            with _in(phase):
                kind = kinds.of(phase.kind)
                phase_plan = kind.plan(_asked(config, phase, references, places), Lookup())
                notes += [f"phase {phase.name}: {note}" for note in kind.check(phase_plan).warnings]
    return CheckResult(tuple(notes))


def _check_test(plan: Plan) -> list[str]:
    """Return warnings on how files of `test` are read.

    Raises DataError if the files cannot be read, or have no test items.
    """
    from agent_forge.evaluation.loading import load_items

    notes: list[str] = []
    files = tuple(source for source in plan.fields["test"] if plan.config.items_of(source) is None)
    if files and files == plan.fields["test"]:
        load_items(files, note=notes.append, needed=("test",))
    return notes


def _unmeasured(config: PipelineConfig) -> list[str]:
    """Return [warning] if results are not compared with their inputs; otherwise []."""
    numbers = [n for n, phase in enumerate(config.phases, start=1) if phase.given]
    if not config.gates or not numbers or any(plans.test_items(config, n) for n in numbers):
        return []
    return [
        "no phase gives items to measure on: results are not compared with what they are made of. "
        "Name items as `test`."
    ]


def check_phases(config: PipelineConfig) -> None:
    """Raise ConfigError or UnavailableError for wrong kinds, settings or gates of the phases."""
    check_length(config)
    measured = kinds.of(plans.MEASURE).figures_of
    for gate in config.gates:
        if gate.metric not in measured:
            raise ConfigError(
                f"the pipeline's gate asks for {gate.metric}. For all phases there are: "
                f"{', '.join(measured)}."
            )
    for phase in config.phases:
        with _in(phase):
            kind = kinds.of(phase.kind)
            if kind.name == "pipeline":
                raise ConfigError("a pipeline cannot be a phase of another.")
            kind.check_settings(kind.settings.parse(phase.settings))
            _check_gates(kind, phase)


def check_machine(config: PipelineConfig) -> None:
    """Raise UnavailableError if this machine lacks a package or program that a phase needs.

    Phases whose models are still to be made are checked too: by their settings and their data's names.
    """
    for phase in config.phases:
        with _in(phase):
            kind = kinds.of(phase.kind)
            kind.check_machine(kind.settings.parse(phase.settings))
            check_packages(entry for entry in phase.data if config.items_of(entry) is None)


def _check_gates(kind: Kind, phase: PhaseConfig) -> None:
    figures = [*kind.figures_of, *kinds.of(plans.MEASURE).figures_of]
    for gate in phase.gates:
        if gate.metric not in figures:
            raise ConfigError(
                f"its gate asks for {gate.metric}, which {kind.title} does not have. There are: "
                f"{', '.join(figures)}."
            )


def _check_given(
    config: PipelineConfig, phase: PhaseConfig, roles: Mapping[str, Sequence[str]]
) -> None:
    """Raise ConfigError if a phase gets a model or items that no earlier phase gives."""
    for reference in phase.given:
        name, _, role = reference.partition(":")
        if name not in roles:
            continue
        model_names = ", ".join(f"{name}:{role_name}" for role_name in roles[name]) or "no models"
        if (role not in roles[name]) if role else len(roles[name]) != 1:
            raise ConfigError(f"it is given {reference}, and phase {name} gives {model_names}.")
    for entry in phase.data:
        _check_items("its data is", config, entry, roles)


def _check_roles(kind: Kind, phase: PhaseConfig) -> None:
    """Raise ConfigError if a phase has a role that its kind lacks, or lacks one that it needs.

    A kind of run that takes no models raises its own error when it is submitted.
    """
    roles, fields = asked_for.roles(kind.submitted), kind.submitted.model_fields
    hint = f"the roles of {kind.title} are {', '.join(roles)}"
    if roles and (unknown := sorted(set(phase.models) - set(roles))):
        raise ConfigError(f"it is given models as {unknown[0]!r}: {hint}.")
    for role in roles:
        if fields[role].is_required() and not phase.models.get(role):
            raise ConfigError(f"it is given no model as {role!r}: {hint}.")


def _check_items(
    whose: str, config: PipelineConfig, entry: str, roles: Mapping[str, Sequence[str]]
) -> None:
    """Raise ConfigError if `entry` names data that a phase does not give."""
    name, colon, what = entry.partition(":")
    if name in roles and colon:
        maker = kinds.of(next(p.kind for p in config.phases if p.name == name))
        if what != ITEMS or not maker.gives_items:
            raise ConfigError(f"{whose} {entry}, and phase {name} gives no such data.")


def _alone(config: PipelineConfig, phase: PhaseConfig) -> bool:
    """Return True if a phase gets nothing from other phases."""
    items = (config.items_of(entry) for entry in phase.data)
    return not any(config.named(model) for model in phase.given) and not any(items)


def _asked(
    config: PipelineConfig,
    phase: PhaseConfig,
    references: dict[str, ModelReference],
    places: dict[str, tuple[str, ...]],
) -> RunRequest:
    """Return the request for the run of a phase that needs no other."""
    state = PipelineState()
    state.submitted = Submitted(run="", owner="", config=config, given=references, places=places)
    return plans.asked(state, phase)


@contextmanager
def _in(phase: PhaseConfig) -> Iterator[None]:
    """Wrap a block: errors of the program raised in it begin with the phase's name."""
    try:
        yield
    except ForgeError as error:
        raise type(error)(f"phase {phase.name}: {error}") from error


#: Phase → role → architecture, of the models whose architecture is known.
Known = Mapping[str, Mapping[str, Architecture]]


def of_phase(
    config: PipelineConfig,
    phase: PhaseConfig,
    settings: BaseModel,
    references: Mapping[str, ModelReference],
    architectures: Known,
) -> Mapping[str, Architecture]:
    """Return role → architecture of the models that a phase will give, as far as known.

    Raises ConfigError if the phase is given models of several architectures, sizes or tokenizers that
    it takes together only if they agree.
    """
    inputs = {
        role: [_one(config, model, references, architectures) for model in models]
        for role, models in phase.models.items()
    }
    kind = kinds.of(phase.kind)
    _check_together(phase, kind.together, inputs)
    return kind.architectures(settings, inputs)


def _check_together(phase: PhaseConfig, roles: Sequence[str], inputs: Architectures) -> None:
    """Raise ConfigError if two known models differ in architecture, size or tokenizer."""
    every = [
        (role, model, each_layout)
        for role in roles
        for model, each_layout in zip(phase.models.get(role, ()), inputs.get(role, ()), strict=True)
        if each_layout
    ]
    for role, model, layout in every[1:]:
        first_role, first, other = every[0]
        if differ := differing(other, layout):
            raise ConfigError(
                f"it is given {first} as {first_role}, a {told(other, differ)}, and "
                f"{model} as {role}, a {told(layout, differ)}: it takes only "
                "models of one "
                "architecture and size together."
            )
        if other_tokens := _other_tokens(other, layout, first, model):
            raise ConfigError(
                f"it is given {first} as {first_role} and {model} as {role}, and {other_tokens}: it "
                "takes only models that read text alike together."
            )


def _other_tokens(layout: Architecture, other: Architecture, *names: str) -> str:
    """Return words that most tokens of two models differ; empty if they agree or it is unknown."""
    from agent_forge.weights.folders import vocabularies

    folders = [settings.get(TOKENIZER) for settings in (layout, other)]
    if folders[0] is None or folders[1] is None:
        return ""
    difference = vocabularies.difference(Path(folders[0]), Path(folders[1]))
    return difference.told(*names) if difference is not None and difference.foreign else ""


def _one(
    config: PipelineConfig, model: str, references: Mapping[str, ModelReference], architectures: Known
) -> Architecture | None:
    """Return a model's architecture; None if it is unknown before the model exists."""
    if (named := config.named(model)) is not None:
        number, role = named
        roles = architectures.get(config.phase(number).name, {})
        return roles.get(role) if role else next(iter(roles.values()), None)
    from agent_forge.weights.folders import model_config

    folder = Path(references[model].path)
    if not (folder / model_config.FILE).is_file():
        return None  # another machine has it, or the run that made it makes it again
    layout = of_config(model_config.read(folder))
    return {**layout, TOKENIZER: str(folder)}


#: Phases of the longest pipeline.
MOST_PHASES = 64


def check_length(config: PipelineConfig) -> None:
    """Raise ConfigError if a pipeline has no phases, or too many."""
    if not config.phases:
        raise ConfigError("a pipeline needs at least one phase.")
    if len(config.phases) > MOST_PHASES:
        raise ConfigError(f"a pipeline has {len(config.phases)} phases: give at most {MOST_PHASES}.")


def with_colons(kind: Kind, config: PipelineConfig, there: Callable[[str], bool]) -> PipelineConfig:
    """Return the settings, with PHASE:ROLE in place of PHASE/ROLE. Raises ConfigError.

    A folder of that path, by `there`, and a Hub id with a revision stay as they are.
    """
    names = [phase.name for phase in config.phases]

    def said(model: str) -> str:
        phase, sign, role = finding.split(model)
        meant = sign == "/" and role and phase in names and "@" not in model
        return f"{phase}:{role}" if meant and not there(model) else model

    plain = config.model_dump(mode="json", exclude_unset=True)
    for phase in plain.get("phases", []):
        models_by_role = phase.get("models", {})
        phase["models"] = {
            role: [said(model) for model in models] for role, models in models_by_role.items()
        }
        if phase.get("unchanged"):
            phase["unchanged"] = said(phase["unchanged"])
    return (
        config
        if plain == config.model_dump(mode="json", exclude_unset=True)
        else kind.settings.parse(plain)
    )


def named(kind: Kind, config: PipelineConfig, there: Callable[[str], bool]) -> NamedInputs:
    """Return the `NamedInputs`, models and data from outside; `there` as for `with_colons`."""
    check_length(config)
    config = with_colons(kind, config, there)
    models = [model for phase in config.phases for model in phase.given if config.named(model) is None]
    entries = [*(entry for phase in config.phases for entry in phase.data), *config.test]
    data = [entry for entry in entries if config.items_of(entry) is None]
    return NamedInputs(tuple(dict.fromkeys(models)), tuple(dict.fromkeys(data)))


def again(submitted: Submitted, config: Data) -> Plain:
    """Return the settings with names that mean the same on any machine, by a submitted pipeline.

    Folders and data have their whole paths, Hub models their commits; models of the log keep the names
    that they were found by.
    """

    def meant(model: str) -> str:
        reference = submitted.given.get(model)
        if reference is None or reference.digest is not None:  # of a phase, or of the log
            return model
        return f"{reference.hub_id}@{reference.revision}" if reference.hub_id else reference.path

    def phase(phase_settings: Data) -> Plain:
        place = submitted.places.get(phase_settings["name"])
        models = {role: list(map(meant, names)) for role, names in phase_settings["models"].items()}
        unchanged = phase_settings["unchanged"] and meant(phase_settings["unchanged"])
        data = phase_settings["data"] if place is None else list(place)
        return {**phase_settings, "models": models, "data": data, "unchanged": unchanged}

    settings = {**config, "phases": [phase(entry) for entry in config.get("phases", [])]}
    return {**settings, "test": list(submitted.test)} if submitted.test else settings
