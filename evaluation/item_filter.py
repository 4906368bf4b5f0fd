"""Filter of items that cannot be measured on this machine or by these models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evaluation.data import items as data_items
from evaluation.data.items import Item
from evaluation.data.packing import fitting
from evaluation.verifiers.verifier import SandboxUnavailableError, Verifier


def why_not_run(items: Sequence[Item], verifier: Verifier) -> str:
    """Return why items that run code cannot be measured on this machine; empty if they can."""
    if not any(map(data_items.runs_code, items)):
        return ""
    try:
        verifier.sandbox  # noqa: B018 - opening it is the test
    except SandboxUnavailableError as error:
        return str(error)
    return ""


def measurable(
    items: Sequence[Item], tokenizer: Any, context: int, builtin: bool, not_run: str
) -> tuple[list[Item], tuple[str, ...]]:
    """Return (items to measure, a line for each kind of item that is left out).

    Items that run code are left out if `not_run` gives a reason. Items longer than the context are
    left out if they are `builtin` or of tasks, because those were not made for one model.
    """
    measured_items, lines = list(items), []
    if not_run:
        measured_items = [item for item in items if not data_items.runs_code(item)]
        if count := len(items) - len(measured_items):
            lines.append(f"{count} problems are not run: {not_run}")
    for kind, these in (
        ("built-in items", [item for item in measured_items if builtin]),
        (
            "items of tasks",
            [item for item in measured_items if data_items.of_task(item) and not builtin],
        ),
    ):
        long = {item.id for item in these} - {
            item.id for item in fitting(these, tokenizer, context)
        }
        if long:
            lines.append(f"{len(long)} {kind} are longer than {context} tokens and left out")
            measured_items = [item for item in measured_items if item.id not in long]
    return measured_items, tuple(lines)
