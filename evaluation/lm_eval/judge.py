"""A scorer (`evaluation.verifiers.scorer`): what a task of lm-evaluation-harness says of a reply."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from evaluation.lm_eval import items, reader
from evaluation.lm_eval.spec import Spec
from runs.errors import UnavailableError


def judge(reply: str, item: dict[str, Any]) -> float:
    """The task's metric of one reply, after the first of its filters.

    `item["options"]` has `task` (name or file), `name` (the task of it), `metric`, `doc`, and `pin`,
    the digest of what judges. Raises UnavailableError where that task is not on this machine, and what
    the task raises.
    """
    options = item["options"]
    task = _task(options["task"], options["name"], options["pin"])
    return reader.judged(task, options["metric"], item["prompt"], options["doc"], reply)


@lru_cache(maxsize=8)
def _task(named: str, name: str, pinned: str) -> Any:
    """The task itself, to judge by."""
    try:
        items.check(Spec(named))
        task = {str(task.config.task): task for task in reader.tasks(named)}[name]
        found = reader.pin(task)
    except UnavailableError:
        raise
    except Exception as error:
        raise UnavailableError(f"task {named} cannot be read on this machine: {error}") from error
    if found != pinned:
        raise UnavailableError(
            f"task {named} judges otherwise than when its documents were read, or this is another "
            "version of lm-evaluation-harness. Put the old one back, or start a new run."
        )
    return task
