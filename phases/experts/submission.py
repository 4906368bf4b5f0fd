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


def added(config: ExpertsConfig, own: Sequence[str]) -> tuple[str, ...]:
    """Return the domains of built-in text beside the user's `own`: the neutral one if it is lacking."""
    return () if config.neutral in own or config.neutral not in MIX else (config.neutral,)


def plan(kind: Kind, asked: Asked, lookup: Lookup) -> Plan:
    """Return the plan of the run of one `model`, with `merges` beside it or none.

    Raises ConfigError, DataError, UnavailableError.
    """
    from weights.folders.sources import ALIASES, resolve

    known = (MODEL, MERGES)
    if unknown := sorted(role for role, some in asked.models.items() if some and role not in known):
        raise ConfigError(
            f"{kind.title} has no models {unknown[0]!r}: it has {MODEL} and {MERGES}."
        )
    one = replace(asked, models={MODEL: asked.models.get(MODEL, ())})
    found = submission.plan(kind, one, lookup, added)
    aliases = {**ALIASES, **lookup.aliases}
    names = [str(name) for name in asked.models.get(MERGES, ())]
    merges = tuple(resolve(name, aliases, lookup.named) for name in names)
    _check_domains(found.config, bool(asked.data))
    return replace(found, fields={**found.fields, MERGES: merges})


def _check_domains(config: ExpertsConfig, own: bool) -> None:
    """Raise ConfigError unless the neutral domain is measured, and another one beside it."""
    if config.neutral not in config.domains:
        raise ConfigError(
            f"the neutral domain {config.neutral!r} is not measured: add it to domains, or name "
            "another."
        )
    read = config.mix or (dict.fromkeys(config.domains) if own else MIX)
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

    given = submission.opened(plan)
    for one in plan.fields[MERGES]:
        check_alike(one.name, open_checkpoint(Path(one.path)), given)
    config: Any = plan.config
    if given.positions is not None and config.prompt >= given.positions:
        raise ConfigError(f"prompt is {config.prompt}, the model takes {given.positions} tokens.")
    return submission.checked(plan, given)


def check_alike(name: str, opened: Checkpoint, given: Checkpoint) -> None:
    """Raise SourceError unless a further model has the tensors of the given one."""
    other = {tensor: shape for tensor, (_, shape) in opened.shapes.items()}
    mine = {tensor: shape for tensor, (_, shape) in given.shapes.items()}
    every = sorted({**mine, **other})
    if lacking := [tensor for tensor in every if mine.get(tensor) != other.get(tensor)]:
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
