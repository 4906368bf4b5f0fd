"""Submission of an experts run: settings, models and data, checked before any work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation import task_families
from evaluation.task_families.gym import Gym
from phases.experts import recipes
from phases.experts.events import Started, Submitted
from phases.experts.settings import ExpertsConfig
from runs.errors import ConfigError, SourceError
from runs.event_types import SourceRecord
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from studies import submission
from studies.settings import MIX
from studies.training_defaults import READINGS

if TYPE_CHECKING:
    from runs.kinds.kind import Kind
    from weights.folders.checkpoint import Checkpoint

#: Roles of the given model, and of the further models of mixtures.
MODEL, MERGES = "model", "merges"


def added(config: ExpertsConfig, user_domains: Sequence[str]) -> tuple[str, ...]:
    """Return the domains of built-in text beside the user's `user_domains`: the neutral one if it is lacking."""
    return () if config.neutral in user_domains or config.neutral not in MIX else (config.neutral,)


def plan(kind: Kind, request: Asked, lookup: Lookup) -> Plan:
    """Return the plan of the run of one `model`, with `merges` beside it or none.

    Raises ConfigError, DataError, UnavailableError.
    """
    from weights.folders.sources import ALIASES, resolve

    roles = (MODEL, MERGES)
    if unknown := sorted(
        role for role, models in request.models.items() if models and role not in roles
    ):
        raise ConfigError(
            f"{kind.title} has no models {unknown[0]!r}: it has {MODEL} and {MERGES}."
        )
    base_request = replace(request, models={MODEL: request.models.get(MODEL, ())})
    base = submission.plan(kind, base_request, lookup, added)
    aliases = {**ALIASES, **lookup.aliases}
    names = [str(name) for name in request.models.get(MERGES, ())]
    merges = tuple(resolve(name, aliases, lookup.named) for name in names)
    _check_domains(base.config, bool(request.data))
    return replace(base, fields={**base.fields, MERGES: merges})


def _check_domains(config: ExpertsConfig, has_data: bool) -> None:
    """Raise ConfigError unless the neutral domain is measured, and another one beside it."""
    if config.neutral not in config.domains:
        raise ConfigError(
            f"the neutral domain {config.neutral!r} is not measured: add it to domains, or name "
            "another."
        )
    read = config.mix or (dict.fromkeys(config.domains) if has_data else MIX)
    if not [domain for domain in config.domains if domain in read and domain != config.neutral]:
        raise ConfigError(
            "no domain but the neutral one is both measured and trained on: nothing can be an expert."
        )


def check_settings(config: ExpertsConfig) -> None:
    """Raise ConfigError for a family that there is not, or whose answers are not compared by tokens."""
    for family in config.families:
        if isinstance(task_families.find(family), Gym):
            raise ConfigError(
                f"the tasks of {family} may have several right answers: an experts run needs families "
                "with one."
            )


def check(plan: Plan) -> Checked:
    """Open models (headers only), tokenizer and data; raise the errors that a start would raise."""
    from weights.folders.checkpoint import open_checkpoint

    base = submission.opened(plan)
    for reference in plan.fields[MERGES]:
        check_alike(reference.name, open_checkpoint(Path(reference.path)), base)
    config: Any = plan.config
    if base.positions is not None and config.prompt >= base.positions:
        raise ConfigError(f"prompt is {config.prompt}, the model takes {base.positions} tokens.")
    return submission.checked(plan, base)


def check_alike(name: str, opened: Checkpoint, base: Checkpoint) -> None:
    """Raise SourceError unless a further model has the tensors of the given one."""
    other = {tensor: shape for tensor, (_, shape) in opened.shapes.items()}
    base_shapes = {tensor: shape for tensor, (_, shape) in base.shapes.items()}
    every = sorted({**base_shapes, **other})
    if lacking := [tensor for tensor in every if base_shapes.get(tensor) != other.get(tensor)]:
        raise SourceError(
            f"model {name} is not of the given model's architecture: tensor {lacking[0]} differs."
        )


def alike(records: Sequence[SourceRecord]) -> list[str]:
    """Return a note for each model whose weights are those of one before: it adds nothing."""
    names: dict[str, str] = {}
    notes = []
    for record in records:
        if record.digest in names:
            notes.append(f"models {names[record.digest]} and {record.name} have the same weights.")
        names.setdefault(record.digest, record.name)
    return notes


def readings(submitted: Submitted, started: Started) -> list[str]:
    """Return a note for each text that its expert reads more than `READINGS` times over."""
    tokens, notes = submitted.config.reads(started.context), []
    for domain in recipes.trainable(submitted, started):
        times = tokens / started.tokens[domain]
        if times > READINGS:
            notes.append(
                f"an expert of {domain} reads its text {times:.0f} times over: give it more text, "
                "or fewer tokens to train on."
            )
    return notes
