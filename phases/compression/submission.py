"""Submission of a compression: models and data, checked before any work; settings, written out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent_forge.evaluation.data.slices import Slice
from agent_forge.phases.compression.recipes import ROLE, STUDENTS, SettingRecord
from agent_forge.phases.compression.settings import MENU, PLAIN, WHOLE, CompressionConfig
from agent_forge.runs.errors import ConfigError
from agent_forge.runs.kinds.asked import CheckResult, Plan
from agent_forge.runs.system import packages
from agent_forge.studies import submission

if TYPE_CHECKING:
    from agent_forge.weights.folders.checkpoint import Checkpoint
    from agent_forge.weights.folders.vocabularies import Tokenizer

#: Slices of the data that a compression measures on.
NEEDED: tuple[Slice, ...] = ("selection", "test")
#: Names of folders and roles that tell nothing.
PLAIN_NAMES = ("", "model")
#: The name of a student whose own tells nothing.
STUDENT = "student"


def check_machine(config: CompressionConfig) -> None:
    """Raise UnavailableError if a codec needs a package that is not installed."""
    coded = [name for name in config.settings if MENU[name].codec == "uniform@1"]
    if coded:
        packages.require(f"the codec {coded[0]}", "constriction")


def check(plan: Plan) -> CheckResult:
    """Return the result of a check: warnings, parameters, document counts; raise as a start would."""
    from agent_forge.evaluation.loading import load_tokenizer
    from agent_forge.weights.folders import model_config
    from agent_forge.weights.folders.checkpoint import open_checkpoint

    (model,), smaller = plan.fields[ROLE], plan.fields[STUDENTS]
    opened, *students = (open_checkpoint(Path(source.path)) for source in (model, *smaller))
    tensors = min(len(opened_checkpoint.shapes) for opened_checkpoint in (opened, *students))
    _check_budget(plan.config.budget, tensors)
    for checkpoint in (opened, *students):
        model_config.check_predicts_tokens(checkpoint.given, checkpoint.config)
        checkpoint.check_plain("compressed")
        _check_floats(checkpoint)
    tokenizer = load_tokenizer(model.path)
    for reference, student in zip(smaller, students, strict=True):
        read = load_tokenizer(reference.path)
        check_student(reference.name, student.parameters, opened.parameters, read, tokenizer)
    return submission.checked_on_items(plan, (opened, *students), NEEDED)


def _check_floats(opened: Checkpoint) -> None:
    """Raise ConfigError if a tensor has a dtype that no codec takes."""
    from agent_forge.weights.formats.coded_file import FLOATS

    for name, (dtype, shape) in opened.shapes.items():
        if dtype not in FLOATS:
            raise ConfigError(f"tensor {name} is {dtype} {list(shape)}: floats can be coded.")


def _check_budget(budget: int | None, tensors: int) -> None:
    """Raise ConfigError if the header's digests alone are larger than the budget."""
    from agent_forge.weights.formats.coded_file import DIGEST_BYTES, FIXED

    least = FIXED + tensors * DIGEST_BYTES
    if budget is not None and budget < least:
        raise ConfigError(
            f"budget: no file fits into {budget:,} bytes: the header for {tensors} tensors alone takes "
            f"more than {least:,}."
        )


# ---- settings ------------------------------------------------------------------------------------


def tried(config: CompressionConfig) -> tuple[SettingRecord, ...]:
    """Return the settings that every matrix is tried at: the user's, then plain 16 and 32 bits."""
    names = dict.fromkeys((*config.settings, PLAIN, WHOLE))
    return tuple(_record(name) for name in names)


def _record(name: str) -> SettingRecord:
    """Return the record of a menu's setting, with every default parameter written out."""
    from agent_forge.weights import algorithms, codecs

    setting = MENU[name]
    params = codecs.of(setting.codec).Params
    setting_params, other = dict(setting.params), {**setting.params, **setting.embedding}
    return SettingRecord(
        name=name,
        codec=setting.codec,
        params=algorithms.complete(params, setting_params, name),
        embedding=algorithms.complete(params, other, name),
    )


# ---- students ------------------------------------------------------------------------------------


def student_names(texts: Sequence[str]) -> list[str]:
    """Return a short name for each student: distinct, of letters, digits, ".", "_" and "-"."""
    names: list[str] = []
    for text in texts:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")
        name = STUDENT if plain in PLAIN_NAMES else plain
        same = sum(other == name or other.startswith(f"{name}+") for other in names)
        names.append(f"{name}+{same + 1}" if same else name)
    return names


def check_student(
    name: str, own_size: int, given_size: int, tokenizer: Tokenizer, other_tokenizer: Tokenizer
) -> None:
    """Raise ConfigError if a student is not smaller than the given model, or has another tokenizer.

    `own_size` and `given_size` are numbers of parameters; `other_tokenizer` is the given model's.
    """
    if own_size >= given_size:
        raise ConfigError(
            f"student {name} has {own_size:,} parameters, not fewer than the {given_size:,} "
            "of the given model: "
            "its points would be no smaller."
        )
    if _form(tokenizer) != _form(other_tokenizer):
        raise ConfigError(
            f"student {name} has another tokenizer than the given model: give a model that reads text "
            "as that one does, such as the result of a student run."
        )


def _form(tokenizer: Tokenizer) -> object:
    """Return a value that is equal for tokenizers that cut text alike."""
    if tokenizer.is_fast:
        return tokenizer.backend_tokenizer.to_str()
    return type(tokenizer).__name__, tokenizer.get_vocab()
