"""Which items can be measured here, by these models; what is to be said of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evaluation.data import items as data_items
from evaluation.data.items import Item
from evaluation.data.packing import fitting
from evaluation.verifiers.verifier import SandboxUnavailableError, Verifier


def why_not_run(items: Sequence[Item], verifier: Verifier) -> str:
    """Why items that run code cannot be measured on this machine; empty where they can."""
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
    """(items to measure, a line for each kind that is left out).

    Without those that run code where they are `not_run`; of `builtin` items and those of tasks, which
    were not made for any one model, without those that are longer than the context.
    """
    kept, told = list(items), []
    if not_run:
        kept = [item for item in items if not data_items.runs_code(item)]
        if count := len(items) - len(kept):
            told.append(f"{count} problems are not run: {not_run}")
    for kind, these in (
        ("built-in items", [item for item in kept if builtin]),
        ("items of tasks", [item for item in kept if data_items.of_task(item) and not builtin]),
    ):
        long = {item.id for item in these} - {
            item.id for item in fitting(these, tokenizer, context)
        }
        if long:
            told.append(f"{len(long)} {kind} are longer than {context} tokens and left out")
            kept = [item for item in kept if item.id not in long]
    return kept, tuple(told)
