"""Submission of a compression: model and data, checked before any work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.data.slices import Slice
from evaluation.loading import load_items, texts_of
from phases.compression import students
from phases.compression.config import CompressionConfig
from phases.compression.menu import MENU
from phases.compression.plan import ROLE, STUDENTS
from runs.errors import ConfigError
from runs.kinds.asked import Asked, Checked, Lookup, Plan
from runs.system import packages

if TYPE_CHECKING:
    from runs.kinds.kind import Kind
    from weights.folders.checkpoint import Checkpoint

#: Slices of the data that a compression measures on.
NEEDED: tuple[Slice, ...] = ("selection", "test")


def plan(kind: Kind, asked: Asked, lookup: Lookup) -> Plan:
    """Return the plan of a compression of one `model`, with `students` beside it or none.

    Raises ConfigError or UnavailableError.
    """
    from weights.devices import check_device
    from weights.folders.sources import ALIASES, resolve

    config = kind.parse(asked.config)
    if unknown := sorted(set(asked.models) - {ROLE, STUDENTS}):
        raise ConfigError(
            f"a compression has no models {unknown[0]!r}: it has {ROLE} and {STUDENTS}."
        )
    names = asked.models.get(ROLE, ())
    if len(names) != 1:
        raise ConfigError("a compression is of one model: --model model=MODEL.")
    check_device(config.device, lookup.elsewhere)
    aliases = {**ALIASES, **lookup.aliases}
    model, *smaller = (
        resolve(str(name), aliases, lookup.named)
        for name in (*names, *asked.models.get(STUDENTS, ()))
    )
    data = tuple(kind.placed(str(place)) for place in asked.data)
    fields = {ROLE: (model,), STUDENTS: tuple(smaller), "data": data}
    return Plan(kind.name, config, fields, asked.output_dir)


def check_machine(config: CompressionConfig) -> None:
    """Raise UnavailableError if a codec needs a package that is not installed."""
    coded = [name for name in config.settings if MENU[name].codec == "uniform@1"]
    if coded:
        packages.require(f"the codec {coded[0]}", "constriction")


def check(plan: Plan) -> Checked:
    """Open models (headers only), tokenizers and data; raise the errors that a start would raise."""
    from evaluation.loading import load_tokenizer
    from weights.folders import model_config
    from weights.folders.checkpoint import open_checkpoint

    (model,), smaller = plan.fields[ROLE], plan.fields[STUDENTS]
    opened, *others = (open_checkpoint(Path(one.path)) for one in (model, *smaller))
    tensors = min(len(one.shapes) for one in (opened, *others))
    _check_budget(plan.config.budget, tensors)
    for one in (opened, *others):
        model_config.check_predicts_tokens(one.given, one.config)
        one.check_plain("compressed")
        _check_floats(one)
    tokenizer = load_tokenizer(model.path)
    for given, own in zip(smaller, others, strict=True):
        read = load_tokenizer(given.path)
        students.check(given.name, own.parameters, opened.parameters, read, tokenizer)
    notes = [warning for one in (opened, *others) for warning in one.warnings]
    items = load_items(
        plan.fields["data"], parameters=opened.parameters, note=notes.append, needed=NEEDED
    )
    counts: dict[str, dict[str, int]] = {}
    for on in NEEDED:
        for domain, some in texts_of(items, on).items():
            counts.setdefault(domain, {})[on] = len(some)
    return Checked(tuple(notes), opened.parameters, counts)


def _check_floats(opened: Checkpoint) -> None:
    """Raise ConfigError for a tensor that no codec takes."""
    from weights.formats.coded_header import FLOATS

    for name, (dtype, shape) in opened.shapes.items():
        if dtype not in FLOATS:
            raise ConfigError(f"tensor {name} is {dtype} {list(shape)}: floats can be coded.")


def _check_budget(budget: int | None, tensors: int) -> None:
    """Raise ConfigError for a budget that the digests in a file's header exceed."""
    from weights.formats.coded_header import DIGEST_BYTES, FIXED

    least = FIXED + tensors * DIGEST_BYTES
    if budget is not None and budget < least:
        raise ConfigError(
            f"budget: no file fits into {budget:,} bytes: the header for {tensors} tensors alone takes "
            f"more than {least:,}."
        )
